"""View bindings: which clients display a canvas now. CV-35

A view goes with the connection it was opened on. An instance renews the views of its connections; if it dies, they run out, and any
other instance tells so; or, before that, whoever comes back takes the place of what they had.
"""

import asyncio
import contextlib

import structlog

from easel.core.canvas.canvas import CanvasSnapshot, Change, View
from easel.core.principal import Principal
from easel.errors import NotFound, Unavailable
from easel.host.canvases.transactions import CanvasTransactions, events_for
from easel.host.ports import CanvasStore
from easel.ids import UserId, new_view_id

NO_CONNECTION = "none"  # of what was asked in a single request: such a view runs out unless it is closed
EXPIRED_BATCH_SIZE = 100

log = structlog.get_logger("canvases")


class CanvasViews:
    def __init__(
        self, canvases: CanvasStore, changes: CanvasTransactions, *, view_ttl_seconds: float
    ) -> None:
        self._canvases = canvases
        self._changes = changes
        self._seconds = view_ttl_seconds
        self._held: set[str] = set()  # connections of this instance that have opened a view
        self._duty: asyncio.Task[None] | None = None

    async def open(
        self, principal: Principal, canvas_id: str, client_id: str, connection_id: str
    ) -> tuple[View, CanvasSnapshot]:
        view = View(new_view_id(), client_id, connection_id)
        events = events_for(principal, canvas_id)

        def decide(snapshot: CanvasSnapshot) -> Change:
            left = [one for one in snapshot.views if _is_replaced(one, view)]
            count = sum(one not in left for one in snapshot.live_views)
            revision = snapshot.canvas.revision
            closed = [events.view_closed(revision, one.view_id, one.client_id, count) for one in left]
            opened = events.view_opened(revision, view.view_id, client_id, count + 1)
            return Change(
                events=[*closed, opened], is_mutation=False, closed=[one.view_id for one in left], opened=view
            )

        if connection_id != NO_CONNECTION:
            self._held.add(connection_id)
        outcome = await self._changes.apply(principal, canvas_id, decide, seconds=self._seconds)
        return view, outcome.snapshot

    async def close(
        self, principal: Principal, canvas_id: str, connection_id: str, view_id: str | None
    ) -> list[str]:
        """The views that this connection had open on the canvas, or the one that is named; which ones."""
        snapshot = await self._changes.find(principal, canvas_id)
        mine = [
            view
            for view in snapshot.views
            if view.connection_id == connection_id and view_id in (None, view.view_id)
        ]
        return [view.view_id for view in mine if await self._close(principal, canvas_id, view)]

    async def leave(self, principal: Principal, connection_id: str) -> None:
        """A connection is gone, and with it what it displayed."""
        if connection_id not in self._held:
            return
        self._held.discard(connection_id)
        try:
            for _, canvas_id, view in await self._canvases.list_views(connection_id):
                with contextlib.suppress(NotFound):
                    await self._close(principal, canvas_id, view)
        except Unavailable:
            log.info("views.not_closed", connection_id=connection_id)  # they run out by themselves

    async def _close(
        self, principal: Principal, canvas_id: str, view: View, *, only_dead: bool = False
    ) -> bool:
        events = events_for(principal, canvas_id)

        def decide(snapshot: CanvasSnapshot) -> Change | None:
            there = next((one for one in snapshot.views if one.view_id == view.view_id), None)
            if there is None or (only_dead and there.is_live):
                return None
            count = sum(one.view_id != view.view_id for one in snapshot.live_views)
            event = events.view_closed(snapshot.canvas.revision, view.view_id, view.client_id, count)
            return Change(events=[event], is_mutation=False, closed=[view.view_id])

        return (await self._changes.apply(principal, canvas_id, decide)).is_changed

    # -- what time brings ------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self._duty is None:
            self._duty = asyncio.create_task(self._keep_forever())

    async def stop(self) -> None:
        if self._duty is not None:
            self._duty.cancel()
            await asyncio.gather(self._duty, return_exceptions=True)

    async def _keep_forever(self) -> None:
        while True:
            await asyncio.sleep(self._seconds / 3)
            try:
                await self.once()
            except Unavailable:
                log.info("views.database_unavailable")
            except Exception:  # one canvas that breaks it must not end it for all
                log.exception("views.error")

    async def once(self) -> int:
        """Renew what is ours, and close what ran out, whosever it was; how many that were."""
        if self._held:
            await self._canvases.renew_views(sorted(self._held), self._seconds)
        expired = await self._canvases.list_expired_views(EXPIRED_BATCH_SIZE)
        closed = 0
        for user_id, canvas_id, view in expired:
            with contextlib.suppress(NotFound):
                closed += await self._close(_owner(user_id), canvas_id, view, only_dead=True)
        return closed


def _is_replaced(there: View, opened: View) -> bool:
    """A client has one connection: a view of the same one on another is left of an instance that died, or is about to be closed."""
    is_other = (
        NO_CONNECTION not in (there.connection_id, opened.connection_id)
        and there.connection_id != opened.connection_id
    )
    return is_other and there.client_id == opened.client_id


def _owner(user_id: UserId) -> Principal:
    return Principal(user_id, user_id)
