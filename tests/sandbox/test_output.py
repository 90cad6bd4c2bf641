"""The part of a command's output that is kept: its beginning and its end, as text, within limits."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.sandbox.output import HEAD_BYTES, MAX_ENCODED_BYTES, TAIL_BYTES, Output

KEPT_BYTES = HEAD_BYTES + TAIL_BYTES


def kept_text(*chunks: bytes) -> tuple[str, bool]:
    output = Output()
    for chunk in chunks:
        output.add(chunk)
    output.close()
    return output.text()


@given(st.lists(st.binary(max_size=200)))
def test_short_output_is_kept_completely(chunks: list[bytes]) -> None:
    assert kept_text(*chunks) == (b"".join(chunks).decode(errors="replace"), False)


@given(st.lists(st.binary(max_size=50)))
def test_forwarded_text_equals_the_kept_text(chunks: list[bytes]) -> None:
    received: list[str] = []
    output = Output(received.append)
    for chunk in chunks:
        output.add(chunk)
    output.close()
    assert "".join(received) == output.text()[0]


def test_failing_callback_is_dropped_and_the_output_is_kept() -> None:
    def fail(_: str) -> None:
        raise RuntimeError

    output = Output(fail)
    output.add(b"one ")
    output.add(b"two")
    output.close()
    assert output.text() == ("one two", False)


@pytest.mark.parametrize("size", [1, 1_000, 65_536])
def test_long_output_keeps_its_beginning_and_end_and_counts_the_rest(size: int) -> None:
    data = b"".join(b"%09d\n" % number for number in range(50_000))
    text, truncated = kept_text(
        *(data[at : at + size] for at in range(0, len(data), size)) if size > 1 else (data,)
    )
    assert truncated
    head, tail = data[:HEAD_BYTES].decode(), data[-TAIL_BYTES:].decode()
    assert text == f"{head}\n… [{len(data) - KEPT_BYTES} bytes left out] …\n{tail}"


def test_output_of_exactly_the_limit_is_kept_completely() -> None:
    assert kept_text(b"x" * KEPT_BYTES) == ("x" * KEPT_BYTES, False)
    assert kept_text(b"x" * KEPT_BYTES, b"y")[1]


def test_characters_are_not_split() -> None:
    text, truncated = kept_text("€".encode() * 50_000)
    assert truncated
    assert "�" not in text
    assert set(text) <= set("€\n… [0123456789 bytes left out]")


@given(st.binary(min_size=1, max_size=4))
def test_json_of_the_text_is_limited(pattern: bytes) -> None:
    text, _ = kept_text(pattern * 100_000)
    assert len(msgspec.json.encode(text)) <= MAX_ENCODED_BYTES


def test_memory_does_not_grow_with_the_output() -> None:
    output = Output()
    for _ in range(3_000):
        output.add(b"x" * 10_000)
    assert output.size == 30_000_000
    assert len(output.text()[0]) < KEPT_BYTES + 100
    assert output._tail_size < TAIL_BYTES + 10_000
