"""Where a node connects to, and how long it waits before it tries again."""

from __future__ import annotations

import pytest

from easel.errors import BadSettings
from easel.node.address import gateway_url, is_loopback
from easel.node.backoff import FIRST_SECONDS, GOOD_SECONDS, MAX_SECONDS, Backoff

ADDRESSES = [
    ("ws://127.0.0.1:8800/ws", "ws://127.0.0.1:8800/ws"),
    ("ws://127.0.0.1:8800", "ws://127.0.0.1:8800/ws"),
    ("http://127.0.0.1:8800/", "ws://127.0.0.1:8800/ws"),
    ("https://easel.example.org", "wss://easel.example.org/ws"),
    ("wss://easel.example.org/behind/ws", "wss://easel.example.org/behind/ws"),
    ("ws://[::1]:8800", "ws://[::1]:8800/ws"),
]


@pytest.mark.parametrize("written, meant", ADDRESSES)
def test_an_address_leads_to_the_gateway(written: str, meant: str) -> None:
    assert gateway_url(written) == meant


@pytest.mark.parametrize(
    "written",
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
def test_what_is_no_address_is_refused_in_a_sentence(written: str) -> None:
    with pytest.raises(BadSettings, match="--url is the address"):
        gateway_url(written)


def test_a_proxy_is_not_asked_for_this_machine() -> None:
    assert is_loopback("ws://localhost:1/ws")
    assert is_loopback("ws://[::1]:1/ws")
    assert not is_loopback("wss://easel.example.org/ws")


def test_each_wait_is_longer_up_to_a_bound_and_half_of_it_is_luck() -> None:
    for luck, share in ((0.0, 0.5), (1.0, 1.0)):
        patience = Backoff()
        waits = [patience.next_wait(luck) for _ in range(1_000)]
        assert waits[:3] == [FIRST_SECONDS * share, FIRST_SECONDS * 2 * share, FIRST_SECONDS * 4 * share]
        assert waits == sorted(waits)
        assert waits[-1] == MAX_SECONDS * share


def test_a_connection_that_held_makes_the_next_attempt_a_first_one() -> None:
    patience = Backoff()
    for _ in range(10):
        patience.next_wait(1)
    patience.held(GOOD_SECONDS - 1)
    assert patience.next_wait(1) == MAX_SECONDS, "one that is dropped at once does not"
    patience.held(GOOD_SECONDS)
    assert patience.next_wait(1) == FIRST_SECONDS
    patience.give_time()
    assert patience.next_wait(1) == MAX_SECONDS
