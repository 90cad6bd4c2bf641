"""The lifecycle of a run, and the constraints of the databases."""

import re
from importlib import resources

import pytest

from easel.core.run.status import MOVES, TERMINAL, Status, is_terminal
from tests.requirements import rule

DIALECTS = ["postgres", "sqlite"]


def migration(dialect: str) -> str:
    return (
        resources.files("easel.stores").joinpath("migrations", dialect, "0001_schema.sql").read_text("utf-8")
    )


@rule("RX-28")
def test_terminal_status_has_no_transition():
    assert {Status.COMPLETED, Status.FAILED, Status.CANCELLED} == TERMINAL
    assert all(not MOVES[status] for status in TERMINAL)
    assert [status for status in Status if not is_terminal(status)] == [Status.QUEUED, Status.RUNNING]


def test_every_status_is_reachable_and_has_a_row():
    reached = {target for moves in MOVES.values() for target in moves.values()} | {Status.QUEUED}
    assert reached == set(Status) == set(MOVES)


@rule("RX-15")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_database_constraints_have_the_same_statuses(dialect: str):
    sql = migration(dialect)
    known = re.search(r"constraint status_is_known check \(status in \(([^)]*)\)\)", sql)
    ends = re.search(
        r"constraint finished_means_terminal\s+check "
        r"\(\(finished_at is not null\) = \(status in \(([^)]*)\)\)\)",
        sql,
    )
    assert known, "the constraint status_is_known is missing"
    assert ends, "the constraint finished_means_terminal is missing"
    assert set(re.findall(r"'(\w+)'", known[1])) == {status.value for status in Status}
    assert set(re.findall(r"'(\w+)'", ends[1])) == {status.value for status in TERMINAL}
