"""A minimal tool node that answers every call with its arguments. Run as `python -m bench.floors.node URL
TOKEN`.
"""

from __future__ import annotations

import asyncio
import json
import sys

import uvloop
from websockets.asyncio.client import connect

TOOL = {
    "name": "Echo",
    "description": "Says back what it hears.",
    "inputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
}


async def serve(url: str, token: str) -> None:
    async with connect(url, compression=None, proxy=None, max_queue=None) as socket:
        client = {"id": "bare", "version": "1", "platform": "bench", "mode": "node"}
        params = {
            "minProtocol": 1,
            "maxProtocol": 1,
            "client": client,
            "tools": [TOOL],
            "auth": {"token": token},
        }
        await socket.send(json.dumps({"type": "req", "id": "0", "method": "connect", "params": params}))
        hello = json.loads(await socket.recv())
        print("ready" if hello["ok"] else hello, flush=True)
        async for text in socket:
            said = json.loads(text)
            if said.get("event") == "tool.invoke":
                call = said["payload"]
                answer = {"callId": call["callId"], "result": call["args"]}
                await socket.send(
                    json.dumps({"type": "req", "id": "1", "method": "tool.result", "params": answer})
                )


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(*sys.argv[1:3]))
