"""Changes of documents in SQLite that belong to the transaction of a canvas or of a run.

`canvases`, `runs` and `documents` call these functions with the writer's connection. The statements are in
`sql/sqlite/documents.sql`.
"""

import sqlite3
from typing import Any

from easel.core.run.run import Claim
from easel.core.stream.envelope import Envelope
from easel.ids import AccountId, CanvasId, RunId, SessionId
from easel.stores import named_sql
from easel.stores.nouns.documents import Ids
from easel.stores.rows.documents import preempted_event, released_event
from easel.stores.sqlite import canvas_log

SQL = named_sql.load("sqlite", "documents")


def fetch_all(connection: sqlite3.Connection, name: str, **arguments: Any) -> list[Any]:
    return connection.execute(SQL[name].sql, arguments).fetchall()


def open_document(connection: sqlite3.Connection, ids: Ids) -> bool:
    """Create or update the document of a canvas. Returns whether the canvas has one."""
    return bool(fetch_all(connection, "open_document", **ids))


def close_document(connection: sqlite3.Connection, ids: Ids) -> None:
    """End the lease of a document whose canvas is deleted or changes its mode."""
    fetch_all(connection, "close_document", **ids)


def preempt_leases(
    connection: sqlite3.Connection,
    account_id: AccountId,
    session_id: SessionId,
    *,
    of_run: RunId | None,
    by_run: RunId,
    reason: str,
    now: int,
) -> tuple[CanvasId, ...]:
    """End the leases of a session's runs and documents, or of one run, because the user acted. CT-18, RS-79

    `by_run` is the run of the message or the cancelled one. Returns the canvases.
    """
    ended = fetch_all(connection, "end_leases", account_id=account_id, session_id=session_id, run_id=of_run)
    for row in ended:

        def make(revision: int, row: Any = row) -> Envelope:
            return preempted_event(
                row["canvas_id"], revision, row["epoch"], reason=reason, account_id=account_id, run_id=by_run
            )

        canvas_log.append_event(
            connection, {"account_id": account_id, "canvas_id": row["canvas_id"]}, make, now
        )
    return tuple(CanvasId(row["canvas_id"]) for row in ended)


def release_leases(connection: sqlite3.Connection, claim: Claim, now: int) -> list[CanvasId]:
    """End the leases of a run that has ended. Returns the canvases. CT-16"""
    ended = fetch_all(connection, "release_leases", run_id=claim.run_id, attempt=claim.attempt)
    for row in ended:

        def make(revision: int, row: Any = row) -> Envelope:
            return released_event(row["canvas_id"], revision, row["epoch"], claim.run_id)

        ids = {"account_id": row["account_id"], "canvas_id": row["canvas_id"]}
        canvas_log.append_event(connection, ids, make, now)
    return [CanvasId(row["canvas_id"]) for row in ended]


def session_has_document(
    connection: sqlite3.Connection, account_id: AccountId, session_id: SessionId
) -> bool:
    return bool(
        fetch_all(connection, "list_newest_documents", account_id=account_id, session_id=session_id, limit=1)
    )
