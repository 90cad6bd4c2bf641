"""Documents for people: read, save, restore, promote, compare, and take control.

Owns the rules of a person's write: it goes to a draft only (CT-55), and it wins over the lease of an agent
(RS-49). Does not know the tools of agents or how documents are stored.
"""

import asyncio
from dataclasses import dataclass

from easel.core.canvas.canvas import parse_canvas_id
from easel.core.canvas.events import CanvasEvents
from easel.core.document.diff import make_diff
from easel.core.document.document import (
    Author,
    AuthorKind,
    Document,
    DocumentChange,
    DocumentVersion,
    revision_of,
)
from easel.core.document.lease import Free, Held, Lease, preempt, release
from easel.core.principal import Principal, is_shared
from easel.core.stream.envelope import Envelope
from easel.errors import BadInput, NotFound, TextConflict, TooLarge
from easel.host.audit.audit import Audit
from easel.host.documents.transactions import DocumentTransactions
from easel.ids import CanvasId, new_event_id

EMPTY_REVISION = revision_of("")  # the first one of every document, which is neither a draft nor a version
NEEDS_BASE = (
    "base_revision_id: is required in a team: send the revision_id of the text that you edited, so that "
    "nothing that another person wrote is lost."
)
SIZE_SETTING = "EASEL_MAX_DOCUMENT_BYTES"


@dataclass(frozen=True, slots=True)
class RevisionDiff:
    """A unified diff between two revisions; empty if their texts are equal."""

    from_revision: str | None  # None: the empty text before the first version
    to_revision: str
    diff: str


@dataclass(frozen=True, slots=True)
class Promoted:
    """The newest version, and whether this promotion made it."""

    document: Document
    is_new: bool


