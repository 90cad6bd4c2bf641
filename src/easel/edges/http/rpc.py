"""The gateway's methods over HTTP: `POST /api/rpc {method, params}` answers the bare payload."""

from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.responses import Response

from easel.edges.http.calls import Call, json_answer
from easel.edges.methods import OF_A_CONNECTION, Caller, called
from easel.errors import BadInput


class RpcCall(Struct):
    method: Annotated[str, Meta(examples=["canvas.get"])]
    params: dict[str, Any] = {}


async def rpc(call: Call) -> Response:
    asked: RpcCall = call.asked
    if asked.method in OF_A_CONNECTION:
        raise BadInput(problem=f"{asked.method} works on the WebSocket only.")
    return json_answer(await called(Caller(call.host, call.principal), asked.method, asked.params))
