"""Cancelling an execution, and confirmations that expire: one end, stored once, whatever competes with it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.action.execution import ExecutionStatus
from easel.core.principal import Principal, PrincipalKind
from easel.core.run.status import Status as RunStatus
from easel.errors import Cancelled, ConfirmationClosed, Forbidden, NotFound, NotRunning
from easel.host.actions.request import ActionRequest
from easel.ids import OWNER
from tests.host.controlled_tool import SPEC, ControlledTool
from tests.host.services import CLAIM_SECONDS, HostServices
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER, person
from tests.support.waiting import TIMEOUT_SECONDS, wait_for, within_timeout

if TYPE_CHECKING:
    from easel.core.run.run import Run
    from tests.host.conftest import RunHarness

CI = Principal(OWNER, "ci", kind=PrincipalKind.SERVICE)
CONFIRM_SECONDS = 900.0  # as in HostServices


@pytest_asyncio.fixture(autouse=True)
async def canvas(services: HostServices) -> None:
    await services.create(SPEC)


async def start(
    services: HostServices, tool: ControlledTool, **options: Any
) -> tuple[asyncio.Task[Any], str]:
    request = asyncio.create_task(services.run("go", **options))
    await within_timeout(tool.started.wait())
    [(_, event)] = await services.log("canvas.action.started")
    return request, event["eventId"]


async def cancel(
    services: HostServices, event_id: str, principal: Principal = THE_OWNER, canvas_id: str = "c"
) -> Any:
    return await services.actions.cancel(principal, canvas_id, event_id)


async def action_events(services: HostServices) -> list[str]:
    return [
        name.removeprefix("canvas.action.")
        for name, _ in await services.log()
        if name.startswith("canvas.action.")
    ]


@rule("CV-23", "CV-42", "CV-48")
async def test_cancel_ends_the_execution_and_answers_its_request(
    services: HostServices, tool: ControlledTool
) -> None:
    request, event_id = await start(services, tool, request_id="r")
    tool.emit("half done\n")
    answer = await cancel(services, event_id)
    assert (answer.status, answer.event_id, answer.revision) == (ExecutionStatus.FAILED, event_id, 1)
    assert tool.outcomes == ["cancelled"], "the tool has ended before the cancel is answered"
    with pytest.raises(Cancelled, match="Cancelled by owner") as problem:
        await request
    assert problem.value.details == {"eventId": event_id}
    tool.finish()
    assert await action_events(services) == ["started", "output", "failed"]
    [(_, payload)] = await services.log("canvas.action.failed")
    assert (payload["error"]["name"], payload["error"]["code"]) == ("CANCELLED", 409)
    assert "result" not in await services.state()
    with pytest.raises(Cancelled):
        await services.run("go", request_id="r")
    [record] = await services.actions.list_records(THE_OWNER, "c", before=None, limit=10)
    assert record.status is ExecutionStatus.FAILED
    assert [details["eventId"] for details in await services.audited("canvas.cancelled")] == [event_id]
    assert [
        (details["status"], "Cancelled by owner" in details["problem"])
        for details in await services.audited("canvas.action")
    ] == [("failed", True)]


@rule("CV-23")
async def test_cancel_on_another_instance_stops_the_tool_where_it_runs(
    harness: RunHarness, other: HostServices, tool: ControlledTool
) -> None:
    """By a notification: the next renewal is far away."""
    services = await HostServices.open(harness, tool, claim_seconds=3_600)
    request, event_id = await start(services, tool)
    await services.actions.start()
    assert (await cancel(other, event_id)).status is ExecutionStatus.FAILED
    with pytest.raises(Cancelled):
        await asyncio.wait_for(request, TIMEOUT_SECONDS)
    assert tool.outcomes == ["cancelled"]
    assert await action_events(services) == ["started", "failed"]
    assert len(await services.audited("canvas.action")) == 1
    await services.close()


@rule("CV-23")
@case("E11")
async def test_cancel_whose_notification_was_lost_takes_effect_at_the_next_renewal(
    services: HostServices, other: HostServices, tool: ControlledTool
) -> None:
    request, event_id = await start(services, tool)
    await cancel(other, event_id)
    await asyncio.sleep(0)
    assert not request.done()
    await services.actions.renew_and_recover()
    with pytest.raises(Cancelled):
        await asyncio.wait_for(request, TIMEOUT_SECONDS)
    assert tool.outcomes == ["cancelled"]


@rule("CV-23")
async def test_result_of_a_cancelled_execution_is_not_stored(
    services: HostServices, other: HostServices, tool: ControlledTool
) -> None:
    request, event_id = await start(services, tool)
    await cancel(other, event_id)  # the instance that runs it was not notified yet
    tool.finish()
    with pytest.raises(Cancelled, match="Cancelled by owner"):
        await request
    assert await action_events(services) == ["started", "failed"]
    assert "result" not in await services.state()
    assert len(await services.audited("canvas.action")) == 1


@rule("CV-23")
async def test_exactly_one_of_completion_and_competing_cancels_wins(harness: RunHarness) -> None:
    for lead in range(4):
        tool = ControlledTool()
        services, other = await HostServices.open(harness, tool), await HostServices.open(harness, tool)
        name = f"race-{lead}"
        await services.create(SPEC, canvas_id=name)
        request = asyncio.create_task(services.run("go", canvas_id=name))
        await within_timeout(tool.started.wait())
        [record] = await services.actions.list_records(THE_OWNER, name, before=None, limit=10)
        stops = [
            asyncio.create_task(cancel((services, other)[n % 2], record.event_id, canvas_id=name))
            for n in range(4)
        ]
        for _ in range(2 * lead):
            await asyncio.sleep(0)
        tool.finish()
        answers = await asyncio.gather(*stops, return_exceptions=True)
        [result] = await asyncio.gather(request, return_exceptions=True)
        won = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert all(
            isinstance(answer, NotRunning) for answer in answers if isinstance(answer, BaseException)
        ), answers
        if isinstance(result, BaseException):
            assert (type(result), len(won)) == (Cancelled, 1)
        else:
            assert (result.status, won) == (ExecutionStatus.COMPLETED, [])
        canvas = (await services.library.get(THE_OWNER, name)).canvas
        assert ("result" in canvas.state) == (not won)
        log = await harness.database.canvases.events_after(f"owner/{name}", 0, 100)
        events = [event.type for event in log]
        assert sum(event in ("canvas.action.finished", "canvas.action.failed") for event in events) == 1
        await services.close()
        await other.close()


@rule("CV-42", "CV-48")
async def test_renewal_does_not_abandon_an_execution_whose_end_was_just_stored(
    services: HostServices, tool: ControlledTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is committed, and the reply of the store is still on its way."""
    request, _ = await start(services, tool)
    canvases: Any = services.harness.database.canvases
    change, is_stored, release = canvases.change, asyncio.Event(), asyncio.Event()

    async def slow(*args: Any, **more: Any) -> Any:
        outcome = await change(*args, **more)
        is_stored.set()
        await release.wait()
        return outcome

    monkeypatch.setattr(canvases, "change", slow)
    tool.finish({"n": 1})
    await asyncio.wait_for(is_stored.wait(), TIMEOUT_SECONDS)
    await services.actions.renew_and_recover()
    release.set()
    answer = await asyncio.wait_for(request, TIMEOUT_SECONDS)
    assert (answer.status, answer.result) == (ExecutionStatus.COMPLETED, {"n": 1})
    assert [details["status"] for details in await services.audited("canvas.action")] == ["completed"]


