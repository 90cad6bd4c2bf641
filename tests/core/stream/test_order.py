"""Numbering the appends of an account: without gaps, in the order of each log, and what is kept."""

from __future__ import annotations

import pytest

from easel.core.stream.log import Bounds
from easel.core.stream.order import Append, LogType, OrderedAppend, advance, number_appends


def test_appends_to_one_log_become_one_at_the_place_of_the_first() -> None:
    a, b = "a", "b"
    appends = [
        Append(LogType.RUN, a, 5, 6),
        Append(LogType.CANVAS, a, 1, 1),
        Append(LogType.RUN, b, 1, 3),
        Append(LogType.RUN, a, 7, 7),
    ]
    ordered = number_appends(appends, 10)
    assert ordered == [
        OrderedAppend(13, Append(LogType.RUN, a, 5, 7)),
        OrderedAppend(14, Append(LogType.CANVAS, a, 1, 1)),
        OrderedAppend(17, Append(LogType.RUN, b, 1, 3)),
    ]
    assert ordered[2].after(15) == OrderedAppend(17, Append(LogType.RUN, b, 2, 3))
    assert ordered[2].after(9) == ordered[2]


def test_append_behind_a_gap_stays_apart() -> None:
    """The events in the gap have no numbers: the account was not followed then."""
    appends = [Append(LogType.RUN, "a", 1, 1), Append(LogType.RUN, "a", 10, 10)]
    assert [one.append for one in number_appends(appends, 0)] == appends


@pytest.mark.parametrize("oldest, newest, expected", [(1, 100, 1), (1, 125, 1), (1, 126, 27), (30, 126, 30)])
def test_numbers_are_forgotten_when_there_are_a_quarter_more_than_kept(
    oldest: int, newest: int, expected: int
) -> None:
    bounds = Bounds(oldest, newest - 1, ended=False)
    assert advance(bounds, newest, 100) == Bounds(expected, newest, ended=False)
