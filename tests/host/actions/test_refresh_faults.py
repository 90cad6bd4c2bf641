"""Refresh jobs under faults: slow jobs, clock jumps, an unavailable store, internal errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from easel.errors import Unavailable
from tests.host.actions.refresh_jobs import (
    ECHO,
    SlowJob,
    count_statements,
    freeze_job_duration,
    has_results,
    run_due_jobs,
    spec_with_refresh,
)
from tests.host.services import CLAIM_SECONDS, POLL_SECONDS, HostServices
from tests.requirements import case, rule
from tests.support.waiting import wait_for, within_timeout

if TYPE_CHECKING:
    from tests.host.conftest import RunHarness, TurnableClock


@rule("CV-19")
@case("X9")
async def test_job_that_runs_longer_than_its_interval_is_not_polled(
    harness: RunHarness, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowJob()
    instances = [await HostServices.open(harness, slow.tool) for _ in range(2)]
    await instances[0].create(slow.spec)
    clock.ahead += 1
    assert await instances[0].refresh.start_due() == POLL_SECONDS
    await within_timeout(slow.started.wait())
    clock.ahead += 5  # intervals
    statements = count_statements(harness.database, monkeypatch)
    assert [await services.refresh.start_due() for services in instances] == [POLL_SECONDS] * 2
    assert statements == ["read", "read"]
    slow.release.set()
    for services in instances:
        await services.close()


@rule("CV-19")
async def test_slow_job_starts_again_when_it_ends_and_not_at_the_next_poll(
    harness: RunHarness, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    duration = freeze_job_duration(monkeypatch)
    slow = SlowJob()
    services = await HostServices.open(harness, slow.tool, poll_seconds=3_600)
    await services.create(slow.spec)
    clock.ahead += 1
    services.refresh.start()
    await within_timeout(slow.started.wait())
    slow.started.clear()
    duration.ahead += 2  # intervals
    slow.release.set()
    await within_timeout(slow.started.wait())
    await services.close()


@case("X9")
async def test_running_job_is_not_started_again_after_a_clock_jump(
    harness: RunHarness, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.stop()
    freeze_job_duration(monkeypatch)
    slow = SlowJob()
    services = await HostServices.open(harness, slow.tool)
    await services.create(slow.spec)
    clock.ahead += 1
    assert await services.refresh.claim_and_start() == 1
    await within_timeout(slow.started.wait())
    clock.ahead += CLAIM_SECONDS + 1  # the machine was suspended
    assert await services.refresh.claim_and_start() == 0
    assert await services.refresh.start_due() == POLL_SECONDS
    other = await HostServices.open(harness, slow.tool)
    await services.refresh.renew()
    assert await other.refresh.claim_and_start() == 0, "the expired claim was renewed"
    slow.release.set()
    assert await run_due_jobs(services) == 0
    clock.ahead += 1
    assert await run_due_jobs(services) == 1
    for instance in (services, other):
        await instance.close()


@rule("CV-19")
@pytest.mark.parametrize(
    "problem",
    [Unavailable(what="The database"), RuntimeError("a bug of ours")],
    ids=["unavailable", "internal error"],
)
async def test_job_whose_end_was_not_stored_is_due_again_while_others_run(
    harness: RunHarness, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    """Claims are renewed by name, and the ended job is no longer named."""
    slow = SlowJob()
    services = await HostServices.open(harness, slow.tool)
    await services.create(spec_with_refresh(ECHO, every_ms=1_000))
    await services.create(slow.spec, canvas_id="d")
    store = harness.database.executions

    async def fail(*_: Any, **__: Any) -> None:
        raise problem

    clock.ahead += 1
    with monkeypatch.context() as broken:
        broken.setattr(store, "finish_refresh", fail)
        assert await services.refresh.claim_and_start() == 2
        await wait_for(lambda: _only(services, "d"))
    for _ in range(4):  # a third longer than a claim
        clock.ahead += CLAIM_SECONDS / 3
        await services.refresh.renew()
        await services.refresh.claim_and_start()
    await wait_for(lambda: has_results(services, 2))
    assert slow.times == 1
    slow.release.set()
    await services.close()


async def _only(services: HostServices, canvas_id: str) -> bool:
    return [job[1] for job in services.refresh.running] == [canvas_id]


@rule("CV-51")
async def test_job_that_raises_an_unexpected_error_backs_off_and_continues(
    services: HostServices, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.stop()
    freeze_job_duration(monkeypatch)
    await services.create(spec_with_refresh(ECHO))

    async def bug(*_: Any) -> None:
        raise RuntimeError("a bug of ours")

    clock.ahead += 60
    with monkeypatch.context() as broken:
        broken.setattr(services.actions, "execute", bug)
        assert await run_due_jobs(services) == 1
    clock.ahead += 119
    assert await run_due_jobs(services) == 0
    clock.ahead += 1
    assert await run_due_jobs(services) == 1
    assert len((await services.state())["seen"]) == 1
