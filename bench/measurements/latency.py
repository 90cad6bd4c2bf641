"""Latency for a person: from the POST of a run to its first event, and from the POST to its start.

The floor is an API and a worker process of the least code, with INSERT, NOTIFY and SELECT over the same
driver. Samples of both sides alternate, so that other load affects both alike. The bar holds for both kinds
of run: one that takes a moment, as one that calls a model does, and one that ends at once.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench import easel_processes
from bench.figures import Figure, at_most, percentile
from bench.processes import bench_module, child
from bench.setting import Setting, connected
from bench.wire import Connection, Server, read_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WARM_UP = 50
A_MOMENT = '{"script":[{"wait_ms":10},{"say":"hello"}]}'
PAUSE_SECONDS = 0.03
# Between two enqueues: an idle queue is measured, so the previous run must have ended.

# The start of the work: both sides store their first event then, by the clock of this machine, which is also
# the database's.
STARTED_AT = (
    "select run_id::text, extract(epoch from created_at)::float as at from run_events where seq = 1 and "
    "run_id::text = any($1)"
)


@dataclass(frozen=True, slots=True)
class Side:
    """A server to post to, its connection, and the database of its runs."""

    server: Server
    link: Connection
    database_url: str


async def latency(setting: Setting) -> list[Figure]:
    """POST of a run to its first SSE event, and to its start, against a bare API and worker."""
    samples = setting.size(500, 100)
    async with AsyncExitStack() as stack:
        sides = [await stack.enter_async_context(side(setting)) for side in (_easel, _floor)]
        first = await _first_events(sides, A_MOMENT, samples)
        setting.say(f"{samples} first events a side; now enqueue → start")
        starts = await _starts(sides, samples)
        noop = await _first_events(sides, "noop", samples)
    return [
        at_most("POST → first SSE event, p50", *_both(first, 0.5), unit="ms", bar=2),
        at_most("POST → first SSE event, p99", *_both(first, 0.99), unit="ms", bar=3),
        at_most("POST → first SSE event of a no-op run, p50", *_both(noop, 0.5), unit="ms", bar=2),
        at_most("POST → first SSE event of a no-op run, p99", *_both(noop, 0.99), unit="ms", bar=3),
        at_most("enqueue (POST) → start, p50", *_both(starts, 0.5), unit="ms", bar=2),
        at_most("enqueue (POST) → start, p99", *_both(starts, 0.99), unit="ms", bar=None),
    ]


async def _first_events(sides: list[Side], message: str, samples: int) -> list[list[float]]:
    took: list[list[float]] = [[] for _ in sides]
    for sample in range(WARM_UP + samples):
        for times, side in zip(took, sides, strict=True):
            began = time.perf_counter()
            run_id = await side.link.post_run(f"first-{sample}", message)
            # Read to the end, though only the first event counts: the next sample must not overlap with this
            # run's last writes.
            stream = await read_log(side.server, run_id)
            times.append((stream.first_at - began) * 1000)
    return [times[WARM_UP:] for times in took]


async def _starts(sides: list[Side], samples: int) -> list[list[float]]:
    posted: list[dict[str, float]] = [{} for _ in sides]
    for sample in range(samples):
        for times, side in zip(posted, sides, strict=True):
            began = time.time()
            times[await side.link.post_run(f"start-{sample}", A_MOMENT)] = began
            await asyncio.sleep(PAUSE_SECONDS)
    took: list[list[float]] = []
    for times, side in zip(posted, sides, strict=True):
        async with connected(side.database_url) as connection:
            started = await connection.fetch(STARTED_AT, list(times))
        if len(started) != samples:
            raise RuntimeError(f"{samples - len(started)} of {samples} runs did not start")
        took.append([(row["at"] - times[row["run_id"]]) * 1000 for row in started])
    return took


def _both(samples: list[list[float]], share: float) -> tuple[float, float]:
    return percentile(samples[0], share), percentile(samples[1], share)


@asynccontextmanager
async def _easel(setting: Setting) -> AsyncIterator[Side]:
    async with (
        setting.database() as url,
        easel_processes.api(setting, url) as api,
        easel_processes.worker(setting, url),
        api.server.connection() as link,
    ):
        yield Side(api.server, link, url)


@asynccontextmanager
async def _floor(setting: Setting) -> AsyncIterator[Side]:
    async with (
        setting.database("schema.sql") as url,
        child(bench_module("floors.runs_api", url), name="floor-api", folder=setting.folder) as api,
        child(bench_module("floors.runs_worker", url), name="floor-worker", folder=setting.folder) as worker,
    ):
        await worker.line("ready")
        server = Server((await api.line(r"http://\S+"))[0])
        async with server.connection() as link:
            yield Side(server, link, url)
