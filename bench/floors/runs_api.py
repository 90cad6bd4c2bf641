"""Floor: an API that queues a run and streams its log. INSERT and NOTIFY in one statement, SELECT on each
notification.

Run as `python -m bench.floors.runs_api DATABASE_URL`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from bench.floors.serve import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

POLL_SECONDS = 1.0

ENQUEUE = (
    "with queued as (insert into runs (input) values ($1) returning run_id) select run_id, "
    "pg_notify('queued', '') from queued"
)
READ = (
    "select seq, event_type, payload::text from run_events where run_id = $1 and seq > $2 order by seq "
    "limit 100"
)


def main(database_url: str) -> None:
    bells: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        ear = await asyncpg.connect(database_url)
        await ear.add_listener("appended", lambda _c, _p, _ch, run_id: bells[int(str(run_id))].set())
        # asyncpg's reset on release costs a round trip, and no connection here has state to reset.
        async with asyncpg.create_pool(database_url, min_size=4, max_size=16, reset=_keep_as_is) as pool:
            app.state.pool = pool
            yield
        await ear.close()

    async def post_run(request: Request) -> JSONResponse:
        asked = json.loads(await request.body())
        run_id = await request.app.state.pool.fetchval(ENQUEUE, asked["message"])
        return JSONResponse({"run_id": str(run_id), "status": "queued"}, status_code=202)

    async def stream(request: Request) -> StreamingResponse:
        run_id = int(request.path_params["run_id"])
        return StreamingResponse(_events(request.app.state.pool, run_id), media_type="text/event-stream")

    async def _events(pool: asyncpg.Pool, run_id: int) -> AsyncIterator[str]:
        cursor = 0
        notifier = bells[run_id]
        try:
            while True:
                notifier.clear()
                rows = await pool.fetch(READ, run_id, cursor)
                for seq, event_type, payload in rows:
                    yield f"id: {seq}\nevent: {event_type}\ndata: {payload}\n\n"
                    cursor = seq
                    if event_type == "done":
                        return
                if not rows:
                    try:
                        await asyncio.wait_for(notifier.wait(), POLL_SECONDS)
                    except TimeoutError:
                        continue
        finally:
            bells.pop(run_id, None)

    serve(
        Starlette(
            routes=[
                Route("/api/runs", post_run, methods=["POST"]),
                Route("/api/runs/{run_id}/events", stream),
            ],
            lifespan=lifespan,
        )
    )


async def _keep_as_is(_connection: object) -> None:
    return None


if __name__ == "__main__":
    main(sys.argv[1])
