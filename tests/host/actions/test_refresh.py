"""Refresh jobs: once each time, on one instance, not twice at once, more and more rarely when they fail."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.canvas.refresh import MAX_BACKOFF_MS, next_delay
from easel.core.principal import THE_OWNER, Principal, PrincipalKind
from easel.errors import BadInput
from easel.host.canvases.views import NO_CONNECTION
from tests.host.actions.refresh_jobs import (
    ECHO,
    Slow,
    count_statements,
    fired,
    has_seen,
    polling,
    take_no_time,
)
from tests.host.conftest import TestTool
from tests.host.services import CLAIM_SECONDS, POLL_SECONDS, HostServices
from tests.requirements import case, rule
from tests.support.waiting import wait_for, within_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from tests.host.conftest import Bench, TurnableClock

AGENT = Principal(THE_OWNER.user_id, "agent", kind=PrincipalKind.AGENT)


@pytest_asyncio.fixture
async def services(bench: Bench) -> AsyncIterator[HostServices]:
    services = HostServices(bench)
    yield services
    await services.close()


@rule("CV-19")
async def test_a_job_runs_once_every_interval_and_its_result_is_kept(
    services: HostServices, clock: TurnableClock
) -> None:
    await services.create(polling(ECHO))
    assert await fired(services) == 0, "its time has not come"
    assert await services.refresh.start_due() == POLL_SECONDS, (
        "and it is not looked for more often than anything else"
    )
    for time in range(1, 4):
        clock.ahead += 60
        assert await fired(services) == 1
        assert await fired(services) == 0, "not again before the next interval is over"
        assert [one["result"] for one in (await services.state())["seen"]] == ["again"] * time
    [(_, started)] = (await services.log("canvas.action.started"))[:1]
    assert started["actor"]["trigger"] == "refresh"


@rule("CV-19")
async def test_a_job_that_is_not_enabled_never_runs_and_a_new_spec_ends_what_it_leaves_out(
    services: HostServices, clock: TurnableClock
) -> None:
    await services.create(polling(ECHO, enabled=False))
    clock.ahead += 600
    assert await fired(services) == 0
    await patch_spec(services, polling(ECHO))
    clock.ahead += 60
    assert await fired(services) == 1
    await patch_spec(services, {"state": {}})
    clock.ahead += 600
    assert await fired(services) == 0


async def patch_spec(services: HostServices, spec: Any) -> None:
    await services.library.patch(
        THE_OWNER, "c", state_patch=None, spec={"version": 1, **spec}, title=None, expected_revision=None
    )


async def test_a_new_spec_that_keeps_a_job_does_not_put_it_off(
    services: HostServices, clock: TurnableClock
) -> None:
    await services.create(polling(ECHO))
    clock.ahead += 50
    await patch_spec(services, polling(ECHO))
    clock.ahead += 10
    assert await fired(services) == 1


@rule("CV-19")
@case("X9")
async def test_of_many_instances_one_fires_and_a_job_that_still_runs_is_not_started_again(
    bench: Bench, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.stop()
    take_no_time(monkeypatch)
    slow = Slow()
    instances = [HostServices(bench, slow.tool) for _ in range(3)]
    await instances[0].create(slow.spec)
    clock.ahead += 1
    assert sum([await services.refresh.claim_and_start() for services in instances]) == 1
    await within_timeout(slow.began.wait())
    clock.ahead += CLAIM_SECONDS / 2
    assert sum([await services.refresh.claim_and_start() for services in instances]) == 0, (
        "it is slower than its interval, and still runs"
    )
    slow.may_end.set()
    assert await fired(*instances) == 0
    clock.ahead += 1
    assert await fired(*instances) == 1, "what was missed is made up for once, and not fifteen times"
    for services in instances:
        await services.close()


@rule("CV-19")
async def test_a_job_whose_instance_died_moves_on(bench: Bench, clock: TurnableClock) -> None:
    dead, alive = HostServices(bench), HostServices(bench)
    await dead.create(polling(ECHO))
    clock.ahead += 60
    assert (
        len(
            await bench.database.canvas_actions.claim_refreshes(
                "wrk_dead", 10, CLAIM_SECONDS, running=[], unwatched=True
            )
        )
        == 1
    )
    assert await fired(alive) == 0
    clock.ahead += CLAIM_SECONDS + 1
    assert await fired(alive) == 1
    for services in (dead, alive):
        await services.close()


@rule("CV-51")
async def test_a_job_that_fails_is_told_and_tried_more_rarely_until_it_works_again(
    bench: Bench, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.stop()
    take_no_time(monkeypatch)
    works: list[bool] = []

    async def moody(_: Mapping[str, Any]) -> Any:
        if not works:
            raise ValueError("no")
        return "yes"

    services = HostServices(bench, TestTool("moody", moody, read_only=True))
    await services.create(polling({"kind": "tool.call", "tool": "moody"}, tools=("moody",)))
    for failures, wait in ((1, 60), (2, 120), (3, 240)):
        clock.ahead += wait - 1
        assert await fired(services) == 0
        clock.ahead += 1
        assert await fired(services) == 1
        _, told = (await services.log("canvas.refresh.failed"))[-1]
        assert (told["refreshId"], told["failures"], told["retryInMs"]) == (
            "poll",
            failures,
            60_000 * 2**failures,
        )
        assert "broke" in told["error"]["message"]
        [job] = (await services.library.get(THE_OWNER, "c")).failing
        assert (job.refresh_id, job.failures, job.error) == ("poll", failures, told["error"]), (
            "for whoever opens it now"
        )
        assert job.retry_seconds > wait
    assert await services.log("canvas.refresh.recovered") == []
    works.append(True)
    clock.ahead += 60 * 8
    assert await fired(services) == 1
    [(_, told)] = await services.log("canvas.refresh.recovered")
    assert (told["refreshId"], told["actionId"]) == ("poll", "look")
    assert (await services.library.get(THE_OWNER, "c")).failing == []
    clock.ahead += 60
    assert await fired(services) == 1, "back at its own pace"
    assert [kind for kind, _ in (await services.log())[-2:]] == [
        "canvas.action.started",
        "canvas.action.finished",
    ]
    await services.close()


@rule("CV-51")
async def test_nothing_is_told_of_a_job_that_was_ended_while_it_ran_and_failed(
    bench: Bench, clock: TurnableClock
) -> None:
    """Nobody would ever tell that it works again."""
    began, may_end = asyncio.Event(), asyncio.Event()

    async def slow(_: Mapping[str, Any]) -> Any:
        began.set()
        await may_end.wait()
        raise ValueError("no")

    services = HostServices(bench, TestTool("slow", slow, read_only=True))
    await services.create(polling({"kind": "tool.call", "tool": "slow"}, tools=("slow",)))
    clock.ahead += 60
    assert await services.refresh.claim_and_start() == 1
    await within_timeout(began.wait())
    await patch_spec(services, {"state": {}})
    may_end.set()
    assert await fired(services) == 0
    assert [kind for kind, _ in await services.log("canvas.action.failed", "canvas.refresh.failed")] == [
        "canvas.action.failed"
    ]
    await services.close()


@rule("CV-19")
@pytest.mark.parametrize(
    "unwatched, only_watched", [(False, False), (True, True)], ids=["the setting says so", "the job says so"]
)
async def test_a_job_rests_while_nobody_looks_and_is_soon_there_when_somebody_does(
    bench: Bench, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch, unwatched: bool, only_watched: bool
) -> None:
    services = HostServices(bench, unwatched=unwatched)
    await services.create(polling(ECHO, onlyWatched=only_watched))
    clock.ahead += 3_600
    before = await services.log()
    asked = count_statements(bench.database, monkeypatch)
    assert await services.refresh.start_due() == POLL_SECONDS
    assert asked == ["read"], "what rests costs no write, however long it rests"
    assert (await services.log(), "seen" in await services.state()) == (before, False)
    view, _ = await services.views.open(THE_OWNER, "c", "browser", NO_CONNECTION)
    assert await fired(services) == 1, "at the next look, and not a whole interval later"
    clock.ahead += 30
    assert await fired(services) == 0
    assert await services.views.close(THE_OWNER, "c", NO_CONNECTION, view.view_id) == [view.view_id]
    clock.ahead += 30
    assert await fired(services) == 0, "nobody looks any more"
    await services.views.open(THE_OWNER, "c", "browser", NO_CONNECTION)
    assert await fired(services) == 1
    await services.views.open(THE_OWNER, "c", "browser", NO_CONNECTION)
    clock.ahead += 3_600
    assert await fired(services) == 0, "a view that nobody has heard of is not somebody"
    await services.close()


async def test_a_new_spec_says_whether_a_job_rests(services: HostServices, clock: TurnableClock) -> None:
    await services.create(polling(ECHO, onlyWatched=True))
    clock.ahead += 60
    assert await fired(services) == 0
    await patch_spec(services, polling(ECHO))
    clock.ahead += 60
    assert await fired(services) == 1


@rule("RS-45", "CV-41")
async def test_what_needs_a_person_is_refused_in_a_refresh_when_it_is_stored_and_when_it_runs(
    services: HostServices, clock: TurnableClock
) -> None:
    with pytest.raises(BadInput, match="needs confirmation by a person"):
        await services.create(polling({**ECHO, "confirm": "always"}))
    unknown = {"kind": "tool.call", "tool": "node__Wipe"}
    await services.create(polling(unknown, tools=("node__Wipe",)))
    clock.ahead += 60
    await fired(services)
    [(_, told)] = await services.log("canvas.refresh.failed")
    assert told["error"]["name"] == "UNAVAILABLE", "a tool without a definition cannot run"
    assert await services.log("canvas.action.started") == []


@rule("RS-59")
async def test_an_agent_s_refresh_of_what_is_not_read_only_waits_for_a_person(
    bench: Bench, clock: TurnableClock
) -> None:
    used: list[int] = []

    async def touch(_: Mapping[str, Any]) -> Any:
        used.append(1)

    services = HostServices(bench, TestTool("touch", touch))
    await services.create(
        polling({"kind": "tool.call", "tool": "touch", "confirm": "never"}, tools=("touch",)), principal=AGENT
    )
    clock.ahead += 60
    await fired(services)
    [(_, told)] = await services.log("canvas.refresh.failed")
    assert (told["error"]["name"], used) == ("FORBIDDEN", [])
    await services.library.accept(THE_OWNER, "c", 1)
    clock.ahead += 120
    await fired(services)
    assert used == [1]
    await services.close()


@rule("CV-19")
async def test_a_deleted_canvas_has_no_jobs(services: HostServices, clock: TurnableClock) -> None:
    await services.create(polling(ECHO))
    await services.library.delete(THE_OWNER, "c")
    clock.ahead += 60
    assert await fired(services) == 0
    assert await services.bench.database.canvas_actions.next_refresh(unwatched=True) is None


@rule("CV-19")
async def test_the_duty_fires_when_it_is_time_and_renews_what_it_holds(services: HostServices) -> None:
    await services.create(polling(ECHO, every_ms=1_000))
    services.refresh.start()
    await wait_for(lambda: has_seen(services, 2))


@case("X9")
def test_the_next_time_is_never_early_and_no_failure_makes_it_later_than_an_hour():
    assert next_delay(1_000, 0, 0.0) == 1.0
    assert next_delay(1_000, 0, 1.0) == pytest.approx(1.1)
    assert [next_delay(1_000, failures, 0.0) for failures in (1, 2, 6, 7, 100)] == [2, 4, 64, 64, 64]
    assert next_delay(600_000, 50, 0.0) == MAX_BACKOFF_MS / 1000
    assert next_delay(7_200_000, 3, 0.0) == 7_200, "what is slow by itself does not get faster"
