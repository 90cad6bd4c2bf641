"""procrastinate: `python -m bench.peers.procrastinate_noop DATABASE_URL JOBS LANES` prints `rate N`."""

from __future__ import annotations

import asyncio
import logging
import sys

import procrastinate

RATE = """
select count(*) filter (where type = 'succeeded') as finished,
       extract(epoch from max(at) filter (where type = 'succeeded')
                     - min(at) filter (where type = 'started'))::float as seconds
  from procrastinate_events
"""


async def main(database_url: str, jobs: int, lanes: int) -> None:
    logging.disable(logging.INFO)
    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(conninfo=database_url, max_size=lanes + 2)
    )

    @app.task(name="noop")
    async def noop() -> None:
        return None

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await noop.batch_defer_async(*({} for _ in range(jobs)))
        await app.run_worker_async(
            concurrency=lanes, wait=False, install_signal_handlers=False, listen_notify=False
        )
        row = await app.connector.execute_query_one_async(RATE)
    assert row["finished"] == jobs, row
    print(f"rate {jobs / row['seconds']:.1f}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
