"""The address of the gateway, and the delay between attempts to connect."""

from __future__ import annotations

import pytest

from easel.core.web.hosts import is_loopback
from easel.errors import BadSettings
from easel.node.address import gateway_url
from easel.node.backoff import FIRST_SECONDS, MAX_SECONDS, STABLE_SECONDS, Backoff

ADDRESSES = [
    ("ws://127.0.0.1:8800/ws", "ws://127.0.0.1:8800/ws"),
    ("ws://127.0.0.1:8800", "ws://127.0.0.1:8800/ws"),
    ("http://127.0.0.1:8800/", "ws://127.0.0.1:8800/ws"),
    ("https://easel.example.org", "wss://easel.example.org/ws"),
    ("wss://easel.example.org/behind/ws", "wss://easel.example.org/behind/ws"),
    ("ws://[::1]:8800", "ws://[::1]:8800/ws"),
]


@pytest.mark.parametrize("text, url", ADDRESSES)
def test_address_is_completed_to_the_gateway(text: str, url: str) -> None:
    assert gateway_url(text) == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1:8800",
        "ftp://x",
        "ws://",
        "ws://x:0",
        "ws://x:99999",
        "ws://[",
        "ws://x/?token=t",
        "ws://u:p@x",
        "ws://x#y",
    ],
)
def test_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(BadSettings, match="--url must be the address"):
        gateway_url(text)


def test_loopback_address_is_recognized() -> None:
    assert is_loopback("localhost")
    assert is_loopback("::1")
    assert not is_loopback("easel.example.org")


def test_delay_doubles_up_to_a_limit_with_jitter() -> None:
    for jitter, share in ((0.0, 0.5), (1.0, 1.0)):
        backoff = Backoff()
        delays = [backoff.next_delay(jitter) for _ in range(1_000)]
        assert delays[:3] == [FIRST_SECONDS * share, FIRST_SECONDS * 2 * share, FIRST_SECONDS * 4 * share]
        assert delays == sorted(delays)
        assert delays[-1] == MAX_SECONDS * share


def test_delay_is_reset_by_a_stable_connection() -> None:
    backoff = Backoff()
    for _ in range(10):
        backoff.next_delay(1)
    backoff.note_connection(STABLE_SECONDS - 1)
    assert backoff.next_delay(1) == MAX_SECONDS, "a short connection does not reset it"
    backoff.note_connection(STABLE_SECONDS)
    assert backoff.next_delay(1) == FIRST_SECONDS
    backoff.use_max_delay()
    assert backoff.next_delay(1) == MAX_SECONDS
