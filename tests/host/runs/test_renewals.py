"""Claims are renewed although the rows of busy runs are locked for much of the time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from easel.core.run.status import Status
from easel.host.runs import worker as run_worker
from easel.host.runs.worker import SAFETY
from tests.host.conftest import TestTool
from tests.host.runs.workers import HandClock, script, wait_until_ended
from tests.requirements import rule
from tests.support.waiting import within_timeout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pytest

    from easel.core.run.run import Claim
    from easel.ids import RunId
    from tests.host.conftest import RunHarness

CLAIM_SECONDS = 15.0


class OftenLocked:
    """The store, in which two of three renewals find the row locked by an append of the run."""

    def __init__(self, harness: RunHarness) -> None:
        self._runs = harness.runs
        self._calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runs, name)

    async def renew(self, claims: Sequence[Claim], seconds: float) -> dict[RunId, bool | None]:
        self._calls += 1
        if self._calls % 3:
            return {claim.run_id: None for claim in claims}
        return await self._runs.renew(claims, seconds)


@rule("RX-26")
async def test_renewal_that_finds_a_run_locked_is_soon_retried(
    harness: RunHarness, monkeypatch: pytest.MonkeyPatch
):
    inside, may_end = asyncio.Event(), asyncio.Event()
    harness.clock.stop()
    clock = HandClock()
    monkeypatch.setattr(run_worker, "time", clock)

    async def wait_to_end(_: Mapping[str, Any]) -> Any:
        inside.set()
        await within_timeout(may_end.wait())

    run_id = await harness.start(script({"call": "t", "args": {}}))
    store: Any = OftenLocked(harness)
    worker = harness.worker(TestTool("t", wait_to_end), runs=store, claim_seconds=CLAIM_SECONDS)
    assert await worker.once() == 1  # without `work`, so that only this test renews the claim
    await within_timeout(inside.wait())
    for _ in range(2):
        clock.ahead += CLAIM_SECONDS / 3
        await worker.renew_claims()
    clock.ahead = CLAIM_SECONDS * (1 - SAFETY / 2)  # an unrenewed run is stopped now
    await worker.stop_expiring_runs()
    assert [run.stop_reason for run in worker._running.values()] == [None]
    may_end.set()
    run = await wait_until_ended(harness, run_id)
    assert (run.status, run.attempt) == (Status.COMPLETED, 1)


@rule("RX-26")
async def test_renewal_of_a_locked_run_is_not_retried_for_ever(harness: RunHarness):
    may_end = asyncio.Event()

    async def wait_to_end(_: Mapping[str, Any]) -> Any:
        await within_timeout(may_end.wait())

    run_id = await harness.start(script({"call": "t", "args": {}}))
    store: Any = OftenLocked(harness)
    store.renew = lambda claims, _: asyncio.sleep(0, {claim.run_id: None for claim in claims})
    worker = harness.worker(TestTool("t", wait_to_end), runs=store, claim_seconds=CLAIM_SECONDS)
    assert await worker.once() == 1
    await within_timeout(worker.renew_claims())
    may_end.set()
    assert (await wait_until_ended(harness, run_id)).status is Status.COMPLETED
