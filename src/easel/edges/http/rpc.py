"""The gateway's methods over HTTP: `POST /api/rpc {method, params}` returns the payload."""

from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from easel.edges.decoding import Params
from easel.edges.http.calls import Call, json_response
from easel.edges.methods import CONNECTION_METHODS, Caller, dispatch
from easel.errors import BadInput


class RpcCall(Params):
    method: Annotated[str, Meta(examples=["canvas.get"])]
    params: dict[str, Any] | None = None


async def rpc(call: Call) -> Response:
    request: RpcCall = call.params
    if request.method in CONNECTION_METHODS:
        raise BadInput(problem=f"{request.method} is available on the WebSocket only.")
    return json_response(await dispatch(Caller(call.host, call.principal), request.method, request.params))
