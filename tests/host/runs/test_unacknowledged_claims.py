"""A claim whose reply was lost is found by its worker before it expires. D4"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from easel.core.run.status import Status
from easel.errors import Unavailable
from tests.host.runs.workers import wait_until_ended, working
from tests.requirements import case, rule
from tests.support.waiting import TIMEOUT_SECONDS, wait_for, within_timeout

if TYPE_CHECKING:
    from easel.core.run.run import Claim
    from tests.host.conftest import RunHarness

LONG_CLAIM_SECONDS = TIMEOUT_SECONDS * 10  # does not expire during the test


class LosesFirstClaimReply:
    """The store, but the reply to its first successful claim is delayed or lost."""

    def __init__(self, harness: RunHarness, mode: str) -> None:
        self._runs = harness.runs
        self._mode = mode
        self.made = asyncio.Event()

    async def claim_queued(self, *args: Any, **options: Any) -> list[Claim]:
        claims = await self._runs.claim_queued(*args, **options)
        if claims and not self.made.is_set():
            self.made.set()
            if self._mode == "late":
                await asyncio.Event().wait()
            raise Unavailable(what="The database")
        return claims

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runs, name)


@case("D4")
@rule("RX-22", "RX-49")
async def test_run_with_an_unacknowledged_claim_starts_at_once_on_its_first_attempt(harness: RunHarness):
    run_ids = [await harness.start("noop", session) for session in ("a", "b")]
    store: Any = LosesFirstClaimReply(harness, "never")
    async with working(harness.worker(runs=store, claim_seconds=LONG_CLAIM_SECONDS)):
        runs = [await wait_until_ended(harness, run_id) for run_id in run_ids]
    assert store.made.is_set()
    assert [(run.status, run.attempt) for run in runs] == [(Status.COMPLETED, 1)] * 2
    for run_id in run_ids:
        assert await harness.types(run_id) == ["run.start", "message.completed", "run.status", "done"]


@case("D4")
@rule("RX-49")
async def test_worker_stopped_during_a_claim_releases_the_claimed_runs(harness: RunHarness):
    run_id = await harness.start("noop")
    store: Any = LosesFirstClaimReply(harness, "late")
    async with working(harness.worker(runs=store, claim_seconds=LONG_CLAIM_SECONDS)):
        await within_timeout(store.made.wait())
    assert (await harness.run(run_id)).status is Status.QUEUED
    async with working(harness.worker()):
        assert (await wait_until_ended(harness, run_id)).status is Status.COMPLETED


@case("D4")
async def test_worker_with_all_replies_does_not_query_unacknowledged_claims(harness: RunHarness):
    queries: list[str] = []

    class RecordingStore:
        def __getattr__(self, name: str) -> Any:
            queries.append(name)
            return getattr(harness.runs, name)

    async def has_searched_several_times() -> bool:
        return queries.count("claim_expired") > 6

    store: Any = RecordingStore()
    async with working(harness.worker(runs=store)):
        await wait_until_ended(harness, await harness.start("noop"))
        await wait_for(has_searched_several_times)
        # Checked before the worker stops: stopping may interrupt a claim.
        assert "claim_unacknowledged" not in queries
