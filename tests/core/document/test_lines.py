"""The one line model of reads, grep, patches and sections."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.document.lines import (
    GUTTER,
    LineEnds,
    clamp,
    count_lines,
    count_newlines,
    format_lines,
    format_numbered,
    is_terminated,
    join_lines,
    line_ends,
    split_lines,
)
from tests.requirements import case, rule

TEXTS = st.text(st.sampled_from("ab\n\r\t\x0b\x0c\u2028\u0085\ufeffé\u0301😀"), max_size=30)


@case("C10")
@given(TEXTS)
def test_lines_join_to_the_same_text(text: str) -> None:
    lines = split_lines(text)
    assert join_lines(lines, is_terminated=is_terminated(text)) == text
    assert len(lines) == count_lines(text)


@case("C10")
@pytest.mark.parametrize(
    "text, lines",
    [
        ("", []),
        ("\n", [""]),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\n\n", ["a", ""]),
        ("a\r\nb\rc\u2028d\x0be\x85f\n", ["a\r", "b\rc\u2028d\x0be\x85f"]),
        ("\ufeffa\n", ["\ufeffa"]),
    ],
)
def test_a_line_ends_at_the_newline_only(text: str, lines: list[str]) -> None:
    assert split_lines(text) == lines


@pytest.mark.parametrize("seed", range(20))
def test_newlines_between_two_offsets_are_counted(seed: int) -> None:
    chance = random.Random(seed)
    parts = [("x" * chance.choice([0, 1, 60, 500]) + "\n") * chance.randrange(200) for _ in range(20)]
    text = "".join(parts) + chance.choice(["", "é", "😀"])
    for _ in range(50):
        start, end = sorted(chance.choices(range(len(text) + 1), k=2))
        assert count_newlines(text, start, end) == text.count("\n", start, end)


@pytest.mark.parametrize(
    "text, ends",
    [
        ("", LineEnds.NONE),
        ("a\r", LineEnds.NONE),
        ("a\nb", LineEnds.LF),
        ("a\r\nb", LineEnds.CRLF),
        ("a\r\nb\n", LineEnds.MIXED),
    ],
)
def test_line_ends_are_named(text: str, ends: LineEnds) -> None:
    assert line_ends(text) is ends


@rule("CT-22")
def test_numbered_lines_have_a_fixed_gutter_and_mark_a_missing_newline() -> None:
    assert format_numbered("a\n\nc") == "     1\ta\n     2\t\n     3\tc\n\\ No newline at end of file"
    assert format_numbered("a\n\nc", 1, 2) == "     1\ta\n     2\t"
    assert format_numbered("a\nb\n", 2, 9) == "     2\tb"
    assert format_lines(["abc"], max_width=2) == "     1\tab… (1 more characters)"
    assert format_numbered("") == ""
    assert all(GUTTER.match(line) for line in format_numbered("a\nb\n").split("\n"))


@pytest.mark.parametrize(
    "asked, expected", [((1, 9), (1, 3)), ((2, 2), (2, 2)), ((0, 1), (1, 1)), ((4, 9), None), ((3, 2), None)]
)
def test_range_is_clamped_to_the_document(asked: tuple[int, int], expected: tuple[int, int] | None) -> None:
    assert clamp(*asked, 3) == expected
