"""What is kept of a command's output: its two ends, as text, in bounds."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.sandbox.output import HEAD_BYTES, MAX_ENCODED, TAIL_BYTES, Output

KEPT = HEAD_BYTES + TAIL_BYTES


def kept(*chunks: bytes) -> tuple[str, bool]:
    output = Output()
    for chunk in chunks:
        output.add(chunk)
    output.close()
    return output.text()


@given(st.lists(st.binary(max_size=200)))
def test_little_output_is_kept_whole(chunks: list[bytes]) -> None:
    assert kept(*chunks) == (b"".join(chunks).decode(errors="replace"), False)


@given(st.lists(st.binary(max_size=50)))
def test_what_is_heard_is_what_is_kept(chunks: list[bytes]) -> None:
    heard: list[str] = []
    output = Output(heard.append)
    for chunk in chunks:
        output.add(chunk)
    output.close()
    assert "".join(heard) == output.text()[0]


def test_a_hearer_that_fails_is_not_told_any_more_and_nothing_is_lost() -> None:
    def fail(_: str) -> None:
        raise RuntimeError

    output = Output(fail)
    output.add(b"one ")
    output.add(b"two")
    output.close()
    assert output.text() == ("one two", False)


@pytest.mark.parametrize("size", [1, 1_000, 65_536])
def test_of_much_output_the_two_ends_are_kept_and_the_rest_is_counted(size: int) -> None:
    data = b"".join(b"%09d\n" % number for number in range(50_000))
    text, truncated = kept(
        *(data[at : at + size] for at in range(0, len(data), size)) if size > 1 else (data,)
    )
    assert truncated
    assert (
        text
        == f"{data[:HEAD_BYTES].decode()}\n… [{len(data) - KEPT} bytes left out] …\n{data[-TAIL_BYTES:].decode()}"
    )


def test_exactly_as_much_as_fits_is_kept_whole() -> None:
    assert kept(b"x" * KEPT) == ("x" * KEPT, False)
    assert kept(b"x" * KEPT, b"y")[1]


def test_no_character_is_cut_in_two() -> None:
    text, truncated = kept("€".encode() * 50_000)
    assert truncated
    assert "�" not in text
    assert set(text) <= set("€\n… [0123456789 bytes left out]")


@given(st.binary(min_size=1, max_size=4))
def test_whatever_it_is_its_json_is_in_bounds(pattern: bytes) -> None:
    text, _ = kept(pattern * 100_000)
    assert len(msgspec.json.encode(text)) <= MAX_ENCODED


def test_memory_is_bounded_whatever_the_chunks() -> None:
    output = Output()
    for _ in range(3_000):
        output.add(b"x" * 10_000)
    assert output.size == 30_000_000
    assert len(output.text()[0]) < KEPT + 100
    assert output._tail_size < TAIL_BYTES + 10_000
