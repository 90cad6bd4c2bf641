"""Lines must have been shown before they are edited."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.document.inspection import add_inspected, check_inspected, find_uninspected
from easel.errors import PatchRejected
from tests.requirements import rule

RANGES = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=8)


def expand(ranges: list[tuple[int, int]]) -> set[int]:
    return {line for first, last in ranges for line in range(first, last + 1)}


@given(RANGES, RANGES, st.tuples(st.integers(1, 30), st.integers(1, 30)))
def test_ranges_are_sets_of_lines(
    before: list[tuple[int, int]], shown: list[tuple[int, int]], wanted: tuple[int, int]
) -> None:
    inspected = add_inspected(add_inspected([], before), shown)
    assert expand(inspected) == expand(before) | expand(shown)
    assert all(first <= last for first, last in inspected)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(inspected))
    assert expand(find_uninspected(inspected, wanted)) == expand([wanted]) - expand(inspected)


@rule("RS-47", "CT-28")
@pytest.mark.parametrize(
    "inspected, old_ranges, missing",
    [
        ([(1, 10)], [(2, 3), (10, 10)], []),
        ([(1, 3), (4, 5)], [(2, 5)], []),
        ([], [(2, 3)], [[2, 3]]),
        ([(1, 2), (5, 6)], [(1, 8)], [[3, 4], [7, 8]]),
        ([(1, 2)], [(1, 1), (3, 4)], [[3, 4]]),
        ([(5, 5)], [(6, 5)], []),  # an insertion after line 5: the line before was shown
        ([(6, 6)], [(6, 5)], []),  # or the line after
        ([(1, 4)], [(6, 5)], [[5, 6]]),
        ([(9, 9)], [(10, 9)], []),  # at the end of a document of 9 lines
        ([], [(10, 9)], [[9, 9]]),
        ([], [(1, 0)], [[1, 1]]),
    ],
)
def test_hunk_of_lines_that_were_not_shown_is_rejected(
    inspected: list[tuple[int, int]], old_ranges: list[tuple[int, int]], missing: list[list[int]]
) -> None:
    if not missing:
        check_inspected(inspected, old_ranges, line_count=9, revision_id="now")
        return
    with pytest.raises(PatchRejected) as rejected:
        check_inspected(inspected, old_ranges, line_count=9, revision_id="now")
    details = rejected.value.details
    assert (details["reason"], details["revision_id"]) == ("not_inspected", "now")
    assert details["not_inspected"] == missing


@rule("RS-47")
def test_empty_document_needs_no_inspection() -> None:
    check_inspected([], [(1, 0)], line_count=0, revision_id="now")
