"""Stopping an action, and questions that nobody answers: one end, told once, whoever else tries at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.canvas.execution import ExecutionStatus
from easel.core.principal import THE_OWNER, Principal, PrincipalKind
from easel.core.run.status import Status as RunStatus
from easel.errors import Cancelled, ConfirmationClosed, Forbidden, NotFound, NotRunning
from easel.host.actions.request import ActionRequest
from easel.ids import OWNER, UserId
from tests.host.controlled_tool import SPEC, ControlledTool
from tests.host.services import CLAIM_SECONDS, HostServices
from tests.requirements import case, rule
from tests.support.waiting import TIMEOUT_SECONDS, within_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.host.conftest import Bench

CI = Principal(OWNER, "ci", kind=PrincipalKind.SERVICE)
CONFIRM_SECONDS = 900.0  # as the services has it


@pytest_asyncio.fixture
async def tool() -> ControlledTool:
    return ControlledTool()


@pytest_asyncio.fixture
async def services(bench: Bench, tool: ControlledTool) -> AsyncIterator[HostServices]:
    services = HostServices(bench, tool)
    await services.create(SPEC)
    yield services
    await services.close()


@pytest_asyncio.fixture
async def other(bench: Bench, services: HostServices, tool: ControlledTool) -> AsyncIterator[HostServices]:
    """Another instance with the same store."""
    other = HostServices(bench, tool)
    yield other
    await other.close()


async def started(services: HostServices, tool: ControlledTool, **how: Any) -> tuple[asyncio.Task[Any], str]:
    press = asyncio.create_task(services.run("go", **how))
    await within_timeout(tool.begun.wait())
    [(_, event)] = await services.log("canvas.action.started")
    return press, event["eventId"]


async def cancel(
    services: HostServices, event_id: str, principal: Principal = THE_OWNER, canvas_id: str = "c"
) -> Any:
    return await services.actions.cancel(principal, canvas_id, event_id)


async def ends(services: HostServices) -> list[str]:
    return [
        name.removeprefix("canvas.action.")
        for name, _ in await services.log()
        if name.startswith("canvas.action.")
    ]


async def audited(services: HostServices, action: str) -> list[dict[str, Any]]:
    await asyncio.sleep(0)
    await services.bench.audit.close()  # all that was noted is stored then
    found = await services.bench.database.audit.list_records(
        action=action, storage_class=None, since=None, until=None, before=None, limit=10
    )
    return [json.loads(link.record)["details"] for link in found]


@rule("CV-23", "CV-42", "CV-48")
async def test_whoever_presses_stop_ends_it_and_whoever_waits_is_told(
    services: HostServices, tool: ControlledTool
) -> None:
    press, event_id = await started(services, tool, request_id="r")
    tool.say("half done\n")
    answer = await cancel(services, event_id)
    assert (answer.status, answer.event_id, answer.revision) == (ExecutionStatus.FAILED, event_id, 1)
    assert tool.outcomes == ["cancelled"], "when it is told, its tool is gone"
    with pytest.raises(Cancelled, match="owner stopped it") as problem:
        await press
    assert problem.value.details == {"eventId": event_id}
    tool.end()
    assert await ends(services) == ["started", "output", "failed"]
    [(_, told)] = await services.log("canvas.action.failed")
    assert (told["error"]["name"], told["error"]["code"]) == ("CANCELLED", 409)
    assert "said" not in await services.state()
    with pytest.raises(Cancelled):
        await services.run("go", request_id="r")
    [record] = await services.actions.list_records(THE_OWNER, "c", before=None, limit=10)
    assert record.status is ExecutionStatus.FAILED
    assert [one["eventId"] for one in await audited(services, "canvas.cancelled")] == [event_id]
    assert [
        (one["status"], "owner stopped it" in one["problem"])
        for one in await audited(services, "canvas.action")
    ] == [("failed", True)]


@rule("CV-23")
async def test_it_is_stopped_where_it_runs_when_somebody_stops_it_elsewhere(
    services: HostServices, other: HostServices, tool: ControlledTool
) -> None:
    press, event_id = await started(services, tool)
    await services.actions.start()  # which hears the bell
    assert (await cancel(other, event_id)).status is ExecutionStatus.FAILED
    with pytest.raises(Cancelled):
        await asyncio.wait_for(press, TIMEOUT_SECONDS)
    assert tool.outcomes == ["cancelled"]
    assert await ends(services) == ["started", "failed"]
    assert len(await audited(services, "canvas.action")) == 1


@rule("CV-23")
@case("E11")
async def test_a_lost_bell_costs_one_renewal(
    services: HostServices, other: HostServices, tool: ControlledTool
) -> None:
    press, event_id = await started(services, tool)
    await cancel(other, event_id)
    await asyncio.sleep(0)
    assert not press.done()
    await services.actions.renew_and_recover()
    with pytest.raises(Cancelled):
        await asyncio.wait_for(press, TIMEOUT_SECONDS)
    assert tool.outcomes == ["cancelled"]


@rule("CV-23")
async def test_what_it_gives_in_the_moment_of_the_stop_is_not_stored(
    services: HostServices, other: HostServices, tool: ControlledTool
) -> None:
    press, event_id = await started(services, tool)
    await cancel(other, event_id)  # which the instance that runs it has not heard of
    tool.end()
    with pytest.raises(Cancelled, match="owner stopped it"):
        await press
    assert await ends(services) == ["started", "failed"]
    assert "said" not in await services.state()
    assert len(await audited(services, "canvas.action")) == 1


@rule("CV-23")
async def test_of_its_own_end_and_many_stops_exactly_one_wins(bench: Bench) -> None:
    for lead in range(8):
        tool = ControlledTool()
        services, other = HostServices(bench, tool), HostServices(bench, tool)
        name = f"race-{lead}"
        await services.create(SPEC, canvas_id=name)
        press = asyncio.create_task(services.run("go", canvas_id=name))
        await within_timeout(tool.begun.wait())
        [record] = await services.actions.list_records(THE_OWNER, name, before=None, limit=10)
        stops = [
            asyncio.create_task(cancel((services, other)[n % 2], record.event_id, canvas_id=name))
            for n in range(4)
        ]
        for _ in range(lead):
            await asyncio.sleep(0)
        tool.end()
        answers = await asyncio.gather(*stops, return_exceptions=True)
        [how] = await asyncio.gather(press, return_exceptions=True)
        won = [one for one in answers if not isinstance(one, BaseException)]
        assert all(isinstance(one, NotRunning) for one in answers if isinstance(one, BaseException)), answers
        if isinstance(how, BaseException):
            assert (type(how), len(won)) == (Cancelled, 1)
        else:
            assert (how.status, won) == (ExecutionStatus.COMPLETED, [])
        canvas = (await services.library.get(THE_OWNER, name)).canvas
        assert ("said" in canvas.state) == (not won)
        events = [event.type for event in await bench.database.canvases.events_after(f"owner/{name}", 0, 100)]
        assert sum(one in ("canvas.action.finished", "canvas.action.failed") for one in events) == 1
        await services.close()
        await other.close()


@rule("CV-42", "CV-48")
async def test_what_ends_by_itself_is_not_given_up_because_a_renewal_finds_it_ended(
    services: HostServices, tool: ControlledTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is stored, and whoever stored it has yet to hear so."""
    press, _ = await started(services, tool)
    canvases: Any = services.bench.database.canvases
    change, is_stored, let_go = canvases.change, asyncio.Event(), asyncio.Event()

    async def slow(*args: Any, **more: Any) -> Any:
        outcome = await change(*args, **more)
        is_stored.set()
        await let_go.wait()
        return outcome

    monkeypatch.setattr(canvases, "change", slow)
    tool.end({"n": 1})
    await asyncio.wait_for(is_stored.wait(), TIMEOUT_SECONDS)
    await services.actions.renew_and_recover()
    let_go.set()
    answer = await asyncio.wait_for(press, TIMEOUT_SECONDS)
    assert (answer.status, answer.result) == (ExecutionStatus.COMPLETED, {"n": 1}), "with all that it gave"
    assert [one["status"] for one in await audited(services, "canvas.action")] == ["completed"]


