"""Helpers to run a worker and to wait for its runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

from tests.support.waiting import TIMEOUT_SECONDS, wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from easel.core.run.run import Run
    from easel.host.runs.worker import RunWorker
    from easel.ids import RunId
    from tests.host.conftest import RunHarness


def script(*steps: dict[str, Any]) -> str:
    return json.dumps({"script": steps})


class HandClock:
    """Replaces `time` of a module: it advances only by `ahead`, however slow the machine is."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._began = time.monotonic()

    def monotonic(self) -> float:
        return self._began + self.ahead


async def wait_until_ended(harness: RunHarness, run_id: RunId) -> Run:
    async def has_ended() -> bool:
        return (await harness.run(run_id)).is_terminal

    await wait_for(has_ended)
    return await harness.run(run_id)


@contextlib.asynccontextmanager
async def working(worker: RunWorker) -> AsyncGenerator[asyncio.Event]:
    """Run the worker until the block ends; setting the event stops it earlier."""
    stop = asyncio.Event()
    task = asyncio.create_task(worker.work(stop))
    try:
        yield stop
    finally:
        stop.set()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await task
