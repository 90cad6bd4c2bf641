"""Floor: a bare WebSocket echo on the same HTTP server as Easel.

Run as `python -m bench.floors.echo`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from bench.floors.serve import serve

if TYPE_CHECKING:
    from starlette.websockets import WebSocket


async def echo(socket: WebSocket) -> None:
    await socket.accept()
    while (message := await socket.receive())["type"] == "websocket.receive":
        await socket.send({"type": "websocket.send", "text": message["text"]})


if __name__ == "__main__":
    serve(Starlette(routes=[WebSocketRoute("/ws", echo)]))
