"""Ports of documents: their store, and the leases of a run."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol

from easel.core.document.document import Decide, Document, DocumentDraft, DocumentVersion
from easel.core.run.run import Claim
from easel.ids import AccountId, CanvasId, RunId, SessionId


class DocumentStore(Protocol):
    """Documents with their leases, drafts and versions.

    A document exists with its canvas of mode `markdown`. A user's message and a cancelled run raise the epoch
    and end the lease in their own transaction, see `RunStore.enqueue` and `RunStore.request_cancel`. Rows are
    always locked in this order: session, run, canvas, document.
    """

    async def get(self, account_id: AccountId, canvas_id: CanvasId) -> Document | None:
        """Return the document, or None if there is no such canvas of mode `markdown`. RS-51"""
        ...

    async def list_newest(self, account_id: AccountId, session_id: SessionId, limit: int) -> list[CanvasId]:
        """Return the documents whose canvas belongs to the session, newest first."""
        ...

    async def change(
        self,
        account_id: AccountId,
        canvas_id: CanvasId,
        decide: Decide,
        *,
        claim: Claim | None = None,
        locks_session: bool = False,
    ) -> Document | None:
        """Apply the change that `decide` returns, with its events, while the document is locked.

        Returns the document after the change, or None if there is none. `decide` may be called on any thread;
        if it raises, nothing is stored. With a `claim`, the run must still be claimed: raises `ClaimLost`.
        `locks_session` locks the sessions of the claim and of the document too, so that no message arrives
        during the change.
        """
        ...

    async def renew_leases(self, run_ids: Sequence[RunId], seconds: float) -> None:
        """Renew the live leases of these runs. CT-14"""
        ...

    async def release_leases(self, claim: Claim) -> list[CanvasId]:
        """End the leases of a run that has ended, with an event for each. Returns their documents. CT-16

        Ends none if a later attempt of the run has begun.
        """
        ...

    async def list_expired_leases(self, limit: int) -> list[tuple[AccountId, CanvasId]]: ...

    async def list_unreported(self, account_id: AccountId, session_id: SessionId) -> list[DocumentDraft]:
        """Return the drafts of the session's documents that no hidden update reports yet, in order.

        The oldest document is first. Closes the drafts: a later text of the same author is another draft, so
        that a report contains all of what it marks as reported.
        """
        ...

    async def list_versions(
        self, account_id: AccountId, canvas_id: CanvasId, *, before: int | None, limit: int
    ) -> list[DocumentVersion]:
        """Return versions below the `version_no` in `before`, newest first."""
        ...

    async def read_revision(self, account_id: AccountId, canvas_id: CanvasId, revision_id: str) -> str | None:
        """Return the text of a version or of the current draft by its revision."""
        ...


class RunLease(Protocol):
    """The leases of one run; a run without a document has none.

    No method raises when the store is unavailable: a lease that is not renewed expires.
    """

    is_kept: bool  # whether the leases outlive this worker's loop, because the run goes on elsewhere

    @property
    def is_held(self) -> bool:
        """Return whether the run may hold a lease. RS-70"""
        ...

    async def activity(self) -> None:
        """Renew the leases, at most once per second. CT-14"""
        ...

    def waiting(self, *, is_remote: bool) -> AbstractContextManager[None]:
        """Keep the leases, for a limited time, while a remote model has not answered. CT-15, RS-70"""
        ...

    async def release(self) -> None:
        """End the leases. CT-16"""
        ...


class Leases(Protocol):
    def of(self, claim: Claim) -> AbstractAsyncContextManager[RunLease]:
        """Return the leases of a run, which end with the block unless they are kept. CT-16"""
        ...
