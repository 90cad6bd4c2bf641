"""Floor: a bare SSE loop. One task makes the events of a run in memory and puts each into the queue of every
viewer.

It accepts the run API's two requests and the scripted model's `wait_ms` and `ticks`, so that one client
serves both sides. Nothing is durable. Run as `python -m bench.floors.broadcast`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from bench.floors.serve import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

DONE = "done"


def main() -> None:
    viewers: dict[str, list[asyncio.Queue[tuple[str, str]]]] = {}
    playing: set[asyncio.Task[None]] = set()
    numbers = itertools.count(1)

    async def play(run_id: str, script: list[dict[str, Any]]) -> None:
        seq = itertools.count(1)
        loop = asyncio.get_running_loop()

        def tell(event_type: str, data: dict[str, Any]) -> None:
            number = next(seq)
            ts = datetime.now(UTC).isoformat()
            envelope = json.dumps(
                {"seq": number, "type": event_type, "ts": ts, "data": {**data, "visibility": "public"}}
            )
            frame = f"id: {number}\nevent: {event_type}\ndata: {envelope}\n\n"
            for queue in viewers[run_id]:
                queue.put_nowait((event_type, frame))

        for step in script:
            if "wait_ms" in step:
                await asyncio.sleep(step["wait_ms"] / 1000)
            due = loop.time()
            for tick in range(step.get("ticks", 0)):
                due += step["every_ms"] / 1000
                await asyncio.sleep(max(0.0, due - loop.time()))
                tell("message.delta", {"message_id": "message-1", "text": f"tick {tick + 1}\n"})
        tell(DONE, {"status": "completed"})

    async def post_run(request: Request) -> JSONResponse:
        asked = json.loads(await request.body())
        run_id = str(next(numbers))
        viewers[run_id] = []
        task = asyncio.create_task(play(run_id, json.loads(asked["message"])["script"]))
        playing.add(task)
        task.add_done_callback(playing.discard)
        return JSONResponse({"run_id": run_id, "status": "queued"}, status_code=202)

    async def events(run_id: str) -> AsyncIterator[str]:
        queue: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        viewers[run_id].append(queue)
        while True:
            event_type, frame = await queue.get()
            yield frame
            if event_type == DONE:
                return

    async def stream(request: Request) -> StreamingResponse:
        return StreamingResponse(events(request.path_params["run_id"]), media_type="text/event-stream")

    serve(
        Starlette(
            routes=[
                Route("/api/runs", post_run, methods=["POST"]),
                Route("/api/runs/{run_id}/events", stream),
            ]
        )
    )


if __name__ == "__main__":
    main()
