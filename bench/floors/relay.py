"""Floor: a bare gateway that forwards requests of clients to the connected node, and its answers back.

Run as `python -m bench.floors.relay`: clients at `/ws`, one node at `/node`. No checks and no sign-in.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from bench.floors.serve import serve

if TYPE_CHECKING:
    from starlette.websockets import WebSocket


def main() -> None:
    nodes: list[WebSocket] = []
    waiting: dict[str, asyncio.Future[Any]] = {}
    numbers = itertools.count(1)

    async def send(socket: WebSocket, **frame: Any) -> None:
        await socket.send({"type": "websocket.send", "text": json.dumps(frame)})

    async def serve_node(socket: WebSocket) -> None:
        await socket.accept()
        await socket.receive()
        await send(socket, type="res", id="0", ok=True)
        nodes[:] = [socket]
        while (message := await socket.receive())["type"] == "websocket.receive":
            answer = json.loads(message["text"])["params"]
            waiting.pop(answer["callId"]).set_result(answer["result"])

    async def serve_client(socket: WebSocket) -> None:
        await socket.accept()
        while (message := await socket.receive())["type"] == "websocket.receive":
            asked = json.loads(message["text"])
            call_id = str(next(numbers))
            answer = waiting[call_id] = asyncio.get_running_loop().create_future()
            await send(
                nodes[0],
                type="evt",
                event="tool.invoke",
                payload={"callId": call_id, "tool": "Echo", "args": asked["params"]["args"]},
            )
            await send(socket, type="res", id=asked["id"], ok=True, payload=await answer)

    serve(Starlette(routes=[WebSocketRoute("/ws", serve_client), WebSocketRoute("/node", serve_node)]))


if __name__ == "__main__":
    main()
