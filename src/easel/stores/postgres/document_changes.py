"""Changes of documents in Postgres that belong to the transaction of a canvas or of a run.

`canvases`, `runs` and `documents` call these functions within a transaction. The statements are in
`sql/postgres/documents.sql`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from easel.core.document.document import Reported
from easel.core.run.run import Claim, Run
from easel.core.stream.log import LAST_CURSOR
from easel.ids import AccountId, CanvasId
from easel.stores import named_sql
from easel.stores.postgres.run_arguments import columns
from easel.stores.rows.documents import ENDED_BY_CANCEL, released_event

if TYPE_CHECKING:
    from easel.stores.postgres.database import Connection

SQL = named_sql.load("postgres", "documents")

Ids = Mapping[str, str]  # account_id and canvas_id


async def fetch_all(connection: "Connection", name: str, **arguments: Any) -> list[Any]:
    return await connection.fetch(SQL[name].sql, *SQL[name].arguments(arguments))


async def open_document(connection: "Connection", ids: Ids) -> bool:
    """Create or update the document of a canvas. Returns whether the canvas has one."""
    return bool(await fetch_all(connection, "open_document", **ids))


async def close_document(connection: "Connection", ids: Ids) -> None:
    """End the lease of a document whose canvas is deleted or changes its mode."""
    await fetch_all(connection, "close_document", **ids)


async def preempt_run(connection: "Connection", run: Run) -> tuple[CanvasId, ...]:
    """End the leases of a run that the user cancels. Requires the lock of the session. CT-18"""
    [row] = await fetch_all(
        connection,
        "end_leases",
        account_id=run.account_id,
        session_id=run.session_id,
        run_id=run.run_id,
        payload=ENDED_BY_CANCEL.json,
    )
    return tuple(CanvasId(canvas_id) for canvas_id in row["canvas_ids"] or ())


async def release_lease(connection: "Connection", ids: Ids, claim: Claim) -> bool:
    """End the lease that a run has of a document. Returns False if it has ended, or is a later attempt's."""
    await fetch_all(connection, "lock_document", **ids)
    rows = await fetch_all(connection, "release_lease", run_id=claim.run_id, attempt=claim.attempt, **ids)
    if not rows:
        return False
    event = released_event(CanvasId(ids["canvas_id"]), rows[0]["revision"], rows[0]["epoch"], claim.run_id)
    await fetch_all(connection, "append_canvas_events", **ids, **columns([event]))
    return True


async def promote(connection: "Connection", ids: Ids, max_versions: int) -> bool:
    """Make the drafts versions, unless the newest version has the current text. Returns whether it did. CT-35

    The older drafts become versions too, so that a later report of them adds none after the current text.
    """
    [hashes] = await fetch_all(connection, "compare_hashes", **ids)
    if hashes["draft_hash"] in (None, hashes["artefact_hash"]):
        return False
    await _add_versions(connection, ids, LAST_CURSOR, max_versions)
    return True


async def _add_versions(connection: "Connection", ids: Ids, draft_no: int, max_versions: int) -> None:
    """Make the drafts up to a number versions, each if it differs from the version before. CT-35"""
    await fetch_all(connection, "rt_append_node_to_ref_v1", draft_no=draft_no, **ids)
    await fetch_all(connection, "mark_versioned", draft_no=draft_no, **ids)
    await fetch_all(connection, "trim_versions", max_versions=max_versions, **ids)


async def report_drafts(
    connection: "Connection", account_id: AccountId, reported: Sequence[Reported], max_versions: int
) -> None:
    """Mark drafts as reported by hidden messages and make them versions. CT-34, CT-35"""
    for drafts in sorted(reported, key=lambda drafts: drafts.canvas_id):
        ids = {"account_id": account_id, "canvas_id": drafts.canvas_id}
        await fetch_all(connection, "lock_document", **ids)
        await _add_versions(connection, ids, drafts.draft_no, max_versions)
        await fetch_all(connection, "mark_reported", draft_no=drafts.draft_no, **ids)
        await fetch_all(connection, "note_unreported", **ids)
        await fetch_all(connection, "delete_reported_drafts", **ids)