class Documents:
    def __init__(self, transactions: DocumentTransactions, audit: Audit, *, max_bytes: int) -> None:
        self._transactions = transactions
        self._audit = audit
        self._max_bytes = max_bytes

    async def get(self, principal: Principal, canvas_id: str) -> Document:
        """Return the document with its current text. Raises `NotFound`."""
        return await self._transactions.find(principal.account_id, canvas_id)

    async def put(
        self, principal: Principal, canvas_id: str, text: str, base_revision_id: str | None
    ) -> Document:
        """Save the text as a draft. A repeated save of the current text is not a conflict.

        In a team `base_revision_id` is required, so that a save replaces only a text that was read. Raises
        `TextConflict` with the current text if it is not the current revision. The agent that edits the
        document loses its lease all the same, so that the next save can succeed. RS-49
        """
        if base_revision_id is None and is_shared(principal):
            raise BadInput(problem=NEEDS_BASE)
        check_text(text, self._max_bytes)
        return await self._write(principal, canvas_id, text, base_revision_id)

    async def restore(self, principal: Principal, canvas_id: str, revision_id: str) -> Document:
        """Make the text of an earlier revision the current draft. Raises `NotFound`.

        The text that it replaces becomes a version first, so that it can be restored as well.
        """
        text = await self._read_revision(principal, canvas_id, revision_id)
        document = await self._write(principal, canvas_id, text, None, promotes_before=True)
        await self._audit.record(
            principal, "document.restored", subject=canvas_id, details={"revision_id": revision_id}
        )
        return document

    async def _write(
        self,
        principal: Principal,
        canvas_id: str,
        text: str,
        base_revision_id: str | None,
        *,
        promotes_before: bool = False,
    ) -> Document:
        events = _events_of(principal, canvas_id)
        author = Author(AuthorKind.PERSON, principal.actor_id)  # or a service in the name of its user
        revision_id = revision_of(text)

        def is_conflict(document: Document) -> bool:
            return text != document.text and base_revision_id not in (None, document.revision_id)

        def decide(document: Document) -> DocumentChange | None:
            is_changed = text != document.text
            if is_conflict(document):
                return _interrupt(events, document, "conflict")
            if not is_changed and isinstance(document.lease, Free):
                return None
            lease = take_from_holder(document)
            change = events.document_changed(document.canvas_revision, revision_id, lease.epoch, author)
            sealed = [*([change] if is_changed else []), *_lease_events(events, document, lease, "written")]
            return DocumentChange(
                lease=lease,
                inspected=(),
                text=text if is_changed else None,
                author=author if is_changed else None,
                promotes_before=promotes_before and is_changed,
                events=sealed,
            )

        done = await self._transactions.apply(principal.account_id, canvas_id, decide)
        if is_conflict(done.before):
            raise TextConflict(revision_id=done.after.revision_id, text=done.after.text)
        return done.after

    async def take_control(self, principal: Principal, canvas_id: str) -> Document:
        """End the lease of the agent that edits the document. CT-18, CT-57"""
        events = _events_of(principal, canvas_id)
        done = await self._transactions.apply(
            principal.account_id, canvas_id, lambda document: _interrupt(events, document, "control_taken")
        )
        if isinstance(done.before.lease, Held):
            details = {"run_id": done.before.lease.run_id}
            await self._audit.record(principal, "document.control_taken", subject=canvas_id, details=details)
        return done.after

    async def promote(self, principal: Principal, canvas_id: str) -> Promoted:
        """Make the current text a version, unless the newest version has the same text. CT-35"""

        def decide(document: Document) -> DocumentChange | None:
            is_new = document.version_revision_id != document.revision_id
            return DocumentChange(promotes=True) if is_new else None

        done = await self._transactions.apply(principal.account_id, canvas_id, decide)
        if done.change is not None:
            details = {"revision_id": done.after.revision_id}
            await self._audit.record(principal, "document.promoted", subject=canvas_id, details=details)
        return Promoted(done.after, is_new=done.change is not None)

    async def list_versions(
        self, principal: Principal, canvas_id: str, before: int | None, limit: int
    ) -> list[DocumentVersion]:
        """Return versions below the `version_no` in `before`, newest first. Raises `NotFound`."""
        name = parse_canvas_id(canvas_id, "document")
        versions = await self._transactions.store.list_versions(
            principal.account_id, name, before=before, limit=limit
        )
        if not versions:
            await self.get(principal, canvas_id)
        return versions

    async def compare(
        self, principal: Principal, canvas_id: str, from_revision: str | None, to_revision: str | None
    ) -> RevisionDiff:
        """Return the diff between two revisions: by default from the newest version to the current text."""
        document = await self.get(principal, canvas_id)
        first = from_revision or document.version_revision_id
        second = to_revision or document.revision_id
        before = "" if first is None else await self._read_revision(principal, canvas_id, first, document)
        after = await self._read_revision(principal, canvas_id, second, document)
        diff = await asyncio.to_thread(make_diff, before, after)
        return RevisionDiff(first, second, diff)

    async def _read_revision(
        self, principal: Principal, canvas_id: str, revision_id: str, document: Document | None = None
    ) -> str:
        if document is not None and revision_id == document.revision_id:
            return document.text
        name = parse_canvas_id(canvas_id, "document")
        if revision_id == EMPTY_REVISION:
            return ""
        text = await self._transactions.store.read_revision(principal.account_id, name, revision_id)
        if text is None:
            raise NotFound(what="revision", id=f"{revision_id[:100]} of document {canvas_id}")
        return text


def take_from_holder(document: Document) -> Lease:
    """Return the lease after a person acted: the epoch is raised. CT-18

    Only the holder of a live lease was interrupted; an expired lease has no holder.
    """
    lease = document.lease
    if isinstance(lease, Held) and document.live_lease is None:
        return preempt(release(lease))
    return preempt(lease)


def check_text(text: str, max_bytes: int) -> None:
    """Raise `TooLarge` or `BadInput` if the text cannot be stored."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadInput(problem="text must not contain surrogates.") from None
    if size > max_bytes:
        raise TooLarge(what="The document", limit=max_bytes, setting=SIZE_SETTING)
    if "\x00" in text:
        raise BadInput(problem="text must not contain NUL characters.")


def _events_of(principal: Principal, canvas_id: str) -> CanvasEvents:
    return CanvasEvents.by(principal, CanvasId(canvas_id), event_id=new_event_id(), node_id="document")


def _interrupt(events: CanvasEvents, document: Document, reason: str) -> DocumentChange | None:
    """Return the change that ends the lease of an agent because a person acted. CT-18"""
    if isinstance(document.lease, Free):
        return None
    lease = take_from_holder(document)
    return DocumentChange(lease=lease, inspected=(), events=_lease_events(events, document, lease, reason))


def _lease_events(events: CanvasEvents, before: Document, lease: Lease, reason: str) -> list[Envelope]:
    if isinstance(before.lease, Free):
        return []
    return [events.lease_changed(before.canvas_revision, lease, reason)]
