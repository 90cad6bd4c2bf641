"""Documents in Postgres. Rows are locked in this order: session, run, canvas, document."""

from typing import TYPE_CHECKING, Any

from easel.ids import CanvasId
from easel.stores import named_sql
from easel.stores.nouns.documents import SqlDocuments
from easel.stores.postgres.statements import PostgresStatements
from easel.stores.rows.documents import ENDED_BY_CANCEL, released_event
from easel.stores.rows.runs import events_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from easel.core.run.run import Claim, Run
    from easel.stores.nouns.statements import Row, Steps
    from easel.stores.postgres.database import PostgresDatabase

SQL = named_sql.load("postgres", "documents")


class PostgresDocuments(SqlDocuments):
    def __init__(self, database: "PostgresDatabase", max_versions: int) -> None:
        super().__init__(PostgresStatements(database, "documents"), max_versions)

    async def release_leases(self, claim: "Claim") -> list[CanvasId]:
        leased = await self._sql.rows("list_leases_of_run", run_id=claim.run_id)
        # The usual case, that there is none, needs no transaction.
        return await self._sql.transaction(_release_leases(leased, claim)) if leased else []

    def _find_claimed_run(self, arguments: dict[str, Any], *, locks_session: bool) -> "Steps[list[Row]]":
        if locks_session:
            # A separate statement: the next one must see a message that was stored while this one waited.
            yield "lock_sessions", arguments
        return (yield "lock_claimed_run", arguments)


def preempt_run(run: "Run") -> "Steps[tuple[CanvasId, ...]]":
    """End the leases of a run that the user cancels. Requires the lock of the session. CT-18"""
    session = {"account_id": run.account_id, "session_id": run.session_id}
    [row] = yield "end_leases", {**session, "run_id": run.run_id, "payload": ENDED_BY_CANCEL.json}
    return tuple(CanvasId(canvas_id) for canvas_id in row["canvas_ids"] or ())


def _release_leases(leased: "Sequence[Row]", claim: "Claim") -> "Steps[list[CanvasId]]":
    """End the leases that a run has, except those that have ended or are a later attempt's. CT-16"""
    released: list[CanvasId] = []
    for ids in map(dict[str, str], leased):
        yield "lock_document", ids
        rows = yield "release_lease", {**ids, "run_id": claim.run_id, "attempt": claim.attempt}
        if rows:
            canvas_id = CanvasId(ids["canvas_id"])
            event = released_event(canvas_id, rows[0]["revision"], rows[0]["epoch"], claim.run_id)
            yield "append_document_events", {**ids, **events_columns([event])}
            released.append(canvas_id)
    return released
