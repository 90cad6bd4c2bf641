"""The cost of `easel up` on SQLite: time to the first page, and memory, idle and after a thousand runs."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench import easel_processes
from bench.figures import Figure, at_most, median, within
from bench.waiting import wait_for

if TYPE_CHECKING:
    from bench.setting import Setting
    from bench.wire import Server

FIRST_PAGE_SECONDS = 3.0
MEMORY_MB = 150.0
POSTERS = 8
DEADLINE_SECONDS = 120.0


async def footprint(setting: Setting) -> list[Figure]:
    """`easel up` on SQLite: time to the first page, and memory."""
    starts: list[float] = []
    for _ in range(setting.size(3, 1)):
        began = time.monotonic()
        async with easel_processes.up(setting) as easel:
            await _first_page(easel.server)
            starts.append(time.monotonic() - began)
    count = setting.size(1000, 200)
    async with easel_processes.up(setting) as easel:
        await easel_processes.ready(easel.server, easel.process)
        await _first_page(easel.server)
        await asyncio.sleep(1.0)
        idle_mb = _memory_mb(easel.process.pid)
        await _complete(easel.server, count)
        peak_mb = _peak_memory_mb(easel.process.pid)
    return [
        within(
            "easel up: command to first page", median(starts), FIRST_PAGE_SECONDS, unit="s", what="promised"
        ),
        within("easel up: memory, idle", idle_mb, MEMORY_MB, unit="MB", what="promised"),
        within(f"easel up: peak memory over {count:,} runs", peak_mb, MEMORY_MB, unit="MB", what="promised"),
        at_most(f"easel up: growth by {count:,} runs", peak_mb, idle_mb, unit="MB", bar=None, against="idle"),
    ]


async def _first_page(server: Server) -> None:
    async with server.connection() as connection:
        await connection.ask("GET", "/")


async def _complete(server: Server, count: int) -> None:
    """Post no-op runs over several connections and wait until all have ended."""
    numbers = iter(range(count))

    async def post_some() -> str:
        run_id = ""
        async with server.connection() as connection:
            for number in numbers:
                run_id = await connection.post_run(f"noop-{number}", "noop")
        return run_id

    await asyncio.gather(*(post_some() for _ in range(POSTERS)))
    async with server.connection() as connection:

        async def none_is_left() -> bool:
            return not (await connection.ask("GET", "/api/runs?statuses=queued,running"))["runs"]

        await wait_for(none_is_left, within=DEADLINE_SECONDS, every=0.1, what=f"{count} no-op runs completed")


def _memory_mb(pid: int) -> float:
    process = psutil.Process(pid)
    return sum(one.memory_info().rss for one in (process, *process.children(recursive=True))) / 2**20


def _peak_memory_mb(pid: int) -> float:
    """Return the kernel's high-water mark if available, otherwise the current memory."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        mark = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(mark.split()[1]) / 1024
    return _memory_mb(pid)
