"""How long a person waits: from the POST of a run to its first event, and from its enqueue to its start.

The floor is an API and a worker process of the least code, with INSERT, NOTIFY and SELECT over the same driver. Samples of both sides
alternate, one by one, so that whatever else the machine does falls on both alike.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from bench import easel_processes
from bench.figures import Figure, at_most, percentile
from bench.processes import bench_module, child
from bench.setting import Setting, connected
from bench.wire import Connection, Server, read_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WARM_UP = 50
PAUSE_SECONDS = 0.02
# Between two enqueues: an idle queue is what is measured, so the run before must be over.

# From the moment the row was inserted to the run's first event, by the database's clock. Both sides write their first event when work starts.
START_MS = """
select extract(epoch from e.created_at - r.created_at)::float * 1000 as ms
  from runs r join run_events e on e.run_id = r.run_id and e.seq = 1 where r.run_id = any($1)
"""


async def latency(setting: Setting) -> list[Figure]:
    """POST of a run to its first SSE event, and enqueue to start, against a bare API and worker."""
    samples = setting.size(1000, 150)
    async with AsyncExitStack() as stack:
        sides = [await stack.enter_async_context(side(setting)) for side in (_easel, _floor)]
        links = [await stack.enter_async_context(server.connection()) for server, _ in sides]
        first: tuple[list[float], list[float]] = ([], [])
        for sample in range(WARM_UP + samples):
            for side, link in enumerate(links):
                took = await _first_event(sides[side][0], link, f"first-{sample}")
                if sample >= WARM_UP:
                    first[side].append(took)
        setting.say(f"{samples} first events a side; now enqueue → start")
        started: tuple[list[str], list[str]] = ([], [])
        for sample in range(samples):
            for side, link in enumerate(links):
                started[side].append(await link.post_run(f"start-{sample}", "noop"))
                await asyncio.sleep(PAUSE_SECONDS)
        starts = [await _starts(database, ids) for (_, database), ids in zip(sides, started, strict=True)]
    return [
        at_most("POST → first SSE event, p50", *_both(first, 0.5), unit="ms", bar=2),
        at_most("POST → first SSE event, p99", *_both(first, 0.99), unit="ms", bar=3),
        at_most("enqueue → start, p50", *_both(starts, 0.5), unit="ms", bar=2),
        at_most("enqueue → start, p99", *_both(starts, 0.99), unit="ms", bar=None),
    ]


async def _first_event(server: Server, link: Connection, session_id: str) -> float:
    began = time.perf_counter()
    run_id = await link.post_run(session_id, "noop")
    # Read to the end, though only the first event counts: the next sample must not find this run's last writes under way.
    stream = await read_log(server, run_id)
    return (stream.first_at - began) * 1000


async def _starts(database_url: str, run_ids: list[str]) -> list[float]:
    async with connected(database_url) as connection:
        kind = await connection.fetchval(
            "select data_type from information_schema.columns where table_name = 'runs' and column_name = 'run_id'"
        )
        ids = [int(run_id) for run_id in run_ids] if kind == "bigint" else run_ids
        rows = await connection.fetch(START_MS, ids)
    if len(rows) != len(run_ids):
        raise RuntimeError(f"{len(run_ids) - len(rows)} of {len(run_ids)} runs did not start")
    return [row["ms"] for row in rows]


def _both(samples: tuple[list[float], list[float]] | list[list[float]], share: float) -> tuple[float, float]:
    return percentile(samples[0], share), percentile(samples[1], share)


@asynccontextmanager
async def _easel(setting: Setting) -> AsyncIterator[tuple[Server, str]]:
    async with (
        setting.database() as url,
        easel_processes.api(setting, url) as api,
        easel_processes.worker(setting, url),
    ):
        yield api.server, url


@asynccontextmanager
async def _floor(setting: Setting) -> AsyncIterator[tuple[Server, str]]:
    async with (
        setting.database("schema.sql") as url,
        child(bench_module("floors.runs_api", url), name="floor-api", folder=setting.folder) as api,
        child(bench_module("floors.runs_worker", url), name="floor-worker", folder=setting.folder) as worker,
    ):
        await worker.line("ready")
        yield Server((await api.line(r"http://\S+"))[0]), url
