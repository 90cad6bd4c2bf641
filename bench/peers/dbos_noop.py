"""DBOS: `python -m bench.peers.dbos_noop DATABASE_URL JOBS LANES` prints `rate N`. Configured for speed:
asynchronous workflows, no concurrency limit, and its queue polled every 10 ms instead of every second.
"""

from __future__ import annotations

import sys
import time

import sqlalchemy
from dbos import DBOS, DBOSConfig

RATE = """
select count(*) filter (where status = 'SUCCESS') as finished,
       (max(coalesce(completed_at, updated_at)) - min(started_at_epoch_ms)) / 1000.0 as seconds
  from dbos.workflow_status
"""
DEADLINE_SECONDS = 120.0
POLL_SECONDS = 0.01


def main(database_url: str, jobs: int, lanes: int) -> None:
    config: DBOSConfig = {
        "name": "noop",
        "system_database_url": database_url,
        "sys_db_pool_size": lanes + 4,
        "log_level": "WARNING",
    }
    DBOS(config=config)

    @DBOS.workflow()
    async def noop() -> None:
        return None

    DBOS.launch()
    try:
        # A queue that is not registered yet is filled but not served: registering it starts the clock.
        for _ in range(jobs):
            DBOS.enqueue_workflow("noops", noop)
        DBOS.register_queue("noops", polling_interval_sec=POLL_SECONDS)
        print(f"rate {_rate_when_finished(database_url, jobs):.1f}", flush=True)
    finally:
        DBOS.destroy()


def _rate_when_finished(database_url: str, jobs: int) -> float:
    engine = sqlalchemy.create_engine(database_url)
    deadline = time.monotonic() + DEADLINE_SECONDS
    finished = 0
    while time.monotonic() < deadline:
        with engine.connect() as connection:
            finished, seconds = connection.execute(sqlalchemy.text(RATE)).one()
        if finished == jobs:
            return jobs / float(seconds)
        time.sleep(0.2)
    raise TimeoutError(f"{finished} of {jobs} finished")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
