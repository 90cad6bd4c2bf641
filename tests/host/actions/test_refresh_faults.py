"""Refresh jobs when something is not as it should be: they are slow, the clock jumps, the store is away, we break."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.errors import Unavailable
from tests.host.actions.refresh_jobs import (
    ECHO,
    Slow,
    count_statements,
    fired,
    has_seen,
    polling,
    take_no_time,
)
from tests.host.services import CLAIM_SECONDS, POLL_SECONDS, HostServices
from tests.requirements import case, rule
from tests.support.waiting import wait_for, within_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.host.conftest import Bench, TurnableClock


@pytest_asyncio.fixture
async def services(bench: Bench) -> AsyncIterator[HostServices]:
    services = HostServices(bench)
    yield services
    await services.close()


@rule("CV-19")
@case("X9")
async def test_a_job_that_runs_longer_than_its_interval_is_not_polled_for(
    bench: Bench, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow()
    instances = [HostServices(bench, slow.tool) for _ in range(2)]
    await instances[0].create(slow.spec)
    clock.ahead += 1
    assert await instances[0].refresh.start_due() == POLL_SECONDS
    await within_timeout(slow.began.wait())
    clock.ahead += 5  # intervals
    asked = count_statements(bench.database, monkeypatch)
    assert [await services.refresh.start_due() for services in instances] == [POLL_SECONDS] * 2, (
        "as if there were none"
    )
    assert asked == ["read", "read"]
    slow.may_end.set()
    for services in instances:
        await services.close()


@rule("CV-19")
async def test_what_is_slower_than_its_interval_follows_itself_when_it_ends_and_not_at_the_next_poll(
    bench: Bench,
) -> None:
    slow = Slow()
    services = HostServices(bench, slow.tool, poll_seconds=3_600)
    await services.create(slow.spec)

    async def is_due() -> bool:
        due_in = await bench.database.canvas_actions.next_refresh(unwatched=True)
        return due_in is not None and due_in <= 0

    await wait_for(is_due)
    services.refresh.start()
    await within_timeout(slow.began.wait())
    slow.began.clear()
    slow.may_end.set()
    await within_timeout(slow.began.wait())
    await services.close()


@case("X9")
async def test_after_a_jump_of_the_clock_what_still_runs_here_is_not_started_a_second_time(
    bench: Bench, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.stop()
    take_no_time(monkeypatch)
    slow = Slow()
    services = HostServices(bench, slow.tool)
    await services.create(slow.spec)
    clock.ahead += 1
    assert await services.refresh.claim_and_start() == 1
    await within_timeout(slow.began.wait())
    clock.ahead += CLAIM_SECONDS + 1  # a laptop's lid was closed and opened
    assert await services.refresh.claim_and_start() == 0
    assert await services.refresh.start_due() == POLL_SECONDS, "nor is it looked for again and again"
    other = HostServices(bench, slow.tool)
    await services.refresh.renew()
    assert await other.refresh.claim_and_start() == 0, "nobody took it, so it is held again"
    slow.may_end.set()
    assert await fired(services) == 0
    clock.ahead += 1
    assert await fired(services) == 1
    for one in (services, other):
        await one.close()


@rule("CV-19")
@pytest.mark.parametrize(
    "problem", [Unavailable(what="The database"), RuntimeError("a bug of ours")], ids=["away", "broken"]
)
async def test_a_job_whose_end_was_lost_is_due_again_while_others_go_on(
    bench: Bench, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    """Its instance lives and renews the hold of what else it runs: the lost one is not among that."""
    slow = Slow()
    services = HostServices(bench, slow.tool)
    await services.create(polling(ECHO, every_ms=1_000))
    await services.create(slow.spec, canvas_id="d")
    store = bench.database.canvas_actions

    async def lost(*_: Any, **__: Any) -> None:
        raise problem

    clock.ahead += 1
    with monkeypatch.context() as broken:
        broken.setattr(store, "finish_refresh", lost)
        assert await services.refresh.claim_and_start() == 2
        await wait_for(lambda: _only(services, "d"))
    for _ in range(4):  # a third more than a hold lasts
        clock.ahead += CLAIM_SECONDS / 3
        await services.refresh.renew()
        await services.refresh.claim_and_start()
    await wait_for(lambda: has_seen(services, 2))
    assert slow.times == 1
    slow.may_end.set()
    await services.close()


async def _only(services: HostServices, canvas_id: str) -> bool:
    return [job[1] for job in services.refresh.running] == [canvas_id]


@rule("CV-51")
async def test_a_job_that_breaks_us_is_tried_more_rarely_and_does_not_end(
    services: HostServices, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.stop()
    take_no_time(monkeypatch)
    await services.create(polling(ECHO))

    async def bug(*_: Any) -> None:
        raise RuntimeError("a bug of ours")

    clock.ahead += 60
    with monkeypatch.context() as broken:
        broken.setattr(services.actions, "execute", bug)
        assert await fired(services) == 1
    clock.ahead += 119
    assert await fired(services) == 0
    clock.ahead += 1
    assert await fired(services) == 1
    assert len((await services.state())["seen"]) == 1
