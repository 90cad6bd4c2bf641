"""Changes of documents in Postgres that belong to the transaction of a canvas or of a run.

`canvases`, `runs` and `documents` call these functions within a transaction. The statements are in
`sql/postgres/documents.sql`.
"""

from typing import TYPE_CHECKING, Any

from easel.core.run.run import Claim, Run
from easel.ids import CanvasId
from easel.stores import named_sql
from easel.stores.nouns.documents import Ids
from easel.stores.postgres.run_arguments import columns
from easel.stores.rows.documents import ENDED_BY_CANCEL, released_event

if TYPE_CHECKING:
    from easel.stores.postgres.database import Connection

SQL = named_sql.load("postgres", "documents")


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
