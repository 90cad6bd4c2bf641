"""Transactions on canvases: a change is decided under the canvas's lock and committed.

Owns the order of the steps, which all canvas services share: store offloaded values, commit the change,
notify subscribers, record what changed in the audit trail, delete orphaned blobs. Does not know the content
of a change.
"""

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from easel.core.canvas.canvas import CanvasSnapshot, Change, NewCanvas, parse_canvas_id
from easel.core.canvas.consent import consent_after
from easel.core.canvas.differences import Difference, describe_change, describe_creation
from easel.core.canvas.events import CanvasEvents
from easel.core.canvas.unreviewed import unreviewed_after
from easel.core.principal import Principal
from easel.core.stream.notifications import CanvasAppended
from easel.errors import NotFound, Unavailable
from easel.host.audit.audit import Audit
from easel.host.canvases.parsed_specs import ParsedSpecs
from easel.host.commits import Committed, commit
from easel.host.ports import ArtifactAccess, BlobStore, CanvasStore, Notifier
from easel.ids import CanvasId, new_event_id, scoped_key

Decided = TypeVar("Decided", bound=Change | None)


class CanvasTransactions:
    """Reads and changes canvases of a principal. `specs` has the parsed specs of recently read canvases."""

    def __init__(
        self,
        canvases: CanvasStore,
        artifacts: ArtifactAccess,
        blobs: BlobStore,
        notifier: Notifier,
        audit: Audit,
    ) -> None:
        self._canvases = canvases
        self._artifacts = artifacts
        self._blobs = blobs
        self._notifier = notifier
        self._audit = audit
        self.specs = ParsedSpecs()

    async def find(self, principal: Principal, canvas_id: str) -> CanvasSnapshot:
        """Return the canvas. Raises `NotFound`."""
        snapshot = await self._canvases.get(principal.account_id, parse_canvas_id(canvas_id))
        if snapshot is None:
            raise NotFound(what="canvas", id=canvas_id)
        return snapshot

    async def apply(
        self,
        principal: Principal,
        canvas_id: str,
        decide: Callable[[CanvasSnapshot], Decided],
        *,
        seconds: float = 0,
        is_repeatable: bool = True,
    ) -> Committed[CanvasSnapshot, Decided, CanvasSnapshot]:
        """Commit the change that `decide` returns and notify subscribers.

        If `decide` returns None, nothing is written. `seconds` is the time until an opened view or the claim
        on an execution expires. Raises `NotFound`.
        """
        account_id, name = principal.account_id, parse_canvas_id(canvas_id)
        done = await commit(
            "canvas",
            name,
            lambda record: self._canvases.change(account_id, name, record, seconds=seconds),
            decide,
            partial(self._artifacts.store, account_id),
            complete=partial(_complete, principal),
            is_repeatable=is_repeatable,
        )
        before, change, outcome = done.before, done.change, done.after
        if change is not None:
            self._notify(outcome.snapshot)
            if _is_audited(change):
                await self._record(principal, name, describe_change(before, outcome.snapshot))
            await self.delete_blobs(outcome.orphaned_blobs)
        return Committed(before, change, outcome.snapshot)

    async def create(self, principal: Principal, new: NewCanvas) -> CanvasSnapshot | None:
        """Create a canvas, notify subscribers and record it. Returns None if the id is taken."""
        await self._artifacts.store(new.account_id, new.offloaded)
        event = events_for(principal, new.canvas_id).created(1, new.title)
        try:
            created = await self._canvases.create(new, event)
        except Unavailable as problem:
            raise Unavailable.after_sending("The database", is_repeatable=True) from problem
        if created is not None:
            await self._record(principal, new.canvas_id, describe_creation(created))
            self._notify(created)
        return created

    async def _record(self, principal: Principal, canvas_id: str, differences: list[Difference]) -> None:
        records = [(difference.action, difference.details) for difference in differences]
        await self._audit.record_all(principal, records, subject=canvas_id)

    def _notify(self, snapshot: CanvasSnapshot) -> None:
        """Notify subscribers of new events in the canvas's log."""
        canvas = snapshot.canvas
        self._notifier.notify(
            CanvasAppended(scoped_key(canvas.account_id, canvas.canvas_id), canvas.last_seq)
        )

    async def delete_blobs(self, keys: Iterable[str]) -> None:
        """Delete blobs that no row refers to.

        If the blob store is unavailable, a later sweep deletes them.
        """
        for key in keys:
            with contextlib.suppress(Unavailable):
                await self._blobs.delete(key)


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def events_for(principal: Principal, canvas_id: str) -> CanvasEvents:
    """Return a builder for the events of one operation of this principal."""
    return CanvasEvents.by(principal, CanvasId(canvas_id), event_id=new_event_id())


def _complete(principal: Principal, before: CanvasSnapshot, change: Decided) -> Decided:
    """Return the change with the unreviewed values and the consent after it. RS-73, RS-77"""
    if change is None:
        return change
    if change.state is not None or change.is_accepted:
        change = replace(change, unreviewed=unreviewed_after(before.canvas, change, principal))
    if change.spec is not None or change.is_accepted is not None:
        change = replace(change, consent=consent_after(before.canvas, change, principal))
    return change


def _is_audited(change: Change) -> bool:
    """Return whether the change is of a part that the audit trail records: all but the state. RS-68"""
    parts = (change.title, change.spec, change.owner_session_key, change.is_accepted)
    return any(part is not None for part in parts) or bool(change.put or change.removed)