@rule("CV-42")
async def test_what_has_ended_cannot_be_stopped_and_that_is_said(
    services: HostServices, tool: ControlledTool
) -> None:
    press, event_id = await started(services, tool)
    tool.end()
    await press
    with pytest.raises(NotRunning, match="it is completed") as problem:
        await cancel(services, event_id)
    assert problem.value.gateway == 409
    assert await ends(services) == ["started", "finished"]


@rule("CV-42")
@case("D1")
async def test_what_a_dead_instance_ran_can_be_stopped_at_once(
    services: HostServices, other: HostServices, tool: ControlledTool, bench: Bench
) -> None:
    press, event_id = await started(services, tool)
    press.cancel()  # it is not heard of any more, and its lease has not run out
    await cancel(other, event_id)
    bench.clock.ahead += 2 * CLAIM_SECONDS
    assert await other.actions.renew_and_recover() == 0, "it is over, and is not told a second time"
    assert (await ends(services)).count("failed") == 1
    with contextlib.suppress(asyncio.CancelledError):
        await press


@rule("RS-59")
async def test_an_agent_stops_nothing_that_it_could_not_have_pressed(
    services: HostServices, tool: ControlledTool
) -> None:
    press, event_id = await started(services, tool)
    for kind in (PrincipalKind.AGENT, PrincipalKind.NODE):
        with pytest.raises(Forbidden):
            await cancel(services, event_id, Principal(OWNER, "agent", kind=kind))
    assert not press.done()
    assert (
        await cancel(services, event_id, Principal(OWNER, "ci", kind=PrincipalKind.SERVICE))
    ).status is ExecutionStatus.FAILED
    with pytest.raises(Cancelled, match="ci stopped it"):
        await press


