"""Floor: one asyncio process that claims, starts and finishes each row alone, two commits per row, several
rows in flight.

Run as `python -m bench.floors.jobs_worker DATABASE_URL LANES`; it ends when the queue is empty.
"""

from __future__ import annotations

import asyncio
import sys

import asyncpg
import uvloop

from bench.floors.runs_worker import CLAIM

FINISH = (
    "update runs set status = 'completed', finished_at = clock_timestamp() where run_id = $1 and owner_id = "
    "'floor'"
)


async def lane(connection: asyncpg.Connection) -> None:
    claim = await connection.prepare(CLAIM)
    finish = await connection.prepare(FINISH)
    while (run_id := await claim.fetchval()) is not None:
        await finish.fetchval(run_id)


async def work(database_url: str, lanes: int) -> None:
    connections = await asyncio.gather(*(asyncpg.connect(database_url) for _ in range(lanes)))
    await asyncio.gather(*(lane(connection) for connection in connections))
    print("ended", flush=True)


if __name__ == "__main__":
    uvloop.run(work(sys.argv[1], int(sys.argv[2])))
