"""Changing canvases: decided under the canvas's lock, told to whoever watches, and tidied up after. All stories of canvases do it so."""

import contextlib
import time
from collections.abc import Iterable

from easel.core.canvas.canvas import CanvasSnapshot, Change, Decide, Outcome
from easel.core.canvas.events import CanvasEvents
from easel.core.principal import Principal, PrincipalKind
from easel.core.stream.notifications import CanvasAppended
from easel.errors import NotFound, Unavailable
from easel.host.ports import Blobs, CanvasStore, Notifier
from easel.ids import CanvasId, is_name, new_event_id, owned


class CanvasTransactions:
    def __init__(self, canvases: CanvasStore, blobs: Blobs, notifier: Notifier) -> None:
        self._canvases = canvases
        self._blobs = blobs
        self._notifier = notifier

    async def find(self, principal: Principal, canvas_id: str) -> CanvasSnapshot:
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
        """Durable when it returns; what was not to be changed is answered as it is, and told to nobody.

        `is_repeatable`: whoever asks for it a second time, not knowing whether it was made, does not change it twice.
        """
        sent: list[Change] = []

        def noted(snapshot: CanvasSnapshot) -> Change | None:
            change = decide(snapshot)
            sent[:] = [] if change is None else [change]
            return change

        try:
            outcome = await self._canvases.change(principal.user_id, parse_canvas_id(canvas_id), noted, seconds=seconds)
        except Unavailable as problem:
            if sent:
                raise Unavailable.after_sending(
                    problem.details["what"], is_repeatable=is_repeatable
                ) from problem
            raise
        if outcome is None:
            raise NotFound(what="canvas", id=canvas_id)
        if outcome.is_changed:
            self.notify(outcome.snapshot)
            await self.drop(outcome.orphaned_blobs)
        return outcome

    def notify(self, snapshot: CanvasSnapshot) -> None:
        canvas = snapshot.canvas
        self._notifier.notify(CanvasAppended(owned(canvas.user_id, canvas.canvas_id), canvas.last_seq))

    async def drop(self, keys: Iterable[str]) -> None:
        """Blobs that no row speaks of. One that stays because the store is away is swept later."""
        for key in keys:
            with contextlib.suppress(Unavailable):
                await self._blobs.delete(key)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def parse_canvas_id(canvas_id: str) -> CanvasId:
    """What can be no canvas's name is not worth a query."""
    if not is_name(canvas_id):
        raise NotFound(what="canvas", id=canvas_id[:200])
    return CanvasId(canvas_id)


def events_for(principal: Principal, canvas_id: str) -> CanvasEvents:
    return CanvasEvents(CanvasId(canvas_id), agent_id=principal.user_id, event_id=new_event_id())


def may_self_approve(principal: Principal) -> bool:
    """What an agent writes has to be accepted by a person before it runs without asking. RS-59"""
    return principal.kind is not PrincipalKind.AGENT


def acceptance_after_spec_change(principal: Principal, there: CanvasSnapshot, *, has_all_assets: bool) -> bool | None:
    """Whoever writes a spec stands for it, if they may; but not for a page that nobody has accepted, unless they bring all of it. RS-59"""
    if not may_self_approve(principal):
        return False
    return True if there.canvas.is_accepted or has_all_assets or not there.assets else None


def acceptance_after_asset_change(principal: Principal) -> bool | None:
    """A page presses buttons in the name of whoever looks at it: one that an agent wrote is no longer what a person accepted. RS-59"""
    return None if may_self_approve(principal) else False
