"""Finding lines by text or by a regular expression."""

from __future__ import annotations

import re
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easel.core.document import search
from easel.core.document.lines import split_lines
from easel.core.document.search import MAX_MATCHES, MAX_QUERY_LENGTH, MAX_REGEX_SECONDS, grep
from easel.errors import BadInput
from tests.requirements import case, rule
from tests.support.length import examples

TEXT = "# Paths\nuse /usr/bin/env\n\n## Other\nand /usr/local, /usr/bin\nend"
WORDS = st.sampled_from(["a", "ab", "b", "", "\r", "\u2028", "é", "x\x0by", "- a", "\ufeff"])


@rule("CT-21", "RS-46")
def test_matched_lines_have_number_text_and_section() -> None:
    found = grep(TEXT, "/usr/bin")
    assert [(match.line, match.text, match.section) for match in found.matches] == [
        (2, "use /usr/bin/env", "# Paths"),
        (5, "and /usr/local, /usr/bin", "## Other"),
    ]
    assert not found.is_truncated


@rule("CT-21", "RS-46")
def test_match_in_front_matter_has_no_section() -> None:
    found = grep("---\n# x\nneedle\n---\n# A\n", "needle")
    assert [match.section for match in found.matches] == [None]


@rule("CT-21")
@pytest.mark.parametrize(
    "query, regex, lines",
    [
        ("/usr/bin", True, [2, 5]),
        ("/USR/i", False, []),  # slashes are text
        (".*", False, []),
        ("^end$", True, [6]),
        ("^$", True, [3]),
        ("(?i)OTHER", True, [4]),
        ("usr.*bin", True, [2, 5]),
        (r"\n", True, []),
        ("(?s)env.*Other", True, []),  # a match never spans lines
        ("e", False, [2, 4, 6]),
    ],
)
def test_query_is_text_unless_regex(query: str, regex: bool, lines: list[int]) -> None:
    assert [match.line for match in grep(TEXT, query, regex=regex).matches] == lines


@case("C10")
@given(
    st.lists(WORDS, max_size=12),
    st.sampled_from(["a", "b", "é", "\u2028", "\r", "y", "\ufeff"]),
    st.booleans(),
)
@settings(max_examples=examples(200), deadline=None)
def test_lines_are_those_of_the_line_model(lines: list[str], query: str, regex: bool) -> None:
    text = "\n".join(lines)
    expected = [(at, line) for at, line in enumerate(split_lines(text), 1) if query in line]
    found = grep(text, re.escape(query) if regex else query, regex=regex)
    assert [(match.line, match.text) for match in found.matches] == expected


@rule("RS-46")
def test_search_can_be_limited_to_some_lines() -> None:
    assert [match.line for match in grep("a\na\nb\na\na", "a", within=(2, 4)).matches] == [2, 4]
    assert [match.line for match in grep("a\na\nb\na\na", "a", regex=True, within=(2, 4)).matches] == [2, 4]
    assert [match.line for match in grep("a\na", "a", within=(2, 9)).matches] == [2]
    assert grep("a\na", "a", within=(3, 9)).matches == []


