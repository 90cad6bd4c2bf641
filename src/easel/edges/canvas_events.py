"""The handlers of the methods that decide which canvases a connection receives events of.

A canvas is followed while the client is subscribed or has an open view. RS-67
"""

from collections.abc import Mapping
from typing import Any

from easel.edges import canvas_methods as canvases
from easel.edges.caller import Caller
from easel.edges.decoding import with_warnings
from easel.edges.delivery import Deliveries
from easel.edges.params import CloseCanvas, OfCanvas, OpenCanvas, Subscribe
from easel.edges.results import CanvasSubscription, ClosedCanvas, OpenedCanvas
from easel.errors import NotFound, TooMany


async def open_canvas(caller: Caller, params: OpenCanvas) -> OpenedCanvas:
    """Open a view; over HTTP it receives no events."""
    deliveries = caller.deliveries
    if deliveries is None:
        return await canvases.open_canvas(caller, params)
    async with deliveries.opening:
        opened = await canvases.open_canvas(caller, params)
        try:
            deliveries.follow(opened.canvasId, opened.viewId, opened.lastSeq)
        except TooMany:
            problem = f"this connection gets events of {deliveries.max_count} canvases and none of this one."
            return with_warnings(opened, [problem])
    return opened


async def close_canvas(caller: Caller, params: CloseCanvas) -> ClosedCanvas:
    closed = await canvases.close_canvas(caller, params)
    if caller.deliveries is not None:
        async with caller.deliveries.opening:  # the view may be of a request that is not answered yet
            await caller.deliveries.leave(closed.canvasId, closed.closed)
    return closed


async def subscribe(caller: Caller, params: Subscribe) -> CanvasSubscription:
    await _deliveries(caller).subscribe(params.canvasId, params.afterSeq)
    return CanvasSubscription(params.canvasId, subscribed=True)


async def unsubscribe(caller: Caller, params: OfCanvas) -> CanvasSubscription:
    """End the delivery of a canvas's events, also to open views."""
    if not await _deliveries(caller).unsubscribe(params.canvasId):
        raise NotFound(what="subscription to", id=params.canvasId[:200])
    return CanvasSubscription(params.canvasId, subscribed=False)


def start_events(caller: Caller, params: Mapping[str, Any]) -> None:
    """Start the delivery once the client has the answer that announces it."""
    _deliveries(caller).start(params["canvasId"])


def _deliveries(caller: Caller) -> Deliveries:
    assert caller.deliveries is not None  # `POST /api/rpc` refuses these methods
    return caller.deliveries
