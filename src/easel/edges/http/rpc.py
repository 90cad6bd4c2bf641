"""The gateway's methods over HTTP: `POST /api/rpc {method, params}` answers the bare payload."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from easel.core.canvas.canvas import Canvas
from easel.edges.http.calls import Call, json_answer
from easel.errors import BadInput, NotFound

# They need a connection that stays, which a single request is not.
OF_A_CONNECTION = frozenset({"connect", "tool.result", "canvas.subscribe"})


class RpcCall(Struct):
    method: Annotated[str, Meta(examples=["canvas.get"])]
    params: dict[str, Any] = {}


class CreateCanvas(Struct, forbid_unknown_fields=True):
    canvasId: str  # noqa: N815 - the spec's own word
    agentId: str = "main"  # noqa: N815
    title: str | None = None
    spec: dict[str, Any] = {}
    state: dict[str, Any] | None = None


class NamedCanvas(Struct, forbid_unknown_fields=True):
    canvasId: str  # noqa: N815


@dataclass(frozen=True, slots=True)
class Method:
    params: type[Any]
    handler: Callable[[Call, Any], Awaitable[Any]]


async def rpc(call: Call) -> Response:
    asked: RpcCall = call.asked
    if asked.method in OF_A_CONNECTION:
        raise BadInput(problem=f"{asked.method} works on the WebSocket only.")
    method = METHODS.get(asked.method)
    if method is None:
        raise NotFound(what="method", id=asked.method)
    try:
        params = msgspec.convert(asked.params, type=method.params)
    except msgspec.ValidationError as problem:
        raise BadInput(problem=f"params of {asked.method} do not fit: {problem}.") from None
    return json_answer(await method.handler(call, params))


async def create_canvas(call: Call, params: CreateCanvas) -> Any:
    spec = params.spec or {"version": 1, "mode": "html"}
    state: Any = params.state if params.state is not None else spec.get("state", {})
    if not isinstance(state, dict):
        raise BadInput(problem="spec.state is an object.")
    held = cast("dict[str, Any]", state)
    return canvas_view(
        await call.host.canvases.create(call.who, params.canvasId, agent_id=params.agentId, title=params.title, spec=spec, state=held)
    )


async def get_canvas(call: Call, params: NamedCanvas) -> Any:
    return canvas_view(await call.host.canvases.get(call.who, params.canvasId))


async def delete_canvas(call: Call, params: NamedCanvas) -> Any:
    await call.host.canvases.delete(call.who, params.canvasId)
    return {"canvasId": params.canvasId, "deleted": True}


METHODS: Mapping[str, Method] = {
    "canvas.create": Method(CreateCanvas, create_canvas),
    "canvas.get": Method(NamedCanvas, get_canvas),
    "canvas.delete": Method(NamedCanvas, delete_canvas),
}


def canvas_view(canvas: Canvas) -> dict[str, Any]:
    descriptor = {
        "canvasId": canvas.canvas_id,
        "agentId": canvas.agent_id,
        "title": canvas.title,
        "ownerSessionKey": f"agent:{canvas.agent_id}:main",
        "mode": canvas.spec.get("mode", "html"),
        "createdAt": int(canvas.created_at.timestamp() * 1000),
        "updatedAt": int(canvas.updated_at.timestamp() * 1000),
        "revision": canvas.revision,
        "lastSeq": canvas.last_seq,
    }
    return {
        "descriptor": descriptor,
        "spec": canvas.spec,
        "state": canvas.state,
        "assets": [],
        "views": [],
        "revision": canvas.revision,
    }