@rule("CV-42")
async def test_cancel_of_an_ended_execution_is_refused_with_its_status(
    services: HostServices, tool: ControlledTool
) -> None:
    request, event_id = await start(services, tool)
    tool.finish()
    await request
    with pytest.raises(NotRunning, match="its status is completed") as problem:
        await cancel(services, event_id)
    assert problem.value.gateway == 409
    assert await action_events(services) == ["started", "finished"]


@rule("CV-42")
@case("D1")
async def test_execution_of_a_crashed_instance_can_be_cancelled_at_once(
    services: HostServices, other: HostServices, tool: ControlledTool, harness: RunHarness
) -> None:
    request, event_id = await start(services, tool)
    request.cancel()  # the claim has not expired
    await cancel(other, event_id)
    harness.clock.ahead += 2 * CLAIM_SECONDS
    assert await other.actions.renew_and_recover() == 0, "it was ended by the cancel"
    assert (await action_events(services)).count("failed") == 1
    with contextlib.suppress(asyncio.CancelledError):
        await request


@rule("RS-59")
async def test_agents_and_nodes_cannot_cancel_executions(
    services: HostServices, tool: ControlledTool
) -> None:
    request, event_id = await start(services, tool)
    for kind in (PrincipalKind.AGENT, PrincipalKind.NODE):
        with pytest.raises(Forbidden):
            await cancel(services, event_id, Principal(OWNER, "agent", kind=kind))
    assert not request.done()
    assert (
        await cancel(services, event_id, Principal(OWNER, "ci", kind=PrincipalKind.SERVICE))
    ).status is ExecutionStatus.FAILED
    with pytest.raises(Cancelled, match="Cancelled by ci"):
        await request


