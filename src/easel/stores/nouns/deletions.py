"""Purging deleted sessions, canvases and accounts, in short transactions.

`sessions`, `canvases` and `accounts` mark what is deleted. A step deletes a bounded number of rows: events
and messages first, the marked row last, so that an interrupted purge is continued. The statements are in
`deletions.sql`.
"""

from collections.abc import Callable, Mapping

from easel.ids import AccountId, CanvasId, SessionId
from easel.stores.nouns.statements import Statements, Steps

MAX_PURGED_ROWS = 2_000  # per transaction, to bound the delay of other writes
MAX_PURGED_RUNS = 500  # per transaction

Ids = Mapping[str, str]


class SqlDeletions:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def purge_session(self) -> int:
        return await self._purge("next_deleted_session", {}, _purge_session)

    async def purge_canvas(self) -> int:
        return await self._purge("next_deleted_canvas", {}, _purge_canvas)

    async def finish_session(self, account_id: AccountId, session_id: SessionId) -> None:
        """Purge the rest of a deleted session, if there is one of this id."""
        ids = {"account_id": account_id, "session_id": session_id}
        while await self._purge("find_deleted_session", ids, _purge_session):
            pass

    async def finish_canvas(self, account_id: AccountId, canvas_id: CanvasId) -> None:
        """Purge the rest of a deleted canvas, if there is one of this id."""
        ids = {"account_id": account_id, "canvas_id": canvas_id}
        while await self._purge("find_deleted_canvas", ids, _purge_canvas):
            pass

    async def list_accounts(self) -> list[AccountId]:
        return [row["account_id"] for row in await self._sql.rows("list_deleted_accounts")]

    async def purge_account(self, account_id: AccountId) -> int:
        return await self._purge("find_deleted_account", {"account_id": account_id}, _purge_account)

    async def _purge(self, find: str, ids: Ids, purge_rows: Callable[[Ids], Steps[int]]) -> int:
        """Do one step for what `find` returns. Returns how many rows were deleted."""

        def steps() -> Steps[int]:
            found = yield find, ids
            return (yield from purge_rows(dict(found[0]))) if found else 0

        # The usual case, that there is none, needs no transaction.
        return await self._sql.transaction(steps()) if await self._sql.row(find, **ids) else 0


def _purge_session(ids: Ids) -> Steps[int]:
    runs = yield "list_runs_to_purge", {**ids, "limit": MAX_PURGED_RUNS}
    if not runs:
        if deleted := (yield "purge_messages", {**ids, "limit": MAX_PURGED_ROWS}):
            return len(deleted)
        yield "end_thread", ids
        yield "delete_session", ids
        return 1
    run_ids = {"run_ids": [row["run_id"] for row in runs]}
    for name in ("purge_events", "purge_boards", "purge_run_references"):
        if deleted := (yield name, {**run_ids, "limit": MAX_PURGED_ROWS}):
            return len(deleted)
    yield "purge_runs", run_ids
    return len(runs)


def _purge_canvas(ids: Ids) -> Steps[int]:
    for name in (
        "purge_canvas_events",
        "purge_executions",
        "purge_canvas_references",
        "purge_canvas_version_assets",
        "purge_canvas_versions",
        "purge_versions",
        "purge_drafts",
    ):
        if deleted := (yield name, {**ids, "limit": MAX_PURGED_ROWS}):
            return len(deleted)
    yield "end_canvas", ids
    yield "delete_canvas", ids
    return 1


def _purge_account(ids: Ids) -> Steps[int]:
    for take, purge in (("take_session", _purge_session), ("take_canvas", _purge_canvas)):
        if taken := (yield take, ids):
            return (yield from purge(dict(taken[0])))
    for name in (
        "purge_ended_threads",
        "purge_ended_canvases",
        "purge_artifacts",
        "purge_ordered",
    ):
        if deleted := (yield name, {**ids, "limit": MAX_PURGED_ROWS}):
            return len(deleted)
    yield "delete_account", ids
    return 1
