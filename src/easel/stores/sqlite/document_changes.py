"""Changes of documents in SQLite that belong to the transaction of a canvas or of a run.

`canvases`, `runs` and `documents` call these functions with the writer's connection. The statements are in
`sql/sqlite/documents.sql`.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from easel.core.document.document import Reported
from easel.core.run.run import Claim
from easel.core.stream.envelope import Envelope
from easel.core.stream.log import LAST_CURSOR
from easel.ids import AccountId, CanvasId, RunId, SessionId
from easel.stores import named_sql
from easel.stores.rows.documents import preempted_event, released_event
from easel.stores.sqlite import canvas_log

SQL = named_sql.load("sqlite", "documents")

Ids = Mapping[str, str]  # account_id and canvas_id


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


def promote(connection: sqlite3.Connection, ids: Ids, max_versions: int, now: int) -> bool:
    """Make the drafts versions, unless the newest version has the current text. Returns whether it did. CT-35

    The older drafts become versions too, so that a later report of them adds none after the current text.
    """
    [hashes] = fetch_all(connection, "compare_hashes", **ids)
    if hashes["draft_hash"] in (None, hashes["artefact_hash"]):
        return False
    _add_versions(connection, ids, LAST_CURSOR, max_versions, now)
    return True


def _add_versions(
    connection: sqlite3.Connection, ids: Ids, draft_no: int, max_versions: int, now: int
) -> None:
    """Make the drafts up to a number versions, each if it differs from the version before. CT-35"""
    fetch_all(connection, "rt_append_node_to_ref_v1", draft_no=draft_no, now=now, **ids)
    fetch_all(connection, "mark_versioned", draft_no=draft_no, **ids)
    fetch_all(connection, "trim_versions", max_versions=max_versions, **ids)


def report_drafts(
    connection: sqlite3.Connection,
    account_id: AccountId,
    reported: Sequence[Reported],
    max_versions: int,
    now: int,
) -> None:
    """Mark drafts as reported by hidden messages and make them versions. CT-34, CT-35"""
    for drafts in reported:
        ids = {"account_id": account_id, "canvas_id": drafts.canvas_id}
        _add_versions(connection, ids, drafts.draft_no, max_versions, now)
        fetch_all(connection, "mark_reported", draft_no=drafts.draft_no, **ids)
        fetch_all(connection, "note_unreported", **ids)
        fetch_all(connection, "delete_reported_drafts", **ids)


def session_has_document(
    connection: sqlite3.Connection, account_id: AccountId, session_id: SessionId
) -> bool:
    return bool(
        fetch_all(connection, "list_newest_documents", account_id=account_id, session_id=session_id, limit=1)
    )
