"""The event streams of runs and canvases, each a filtered subscription to one log. RS-02, RS-04, RS-05"""

from starlette.responses import Response

from easel.core.principal import Principal
from easel.core.stream.filter import CANVAS, RUN_STATE, WHOLE_RUN, EventFilter
from easel.core.stream.log import parse_cursor
from easel.edges.http.calls import Call
from easel.edges.http.sse import EventStream
from easel.edges.http.wire import StreamQuery
from easel.host.streams import Subscription, Tails


async def watch_run(call: Call) -> Response:
    return await _watch(call, call.host.tails, call.path["run_id"], WHOLE_RUN)


async def watch_run_state(call: Call) -> Response:
    return await _watch(call, call.host.tails, call.path["run_id"], RUN_STATE)


async def watch_canvas(call: Call) -> Response:
    return await _watch(call, call.host.canvas_tails, call.path["canvas_id"], CANVAS)


async def _watch(call: Call, tails: Tails, name: str, view: EventFilter) -> Response:
    query: StreamQuery = call.params
    query.last_event_id = call.request.headers.get("last-event-id", query.last_event_id)
    subscription = await subscribe(tails, call.principal, name, view, query)
    return Response(status_code=204) if subscription is None else EventStream(subscription)


async def subscribe(
    tails: Tails, principal: Principal, name: str, view: EventFilter, query: StreamQuery
) -> Subscription | None:
    """Open a subscription with the cursor and the debug mode of the query; None at the end of a log."""
    if query.debug == "1" and principal.may_debug:
        view = view.with_internal()
    cursor = None if query.last_event_id is None else parse_cursor(query.last_event_id)
    return await tails.open(principal, name, cursor, view)
