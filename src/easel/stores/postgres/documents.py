"""Documents, their leases, drafts and versions in Postgres.

The rules are in `core/document/` and in the statements of `sql/postgres/documents.sql`. Rows are locked in
this order: session, run, canvas, document.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from easel.core.document.document import Decide, Document, DocumentDraft, DocumentVersion
from easel.core.run.run import Claim, ClaimLost
from easel.core.stream.log import LAST_CURSOR
from easel.ids import AccountId, CanvasId, RunId, SessionId
from easel.stores.nouns.documents import Ids, promote
from easel.stores.postgres import document_changes
from easel.stores.postgres.document_changes import SQL, fetch_all
from easel.stores.postgres.run_arguments import columns
from easel.stores.postgres.statements import run_steps
from easel.stores.rows.documents import (
    apply_change,
    draft_arguments,
    lease_arguments,
    to_document,
    to_drafts,
    to_version,
)

if TYPE_CHECKING:
    from easel.stores.postgres.database import Connection, PostgresDatabase


class PostgresDocuments:
    def __init__(self, database: "PostgresDatabase", max_versions: int) -> None:
        self._database = database
        self.max_versions = max_versions  # of one document

    async def get(self, account_id: AccountId, canvas_id: CanvasId) -> Document | None:
        row = await self._database.row(SQL["rt_get_canvas_v1"], account_id=account_id, canvas_id=canvas_id)
        return to_document(row, row["now"]) if row else None

    async def list_newest(self, account_id: AccountId, session_id: SessionId, limit: int) -> list[CanvasId]:
        statement = SQL["list_newest_documents"]
        rows = await self._database.rows(statement, account_id=account_id, session_id=session_id, limit=limit)
        return [CanvasId(row["canvas_id"]) for row in rows]

    async def change(
        self,
        account_id: AccountId,
        canvas_id: CanvasId,
        decide: Decide,
        *,
        claim: Claim | None = None,
        locks_session: bool = False,
    ) -> Document | None:
        ids = {"account_id": account_id, "canvas_id": canvas_id}
        async with self._database.connection() as connection, connection.transaction():
            is_interrupted = False
            if claim is not None:
                is_interrupted = await _lock_claim(connection, ids, claim, locks_session=locks_session)
            before = await _lock_and_load(connection, ids, is_interrupted=is_interrupted)
            if before is None:
                return None
            change = decide(before)
            if change is None:
                return before
            if change.promotes_before and await run_steps(connection, SQL, promote(ids, self.max_versions)):
                before = replace(before, version_revision_id=before.revision_id)
            after = apply_change(before, change)
            has_new_text = after.revision_id != before.revision_id
            arguments = {**lease_arguments(after), **columns(change.events)}
            await fetch_all(connection, "change_document", has_new_text=has_new_text, **ids, **arguments)
            if has_new_text:
                draft = draft_arguments(after, change.author)
                await fetch_all(connection, "rt_save_artefact_draft", **ids, **draft)
            if change.promotes and await run_steps(connection, SQL, promote(ids, self.max_versions)):
                return replace(after, version_revision_id=after.revision_id)
            return after

    async def renew_leases(self, run_ids: Sequence[RunId], seconds: float) -> None:
        if run_ids:
            await self._database.rows(SQL["renew_leases"], run_ids=list(run_ids), seconds=seconds)

    async def release_leases(self, claim: Claim) -> list[CanvasId]:
        leased = await self._database.rows(SQL["list_leases_of_run"], run_id=claim.run_id)
        if not leased:  # the usual case
            return []
        async with self._database.connection() as connection, connection.transaction():
            return [
                CanvasId(row["canvas_id"])
                for row in leased
                if await document_changes.release_lease(connection, dict(row), claim)
            ]

    async def list_expired_leases(self, limit: int) -> list[tuple[AccountId, CanvasId]]:
        rows = await self._database.rows(SQL["list_expired_leases"], limit=limit)
        return [(AccountId(row["account_id"]), CanvasId(row["canvas_id"])) for row in rows]

    async def list_unreported(self, account_id: AccountId, session_id: SessionId) -> list[DocumentDraft]:
        of_session = {"account_id": account_id, "session_id": session_id}
        rows = await self._database.rows(SQL["list_unreported_drafts"], **of_session)
        if all(row["is_closed"] for row in rows):
            return to_drafts(rows)
        async with self._database.connection() as connection, connection.transaction():
            for canvas_id in sorted({row["canvas_id"] for row in rows}):
                ids = {"account_id": account_id, "canvas_id": canvas_id}
                await fetch_all(connection, "lock_document", **ids)
                await fetch_all(connection, "close_drafts", **ids)
            rows = await fetch_all(connection, "list_unreported_drafts", **of_session)
            # A draft that is open is of another document, which was changed since the first statement.
            return to_drafts(row for row in rows if row["is_closed"])

    async def list_versions(
        self, account_id: AccountId, canvas_id: CanvasId, *, before: int | None, limit: int
    ) -> list[DocumentVersion]:
        rows = await self._database.rows(
            SQL["list_versions"],
            account_id=account_id,
            canvas_id=canvas_id,
            before=LAST_CURSOR if before is None else before,
            limit=limit,
        )
        return [to_version(row) for row in rows]

    async def read_revision(self, account_id: AccountId, canvas_id: CanvasId, revision_id: str) -> str | None:
        row = await self._database.row(
            SQL["read_revision"], account_id=account_id, canvas_id=canvas_id, revision_id=revision_id
        )
        return row["text"] if row else None


async def _lock_claim(connection: "Connection", ids: Ids, claim: Claim, *, locks_session: bool) -> bool:
    """Lock the run of a claim, and if asked its session and that of the document.

    Returns whether the user has interrupted the run. Raises `ClaimLost` if the claim is not valid.
    """
    if locks_session:
        # A separate statement: the next one must see a message that was stored while this one waited.
        await fetch_all(connection, "lock_sessions", session_id=claim.session_id, **ids)
    rows = await fetch_all(
        connection,
        "lock_claimed_run",
        **ids,
        run_id=claim.run_id,
        worker_id=claim.worker_id,
        attempt=claim.attempt,
    )
    if not rows:
        raise ClaimLost
    return rows[0]["is_interrupted"]


async def _lock_and_load(
    connection: "Connection", ids: Ids, *, is_interrupted: bool = False
) -> Document | None:
    """Lock a document and return it."""
    # A separate statement: the next one must see the changes that were committed while this one waited for
    # the lock.
    await fetch_all(connection, "lock_document", **ids)
    rows = await fetch_all(connection, "rt_get_canvas_v1", **ids)
    return to_document(rows[0], rows[0]["now"], is_interrupted=is_interrupted) if rows else None
