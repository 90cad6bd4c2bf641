"""Runs of another user are not found by any route of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from easel.core.run.run import NewRun
from easel.edges.decoding import NoParams
from easel.edges.http.boards import WriteBlackboard, WriteWhiteboard
from easel.edges.http.routes import ROUTES
from easel.ids import AccountId, SessionId, new_run_id
from tests.requirements import case, rule

if TYPE_CHECKING:
    from tests.edges.http.live import LiveEasel

SECRET = "what only the other user may know"
SHARED_SESSION = "a-name-that-both-users-use"
RUN_ROUTES = [row for row in ROUTES if "{run_id}" in row.path]
# A valid body for each route, so that only the run is wrong.
BODIES = {
    WriteWhiteboard: {"key": "k", "value": 1, "source_node_id": "n"},
    WriteBlackboard: {"key": "k", "value": 1, "source_node_id": "n", "edge_id": "a-b"},
    NoParams: {},
}


@pytest.fixture(scope="module")
def foreign_run(easel: LiveEasel) -> str:
    """A run of another user, created in the store."""
    easel.sql("insert into accounts (account_id) values ('mallory')")
    new = NewRun(
        new_run_id(), AccountId("mallory"), SessionId(SHARED_SESSION), SECRET, 3, "a key of mallory", "digest"
    )
    easel.do(easel.instances[0].opened.runs.enqueue(new))
    return new.run_id


@rule("RX-54")
@case("O10")
@pytest.mark.parametrize("row", RUN_ROUTES, ids=[f"{row.method} {row.path}" for row in RUN_ROUTES])
def test_run_of_another_user_is_not_found(easel: LiveEasel, foreign_run: str, row: object) -> None:
    method, path = row.method, row.path  # type: ignore[attr-defined]
    sent: dict[str, Any] = {"json": BODIES[row.body]} if row.body else {}  # type: ignore[attr-defined]
    unknown = new_run_id()
    foreign_answer = easel.ask(method, path.replace("{run_id}", foreign_run), **sent)
    unknown_answer = easel.ask(method, path.replace("{run_id}", unknown), **sent)
    assert foreign_answer.status_code == unknown_answer.status_code == 404
    assert foreign_answer.text.replace(foreign_run, "ID") == unknown_answer.text.replace(unknown, "ID")
    assert foreign_answer.headers["content-type"] == unknown_answer.headers["content-type"]
    stored = easel.sql(f"select cancel_requested_at from runs where run_id = '{foreign_run}'")
    assert stored == [{"cancel_requested_at": None}]


@rule("RX-54")
def test_run_of_another_user_is_not_listed(easel: LiveEasel, foreign_run: str) -> None:
    mine = easel.finish("noop", SHARED_SESSION)
    for query in (
        {},
        {"session_id": SHARED_SESSION},
        {"statuses": "queued,running,completed,failed,cancelled"},
        {"before": str(2**63 - 1)},
    ):
        answer = easel.get("/api/runs", params=query)
        assert answer.status_code == 200
        assert mine in answer.text
        assert foreign_run not in answer.text
        assert SECRET not in answer.text
