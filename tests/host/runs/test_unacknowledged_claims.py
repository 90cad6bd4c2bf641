"""A claim that was made, though its answer never came: the worker finds it, and nobody waits until it would be over. D4"""

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

FAR_LONGER = TIMEOUT_SECONDS * 10  # a claim is not over before the test gives up


class DeafClaims:
    """The store itself, but the answer to its first claim of something comes late, or as the word that nobody answered."""

    def __init__(self, harness: RunHarness, how: str) -> None:
        self._runs = harness.runs
        self._how = how
        self.made = asyncio.Event()

    async def claim_queued(self, *given: Any, **named: Any) -> list[Claim]:
        claims = await self._runs.claim_queued(*given, **named)
        if claims and not self.made.is_set():
            self.made.set()
            if self._how == "late":
                await asyncio.Event().wait()
            raise Unavailable(what="The database")
        return claims

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runs, name)


@case("D4")
@rule("RX-22", "RX-49")
async def test_run_with_an_unacknowledged_claim_starts_at_once_on_its_first_attempt(harness: RunHarness):
    run_ids = [await harness.start("noop", session) for session in ("a", "b")]
    deaf: Any = DeafClaims(harness, "never")
    async with working(harness.worker(runs=deaf, claim_seconds=FAR_LONGER)):
        runs = [await wait_until_ended(harness, run_id) for run_id in run_ids]
    assert deaf.made.is_set()
    assert [(run.status, run.attempt) for run in runs] == [(Status.COMPLETED, 1)] * 2
    for run_id in run_ids:
        assert await harness.types(run_id) == ["run.start", "message.completed", "run.status", "done"]


@case("D4")
@rule("RX-49")
async def test_worker_stopped_during_a_claim_releases_the_claimed_runs(harness: RunHarness):
    run_id = await harness.start("noop")
    deaf: Any = DeafClaims(harness, "late")
    async with working(harness.worker(runs=deaf, claim_seconds=FAR_LONGER)):
        await within_timeout(deaf.made.wait())
    assert (await harness.run(run_id)).status is Status.QUEUED
    async with working(harness.worker()):
        assert (await wait_until_ended(harness, run_id)).status is Status.COMPLETED


@case("D4")
async def test_worker_with_all_replies_does_not_query_unacknowledged_claims(harness: RunHarness):
    asked: list[str] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(harness.runs, name)

    async def has_looked_everywhere_several_times() -> bool:
        return asked.count("claim_expired") > 6

    watched: Any = Watched()
    async with working(harness.worker(runs=watched)):
        await wait_until_ended(harness, await harness.start("noop"))
        await wait_for(has_looked_everywhere_several_times)
        assert (
            "claim_unacknowledged" not in asked
        )  # here and not below: whoever stops may meet a claim that is under way
