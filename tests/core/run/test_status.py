"""The life of a run, and that the databases say the same."""

import re
from importlib import resources

import pytest

from easel.core.run.status import MOVES, TERMINAL, Status, is_terminal
from tests.requirements import rule

DIALECTS = ["postgres", "sqlite"]


def migration(dialect: str) -> str:
    return (
        resources.files("easel.stores").joinpath("migrations", dialect, "0001_spine.sql").read_text("utf-8")
    )


@rule("RX-28")
def test_a_run_ends_once_and_stays_as_it_ended():
    assert {Status.COMPLETED, Status.FAILED, Status.CANCELLED} == TERMINAL
    assert all(not MOVES[status] for status in TERMINAL)
    assert [status for status in Status if not is_terminal(status)] == [Status.QUEUED, Status.RUNNING]


def test_every_state_can_be_reached_and_every_state_has_its_moves():
    reached = {target for moves in MOVES.values() for target in moves.values()} | {Status.QUEUED}
    assert reached == set(Status) == set(MOVES)


@rule("RX-15")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_database_knows_the_same_states_and_the_same_ends(dialect: str):
    sql = migration(dialect)
    known = re.search(r"constraint status_is_known check \(status in \(([^)]*)\)\)", sql)
    ends = re.search(
        r"constraint finished_means_terminal check \(\(finished_at is not null\) = \(status in \(([^)]*)\)\)\)",
        sql,
    )
    assert known, "the constraint status_is_known is gone"
    assert ends, "the constraint finished_means_terminal is gone"
    assert set(re.findall(r"'(\w+)'", known[1])) == {status.value for status in Status}
    assert set(re.findall(r"'(\w+)'", ends[1])) == {status.value for status in TERMINAL}
