"""The bench's client of the gateway: one request at a time on each connection."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import TYPE_CHECKING, Any

from websockets.asyncio.client import ClientConnection, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

REQUEST_NUMBERS = itertools.count(1)


@contextlib.asynccontextmanager
async def socket_to(url: str) -> AsyncIterator[ClientConnection]:
    async with connect(url, compression=None, ping_interval=None, max_queue=None, proxy=None) as socket:
        yield socket


@contextlib.asynccontextmanager
async def gateway(base_url: str, token: str, client_id: str = "bench") -> AsyncIterator[ClientConnection]:
    async with socket_to(base_url.replace("http", "ws", 1) + "/ws") as socket:
        client = {"id": client_id, "version": "1", "platform": "bench", "mode": "client"}
        await ask(socket, "connect", minProtocol=1, maxProtocol=1, client=client, auth={"token": token})
        yield socket


async def ask(socket: ClientConnection, method: str, **params: Any) -> Any:
    """Send one request at a time on each connection; events in between are counted elsewhere."""
    await socket.send(
        json.dumps({"type": "req", "id": str(next(REQUEST_NUMBERS)), "method": method, "params": params})
    )
    while (frame := json.loads(await socket.recv()))["type"] != "res":
        pass
    if not frame["ok"]:
        raise RuntimeError(f"{method}: {frame['error']}")
    return frame["payload"]
