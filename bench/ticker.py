"""A worker that writes at a set pace: it claims the one queued run and appends an event at each interval.

A real worker merges a model's deltas for a moment before they become events, so it cannot produce 50 a
second; this one uses the same log writer, store and notifier. Run as `python -m bench.ticker DATABASE_URL
WAIT_MS TICKS EVERY_MS`; it prints `ended` when the run is done.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

import uvloop

from bench import our_store
from easel.core.run.status import Status
from easel.host.artifacts.artifacts import Artifacts
from easel.host.audit.audit import Audit
from easel.host.runs.log_writer import RunLogWriter
from easel.ids import answer_id
from easel.stores.blobs.store import open_blobs
from easel.stores.postgres import open_postgres


async def tick(database_url: str, wait_ms: int, ticks: int, every_ms: int) -> None:
    database = await open_postgres(database_url)
    try:
        (claim,) = await our_store.claim(database, our_store.worker(), 1)
        message_id = answer_id(claim.run_id)
        blobs = open_blobs(tempfile.mkdtemp(prefix="easel-bench-blobs-"))
        keeper = Artifacts(database.artifacts, blobs, max_bytes=1_000_000, grace_seconds=3600)
        log = RunLogWriter(
            claim,
            database.runs,
            keeper,
            database.notifier,
            Audit(database.audit),
            on_cancel_requested=lambda: None,
        )
        await asyncio.sleep(wait_ms / 1000)
        loop = asyncio.get_running_loop()
        due = loop.time()
        for number in range(1, ticks + 1):
            due += every_ms / 1000
            await asyncio.sleep(max(0.0, due - loop.time()))
            log.write(log.events.delta(message_id, f"tick {number}\n"))
        await log.end("", Status.COMPLETED, None)
    finally:
        await database.close()
    print("ended", flush=True)


if __name__ == "__main__":
    url, *numbers = sys.argv[1:]
    uvloop.run(tick(url, *(int(number) for number in numbers)))
