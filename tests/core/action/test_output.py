"""Live output as it becomes events: batched, limited, in order, without secrets and without Base64."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.action.execution import Execution, ExecutionStatus
from easel.core.action.output import GAP, LiveText, OutputChunk, output_events
from easel.core.audit.redaction import Redaction
from easel.core.stream.marker import LIMIT
from easel.ids import AccountId, CanvasId
from tests.requirements import rule

EXECUTION = Execution(
    account_id=AccountId("owner"),
    canvas_id=CanvasId("c" * 128),
    event_id="evt_" + "1" * 26,
    action_id="a" * 128,
    status=ExecutionStatus.RUNNING,
    actor={"name": "main", "kind": "agent"},
)


def live_text(*texts: str, max_bytes: int = 1_000_000) -> LiveText:
    text = LiveText(max_bytes, Redaction(["s3cret-word"]))
    for part in texts:
        text.feed(part)
    return text


def joined(chunks: list[OutputChunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


@given(st.lists(st.tuples(st.text(max_size=3_000), st.booleans()), max_size=12))
def test_all_output_is_drained_once_and_in_order(parts: list[tuple[str, bool]]) -> None:
    text, chunks = LiveText(1_000_000), list[OutputChunk]()
    for part, drains in parts:
        text.feed(part)
        chunks += text.drain() if drains else []
    chunks += text.drain(is_end=True)
    assert joined(chunks) == "".join(part for part, _ in parts)
    assert not text.has_more
    assert not text.drain(is_end=True)


def test_incomplete_line_waits_for_one_drain_only() -> None:
    text = live_text("one\ntw")
    assert joined(text.drain()) == "one\n"
    assert text.has_more
    text.feed("o\nthr")
    assert joined(text.drain()) == "two\n"
    assert joined(text.drain()) == "thr", "a progress bar has no end of line"
    assert not text.has_more


@rule("CC-14")
def test_secret_split_over_two_batches_is_redacted() -> None:
    text = live_text("all is well\ntoken=s3cr")
    first = joined(text.drain())
    text.feed("et-word and more\n")
    assert "s3cr" not in first + joined(text.drain(is_end=True))


IN_PARTS = [
    # output, batch by batch                                                what is shown
    (("password: ", "hunter2hunter2\n", "fine\n"), "password: [redacted]\nfine\n"),
    (("password:\n", "hunter2hunter2\n", "fine\n"), "password:\n[redacted]\nfine\n"),
    (("pass", "word=", "hunter2 and more\n"), "password=[redacted] and more\n"),
    (("API_TOKEN=abc", "def", "ghi\n", "fine\n"), "API_TOKEN=[redacted]\nfine\n"),
    (
        ("-----BEGIN PRIVATE KEY-----\n", "MIIEvQ\n", "abcd\n", "-----END PRIVATE KEY-----\n", "fine\n"),
        "[redacted]\nfine\n",
    ),
    (
        ("-----BEGIN RSA PRIV", "ATE KEY-----\nMIIEvQ\n", "abcd", "\n-----END RSA PRIVATE KEY-----\nfine\n"),
        "-----BEGIN RSA PRIV[redacted]\nfine\n",
    ),
    (("one ", "two ", "three\n"), "one two three\n"),
]


@rule("CC-14", "RS-15")
@pytest.mark.parametrize("parts, is_shown", IN_PARTS)
def test_secret_that_arrives_in_pieces_is_redacted(parts: tuple[str, ...], is_shown: str) -> None:
    text, chunks = live_text(), list[OutputChunk]()
    for part in parts:
        text.feed(part)
        chunks += text.drain()
    chunks += text.drain(is_end=True)
    assert joined(chunks) == is_shown


def test_output_is_cut_at_its_limit_and_says_so_once() -> None:
    text = live_text("x" * 90, "y" * 20, "z" * 20, max_bytes=100)
    *plain, last = text.drain()
    assert joined(plain) == "x" * 90 + "y" * 10
    assert (last.is_cut, "over 100 bytes" in last.text) == (True, True)
    text.feed("more")
    assert not text.has_more
    assert text.drain(is_end=True) == []


def test_limit_counts_bytes_and_cuts_between_characters() -> None:
    assert joined(live_text("ü" * 60, max_bytes=101).drain()[:-1]) == "ü" * 50


def test_output_of_exactly_the_limit_is_not_cut() -> None:
    assert [chunk.is_cut for chunk in live_text("x" * 100, max_bytes=100).drain(is_end=True)] == [False]


def test_limit_of_zero_drops_all_output() -> None:
    text = live_text("x", max_bytes=0)
    assert not text.has_more
    assert text.drain(is_end=True) == []


def test_gap_is_marked_before_the_next_output() -> None:
    text = live_text("one\n")
    text.drain()
    text.mark_gap()
    assert not text.has_more, "a gap alone is no reason to write"
    text.feed("two\n")
    assert joined(text.drain()) == GAP + "two\n"
    text.feed("three\n")
    assert joined(text.drain()) == "three\n"


@rule("CC-23", "RS-35")
def test_base64_is_named_and_not_shown() -> None:
    encoded = base64.b64encode(bytes(range(256)) * 40).decode()
    text, chunks = LiveText(1_000_000), list[OutputChunk]()
    for part in (
        "before\n",
        *(encoded[at : at + 1_000] for at in range(0, len(encoded), 1_000)),
        "\nafter\n",
    ):
        text.feed(part)
        chunks += text.drain()
    chunks += text.drain(is_end=True)
    assert joined(chunks).startswith("before\n")
    assert joined(chunks).endswith("after\n")
    assert f"{len(encoded)} characters of Base64" in joined(chunks)
    assert encoded[:200] not in joined(chunks)


@rule("RS-35")
@given(
    st.text(max_size=20_000)
    | st.integers(0, 20_000).map("\x00".__mul__)
    | st.integers(0, 6_000).map("🎨".__mul__)
)
def test_every_output_event_is_within_the_size_limit(output: str) -> None:
    text = LiveText(1_000_000)
    text.feed(output)
    for event in output_events(EXECUTION, 1_000_000, text.drain(is_end=True)):
        assert not event.offloaded
        assert len(event.json.encode()) <= LIMIT + 600, "text and ids; provenance comes on top"