@rule("SB-19")
async def test_only_an_execution_of_the_own_canvas_is_found(
    services: HostServices, tool: ControlledTool
) -> None:
    press, event_id = await started(services, tool)
    await services.create(SPEC, canvas_id="d")
    for principal, canvas_id, named in (
        (Principal(UserId("ann"), "Ann"), "c", event_id),
        (THE_OWNER, "d", event_id),
        (THE_OWNER, "c", "evt_" + "0" * 26),
        (THE_OWNER, "c", "../x"),
    ):
        with pytest.raises(NotFound):
            await cancel(services, named, principal, canvas_id)
    assert not press.done()


@rule("CV-22", "RS-59")
async def test_what_waits_for_a_person_is_refused_by_them(services: HostServices) -> None:
    asked = await services.run("ask")
    with pytest.raises(Forbidden, match="by a person, or by whoever pressed it"):
        await cancel(services, asked.event_id, CI)
    with pytest.raises(Forbidden, match="An agent presses no buttons"):
        await cancel(services, asked.event_id, Principal(OWNER, "agent", kind=PrincipalKind.AGENT))
    assert (await cancel(services, asked.event_id)).status is ExecutionStatus.REFUSED
    with pytest.raises(NotRunning, match="it is refused"):
        await cancel(services, asked.event_id)
    assert await ends(services) == ["asked", "refused"]


@rule("CV-22", "RS-59")
async def test_a_program_withdraws_its_own_question_and_cannot_confirm_it(services: HostServices) -> None:
    asked = await services.actions.execute(
        CI, ActionRequest(canvas_id="c", action_id="ask", input={}, client_id="test")
    )
    for principal in (
        Principal(OWNER, "cd", kind=PrincipalKind.SERVICE),
        Principal(OWNER, "ci", kind=PrincipalKind.AGENT),
    ):
        with pytest.raises(Forbidden):
            await cancel(services, asked.event_id, principal)
    with pytest.raises(Forbidden):
        await services.actions.confirm(CI, asked.event_id, approve=True)
    assert (await cancel(services, asked.event_id, CI)).status is ExecutionStatus.REFUSED
    assert await ends(services) == ["asked", "refused"]
    [(_, told)] = await services.log("canvas.action.refused")
    assert told["refusedBy"] == "ci"


