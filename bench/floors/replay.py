"""Floor: stored events over SSE, read in pages and sent a page at a time.

Run as `python -m bench.floors.replay DATABASE_URL PAGE`.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

from bench.floors.serve import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

READ = """
select seq, event_type, payload::text, to_char(created_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
  from run_events where run_id = $1 and seq > $2 order by seq limit $3
"""


def main(database_url: str, page: int) -> None:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with asyncpg.create_pool(database_url, min_size=2, max_size=8) as pool:
            app.state.pool = pool
            yield

    async def events(pool: asyncpg.Pool, run_id: int) -> AsyncIterator[str]:
        cursor = 0
        async with pool.acquire() as connection:
            read = await connection.prepare(READ)
            while rows := await read.fetch(run_id, cursor, page):
                yield "".join(
                    f"id: {seq}\nevent: {event_type}\ndata: "
                    f'{{"seq":{seq},"type":"{event_type}","ts":"{ts}","data":{payload}}}\n\n'
                    for seq, event_type, payload, ts in rows
                )
                cursor = rows[-1][0]

    async def stream(request: Request) -> StreamingResponse:
        return StreamingResponse(
            events(request.app.state.pool, int(request.path_params["run_id"])), media_type="text/event-stream"
        )

    serve(Starlette(routes=[Route("/api/runs/{run_id}/events", stream)], lifespan=lifespan))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
