"""Changing canvases: decided under the canvas's lock, told to whoever watches, and tidied up after. All stories of canvases do it so."""

import contextlib
import time
from collections.abc import Iterable

from easel.core.canvas.canvas import CanvasSnapshot, Change, Decide, Outcome
from easel.core.canvas.events import CanvasEvents
from easel.core.principal import PrincipalKind, Principal
from easel.core.stream.notifications import CanvasAppended
from easel.errors import NotFound, Unavailable
from easel.host.ports import Notifier, Blobs, CanvasStore
from easel.ids import CanvasId, is_name, new_event_id, owned


class CanvasTransactions:
    def __init__(self, canvases: CanvasStore, blobs: Blobs, bell: Notifier) -> None:
        self._canvases = canvases
        self._blobs = blobs
        self._bell = bell

    async def find(self, who: Principal, canvas_id: str) -> CanvasSnapshot:
        whole = await self._canvases.get(who.user_id, named(canvas_id))
        if whole is None:
            raise NotFound(what="canvas", id=canvas_id)
        return whole

    async def apply(
        self,
        who: Principal,
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

        def noted(whole: CanvasSnapshot) -> Change | None:
            change = decide(whole)
            sent[:] = [] if change is None else [change]
            return change

        try:
            outcome = await self._canvases.change(who.user_id, named(canvas_id), noted, seconds=seconds)
        except Unavailable as problem:
            if sent:
                raise Unavailable.after_sending(
                    problem.details["what"], is_repeatable=is_repeatable
                ) from problem
            raise
        if outcome is None:
            raise NotFound(what="canvas", id=canvas_id)
        if outcome.is_changed:
            self.ring(outcome.whole)
            await self.drop(outcome.orphaned_blobs)
        return outcome

    def ring(self, whole: CanvasSnapshot) -> None:
        canvas = whole.canvas
        self._bell.ring(CanvasAppended(owned(canvas.user_id, canvas.canvas_id), canvas.last_seq))

    async def drop(self, keys: Iterable[str]) -> None:
        """Blobs that no row speaks of. One that stays because the store is away is swept later."""
        for key in keys:
            with contextlib.suppress(Unavailable):
                await self._blobs.delete(key)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def named(canvas_id: str) -> CanvasId:
    """What can be no canvas's name is not worth a query."""
    if not is_name(canvas_id):
        raise NotFound(what="canvas", id=canvas_id[:200])
    return CanvasId(canvas_id)


def events_of(who: Principal, canvas_id: str) -> CanvasEvents:
    return CanvasEvents(CanvasId(canvas_id), agent_id=who.user_id, event_id=new_event_id())


def stands(who: Principal) -> bool:
    """What an agent writes has to be accepted by a person before it runs without asking. RS-59"""
    return who.kind is not PrincipalKind.AGENT


def acceptance(who: Principal, there: CanvasSnapshot, *, has_all_assets: bool) -> bool | None:
    """Whoever writes a spec stands for it, if they may; but not for a page that nobody has accepted, unless they bring all of it. RS-59"""
    if not stands(who):
        return False
    return True if there.canvas.is_accepted or has_all_assets or not there.assets else None


def ends_acceptance(who: Principal) -> bool | None:
    """A page presses buttons in the name of whoever looks at it: one that an agent wrote is no longer what a person accepted. RS-59"""
    return None if stands(who) else False