@pytest.mark.parametrize("regex", [False, True])
def test_matches_are_capped_and_long_lines_cut(regex: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_MATCHES", 3)
    monkeypatch.setattr(search, "MAX_SHOWN_WIDTH", 10)
    text = "x" * 1_000 + "\n" + "x\n" * 10
    found = grep(text, "x", regex=regex)
    assert found.is_truncated
    assert [match.text for match in found.matches] == ["xxxxxxxxxx… (990 more characters)", "x", "x"]
    monkeypatch.setattr(search, "MAX_MATCHES", 11)
    assert not grep(text, "x", regex=regex).is_truncated


@pytest.mark.parametrize("size", [8_000, 8_192, 20_000, 300_000])
def test_regex_finds_a_match_anywhere_in_a_long_line(size: int) -> None:
    text = f"first\n{'ä' * size}needle{'b' * size}\nneedle"
    assert [match.line for match in grep(text, "n[e]+dle", regex=True).matches] == [2, 3]


@case("C9")
@pytest.mark.parametrize(
    "query, problem",
    [
        (r"(a)\1", "no back-references"),
        ("(?=a)b", "no back-references and no look-around"),
        ("(", "RE2 syntax"),
        (r"\pL{1,900}", "too large"),
        (".{0,999}x", "too large"),
        ("", "must not be empty"),
        ("a\nb", "one line"),
        ("a" * (MAX_QUERY_LENGTH + 1), "at most 1000 characters"),
        ("\ud800", "valid Unicode"),
    ],
)
def test_bad_query_is_refused_with_its_reason(query: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        grep(TEXT, query, regex=True)


HOSTILE = [
    r"(a+)+$b",
    r"(a|a|ab)*c",
    r"(x+x+)+y",
    r"(.*)*(.*)*z",
    r"(a?){100}a{100}q",
    r"(?:[a-z]{1,50}){1,10}Q",
    r"(a|b|ab|ba|aab)*(c|d)*[^a]{300}Q",
    r"[ab].{12}x.{12}Q",
    r"(a|.){0,500}(b.{200})Q",
    r"(?i)(a[bc]?.{40}|d.{60}){3}Q",
    r"(\w+\s?)*\d",
    "|".join(f"{letter}.{{30}}Q" for letter in "abcdefghijklmnop"),
    r"((((a{1,10}){1,10}){1,10}){1,10})",
    "(?:a?){900}b",
]


@case("C9")
@pytest.mark.parametrize("pattern", HOSTILE)
@pytest.mark.parametrize("is_one_line", [False, True])
def test_hostile_pattern_ends_in_time(pattern: str, is_one_line: bool) -> None:
    words = ["abcdefgh", "aaaaaaaa", "dcbabc", "x", "ponm", "aab"]
    text = "".join(f"{words[at % 6]}{words[at * at % 5]} {'' if at % 8 else chr(10)}" for at in range(95_000))
    if is_one_line:
        text = text.replace("\n", " ")
    assert len(text) > 1_000_000
    began = time.process_time()
    with suppress(BadInput):  # too large or too slow
        grep(text, pattern, regex=True, is_over=lambda: time.process_time() - began > MAX_REGEX_SECONDS)
    assert time.process_time() - began < 0.25


HOSTILE_LINES = [
    "a#12\n",
    "#x\n",
    "# a\n",
    "#\n",
    "---\n",
    "\n--\n",
    "a\n--\n",
    "a\nb\n==\n",
    "```\n",
    "```\n# a\n```\n",
    "    ```\n",
    "    ```\n    ```\n\n",
    "<!--\n",
    "<!--\n# a\n-->\n",
    "````\n```\n",
    "a\n",
    "`\n",
    "~~~\n```\n<!--\n",
    "# ",
]


@rule("CT-21", "RS-46")
@pytest.mark.parametrize("size, max_seconds", [(18_000, 0.03), (1_000_000, 0.25)])
@pytest.mark.parametrize("lines", HOSTILE_LINES, ids=repr)
@pytest.mark.parametrize("is_spread", [False, True])
def test_sections_of_many_matches_are_named_in_time(
    lines: str, size: int, max_seconds: float, is_spread: bool
) -> None:
    count = size // len(lines) // MAX_MATCHES
    text = (
        (lines * count + "needle\n") * MAX_MATCHES
        if is_spread
        else lines * (count * MAX_MATCHES) + "needle\n" * MAX_MATCHES
    )
    seconds: list[float] = []
    for _ in range(3):  # the fastest counts: other processes slow this one down
        began = time.process_time()
        assert len(grep(text, "needle").matches) == MAX_MATCHES
        seconds.append(time.process_time() - began)
        if seconds[-1] < max_seconds:
            return
    raise AssertionError(seconds)
