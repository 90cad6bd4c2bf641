"""pgqueuer: `python -m bench.peers.pgqueuer_noop DATABASE_URL JOBS LANES` prints `rate N`. It claims and
finishes in batches of ten, its default.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

if TYPE_CHECKING:
    from pgqueuer.models import Job

RATE = """
select count(*) filter (where status = 'successful') as finished,
       extract(epoch from max(created) filter (where status = 'successful')
                     - min(created) filter (where status = 'picked'))::float as seconds
  from pgqueuer_log
"""


async def main(database_url: str, jobs: int, lanes: int) -> None:
    logging.disable(logging.INFO)
    async with asyncpg.create_pool(database_url, min_size=2, max_size=lanes) as pool:
        driver = AsyncpgPoolDriver(pool)
        queries = Queries(driver)
        await queries.install()
        await queries.enqueue(["noop"] * jobs, [None] * jobs, [0] * jobs)
        queue = PgQueuer(driver)

        @queue.entrypoint("noop")
        async def noop(_job: Job) -> None:
            return None

        await queue.run(mode=QueueExecutionMode.drain)
    connection = await asyncpg.connect(database_url)
    row = await connection.fetchrow(RATE)
    await connection.close()
    assert row is not None
    assert row["finished"] == jobs, row
    print(f"rate {jobs / row['seconds']:.1f}", flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
