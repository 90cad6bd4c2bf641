"""Floor: a worker that waits for a notification, claims a run, appends its first event, notifies and finishes
the run.

Run as `python -m bench.floors.runs_worker DATABASE_URL`.
"""

from __future__ import annotations

import asyncio
import sys

import asyncpg
import uvloop

POLL_SECONDS = 1.0

CLAIM = """
update runs set status = 'running', owner_id = 'floor', attempt = attempt + 1, started_at = clock_timestamp()
 where run_id = (
   select run_id from runs where status = 'queued' order by run_id for update skip locked limit 1)
returning run_id
"""
APPEND = """
with appended as (insert into run_events (run_id, seq, event_type, payload)
                  values ($1, 1, 'done', '{"status": "completed"}'))
select pg_notify('appended', $1::bigint::text)
"""


async def work(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    ear = await asyncpg.connect(database_url)
    rung = asyncio.Event()
    await ear.add_listener("queued", lambda *_: rung.set())
    claim = await connection.prepare(CLAIM)
    append = await connection.prepare(APPEND)
    print("ready", flush=True)
    while True:
        rung.clear()
        while (run_id := await claim.fetchval()) is not None:
            await append.fetchval(run_id)
        try:
            await asyncio.wait_for(rung.wait(), POLL_SECONDS)
        except TimeoutError:
            continue


if __name__ == "__main__":
    uvloop.run(work(sys.argv[1]))
