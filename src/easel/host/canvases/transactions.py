"""Transactions on canvases: a change is decided under the canvas's lock and committed.

Owns the order of the steps, which all canvas services share: commit the change, notify subscribers, delete
orphaned blobs. Owns the rules of acceptance. Does not know the content of a change.
"""

import contextlib
import time
from collections.abc import Iterable

from easel.core.canvas.canvas import CanvasSnapshot, Change, Decide, Outcome
from easel.core.canvas.events import CanvasEvents
from easel.core.principal import Principal, PrincipalKind
from easel.core.stream.notifications import CanvasAppended
from easel.errors import NotFound, Unavailable
from easel.host.ports import Blobs, CanvasStore, Notifier
from easel.ids import CanvasId, is_name, new_event_id, scoped_key


class CanvasTransactions:
    """Reads and changes canvases of a principal."""

    def __init__(self, canvases: CanvasStore, blobs: Blobs, notifier: Notifier) -> None:
        self._canvases = canvases
        self._blobs = blobs
        self._notifier = notifier

    async def find(self, principal: Principal, canvas_id: str) -> CanvasSnapshot:
        """Return the canvas. Raises `NotFound`."""
        snapshot = await self._canvases.get(principal.user_id, parse_canvas_id(canvas_id))
        if snapshot is None:
            raise NotFound(what="canvas", id=canvas_id)
        return snapshot

    async def apply(
        self,
        principal: Principal,
        canvas_id: str,
        decide: Decide,
        *,
        seconds: float = 0,
        is_repeatable: bool = True,
    ) -> Outcome:
        """Commit the change that `decide` returns and notify subscribers.

        If `decide` returns None, nothing is written. `seconds` is the time until an opened view or the claim
        on an execution expires. `is_repeatable`: whether the caller may safely retry after a lost reply.
        Raises `NotFound`.
        """
        sent: Change | None = None

        def record_change(snapshot: CanvasSnapshot) -> Change | None:
            nonlocal sent
            sent = decide(snapshot)
            return sent

        try:
            outcome = await self._canvases.change(
                principal.user_id, parse_canvas_id(canvas_id), record_change, seconds=seconds
            )
        except Unavailable as problem:
            if sent is not None:
                raise Unavailable.after_sending(
                    problem.details["what"], is_repeatable=is_repeatable
                ) from problem
            raise
        if outcome is None:
            raise NotFound(what="canvas", id=canvas_id)
        if outcome.is_changed:
            self.notify(outcome.snapshot)
            await self.delete_blobs(outcome.orphaned_blobs)
        return outcome

    def notify(self, snapshot: CanvasSnapshot) -> None:
        """Notify subscribers of new events in the canvas's log."""
        canvas = snapshot.canvas
        self._notifier.notify(CanvasAppended(scoped_key(canvas.user_id, canvas.canvas_id), canvas.last_seq))

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


def parse_canvas_id(canvas_id: str) -> CanvasId:
    """Return a canvas id. Raises `NotFound`, without a query, if it is not a valid id."""
    if not is_name(canvas_id):
        raise NotFound(what="canvas", id=canvas_id[:200])
    return CanvasId(canvas_id)


def events_for(principal: Principal, canvas_id: str) -> CanvasEvents:
    """Return a builder for the events of one operation of this principal."""
    return CanvasEvents.by(principal, CanvasId(canvas_id), event_id=new_event_id())


def may_self_approve(principal: Principal) -> bool:
    """Return whether the principal's own specs and pages need no acceptance by a person. RS-59"""
    return principal.kind is not PrincipalKind.AGENT


def acceptance_after_spec_change(
    principal: Principal, current: CanvasSnapshot, *, has_all_assets: bool
) -> bool | None:
    """Return whether the canvas is accepted after a new spec; None: its acceptance is unchanged.

    A spec by an agent is not accepted. A person who writes a spec accepts the canvas, unless the canvas keeps
    assets that were not accepted. RS-59
    """
    if not may_self_approve(principal):
        return False
    return True if current.canvas.is_accepted or has_all_assets or not current.assets else None


def acceptance_after_asset_change(principal: Principal) -> bool | None:
    """Return False if an agent changed the assets; None: the acceptance is unchanged.

    A page runs actions in the name of its viewer, so a person must accept a page that an agent changed. RS-59
    """
    return None if may_self_approve(principal) else False
