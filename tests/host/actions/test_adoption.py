"""An action waits for a run, and its instance is gone: another one waits on, and settles it as it would have been."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.canvas.canvas import CanvasSnapshot, Change
from easel.core.canvas.events import CanvasEvents
from easel.core.canvas.execution import Execution, ExecutionStatus, Transition
from easel.core.principal import THE_OWNER
from easel.core.run.status import Status as RunStatus
from easel.errors import ActionFailed, Cancelled, TimedOut
from easel.ids import OWNER, CanvasId, new_event_id
from tests.host.runs.workers import at_work, ended, script
from tests.host.services import CLAIM_SECONDS, HostServices
from tests.requirements import case, rule
from tests.support.waiting import TIMEOUT_SECONDS, wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from easel.core.run.run import Run
    from tests.host.conftest import Bench

LONG_MS = 3_600_000
SEND: dict[str, Any] = {
    "kind": "session.send",
    "message": script({"say": "at last"}),
    "saveAs": "answers",
    "saveMode": "append",
}
SPEC: dict[str, Any] = {
    "actions": {
        "send": {**SEND, "timeoutMs": LONG_MS},
        "quick": {**SEND, "timeoutMs": 20_000},  # quicker than a lease, and slower than any machine
        "ask": {**SEND, "confirm": "always"},
        "tell": {"kind": "session.send", "message": "hello"},
    }
}


@pytest_asyncio.fixture
async def services(bench: Bench) -> AsyncIterator[HostServices]:
    services = HostServices(bench)
    await services.create(SPEC)
    yield services
    await services.close()


@pytest_asyncio.fixture
async def other(bench: Bench, services: HostServices) -> AsyncIterator[HostServices]:
    """Another instance with the same store."""
    other = HostServices(bench)
    yield other
    await other.close()


async def sent(services: HostServices, action_id: str = "send", **how: Any) -> tuple[asyncio.Task[Any], Run]:
    """Pressed, and its run is there; no worker is."""
    press = asyncio.create_task(services.run(action_id, **how))
    runs: list[Run] = []

    async def is_there() -> bool:
        runs[:] = await services.bench.queue.list_runs(THE_OWNER, None, [], None, 10)
        return bool(runs)

    await wait_for(is_there)
    return press, runs[0]


async def left(services: HostServices, action_id: str = "send", **how: Any) -> Run:
    """As it is left by an instance that stops."""
    press, run = await sent(services, action_id, **how)
    await services.actions.stop()
    with pytest.raises(ActionFailed, match="The run continues"):
        await press
    return run


async def worked(bench: Bench, run: Run) -> None:
    async with at_work(bench.worker()):
        await ended(bench, run.run_id)


async def over(services: HostServices) -> Execution:
    found: list[Execution] = []

    async def is_over() -> bool:
        found[:] = await services.actions.list_records(THE_OWNER, "c", before=None, limit=10)
        return found[0].status.is_terminal

    await wait_for(is_over)
    return found[0]


async def told(services: HostServices) -> list[str]:
    return [
        name.removeprefix("canvas.action.")
        for name, _ in await services.log()
        if name.startswith("canvas.action.")
    ]


async def answers(services: HostServices) -> list[Any]:
    return [one["result"] for one in (await services.state()).get("answers", [])]


@rule("CV-43", "CV-42", "CV-48")
@case("D1")
async def test_who_finds_it_waits_on_for_its_run_and_settles_it_with_the_answer(
    services: HostServices, other: HostServices, bench: Bench
) -> None:
    run = await left(services, request_id="r")
    assert await other.actions.renew_and_recover() == 0, "it is not lost before its time"
    bench.clock.ahead += CLAIM_SECONDS + 1
    assert await other.actions.renew_and_recover() == 1
    again = asyncio.create_task(other.run("send", request_id="r"))
    await asyncio.sleep(0)  # it is at work
    bench.clock.ahead += CLAIM_SECONDS + 1
    assert await other.actions.renew_and_recover() == 0, "it is renewed as any other"
    await worked(bench, run)
    answer = await asyncio.wait_for(again, TIMEOUT_SECONDS)
    assert (answer.status, answer.result, answer.revision) == (ExecutionStatus.COMPLETED, "at last", 2)
    assert await answers(other) == ["at last"]
    assert await told(other) == ["started", "finished"]
    assert len(await bench.queue.list_runs(THE_OWNER, None, [], None, 10)) == 1, "and nothing is sent twice"


@rule("CV-43", "CV-23")
@case("J2")
async def test_an_instance_that_was_only_slow_answers_with_what_the_other_has_stored(
    services: HostServices, other: HostServices, bench: Bench
) -> None:
    press, run = await sent(services)
    bench.clock.ahead += CLAIM_SECONDS + 1
    assert await other.actions.renew_and_recover() == 1
    await worked(bench, run)  # both hear of it
    assert (await asyncio.wait_for(press, TIMEOUT_SECONDS)).status is ExecutionStatus.COMPLETED
    await over(other)
    assert (await answers(other), await told(other)) == (["at last"], ["started", "finished"])
    await bench.audit.close()  # all that was noted is stored then
    assert not await bench.database.audit.list_records(
        action="gateway.error", storage_class=None, since=None, until=None, before=None, limit=1
    )


@rule("CV-43")
async def test_an_instance_that_hears_that_it_was_taken_up_stops_neither_it_nor_its_run(
    services: HostServices, other: HostServices, bench: Bench
) -> None:
    press, run = await sent(services)
    bench.clock.ahead += CLAIM_SECONDS + 1
    await other.actions.renew_and_recover()
    await services.actions.renew_and_recover()
    await asyncio.sleep(0)
    assert not press.done()
    await worked(bench, run)
    assert (await asyncio.wait_for(press, TIMEOUT_SECONDS)).status is ExecutionStatus.COMPLETED
    assert (await bench.run(run.run_id)).status is RunStatus.COMPLETED


async def begun(bench: Bench, action_id: str) -> Execution:
    """As it is left by an instance that died before anything else was stored."""
    one = Execution(
        user_id=OWNER,
        canvas_id=CanvasId("c"),
        event_id=new_event_id(),
        action_id=action_id,
        status=ExecutionStatus.RUNNING,
        actor={},
        request_id="r",
        owner_id="gone",
    )
    began = CanvasEvents(one.canvas_id, agent_id=OWNER, event_id=one.event_id).action("started", 1, one.named)

    def begin(snapshot: CanvasSnapshot) -> Change:
        return Change(events=[began], is_mutation=False, transition=Transition(one))

    await bench.database.canvases.change(OWNER, one.canvas_id, begin)
    return one


@rule("CV-42")
async def test_one_whose_run_was_never_started_has_failed(services: HostServices, bench: Bench) -> None:
    await begun(bench, "send")
    assert await services.actions.recover_orphans(["gone"]) == 1
    assert (await over(services)).status is ExecutionStatus.FAILED
    assert (await told(services), await bench.queue.list_runs(THE_OWNER, None, [], None, 10)) == (
        ["started", "failed"],
        [],
    )


@rule("CV-24", "CV-42")
async def test_one_that_only_sends_is_done_when_its_run_is_there(
    services: HostServices, bench: Bench
) -> None:
    sends = await begun(bench, "tell")
    run = await bench.queue.start(THE_OWNER, "main", "hello", sends.event_id)
    assert await services.actions.recover_orphans(["gone"]) == 1
    done = await over(services)
    assert (done.status, done.answer) == (
        ExecutionStatus.COMPLETED,
        {"result": {"runId": run.run_id, "sessionKey": "agent:main:main"}},
    )
    assert await told(services) == ["started", "finished"]


@rule("CV-23", "CV-43")
async def test_its_time_counts_from_the_press(
    services: HostServices, other: HostServices, bench: Bench
) -> None:
    await left(services, request_id="r")
    bench.clock.ahead += LONG_MS / 1000 + 1
    await other.actions.renew_and_recover()
    with pytest.raises(TimedOut, match="3600 s"):
        await asyncio.wait_for(other.run("send", request_id="r"), TIMEOUT_SECONDS)
    assert await told(other) == ["started", "failed"]


@rule("CV-43")
async def test_an_answer_that_is_there_is_taken_however_late_its_action_is_found(
    services: HostServices, other: HostServices, bench: Bench
) -> None:
    run = await left(services, "quick")
    await worked(bench, run)
    bench.clock.ahead += CLAIM_SECONDS + 1
    await other.actions.renew_and_recover()
    assert (await over(other)).status is ExecutionStatus.COMPLETED
    assert await answers(other) == ["at last"]


@rule("CV-43")
@case("X6")
async def test_an_answer_is_not_put_where_nobody_has_agreed_to(
    services: HostServices, other: HostServices, bench: Bench
) -> None:
    asked = await services.run("ask")
    press = asyncio.create_task(services.actions.confirm(THE_OWNER, asked.event_id, approve=True))
    await wait_for(lambda: has_runs(bench))
    await services.actions.stop()
    with pytest.raises(ActionFailed, match="The run continues"):
        await press
    offloaded = {"version": 1, "actions": {"ask": {**SPEC["actions"]["ask"], "saveAs": "elsewhere"}}}
    await other.library.patch(
        THE_OWNER, "c", spec=offloaded, state_patch=None, title=None, expected_revision=None
    )
    bench.clock.ahead += CLAIM_SECONDS + 1
    await other.actions.renew_and_recover()
    assert (await over(other)).status is ExecutionStatus.FAILED
    assert await told(other) == ["asked", "started", "failed"]


async def has_runs(bench: Bench) -> bool:
    return bool(await bench.queue.list_runs(THE_OWNER, None, [], None, 10))


@rule("CV-24")
async def test_what_was_taken_up_can_be_stopped_and_its_run_with_it(
    services: HostServices, other: HostServices, bench: Bench
) -> None:
    run = await left(services, request_id="r")
    bench.clock.ahead += CLAIM_SECONDS + 1
    await other.actions.renew_and_recover()
    again = asyncio.create_task(other.run("send", request_id="r"))
    [record] = await other.actions.list_records(THE_OWNER, "c", before=None, limit=10)
    await other.actions.cancel(THE_OWNER, "c", record.event_id)
    with pytest.raises(Cancelled):
        await asyncio.wait_for(again, TIMEOUT_SECONDS)
    assert (await bench.run(run.run_id)).status is RunStatus.CANCELLED


@rule("CV-42")
async def test_a_canvas_that_is_gone_leaves_nothing_to_wait_for(
    services: HostServices, other: HostServices, bench: Bench
) -> None:
    await left(services)
    await other.library.delete(THE_OWNER, "c")
    bench.clock.ahead += CLAIM_SECONDS + 1
    assert await other.actions.renew_and_recover() == 0
