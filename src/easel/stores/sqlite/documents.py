"""Documents, their leases, drafts and versions in SQLite.

The rules are in `core/document/` and in the statements of `sql/sqlite/documents.sql`. SQLite has one writer,
so no other write can interleave.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from easel.core.document.document import Decide, Document, DocumentDraft, DocumentVersion
from easel.core.run.run import Claim, ClaimLost
from easel.core.stream.log import LAST_CURSOR
from easel.ids import AccountId, CanvasId, RunId, SessionId
from easel.stores.nouns.documents import Ids, promote
from easel.stores.rows.documents import (
    apply_change,
    draft_arguments,
    lease_arguments,
    to_document,
    to_drafts,
    to_version,
)
from easel.stores.sqlite import canvas_log, document_changes
from easel.stores.sqlite.document_changes import SQL, fetch_all
from easel.stores.sqlite.statements import run_steps
from easel.stores.sqlite.times import from_datetime, microseconds, to_datetime

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase


class SqliteDocuments:
    def __init__(self, database: "SqliteDatabase", max_versions: int) -> None:
        self._database = database
        self.max_versions = max_versions  # of one document

    async def get(self, account_id: AccountId, canvas_id: CanvasId) -> Document | None:
        ids = {"account_id": account_id, "canvas_id": canvas_id}
        return await self._database.read(lambda connection: _load(connection, ids, self._now()))

    async def list_newest(self, account_id: AccountId, session_id: SessionId, limit: int) -> list[CanvasId]:
        of_session = {"account_id": account_id, "session_id": session_id}
        rows = await self._read("list_newest_documents", limit=limit, **of_session)
        return [CanvasId(row["canvas_id"]) for row in rows]

    async def change(
        self,
        account_id: AccountId,
        canvas_id: CanvasId,
        decide: Decide,
        *,
        claim: Claim | None = None,
        locks_session: bool = False,  # noqa: ARG002  (there is one writer)
    ) -> Document | None:
        ids = {"account_id": account_id, "canvas_id": canvas_id}

        def work(connection: sqlite3.Connection) -> Document | None:
            now = self._now()
            lease_now = self._database.lease_clock()
            is_interrupted = claim is not None and _check_claim(connection, ids, claim, lease_now)
            before = _load(connection, ids, now, is_interrupted=is_interrupted)
            if before is None:
                return None
            change = decide(before)
            if change is None:
                return before
            if change.promotes_before and run_steps(connection, SQL, promote(ids, self.max_versions), now):
                before = replace(before, version_revision_id=before.revision_id)
            after = apply_change(before, change)
            has_new_text = after.revision_id != before.revision_id
            fetch_all(
                connection, "change_document", has_new_text=has_new_text, **ids, **_lease_columns(after)
            )
            if has_new_text:
                draft = draft_arguments(after, change.author)
                fetch_all(connection, "rt_save_artefact_draft", now=now, **ids, **draft)
            canvas_log.append_events(connection, ids, change.events, now)
            if change.promotes and run_steps(connection, SQL, promote(ids, self.max_versions), now):
                return replace(after, version_revision_id=after.revision_id)
            return after

        return await self._database.write(work)

    async def renew_leases(self, run_ids: Sequence[RunId], seconds: float) -> None:
        if not run_ids:
            return
        named, now = msgspec.json.encode(list(run_ids)).decode(), self._now()
        until = now + microseconds(seconds)
        await self._database.write(
            lambda connection: fetch_all(connection, "renew_leases", run_ids=named, now=now, until=until)
        )

    async def release_leases(self, claim: Claim) -> list[CanvasId]:
        return await self._database.write(
            lambda connection: document_changes.release_leases(connection, claim, self._now())
        )

    async def list_expired_leases(self, limit: int) -> list[tuple[AccountId, CanvasId]]:
        rows = await self._read("list_expired_leases", now=self._now(), limit=limit)
        return [(AccountId(row["account_id"]), CanvasId(row["canvas_id"])) for row in rows]

    async def list_unreported(self, account_id: AccountId, session_id: SessionId) -> list[DocumentDraft]:
        ids = {"account_id": account_id, "session_id": session_id}
        rows = await self._read("list_unreported_drafts", **ids)
        if all(row["is_closed"] for row in rows):  # the usual case does not occupy the writer
            return to_drafts(rows)

        def work(connection: sqlite3.Connection) -> list[DocumentDraft]:
            for canvas_id in {row["canvas_id"] for row in rows}:
                fetch_all(connection, "close_drafts", account_id=account_id, canvas_id=canvas_id)
            # A draft that is open is of another document, which was changed since the first statement.
            listed = fetch_all(connection, "list_unreported_drafts", **ids)
            return to_drafts(row for row in listed if row["is_closed"])

        return await self._database.write(work)

    async def list_versions(
        self, account_id: AccountId, canvas_id: CanvasId, *, before: int | None, limit: int
    ) -> list[DocumentVersion]:
        rows = await self._read(
            "list_versions",
            account_id=account_id,
            canvas_id=canvas_id,
            before=LAST_CURSOR if before is None else before,
            limit=limit,
        )
        return [to_version(row, to_datetime) for row in rows]

    async def read_revision(self, account_id: AccountId, canvas_id: CanvasId, revision_id: str) -> str | None:
        rows = await self._read(
            "read_revision", account_id=account_id, canvas_id=canvas_id, revision_id=revision_id
        )
        return rows[0]["text"] if rows else None

    def _now(self) -> int:
        return self._database.clock()

    async def _read(self, name: str, **arguments: Any) -> list[Any]:
        return await self._database.read(lambda connection: fetch_all(connection, name, **arguments))


def _load(
    connection: sqlite3.Connection, ids: Ids, now: int, *, is_interrupted: bool = False
) -> Document | None:
    rows = fetch_all(connection, "rt_get_canvas_v1", **ids)
    if not rows:
        return None
    return to_document(rows[0], to_datetime(now), to_datetime, is_interrupted=is_interrupted)


def _check_claim(connection: sqlite3.Connection, ids: Ids, claim: Claim, lease_now: int) -> bool:
    """Return whether the user has interrupted the run. Raises `ClaimLost` if the claim is not valid."""
    rows = fetch_all(
        connection,
        "read_claimed_run",
        **ids,
        run_id=claim.run_id,
        worker_id=claim.worker_id,
        attempt=claim.attempt,
        lease_now=lease_now,
    )
    if not rows:
        raise ClaimLost
    return rows[0]["cancel_requested_at"] is not None or bool(rows[0]["has_later_message"])


def _lease_columns(document: Document) -> dict[str, Any]:
    columns = lease_arguments(document)
    expires_at = columns["lease_expires_at"]
    return {**columns, "lease_expires_at": None if expires_at is None else from_datetime(expires_at)}
