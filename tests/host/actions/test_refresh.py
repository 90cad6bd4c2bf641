"""Refresh jobs: once per interval, on one instance, never twice at once, with backoff after failures."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.canvas.refresh import MAX_BACKOFF_MS, next_delay
from easel.core.principal import Principal, PrincipalKind
from easel.errors import BadInput
from easel.host.canvases.views import NO_CONNECTION
from tests.host.actions.refresh_jobs import (
    ECHO,
    SlowJob,
    count_statements,
    freeze_job_duration,
    has_results,
    run_due_jobs,
    spec_with_refresh,
)
from tests.host.conftest import TestTool
from tests.host.services import CLAIM_SECONDS, POLL_SECONDS, HostServices
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER
from tests.support.waiting import wait_for, within_timeout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.host.conftest import RunHarness, TurnableClock

AGENT = Principal(THE_OWNER.account_id, "agent", kind=PrincipalKind.AGENT)


@rule("CV-19")
async def test_job_runs_once_per_interval_and_its_result_is_saved(
    services: HostServices, clock: TurnableClock
) -> None:
    await services.create(spec_with_refresh(ECHO))
    assert await run_due_jobs(services) == 0, "it is not due"
    assert await services.refresh.start_due() == POLL_SECONDS
    for time in range(1, 4):
        clock.ahead += 60
        assert await run_due_jobs(services) == 1
        assert await run_due_jobs(services) == 0
        assert [outcome["result"] for outcome in (await services.state())["seen"]] == ["again"] * time
    [(_, event)] = (await services.log("canvas.action.started"))[:1]
    assert event["actor"]["trigger"] == "refresh"


@rule("CV-19")
async def test_disabled_or_removed_job_does_not_run(services: HostServices, clock: TurnableClock) -> None:
    await services.create(spec_with_refresh(ECHO, enabled=False))
    clock.ahead += 600
    assert await run_due_jobs(services) == 0
    await patch_spec(services, spec_with_refresh(ECHO))
    clock.ahead += 60
    assert await run_due_jobs(services) == 1
    await patch_spec(services, {"state": {}})
    clock.ahead += 600
    assert await run_due_jobs(services) == 0


async def patch_spec(services: HostServices, spec: Any) -> None:
    await services.library.patch(
        THE_OWNER, "c", state_patch=None, spec={"version": 1, **spec}, title=None, expected_revision=None
    )


async def test_new_spec_with_the_same_job_does_not_delay_it(
    services: HostServices, clock: TurnableClock
) -> None:
    await services.create(spec_with_refresh(ECHO))
    clock.ahead += 50
    await patch_spec(services, spec_with_refresh(ECHO))
    clock.ahead += 10
    assert await run_due_jobs(services) == 1


@rule("CV-19")
@case("X9")
async def test_one_instance_runs_the_job_and_not_again_while_it_runs(
    harness: RunHarness, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.stop()
    freeze_job_duration(monkeypatch)
    slow = SlowJob()
    instances = [await HostServices.open(harness, slow.tool) for _ in range(3)]
    await instances[0].create(slow.spec)
    clock.ahead += 1
    assert sum([await services.refresh.claim_and_start() for services in instances]) == 1
    await within_timeout(slow.started.wait())
    clock.ahead += CLAIM_SECONDS / 2
    assert sum([await services.refresh.claim_and_start() for services in instances]) == 0, "it still runs"
    slow.release.set()
    assert await run_due_jobs(*instances) == 0
    clock.ahead += 1
    assert await run_due_jobs(*instances) == 1, "missed intervals are made up for once"
    for services in instances:
        await services.close()


@rule("CV-19")
async def test_job_of_a_crashed_instance_is_claimed_by_another(
    harness: RunHarness, clock: TurnableClock
) -> None:
    dead, alive = await HostServices.open(harness), await HostServices.open(harness)
    await dead.create(spec_with_refresh(ECHO))
    clock.ahead += 60
    assert (
        len(
            await harness.database.executions.claim_refreshes(
                "wrk_dead", 10, CLAIM_SECONDS, running=[], unwatched=True
            )
        )
        == 1
    )
    assert await run_due_jobs(alive) == 0
    clock.ahead += CLAIM_SECONDS + 1
    assert await run_due_jobs(alive) == 1
    for services in (dead, alive):
        await services.close()


@rule("CV-51")
async def test_failing_job_is_reported_and_backs_off_until_it_works_again(
    harness: RunHarness, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.stop()
    freeze_job_duration(monkeypatch)
    works: list[bool] = []

    async def flaky(_: Mapping[str, Any]) -> Any:
        if not works:
            raise ValueError("no")
        return "yes"

    services = await HostServices.open(harness, TestTool("flaky", flaky, read_only=True))
    await services.create(spec_with_refresh({"kind": "tool.call", "tool": "flaky"}, tools=("flaky",)))
    for failures, wait in ((1, 60), (2, 120), (3, 240)):
        clock.ahead += wait - 1
        assert await run_due_jobs(services) == 0
        clock.ahead += 1
        assert await run_due_jobs(services) == 1
        _, payload = (await services.log("canvas.refresh.failed"))[-1]
        assert (payload["refreshId"], payload["failures"], payload["retryInMs"]) == (
            "poll",
            failures,
            60_000 * 2**failures,
        )
        assert "raised ValueError" in payload["error"]["message"]
        [job] = (await services.library.get(THE_OWNER, "c")).failing
        assert (job.refresh_id, job.failures, job.error) == ("poll", failures, payload["error"])
        assert job.retry_seconds > wait
    assert await services.log("canvas.refresh.recovered") == []
    works.append(True)
    clock.ahead += 60 * 8
    assert await run_due_jobs(services) == 1
    [(_, payload)] = await services.log("canvas.refresh.recovered")
    assert (payload["refreshId"], payload["actionId"]) == ("poll", "look")
    assert (await services.library.get(THE_OWNER, "c")).failing == []
    clock.ahead += 60
    assert await run_due_jobs(services) == 1, "its own interval again"
    assert [kind for kind, _ in (await services.log())[-2:]] == [
        "canvas.action.started",
        "canvas.action.finished",
    ]
    await services.close()


@rule("CV-51")
async def test_failure_of_a_job_that_was_removed_while_it_ran_is_not_reported(
    harness: RunHarness, clock: TurnableClock
) -> None:
    """Its recovery would never be reported."""
    started, release = asyncio.Event(), asyncio.Event()

    async def slow(_: Mapping[str, Any]) -> Any:
        started.set()
        await release.wait()
        raise ValueError("no")

    services = await HostServices.open(harness, TestTool("slow", slow, read_only=True))
    await services.create(spec_with_refresh({"kind": "tool.call", "tool": "slow"}, tools=("slow",)))
    clock.ahead += 60
    assert await services.refresh.claim_and_start() == 1
    await within_timeout(started.wait())
    await patch_spec(services, {"state": {}})
    release.set()
    assert await run_due_jobs(services) == 0
    assert [kind for kind, _ in await services.log("canvas.action.failed", "canvas.refresh.failed")] == [
        "canvas.action.failed"
    ]
    await services.close()


@rule("CV-19")
@pytest.mark.parametrize(
    "unwatched, only_watched", [(False, False), (True, True)], ids=["by setting", "by the job"]
)
async def test_job_pauses_without_viewers_and_runs_at_once_with_one(
    harness: RunHarness,
    clock: TurnableClock,
    monkeypatch: pytest.MonkeyPatch,
    unwatched: bool,
    only_watched: bool,
) -> None:
    services = await HostServices.open(harness, refresh_unwatched=unwatched)
    await services.create(spec_with_refresh(ECHO, onlyWatched=only_watched))
    clock.ahead += 3_600
    before = await services.log()
    statements = count_statements(harness.database, monkeypatch)
    assert await services.refresh.start_due() == POLL_SECONDS
    assert statements == ["read"], "a paused job costs no write"
    assert (await services.log(), "seen" in await services.state()) == (before, False)
    view, _ = await services.views.open(THE_OWNER, "c", "browser", NO_CONNECTION)
    assert await run_due_jobs(services) == 1, "at the next poll, not one interval later"
    clock.ahead += 30
    assert await run_due_jobs(services) == 0
    assert await services.views.close(THE_OWNER, "c", NO_CONNECTION, view.view_id) == [view.view_id]
    clock.ahead += 30
    assert await run_due_jobs(services) == 0, "the view was closed"
    await services.views.open(THE_OWNER, "c", "browser", NO_CONNECTION)
    assert await run_due_jobs(services) == 1
    await services.views.open(THE_OWNER, "c", "browser", NO_CONNECTION)
    clock.ahead += 3_600
    assert await run_due_jobs(services) == 0, "an expired view does not count"
    await services.close()


async def test_new_spec_can_let_a_job_run_without_viewers(
    services: HostServices, clock: TurnableClock
) -> None:
    await services.create(spec_with_refresh(ECHO, onlyWatched=True))
    clock.ahead += 60
    assert await run_due_jobs(services) == 0
    await patch_spec(services, spec_with_refresh(ECHO))
    clock.ahead += 60
    assert await run_due_jobs(services) == 1


@rule("RS-45", "CV-41")
async def test_refresh_of_an_action_that_needs_confirmation_is_refused(
    services: HostServices, clock: TurnableClock
) -> None:
    with pytest.raises(BadInput, match="needs confirmation by a person"):
        await services.create(spec_with_refresh({**ECHO, "confirm": "always"}))
    unknown = {"kind": "tool.call", "tool": "node__Wipe"}
    await services.create(spec_with_refresh(unknown, tools=("node__Wipe",)))
    clock.ahead += 60
    await run_due_jobs(services)
    [(_, payload)] = await services.log("canvas.refresh.failed")
    assert payload["error"]["name"] == "UNAVAILABLE", "a tool without a definition cannot run"
    assert await services.log("canvas.action.started") == []


@rule("RS-59")
async def test_refresh_of_an_unaccepted_spec_does_not_call_a_writing_tool(
    harness: RunHarness, clock: TurnableClock
) -> None:
    used: list[int] = []

    async def touch(_: Mapping[str, Any]) -> Any:
        used.append(1)

    services = await HostServices.open(harness, TestTool("touch", touch))
    await services.create(
        spec_with_refresh({"kind": "tool.call", "tool": "touch", "confirm": "never"}, tools=("touch",)),
        principal=AGENT,
    )
    clock.ahead += 60
    await run_due_jobs(services)
    [(_, payload)] = await services.log("canvas.refresh.failed")
    assert (payload["error"]["name"], used) == ("FORBIDDEN", [])
    await services.library.accept(THE_OWNER, "c", 1)
    clock.ahead += 120
    await run_due_jobs(services)
    assert used == [1]
    await services.close()


@rule("CV-19")
async def test_deleted_canvas_has_no_jobs(services: HostServices, clock: TurnableClock) -> None:
    await services.create(spec_with_refresh(ECHO))
    await services.library.delete(THE_OWNER, "c")
    clock.ahead += 60
    assert await run_due_jobs(services) == 0
    assert await services.harness.database.executions.next_refresh(unwatched=True) is None


@rule("CV-19")
async def test_scheduler_runs_jobs_in_the_background(services: HostServices, clock: TurnableClock) -> None:
    await services.create(spec_with_refresh(ECHO))
    services.refresh.start()
    for count in (1, 2):
        clock.ahead += 60
        await wait_for(
            lambda count=count: has_results(services, count), what=f"the job has run {count} times"
        )
        # Rescheduled by the present clock, before it is advanced again.
        await wait_for(lambda: not services.refresh.running, what="the job is rescheduled")


@case("X9")
def test_delay_is_at_least_the_interval_and_backoff_at_most_an_hour():
    assert next_delay(1_000, 0, 0.0) == 1.0
    assert next_delay(1_000, 0, 1.0) == pytest.approx(1.1)
    assert [next_delay(1_000, failures, 0.0) for failures in (1, 2, 6, 7, 100)] == [2, 4, 64, 64, 64]
    assert next_delay(600_000, 50, 0.0) == MAX_BACKOFF_MS / 1000
    assert next_delay(7_200_000, 3, 0.0) == 7_200, "a longer interval is not shortened"
