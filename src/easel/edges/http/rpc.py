"""The gateway's methods over HTTP: `POST /api/rpc {method, params}` returns the payload."""

import asyncio
from typing import Annotated, Any

from msgspec import Meta
from starlette.requests import ClientDisconnect

from easel.edges.caller import Caller
from easel.edges.decoding import Params
from easel.edges.http.calls import Call, watch_disconnect
from easel.edges.methods import CONNECTION_METHODS, METHODS, dispatch
from easel.errors import BadInput


class RpcCall(Params):
    method: Annotated[str, Meta(examples=["canvas.get"])]
    params: dict[str, Any] | None = None


async def rpc(call: Call) -> Any:
    request: RpcCall = call.params
    method = METHODS.get(request.method)
    if request.method in CONNECTION_METHODS or (method is not None and method.needs_socket):
        raise BadInput(problem=f"{request.method} is available on the WebSocket only.")
    if request.method == "tool.invoke":
        return await _invoke(call, request)
    return await dispatch(Caller(call.host, call.principal), request.method, request.params)


async def _invoke(call: Call, request: RpcCall) -> Any:
    """Call a tool; it is cancelled if the client disconnects or signs out, as on a WebSocket. RS-67"""
    calling = asyncio.create_task(dispatch(Caller(call.host, call.principal), request.method, request.params))
    try:
        async with (
            watch_disconnect(call.request.receive) as disconnect,
            call.host.revocation.while_valid(call.principal),
        ):
            await asyncio.wait({calling, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not calling.done():
            raise ClientDisconnect
        return calling.result()
    finally:
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
