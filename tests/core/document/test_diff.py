"""The unified diff of two texts: right for all texts, short, and made within a bounded time."""

from __future__ import annotations

import difflib
import random
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easel.core.document import hunks as hunks_module
from easel.core.document import patch as patch_module
from easel.core.document.diff import make_diff
from tests.core.document.patches import apply, read_fixture
from tests.requirements import case, rule
from tests.support.length import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

CHANCE = random.Random()
LINES = st.sampled_from(
    [
        "",
        "a",
        "b",
        "c",
        "- a",
        "-- a",
        "--- a",
        "++ b",
        "+++ b",
        "@@ -1 +1 @@",
        "```",
        " ",
        "x\r",
        "\u2028",
        "\\ x",
    ]
)
TEXTS = st.one_of(
    st.lists(LINES, max_size=14).map("\n".join),
    st.lists(LINES, max_size=14).map(lambda lines: "".join(f"{line}\n" for line in lines)),
    st.text(st.sampled_from("ab \n\r\t\x0b\u2028é-+@"), max_size=40),
)


@pytest.fixture(scope="module", autouse=True)
def _no_limits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patch_module, "MAX_PATCH_BYTES", 10**8)
        patch.setattr(hunks_module, "MAX_PATCH_LINES", 10**7)
        patch.setattr(patch_module._Application, "check_line_ends", lambda *_, **__: None)
        yield


def check(old: str, new: str) -> str:
    diff = make_diff(old, new)
    if old == new:
        assert diff == ""
    else:
        assert apply(old, diff, max_text_bytes=10**8).text == new
    return diff


@case("C10")
@given(TEXTS, TEXTS)
@settings(max_examples=examples(600), deadline=None)
def test_diff_applied_to_the_old_text_gives_the_new_one(old: str, new: str) -> None:
    check(old, new)


@pytest.mark.parametrize(
    "old, new, diff",
    [
        ("a\nb\nc\n", "a\nx\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"),
        ("", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"),
        ("a\n", "", "@@ -1 +0,0 @@\n-a\n"),
        ("a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"),
        ("a\nb", "c\nb", "@@ -1,2 +1,2 @@\n-a\n+c\n b\n\\ No newline at end of file\n"),
        ("a\r\nb\r\n", "a\r\nc\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n"),
        ("a\n\nb\n", "a\n\nc\n", "@@ -1,3 +1,3 @@\n a\n \n-b\n+c\n"),
    ],
)
def test_diff_is_a_unified_diff(old: str, new: str, diff: str) -> None:
    assert make_diff(old, new) == diff


def test_distant_changes_are_separate_hunks() -> None:
    old = [f"{number}\n" for number in range(100)]
    new = [*old]
    new[10], new[17], new[80] = "x\n", "y\n", "z\n"
    assert check("".join(old), "".join(new)).count("@@ -") == 2


@rule("RS-23")
def test_diffs_of_real_edits_apply_and_are_as_short_as_those_of_git() -> None:
    ours, theirs = 0, 0
    for edit in read_fixture("markdown-edits.jsonl") or [
        {"old": "a\nb\nc\n", "new": "a\nc\nd\n", "patch_u3": "x" * 60}
    ]:
        ours += len(check(edit["old"], edit["new"]))
        theirs += len(edit["patch_u3"])
    assert ours < 1.02 * theirs


def make_repetitive(count: int, kinds: int) -> str:
    return "".join(f"{CHANCE.randrange(kinds)}\n" for _ in range(count))


@pytest.mark.parametrize("kinds", [2, 100, 10**9])
def test_forty_edits_in_10_000_lines_are_found_fast(kinds: int) -> None:
    lines = make_repetitive(10_000, kinds).split("\n")
    edited = [*lines]
    for _ in range(40):
        edited[CHANCE.randrange(10_000)] = "edited"
    old, new = "\n".join(lines), "\n".join(edited)
    seconds = min(_time(old, new) for _ in range(5))
    assert seconds < 0.05
    diff = check(old, new)
    shortest = sum(line[:1] in "+-" for line in difflib.unified_diff(lines, edited, n=0, lineterm="")) - 2
    assert sum(line[:1] in ("+", "-") for line in diff.split("\n")) <= max(shortest, 80)


def _time(old: str, new: str) -> float:
    began = time.process_time()
    make_diff(old, new)
    return time.process_time() - began


@pytest.mark.slow
@pytest.mark.parametrize("kinds, count", [(2, 500_000), (10, 500_000), (1_000, 250_000), (10**9, 100_000)])
def test_unrelated_texts_of_1_mb_take_a_bounded_time(kinds: int, count: int) -> None:
    old, new = make_repetitive(count, kinds), make_repetitive(count, kinds)
    assert min(_time(old, new) for _ in range(2)) < 1.5
    check(old, new)
