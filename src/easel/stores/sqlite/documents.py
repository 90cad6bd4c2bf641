"""Documents in SQLite, and the ends of their leases, which belong to the transaction of a run.

SQLite has one writer, so no other write can interleave.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from easel.core.run.run import Claim
from easel.core.stream.envelope import Envelope
from easel.ids import AccountId, CanvasId, RunId, SessionId
from easel.stores import named_sql
from easel.stores.nouns.documents import Ids, SqlDocuments
from easel.stores.nouns.statements import Row, Steps
from easel.stores.rows.documents import preempted_event, released_event
from easel.stores.sqlite.canvases import add_events
from easel.stores.sqlite.statements import SqliteStatements

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase

NOUNS = ("documents", "canvases")  # an event of a document is in the log of its canvas
SQL = named_sql.load("sqlite", *NOUNS)


class SqliteDocuments(SqlDocuments):
    def __init__(self, database: "SqliteDatabase", max_versions: int) -> None:
        super().__init__(SqliteStatements(database, *NOUNS), max_versions)
        self._lease_clock = database.lease_clock

    async def release_leases(self, claim: Claim) -> list[CanvasId]:
        return await self._sql.transaction(_release_leases(claim))

    def _find_claimed_run(
        self,
        arguments: dict[str, Any],
        *,
        locks_session: bool,  # noqa: ARG002  (there is one writer)
    ) -> Steps[list[Row]]:
        return (yield "read_claimed_run", {**arguments, "lease_now": self._lease_clock()})

    def _append_events(self, ids: Ids, events: Sequence[Envelope], /) -> Steps[None]:
        if events:
            [canvas] = yield "take_canvas_positions", {**ids, "event_count": len(events)}
            yield from add_events(ids, events, canvas["last_seq"])


def preempt_leases(
    account_id: AccountId, session_id: SessionId, *, of_run: RunId | None, by_run: RunId, reason: str
) -> Steps[tuple[CanvasId, ...]]:
    """End the leases of a session's runs and documents, or of one run, because the user acted. CT-18, RS-79

    `by_run` is the run of the message or the cancelled one. Returns the canvases.
    """
    session = {"account_id": account_id, "session_id": session_id}
    ended = yield "end_leases", {**session, "run_id": of_run}
    for row in ended:
        ids = {"account_id": account_id, "canvas_id": row["canvas_id"]}
        [canvas] = yield "take_canvas_positions", {**ids, "event_count": 1}
        event = preempted_event(
            row["canvas_id"],
            canvas["revision"],
            row["epoch"],
            reason=reason,
            account_id=account_id,
            run_id=by_run,
        )
        yield from add_events(ids, [event], canvas["last_seq"])
    return tuple(CanvasId(row["canvas_id"]) for row in ended)


def _release_leases(claim: Claim) -> Steps[list[CanvasId]]:
    """End the leases of a run that has ended. Returns the canvases. CT-16"""
    ended = yield "release_leases", {"run_id": claim.run_id, "attempt": claim.attempt}
    for row in ended:
        ids = {"account_id": row["account_id"], "canvas_id": row["canvas_id"]}
        [canvas] = yield "take_canvas_positions", {**ids, "event_count": 1}
        event = released_event(row["canvas_id"], canvas["revision"], row["epoch"], claim.run_id)
        yield from add_events(ids, [event], canvas["last_seq"])
    return [CanvasId(row["canvas_id"]) for row in ended]