@rule("SB-19")
async def test_cancel_finds_only_executions_of_the_named_canvas_and_user(
    services: HostServices, tool: ControlledTool
) -> None:
    request, event_id = await start(services, tool)
    await services.create(SPEC, canvas_id="d")
    for principal, canvas_id, name in (
        (person("ann", "Ann"), "c", event_id),
        (THE_OWNER, "d", event_id),
        (THE_OWNER, "c", "evt_" + "0" * 26),
        (THE_OWNER, "c", "../x"),
    ):
        with pytest.raises(NotFound):
            await cancel(services, name, principal, canvas_id)
    assert not request.done()


@rule("CV-22", "RS-59")
async def test_pending_execution_is_withdrawn_by_a_person(services: HostServices) -> None:
    pending = await services.run("ask")
    with pytest.raises(Forbidden, match="by a person or by the program that started"):
        await cancel(services, pending.event_id, CI)
    with pytest.raises(Forbidden, match="Agents cannot run or cancel"):
        await cancel(services, pending.event_id, Principal(OWNER, "agent", kind=PrincipalKind.AGENT))
    assert (await cancel(services, pending.event_id)).status is ExecutionStatus.REFUSED
    with pytest.raises(NotRunning, match="its status is refused"):
        await cancel(services, pending.event_id)
    assert await action_events(services) == ["asked", "refused"]


@rule("RS-59", "CV-23")
async def test_cancel_of_running_executions_only_leaves_confirmations_open(
    services: HostServices, tool: ControlledTool
) -> None:
    """A page cancels in the name of its viewer, and must not answer confirmations for them."""
    pending = await services.run("ask")
    with pytest.raises(NotRunning, match="its status is asked"):
        await services.actions.cancel(THE_OWNER, "c", pending.event_id, only_running=True)
    request, event_id = await start(services, tool)
    assert (
        await services.actions.cancel(THE_OWNER, "c", event_id, only_running=True)
    ).status is ExecutionStatus.FAILED
    with pytest.raises(Cancelled):
        await request
    assert [
        found.event_id for found in await services.actions.confirmations.list_pending(THE_OWNER, "c")
    ] == [pending.event_id]


@rule("CV-22", "RS-59")
async def test_program_withdraws_its_own_confirmation_and_cannot_approve_it(services: HostServices) -> None:
    pending = await services.actions.execute(
        CI, ActionRequest(canvas_id="c", action_id="ask", input={}, client_id="test")
    )
    for principal in (
        Principal(OWNER, "cd", kind=PrincipalKind.SERVICE),
        Principal(OWNER, "ci", kind=PrincipalKind.AGENT),
    ):
        with pytest.raises(Forbidden):
            await cancel(services, pending.event_id, principal)
    with pytest.raises(Forbidden):
        await services.actions.confirm(CI, pending.event_id, approve=True)
    assert (await cancel(services, pending.event_id, CI)).status is ExecutionStatus.REFUSED
    assert await action_events(services) == ["asked", "refused"]
    [(_, payload)] = await services.log("canvas.action.refused")
    assert payload["refusedBy"] == "ci"


