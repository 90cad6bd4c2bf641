"""View bindings: the clients that display a canvas. CV-35

Owns the lifecycle of views. A view ends with the connection it was opened on. An instance renews the views of
its connections. After a crash of the instance its views expire: any instance closes them, and a client that
reconnects replaces its own views. Does not know sockets.
"""

import contextlib

import structlog

from easel.core.canvas.canvas import CanvasSnapshot, Change, View
from easel.core.principal import Principal, host_for
from easel.errors import NotFound, Unavailable
from easel.host.canvases.transactions import CanvasTransactions, events_for
from easel.host.periodic import Periodic
from easel.host.ports import CanvasStore
from easel.ids import new_view_id

NO_CONNECTION = "none"  # for a view that a single request opens; the view expires unless it is closed
EXPIRED_BATCH_SIZE = 100
VIEW_TTL_SECONDS = 60.0  # a view expires then, after its instance stops renewing it

log = structlog.get_logger("canvases")


class CanvasViews:
    """Opens, renews and closes the views of one instance."""

    def __init__(
        self,
        canvases: CanvasStore,
        transactions: CanvasTransactions,
        *,
        view_ttl_seconds: float = VIEW_TTL_SECONDS,
    ) -> None:
        self._canvases = canvases
        self._transactions = transactions
        self._ttl_seconds = view_ttl_seconds
        self._connections: set[str] = set()  # connections to this instance that opened a view
        interval = view_ttl_seconds / 3
        self.periodic = Periodic("views.renew", interval, self.once, delay=interval)

    async def open(
        self, principal: Principal, canvas_id: str, client_id: str, connection_id: str
    ) -> tuple[View, CanvasSnapshot]:
        """Open a view. Replaces views of the same person's client on other connections."""
        view = View(new_view_id(), client_id, connection_id, principal.responsible)
        events = events_for(principal, canvas_id)

        def decide(snapshot: CanvasSnapshot) -> Change:
            replaced = [other for other in snapshot.views if _is_replaced(other, view)]
            count = sum(other not in replaced for other in snapshot.live_views)
            revision = snapshot.canvas.revision
            closed = [events.view_closed(revision, old, count) for old in replaced]
            opened = events.view_opened(revision, view, count + 1)
            return Change(
                events=[*closed, opened],
                is_mutation=False,
                closed=[old.view_id for old in replaced],
                opened=view,
            )

        if connection_id != NO_CONNECTION:
            self._connections.add(connection_id)
        done = await self._transactions.apply(principal, canvas_id, decide, seconds=self._ttl_seconds)
        return view, done.after

    async def close(
        self,
        principal: Principal,
        canvas_id: str,
        connection_id: str,
        view_id: str | None,
        client_id: str | None = None,
    ) -> list[str]:
        """Close this connection's views of the canvas, or only `view_id` or those of `client_id`.

        Over plain HTTP all have the same connection, so only views of the same person are closed. Returns the
        ids of closed views.
        """
        snapshot = await self._transactions.find(principal, canvas_id)
        own = [
            view
            for view in snapshot.views
            if view.connection_id == connection_id
            and view.user_id == principal.responsible
            and view_id in (None, view.view_id)
            and client_id in (None, view.client_id)
        ]
        return [view.view_id for view in own if await self._close(principal, canvas_id, view)]

    async def close_connection(self, principal: Principal, connection_id: str) -> None:
        """Close all views of a connection that ended."""
        if connection_id not in self._connections:
            return
        self._connections.discard(connection_id)
        try:
            for _, canvas_id, view in await self._canvases.list_views(connection_id):
                with contextlib.suppress(NotFound):
                    await self._close(principal, canvas_id, view)
        except Unavailable:
            log.info("views.not_closed", connection_id=connection_id)  # the views expire later

    async def _close(
        self, principal: Principal, canvas_id: str, view: View, *, only_expired: bool = False
    ) -> bool:
        events = events_for(principal, canvas_id)

        def decide(snapshot: CanvasSnapshot) -> Change | None:
            current = next((other for other in snapshot.views if other.view_id == view.view_id), None)
            if current is None or (only_expired and current.is_live):
                return None
            count = sum(other.view_id != view.view_id for other in snapshot.live_views)
            event = events.view_closed(snapshot.canvas.revision, view, count)
            return Change(events=[event], is_mutation=False, closed=[view.view_id])

        return (await self._transactions.apply(principal, canvas_id, decide)).change is not None

    # -- renewal and expiry ----------------------------------------------------------------------------------

    async def once(self) -> int:
        """Renew this instance's views and close expired views of any instance.

        Returns how many were closed.
        """
        if self._connections:
            await self._canvases.renew_views(sorted(self._connections), self._ttl_seconds)
        expired = await self._canvases.list_expired_views(EXPIRED_BATCH_SIZE)
        closed = 0
        for account_id, canvas_id, view in expired:
            with contextlib.suppress(NotFound):
                closed += await self._close(host_for(account_id), canvas_id, view, only_expired=True)
        return closed


def _is_replaced(view: View, opened: View) -> bool:
    """Return whether `opened` replaces `view`: a client has one connection, so its older ones are closed.

    Two persons may use clients of the same name.
    """
    is_other = (
        NO_CONNECTION not in (view.connection_id, opened.connection_id)
        and view.connection_id != opened.connection_id
    )
    return is_other and (view.client_id, view.user_id) == (opened.client_id, opened.user_id)
