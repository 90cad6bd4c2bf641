"""The event streams of runs and canvases, each a filtered subscription to one log. RS-02, RS-04, RS-05"""

from typing import TYPE_CHECKING

from starlette.responses import Response

from easel.core.principal import Scope
from easel.core.stream.filter import CANVAS, RUN_STATE, WHOLE_RUN, EventFilter
from easel.core.stream.log import parse_cursor
from easel.edges.http.calls import Call
from easel.edges.http.sse import EventStream
from easel.host.streams import Tails

if TYPE_CHECKING:
    from easel.edges.http.wire import StreamQuery


async def watch_run(call: Call) -> Response:
    return await _watch(call, call.host.tails, call.path["run_id"], WHOLE_RUN)


async def watch_run_state(call: Call) -> Response:
    return await _watch(call, call.host.tails, call.path["run_id"], RUN_STATE)


async def watch_canvas(call: Call) -> Response:
    return await _watch(call, call.host.canvas_tails, call.path["canvas_id"], CANVAS)


async def _watch(call: Call, tails: Tails, name: str, view: EventFilter) -> Response:
    params: StreamQuery = call.params
    header = call.request.headers.get("last-event-id")
    text = header if header is not None else params.last_event_id
    if params.debug == "1" and call.principal.has_scope(Scope.DEBUG):
        view = view.with_internal()
    subscription = await tails.open(
        call.principal, name, parse_cursor(text) if text is not None else None, view
    )
    return Response(status_code=204) if subscription is None else EventStream(subscription)