@rule("CV-22", "CV-23")
async def test_a_stop_that_finds_the_question_just_confirmed_stops_what_runs(
    services: HostServices, tool: ControlledTool, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = await services.run("ask")
    real, confirms = bench.database.canvas_actions.get, list[asyncio.Task[Any]]()

    async def get_and_agree(*whose: Any) -> Any:
        found = await real(*whose)
        if not confirms:
            confirms.append(
                asyncio.create_task(services.actions.confirm(THE_OWNER, asked.event_id, approve=True))
            )
            await within_timeout(tool.begun.wait())
        return found

    monkeypatch.setattr(bench.database.canvas_actions, "get", get_and_agree)
    assert (await cancel(services, asked.event_id)).status is ExecutionStatus.FAILED
    with pytest.raises(Cancelled):
        await confirms[0]
    assert tool.outcomes == ["cancelled"]
    assert await ends(services) == ["asked", "started", "failed"]


@rule("CV-22")
async def test_a_question_whose_time_is_over_is_over_for_everybody_who_asks(
    services: HostServices, bench: Bench
) -> None:
    """Before anybody has gone over what is left."""
    for number, look in enumerate(("cancel", "press")):
        name = f"d{number}"
        await services.create(SPEC, canvas_id=name)
        asked = await services.run("ask", canvas_id=name, request_id="r")
        bench.clock.ahead += CONFIRM_SECONDS + 1
        if look == "cancel":
            with pytest.raises(NotRunning, match="it is refused"):
                await cancel(services, asked.event_id, canvas_id=name)
        assert (
            await services.run("ask", canvas_id=name, request_id="r")
        ).status is ExecutionStatus.REFUSED, look
        events = [event.type for event in await bench.database.canvases.events_after(f"owner/{name}", 1, 100)]
        assert events == ["canvas.action.asked", "canvas.action.refused"]
    assert await services.actions.renew_and_recover() == 0, "it is told once"


@rule("CV-24")
async def test_a_run_that_was_started_only_for_it_is_stopped_with_it(bench: Bench) -> None:
    services = HostServices(bench)
    await services.create(
        {"actions": {"send": {"kind": "session.send", "message": "hello", "saveAs": "answer"}}}
    )
    press = asyncio.create_task(services.run("send"))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not (runs := await bench.queue.list_runs(THE_OWNER, None, [], None, 10)):  # noqa: ASYNC110 - it has no event here
            await asyncio.sleep(0.01)
    [record] = await services.actions.list_records(THE_OWNER, "c", before=None, limit=10)
    await cancel(services, record.event_id)
    with pytest.raises(Cancelled):
        await press
    assert (await bench.run(runs[0].run_id)).status is RunStatus.CANCELLED
    await services.close()


# --- questions that nobody answers --------------------------------------------------------------------------------------


@rule("CV-22", "CV-48")
async def test_a_question_that_nobody_answers_is_over_when_its_time_is_and_is_told_once(
    services: HostServices, other: HostServices, bench: Bench
) -> None:
    asked = await services.run("ask", request_id="r")
    assert await services.actions.renew_and_recover() == 0
    bench.clock.ahead += CONFIRM_SECONDS + 1
    assert (
        sum(await asyncio.gather(services.actions.renew_and_recover(), other.actions.renew_and_recover()))
        >= 1
    )
    assert await ends(services) == ["asked", "refused"]
    [(_, told)] = await services.log("canvas.action.refused")
    assert (told["eventId"], told["reason"], "refusedBy" in told) == (
        asked.event_id,
        "No person answered in time.",
        False,
    )
    assert await services.actions.renew_and_recover() == 0
    [record] = await services.actions.list_records(THE_OWNER, "c", before=None, limit=10)
    assert (record.status, record.confirmed_by, record.ended_at is not None) == (
        ExecutionStatus.REFUSED,
        None,
        True,
    ), "so it is pruned one day"
    assert await services.actions.confirmations.list_pending(THE_OWNER, "c") == []
    with pytest.raises(ConfirmationClosed):
        await services.actions.confirm(THE_OWNER, asked.event_id, approve=True)
    assert (await services.run("ask", request_id="r")).status is ExecutionStatus.REFUSED
    assert [(one["status"], one["problem"]) for one in await audited(services, "canvas.action")] == [
        ("refused", "No person answered in time.")
    ]
