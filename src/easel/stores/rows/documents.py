"""Documents in both stores: conversion of rows to core values, and of changes to arguments."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from easel.core.canvas.events import CanvasEvents
from easel.core.document.document import (
    Author,
    AuthorKind,
    Document,
    DocumentChange,
    DocumentDraft,
    DocumentVersion,
    revision_of,
)
from easel.core.document.lease import Free, Held, Lease
from easel.core.principal import MAIN_AGENT, ActorKind
from easel.core.stream.envelope import Envelope
from easel.core.stream.json_text import to_json
from easel.ids import CanvasId, RunId
from easel.stores.rows.runs import Row

EMPTY_REVISION = revision_of("")  # of a document without drafts
DEFAULT_MAX_VERSIONS = 1_000  # of one document


def has_document(spec: Mapping[str, Any]) -> bool:
    """Return whether a canvas with this spec has a document. RS-32"""
    return spec.get("mode") == "markdown"


def preempted_event(
    canvas_id: CanvasId, revision: int, epoch: int, *, reason: str, account_id: str, run_id: str
) -> Envelope:
    """Return the event of a lease that the user ended by a message or a cancel. `run_id` is its run."""
    events = CanvasEvents(
        canvas_id, agent_id=account_id, event_id=run_id, node_id="chat", kind=ActorKind.PERSON
    )
    return events.lease_changed(revision, Free(epoch), reason)


# Made once: a message is the most frequent write, and hardly any ends a lease. The store fills in the rest.
ENDED_BY_MESSAGE, ENDED_BY_CANCEL = (
    preempted_event(CanvasId(""), 0, 0, reason=reason, account_id="user", run_id="run")
    for reason in ("message", "cancel")
)


def released_event(canvas_id: CanvasId, revision: int, epoch: int, run_id: RunId) -> Envelope:
    """Return the event of a lease that ended with its run."""
    events = CanvasEvents(canvas_id, agent_id=MAIN_AGENT, event_id=run_id, node_id="document")
    return events.lease_changed(revision, Free(epoch), "run_ended")


def to_document(row: Row, *, is_interrupted: bool = False) -> Document:
    """Return the document of a row. A document without drafts has an empty text."""
    return Document(
        account_id=row["account_id"],
        canvas_id=row["canvas_id"],
        session_id=row["session_id"],
        canvas_revision=row["canvas_revision"],
        last_seq=row["last_seq"],
        text=row["text"] or "",
        revision_id=row["revision_id"] or EMPTY_REVISION,
        lease=_to_lease(row),
        inspected=tuple((first, last) for first, last in msgspec.json.decode(row["inspected"])),
        version_revision_id=row["version_revision_id"],
        now=row["read_at"],
        is_interrupted=is_interrupted,
    )


def _to_lease(row: Row) -> Lease:
    if row["lease_id"] is None:
        return Free(row["epoch"], _to_run_ids(row["interrupted_run_ids"]))
    return Held(
        row["epoch"],
        row["lease_id"],
        row["lease_run_id"],
        row["lease_session_id"],
        row["lease_expires_at"],
        _to_run_ids(row["interrupted_run_ids"]),
    )


def _to_run_ids(text: str) -> tuple[RunId, ...]:
    return tuple(RunId(run_id) for run_id in text.split())


def apply_change(document: Document, change: DocumentChange) -> Document:
    """Return the document after a change, before its promotion.

    The lines that were shown are those of one lease and one revision: another of them has none, unless the
    change names some.
    """
    after = replace(
        document,
        last_seq=document.last_seq + len(change.events),
        lease=document.lease if change.lease is None else change.lease,
        text=document.text if change.text is None else change.text,
        revision_id=document.revision_id if change.text is None else revision_of(change.text),
    )
    if change.inspected is not None:
        return replace(after, inspected=tuple(change.inspected))
    is_same = _lease_id(after.lease) == _lease_id(document.lease)
    return after if is_same and after.revision_id == document.revision_id else replace(after, inspected=())


def _lease_id(lease: Lease) -> str | None:
    return lease.lease_id if isinstance(lease, Held) else None


def lease_arguments(document: Document) -> dict[str, Any]:
    """Return the columns of the lease, and the lines shown."""
    lease = document.lease
    held = lease if isinstance(lease, Held) else None
    return {
        "epoch": lease.epoch,
        "lease_id": held and held.lease_id,
        "lease_run_id": held and held.run_id,
        "lease_session_id": held and held.session_id,
        "lease_expires_at": held and held.expires_at,
        "interrupted_run_ids": " ".join(lease.interrupted),
        "inspected": to_json([list(lines) for lines in document.inspected]),
    }


def draft_arguments(after: Document, author: Author | None) -> dict[str, Any]:
    if author is None:
        raise ValueError("A new text needs its author.")
    return {
        "text": after.text,
        "revision_id": after.revision_id,
        "author_kind": author.kind.value,
        "author_id": author.id,
        "author_run_id": author.run_id,
    }


def to_author(row: Row) -> Author:
    return Author(AuthorKind(row["author_kind"]), row["author_id"], row["author_run_id"])


def to_drafts(rows: Iterable[Row]) -> list[DocumentDraft]:
    return [
        DocumentDraft(
            canvas_id=row["canvas_id"],
            draft_no=row["draft_no"],
            author=to_author(row),
            before=row["before"],
            text=row["text"],
        )
        for row in rows
    ]


def to_version(row: Row) -> DocumentVersion:
    return DocumentVersion(
        version_no=row["version_no"],
        revision_id=row["revision_id"],
        author=to_author(row),
        created_at=row["created_at"],
        size=row["size"],
    )
