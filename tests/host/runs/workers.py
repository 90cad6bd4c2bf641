"""Helpers to run a worker, to let one crash, and to wait for runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from easel.core.run.batch import Batch
from easel.core.run.events import RunEvents
from easel.errors import Unavailable
from easel.ids import WorkerId
from tests.support.waiting import TIMEOUT_SECONDS, wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from easel.core.run.run import Claim, Run
    from easel.core.stream.envelope import Envelope
    from easel.host.runs.worker import RunWorker
    from easel.ids import RunId
    from tests.host.conftest import RunHarness


CRASHED_WORKER = WorkerId("wrk_crashed")
AFTER_CLAIM = 20.0  # seconds: longer than any claim, shorter than a run's timeout


async def claim_and_crash(harness: RunHarness, run_id: RunId, *events: Envelope) -> Claim:
    """Claim the run and write these events, as a worker that crashes then."""
    [claim] = await harness.runs.claim_queued(CRASHED_WORKER, 1, 15, 0)
    assert claim.run_id == run_id
    assert await harness.runs.append(
        Batch(claim, 1, [RunEvents(run_id, agent_id="main", node_id="x").start(claim.attempt), *events])
    )
    return claim


def run_events(run_id: RunId) -> RunEvents:
    return RunEvents(run_id, agent_id="main", node_id="x")


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


class UnreliableStore:
    """The store, unavailable for one worker while `is_unavailable`."""

    def __init__(self, harness: RunHarness) -> None:
        self._runs = harness.runs
        self.is_unavailable = False

    def __getattr__(self, name: str) -> Any:
        async def through(*args: Any, **more: Any) -> Any:
            if self.is_unavailable:
                raise Unavailable(what="The database")
            return await getattr(self._runs, name)(*args, **more)

        return through


class CountingStore(UnreliableStore):
    """The store with a count of its replies."""

    def __init__(self, harness: RunHarness) -> None:
        super().__init__(harness)
        self.replies: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        async def through(*args: Any, **more: Any) -> Any:
            reply = await getattr(self._runs, name)(*args, **more)
            self.replies[name] += 1
            return reply

        return through

    async def wait_for_replies(self, name: str, count: int) -> None:
        expected = self.replies[name] + count

        async def have_come() -> bool:
            return self.replies[name] >= expected

        await wait_for(have_come)
