"""What a tool says while it runs, as it becomes events: gathered, bounded, in order, without secrets and without Base64."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.action.output import MISSING, LiveText, Said, events_of
from easel.core.audit.redaction import Redaction
from easel.core.canvas.execution import Execution, ExecutionStatus
from easel.core.stream.marker import LIMIT
from easel.ids import CanvasId, UserId
from tests.requirements import rule

EXECUTION = Execution(
    user_id=UserId("owner"),
    canvas_id=CanvasId("c" * 128),
    event_id="evt_" + "1" * 26,
    action_id="a" * 128,
    status=ExecutionStatus.RUNNING,
    actor={},
)


def heard(*texts: str, most: int = 1_000_000) -> LiveText:
    text = LiveText(most, Redaction(["s3cret-word"]))
    for one in texts:
        text.hear(one)
    return text


def shown(said: list[Said]) -> str:
    return "".join(one.text for one in said)


@given(st.lists(st.tuples(st.text(max_size=3_000), st.booleans()), max_size=12))
def test_all_of_it_is_told_once_and_in_order(parts: list[tuple[str, bool]]) -> None:
    text, told = LiveText(1_000_000), list[Said]()
    for part, is_beat in parts:
        text.hear(part)
        told += text.tell() if is_beat else []
    told += text.tell(is_end=True)
    assert shown(told) == "".join(part for part, _ in parts)
    assert not text.has_more
    assert not text.tell(is_end=True)


def test_a_line_that_has_only_begun_waits_for_one_look_and_no_longer() -> None:
    text = heard("one\ntw")
    assert shown(text.tell()) == "one\n"
    assert text.has_more
    text.hear("o\nthr")
    assert shown(text.tell()) == "two\n"
    assert shown(text.tell()) == "thr", "a progress bar has no end of line"
    assert not text.has_more


@rule("CC-14")
def test_a_secret_that_comes_in_two_parts_is_hidden() -> None:
    text = heard("all is well\ntoken=s3cr")
    first = shown(text.tell())
    text.hear("et-word and more\n")
    assert "s3cr" not in first + shown(text.tell(is_end=True))


IN_PARTS = [
    # what is said, look by look                                            what is shown of it
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
def test_a_secret_that_is_said_piece_by_piece_stays_hidden(parts: tuple[str, ...], is_shown: str) -> None:
    text, told = heard(), list[Said]()
    for part in parts:
        text.hear(part)
        told += text.tell()
    told += text.tell(is_end=True)
    assert shown(told) == is_shown


def test_it_ends_at_its_limit_and_says_so_once() -> None:
    text = heard("x" * 90, "y" * 20, "z" * 20, most=100)
    *plain, last = text.tell()
    assert shown(plain) == "x" * 90 + "y" * 10
    assert (last.is_cut, "over 100 bytes" in last.text) == (True, True)
    text.hear("more")
    assert not text.has_more
    assert text.tell(is_end=True) == []


def test_the_limit_is_one_of_bytes_and_cuts_between_characters() -> None:
    assert shown(heard("ü" * 60, most=101).tell()[:-1]) == "ü" * 50


def test_exactly_as_much_as_there_may_be_is_not_cut() -> None:
    assert [one.is_cut for one in heard("x" * 100, most=100).tell(is_end=True)] == [False]


def test_with_no_room_at_all_nothing_is_told() -> None:
    text = heard("x", most=0)
    assert not text.has_more
    assert text.tell(is_end=True) == []


def test_what_was_lost_on_the_way_is_missing_and_that_is_said() -> None:
    text = heard("one\n")
    text.tell()
    text.lost()
    assert not text.has_more, "for that alone nobody is called"
    text.hear("two\n")
    assert shown(text.tell()) == MISSING + "two\n"
    text.hear("three\n")
    assert shown(text.tell()) == "three\n"


@rule("CC-23", "RS-35")
def test_base64_is_named_and_not_shown() -> None:
    encoded = base64.b64encode(bytes(range(256)) * 40).decode()
    text, told = LiveText(1_000_000), list[Said]()
    for part in (
        "before\n",
        *(encoded[at : at + 1_000] for at in range(0, len(encoded), 1_000)),
        "\nafter\n",
    ):
        text.hear(part)
        told += text.tell()
    told += text.tell(is_end=True)
    assert shown(told).startswith("before\n")
    assert shown(told).endswith("after\n")
    assert f"{len(encoded)} characters of Base64" in shown(told)
    assert encoded[:200] not in shown(told)


@rule("RS-35")
@given(
    st.text(max_size=20_000)
    | st.integers(0, 20_000).map("\x00".__mul__)
    | st.integers(0, 6_000).map("🎨".__mul__)
)
def test_every_event_is_light_by_itself(said: str) -> None:
    text = LiveText(1_000_000)
    text.hear(said)
    for event in events_of(EXECUTION, 1_000_000, text.tell(is_end=True)):
        assert not event.offloaded
        assert len(event.json.encode()) <= LIMIT + 600, "its text and its ids; who caused it comes on top"
