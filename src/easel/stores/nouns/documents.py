"""Documents, their leases, drafts and versions: what both databases have in common.

The rules are in `core/document/` and in the statements of `documents.sql`. A subclass says how its database
checks a claim and ends the leases of a run.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from easel.core.document.document import Decide, Document, DocumentDraft, DocumentVersion, Reported
from easel.core.run.run import Claim, ClaimLost
from easel.core.stream.envelope import Envelope
from easel.core.stream.log import LAST_CURSOR
from easel.ids import AccountId, CanvasId, RunId, SessionId
from easel.stores.nouns.statements import Row, Statements, Steps
from easel.stores.rows.documents import (
    apply_change,
    draft_arguments,
    lease_arguments,
    to_document,
    to_drafts,
    to_version,
)
from easel.stores.rows.runs import events_columns

Ids = Mapping[str, str]  # account_id and canvas_id


class SqlDocuments(ABC):
    def __init__(self, statements: Statements, max_versions: int) -> None:
        self._sql = statements
        self.max_versions = max_versions  # of one document

    @abstractmethod
    async def release_leases(self, claim: Claim) -> list[CanvasId]: ...

    @abstractmethod
    def _find_claimed_run(self, arguments: dict[str, Any], *, locks_session: bool) -> Steps[list[Row]]:
        """Return the run of a claim and whether the user has interrupted it, no row if the claim is lost."""

    def _append_events(self, _ids: Ids, _events: Sequence[Envelope], /) -> Steps[None]:
        """Append events to the log of the canvas, unless `change_document` has appended them."""
        yield from ()

    async def get(self, account_id: AccountId, canvas_id: CanvasId) -> Document | None:
        row = await self._sql.row("rt_get_canvas_v1", account_id=account_id, canvas_id=canvas_id)
        return to_document(row) if row else None

    async def list_newest(self, account_id: AccountId, session_id: SessionId, limit: int) -> list[CanvasId]:
        of_session = {"account_id": account_id, "session_id": session_id}
        rows = await self._sql.rows("list_newest_documents", limit=limit, **of_session)
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
        return await self._sql.transaction(self._change(ids, decide, claim, locks_session=locks_session))

    async def renew_leases(self, run_ids: Sequence[RunId], seconds: float) -> None:
        if run_ids:
            await self._sql.rows("renew_leases", run_ids=list(run_ids), seconds=seconds)

    async def list_expired_leases(self, limit: int) -> list[tuple[AccountId, CanvasId]]:
        rows = await self._sql.rows("list_expired_leases", limit=limit)
        return [(AccountId(row["account_id"]), CanvasId(row["canvas_id"])) for row in rows]

    async def list_unreported(self, account_id: AccountId, session_id: SessionId) -> list[DocumentDraft]:
        of_session = {"account_id": account_id, "session_id": session_id}
        rows = await self._sql.rows("list_unreported_drafts", **of_session)
        if all(row["is_closed"] for row in rows):  # the usual case needs no transaction
            return to_drafts(rows)
        return await self._sql.transaction(_close_drafts(of_session, {row["canvas_id"] for row in rows}))

    async def list_versions(
        self, account_id: AccountId, canvas_id: CanvasId, *, before: int | None, limit: int
    ) -> list[DocumentVersion]:
        rows = await self._sql.rows(
            "list_versions",
            account_id=account_id,
            canvas_id=canvas_id,
            before=LAST_CURSOR if before is None else before,
            limit=limit,
        )
        return [to_version(row) for row in rows]

    async def read_revision(self, account_id: AccountId, canvas_id: CanvasId, revision_id: str) -> str | None:
        ids = {"account_id": account_id, "canvas_id": canvas_id}
        row = await self._sql.row("read_revision", revision_id=revision_id, **ids)
        return row["text"] if row else None

    def _change(
        self, ids: Ids, decide: Decide, claim: Claim | None, *, locks_session: bool
    ) -> Steps[Document | None]:
        is_interrupted = False
        if claim is not None:
            run = {"run_id": claim.run_id, "worker_id": claim.worker_id, "attempt": claim.attempt}
            found = yield from self._find_claimed_run(
                {**ids, **run, "session_id": claim.session_id}, locks_session=locks_session
            )
            if not found:
                raise ClaimLost
            is_interrupted = bool(found[0]["is_interrupted"])
        # A separate statement: the next one must see the changes that were committed while this one waited
        # for the lock.
        yield "lock_document", ids
        rows = yield "rt_get_canvas_v1", ids
        if not rows:
            return None
        before = to_document(rows[0], is_interrupted=is_interrupted)
        change = decide(before)
        if change is None:
            return before
        if change.promotes_before and (yield from _promote(ids, self.max_versions)):
            before = replace(before, version_revision_id=before.revision_id)
        after = apply_change(before, change)
        has_new_text = after.revision_id != before.revision_id
        columns = {**ids, **lease_arguments(after), **events_columns(change.events)}
        yield "change_document", {**columns, "has_new_text": has_new_text}
        if has_new_text:
            yield "rt_save_artefact_draft", {**ids, **draft_arguments(after, change.author)}
        yield from self._append_events(ids, change.events)
        if change.promotes and (yield from _promote(ids, self.max_versions)):
            return replace(after, version_revision_id=after.revision_id)
        return after


def _close_drafts(of_session: Mapping[str, str], canvas_ids: Collection[str]) -> Steps[list[DocumentDraft]]:
    for canvas_id in sorted(canvas_ids):
        ids = {"account_id": of_session["account_id"], "canvas_id": canvas_id}
        yield "lock_document", ids
        yield "close_drafts", ids
    rows = yield "list_unreported_drafts", of_session
    # A draft that is open is of another document, which was changed since the first statement.
    return to_drafts(row for row in rows if row["is_closed"])


def _promote(ids: Ids, max_versions: int) -> Steps[bool]:
    """Make the drafts versions, unless the newest version has the current text. Returns whether it did. CT-35

    The older drafts become versions too, so that a later report of them adds none after the current text.
    """
    [hashes] = yield "compare_hashes", ids
    if hashes["draft_hash"] in (None, hashes["artefact_hash"]):
        return False
    yield from _add_versions(ids, LAST_CURSOR, max_versions)
    return True


def report_drafts(account_id: AccountId, reported: Sequence[Reported], max_versions: int) -> Steps[None]:
    """Mark drafts as reported by hidden messages and make them versions. CT-34, CT-35"""
    for drafts in sorted(reported, key=lambda drafts: drafts.canvas_id):
        ids = {"account_id": account_id, "canvas_id": drafts.canvas_id}
        yield "lock_document", ids
        yield from _add_versions(ids, drafts.draft_no, max_versions)
        yield "mark_reported", {**ids, "draft_no": drafts.draft_no}
        yield "note_unreported", ids
        yield "delete_reported_drafts", ids


def _add_versions(ids: Ids, draft_no: int, max_versions: int) -> Steps[None]:
    """Make the drafts up to a number versions, each if it differs from the version before. CT-35"""
    yield "rt_append_node_to_ref_v1", {**ids, "draft_no": draft_no}
    yield "mark_versioned", {**ids, "draft_no": draft_no}
    yield "trim_versions", {**ids, "max_versions": max_versions}