@rule("CV-22", "CV-23")
async def test_cancel_of_a_confirmation_that_was_just_approved_cancels_the_execution(
    services: HostServices, tool: ControlledTool, harness: RunHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending = await services.run("ask")
    real, confirms = harness.database.executions.get, list[asyncio.Task[Any]]()

    async def get_and_approve(*args: Any) -> Any:
        found = await real(*args)
        if not confirms:
            confirms.append(
                asyncio.create_task(services.actions.confirm(THE_OWNER, pending.event_id, approve=True))
            )
            await within_timeout(tool.started.wait())
        return found

    monkeypatch.setattr(harness.database.executions, "get", get_and_approve)
    assert (await cancel(services, pending.event_id)).status is ExecutionStatus.FAILED
    with pytest.raises(Cancelled):
        await confirms[0]
    assert tool.outcomes == ["cancelled"]
    assert await action_events(services) == ["asked", "started", "failed"]


@rule("CV-22")
async def test_expired_confirmation_is_ended_by_the_next_request(
    services: HostServices, harness: RunHarness
) -> None:
    """Without waiting for the maintenance."""
    for number, request in enumerate(("cancel", "run")):
        name = f"d{number}"
        await services.create(SPEC, canvas_id=name)
        pending = await services.run("ask", canvas_id=name, request_id="r")
        harness.clock.ahead += CONFIRM_SECONDS + 1
        if request == "cancel":
            with pytest.raises(NotRunning, match="its status is refused"):
                await cancel(services, pending.event_id, canvas_id=name)
        assert (
            await services.run("ask", canvas_id=name, request_id="r")
        ).status is ExecutionStatus.REFUSED, request
        log = await harness.database.canvases.events_after(f"owner/{name}", 1, 100)
        events = [event.type for event in log]
        assert events == ["canvas.action.asked", "canvas.action.refused"]
    assert await services.actions.renew_and_recover() == 0, "it was expired once"


@rule("CV-24")
async def test_cancel_of_a_message_also_cancels_its_run(harness: RunHarness) -> None:
    services = await HostServices.open(harness)
    send = {"kind": "session.send", "message": "hello", "saveAs": "answer"}
    await services.create({"actions": {"send": send}}, canvas_id="d")
    request = asyncio.create_task(services.run("send", canvas_id="d"))
    runs: list[Run] = []

    async def has_run() -> bool:
        runs[:] = await harness.queue.list_runs(THE_OWNER, None, [], None, 10)
        return bool(runs)

    await wait_for(has_run, what="the run is enqueued")
    [record] = await services.actions.list_records(THE_OWNER, "d", before=None, limit=10)
    await cancel(services, record.event_id, canvas_id="d")
    with pytest.raises(Cancelled):
        await request
    assert (await harness.run(runs[0].run_id)).status is RunStatus.CANCELLED
    await services.close()


# --- confirmations that expire --------------------------------------------------------------------


@rule("CV-22", "CV-48")
async def test_unanswered_confirmation_expires_once(
    services: HostServices, other: HostServices, harness: RunHarness
) -> None:
    pending = await services.run("ask", request_id="r")
    assert await services.actions.renew_and_recover() == 0
    harness.clock.ahead += CONFIRM_SECONDS + 1
    assert (
        sum(await asyncio.gather(services.actions.renew_and_recover(), other.actions.renew_and_recover()))
        >= 1
    )
    assert await action_events(services) == ["asked", "refused"]
    [(_, payload)] = await services.log("canvas.action.refused")
    assert (payload["eventId"], payload["reason"], "refusedBy" in payload) == (
        pending.event_id,
        "No person answered in time.",
        False,
    )
    assert await services.actions.renew_and_recover() == 0
    [record] = await services.actions.list_records(THE_OWNER, "c", before=None, limit=10)
    assert (record.status, record.confirmed_by, record.ended_at is not None) == (
        ExecutionStatus.REFUSED,
        None,
        True,
    ), "it is pruned like any other"
    assert await services.actions.confirmations.list_pending(THE_OWNER, "c") == []
    with pytest.raises(ConfirmationClosed):
        await services.actions.confirm(THE_OWNER, pending.event_id, approve=True)
    assert (await services.run("ask", request_id="r")).status is ExecutionStatus.REFUSED
    assert [
        (details["status"], details["problem"]) for details in await services.audited("canvas.action")
    ] == [("refused", "No person answered in time.")]
