"""The gateway's methods over HTTP: `POST /api/rpc {method, params}` answers the bare payload."""

from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.responses import Response

from easel.edges.http.calls import Call, json_answer
from easel.edges.methods import CONNECTION_METHODS, Caller, dispatch
from easel.errors import BadInput


class RpcCall(Struct):
    method: Annotated[str, Meta(examples=["canvas.get"])]
    params: dict[str, Any] = {}


async def rpc(call: Call) -> Response:
    asked: RpcCall = call.asked
    if asked.method in CONNECTION_METHODS:
        raise BadInput(problem=f"{asked.method} works on the WebSocket only.")
    return json_answer(await dispatch(Caller(call.host, call.principal), asked.method, asked.params))
