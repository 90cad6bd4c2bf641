"""Adoption: another instance waits for the run of an action whose instance stopped, and stores its
outcome.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.action.execution import Execution, ExecutionChange, ExecutionStatus, Transition
from easel.core.canvas.events import CanvasEvents
from easel.core.run.status import Status as RunStatus
from easel.errors import ActionFailed, Cancelled, TimedOut
from easel.host.actions import executor
from easel.ids import OWNER, CanvasId, new_event_id
from tests.host.runs.workers import script, wait_until_ended, working
from tests.host.services import CLAIM_SECONDS, HostServices
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER
from tests.support.waiting import TIMEOUT_SECONDS, wait_for

if TYPE_CHECKING:
    from easel.core.canvas.canvas import CanvasSnapshot
    from easel.core.run.run import Run
    from tests.host.conftest import RunHarness

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
        "quick": {**SEND, "timeoutMs": 20_000},  # shorter than a claim, and longer than any machine takes
        "ask": {**SEND, "confirm": "always"},
        "tell": {"kind": "session.send", "message": "hello"},
    }
}


@pytest_asyncio.fixture(autouse=True)
async def canvas(services: HostServices) -> None:
    await services.create(SPEC)


async def send(
    services: HostServices, action_id: str = "send", **options: Any
) -> tuple[asyncio.Task[Any], Run]:
    """Start the action and wait until its run is enqueued; there is no worker yet."""
    request = asyncio.create_task(services.run(action_id, **options))
    runs: list[Run] = []

    async def has_run() -> bool:
        runs[:] = await services.harness.queue.list_runs(THE_OWNER, None, [], None, 10)
        return bool(runs)

    await wait_for(has_run, what="the run exists")
    return request, runs[0]


async def leave_waiting(services: HostServices, action_id: str = "send", **options: Any) -> Run:
    """Stop the instance while its action waits for the run."""
    request, run = await send(services, action_id, **options)
    await services.actions.stop()
    with pytest.raises(ActionFailed, match="The run continues"):
        await request
    return run


async def complete_run(harness: RunHarness, run: Run) -> None:
    async with working(harness.worker()):
        await wait_until_ended(harness, run.run_id)


async def wait_for_end(services: HostServices) -> Execution:
    found: list[Execution] = []

    async def has_ended() -> bool:
        found[:] = await services.actions.list_records(THE_OWNER, "c", before=None, limit=10)
        return found[0].status.is_terminal

    await wait_for(has_ended, what="the execution has ended")
    return found[0]


async def action_events(services: HostServices) -> list[str]:
    return [
        name.removeprefix("canvas.action.")
        for name, _ in await services.log()
        if name.startswith("canvas.action.")
    ]


async def answers(services: HostServices) -> list[Any]:
    return [outcome["result"] for outcome in (await services.state()).get("answers", [])]


@rule("CV-43", "CV-42", "CV-48")
@case("D1")
async def test_adopting_instance_waits_for_the_run_and_stores_its_reply(
    services: HostServices, other: HostServices, harness: RunHarness
) -> None:
    run = await leave_waiting(services, request_id="r")
    assert await other.actions.renew_and_recover() == 0, "the claim has not expired"
    harness.clock.ahead += CLAIM_SECONDS + 1
    assert await other.actions.renew_and_recover() == 1
    again = asyncio.create_task(other.run("send", request_id="r"))
    await asyncio.sleep(0)  # the adopted execution runs
    harness.clock.ahead += CLAIM_SECONDS + 1
    assert await other.actions.renew_and_recover() == 0, "the adopted execution is renewed"
    await complete_run(harness, run)
    answer = await asyncio.wait_for(again, TIMEOUT_SECONDS)
    assert (answer.status, answer.result, answer.revision) == (ExecutionStatus.COMPLETED, "at last", 2)
    assert await answers(other) == ["at last"]
    assert await action_events(other) == ["started", "finished"]
    assert len(await harness.queue.list_runs(THE_OWNER, None, [], None, 10)) == 1, "the message was sent once"


@rule("CV-43", "CV-23")
@case("J2")
async def test_slow_instance_returns_the_outcome_that_the_adopting_one_stored(
    services: HostServices, other: HostServices, harness: RunHarness
) -> None:
    request, run = await send(services)
    harness.clock.ahead += CLAIM_SECONDS + 1
    assert await other.actions.renew_and_recover() == 1
    await complete_run(harness, run)
    assert (await asyncio.wait_for(request, TIMEOUT_SECONDS)).status is ExecutionStatus.COMPLETED
    await wait_for_end(other)
    assert (await answers(other), await action_events(other)) == (["at last"], ["started", "finished"])
    await harness.audit.close()  # flushes the records
    assert not await harness.database.audit.list_records(
        OWNER,
        of_host=True,
        action="gateway.error",
        storage_class=None,
        since=None,
        until=None,
        before=None,
        limit=1,
    )


@rule("CV-43")
async def test_instance_that_lost_its_claim_cancels_neither_execution_nor_run(
    services: HostServices, other: HostServices, harness: RunHarness
) -> None:
    request, run = await send(services)
    harness.clock.ahead += CLAIM_SECONDS + 1
    await other.actions.renew_and_recover()
    await services.actions.renew_and_recover()
    await asyncio.sleep(0)
    assert not request.done()
    await complete_run(harness, run)
    assert (await asyncio.wait_for(request, TIMEOUT_SECONDS)).status is ExecutionStatus.COMPLETED
    assert (await harness.run(run.run_id)).status is RunStatus.COMPLETED


async def store_orphan(harness: RunHarness, action_id: str) -> Execution:
    """Store a running execution of an instance that crashed right after the start."""
    execution = Execution(
        account_id=OWNER,
        canvas_id=CanvasId("c"),
        event_id=new_event_id(),
        action_id=action_id,
        status=ExecutionStatus.RUNNING,
        actor={"name": "main", "kind": "agent"},
        request_id="r",
        owner_id="gone",
    )
    event = CanvasEvents(execution.canvas_id, agent_id=OWNER, event_id=execution.event_id).action(
        "started", 1, execution.event_fields
    )

    def begin(snapshot: CanvasSnapshot) -> ExecutionChange:
        return ExecutionChange(events=[event], is_mutation=False, transition=Transition(execution))

    await harness.database.canvases.change(OWNER, execution.canvas_id, begin)
    return execution


@rule("CV-42")
async def test_orphan_without_a_run_is_failed(services: HostServices, harness: RunHarness) -> None:
    await store_orphan(harness, "send")
    assert await services.actions.recover_orphans(["gone"]) == 1
    assert (await wait_for_end(services)).status is ExecutionStatus.FAILED
    assert (await action_events(services), await harness.queue.list_runs(THE_OWNER, None, [], None, 10)) == (
        ["started", "failed"],
        [],
    )


@rule("CV-24", "CV-42")
async def test_orphan_that_does_not_wait_for_a_reply_completes_if_its_run_exists(
    services: HostServices, harness: RunHarness
) -> None:
    sends = await store_orphan(harness, "tell")
    run = await harness.queue.start(THE_OWNER, "main", "hello", sends.event_id)
    assert await services.actions.recover_orphans(["gone"]) == 1
    done = await wait_for_end(services)
    assert (done.status, done.answer) == (
        ExecutionStatus.COMPLETED,
        {"result": {"runId": run.run_id, "sessionKey": "agent:main:main"}},
    )
    assert await action_events(services) == ["started", "finished"]


@rule("CV-23", "CV-43")
async def test_timeout_of_an_adopted_execution_counts_from_its_start(
    services: HostServices, other: HostServices, harness: RunHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "MIN_SECONDS", 0.05)
    await leave_waiting(services, request_id="r")
    harness.clock.ahead += LONG_MS / 1000 + 1
    await other.actions.renew_and_recover()
    with pytest.raises(TimedOut, match="3600 s"):
        await asyncio.wait_for(other.run("send", request_id="r"), TIMEOUT_SECONDS)
    assert await action_events(other) == ["started", "failed"]


@rule("CV-43")
async def test_reply_that_exists_is_read_even_after_the_timeout(
    services: HostServices, other: HostServices, harness: RunHarness
) -> None:
    run = await leave_waiting(services, "quick")
    await complete_run(harness, run)
    harness.clock.ahead += CLAIM_SECONDS + 1
    await other.actions.renew_and_recover()
    assert (await wait_for_end(other)).status is ExecutionStatus.COMPLETED
    assert await answers(other) == ["at last"]


@rule("CV-43")
@case("X6")
async def test_adopted_reply_is_not_saved_where_no_person_confirmed(
    services: HostServices, other: HostServices, harness: RunHarness
) -> None:
    pending = await services.run("ask")
    request = asyncio.create_task(services.actions.confirm(THE_OWNER, pending.event_id, approve=True))
    await wait_for(lambda: has_runs(harness))
    await services.actions.stop()
    with pytest.raises(ActionFailed, match="The run continues"):
        await request
    spec = {"version": 1, "actions": {"ask": {**SPEC["actions"]["ask"], "saveAs": "elsewhere"}}}
    await other.library.patch(THE_OWNER, "c", spec=spec, state_patch=None, title=None, expected_revision=None)
    harness.clock.ahead += CLAIM_SECONDS + 1
    await other.actions.renew_and_recover()
    assert (await wait_for_end(other)).status is ExecutionStatus.FAILED
    assert await action_events(other) == ["asked", "started", "failed"]


async def has_runs(harness: RunHarness) -> bool:
    return bool(await harness.queue.list_runs(THE_OWNER, None, [], None, 10))


@rule("CV-24")
async def test_cancel_of_an_adopted_execution_also_cancels_its_run(
    services: HostServices, other: HostServices, harness: RunHarness
) -> None:
    run = await leave_waiting(services, request_id="r")
    harness.clock.ahead += CLAIM_SECONDS + 1
    await other.actions.renew_and_recover()
    again = asyncio.create_task(other.run("send", request_id="r"))
    [record] = await other.actions.list_records(THE_OWNER, "c", before=None, limit=10)
    await other.actions.cancel(THE_OWNER, "c", record.event_id)
    with pytest.raises(Cancelled):
        await asyncio.wait_for(again, TIMEOUT_SECONDS)
    assert (await harness.run(run.run_id)).status is RunStatus.CANCELLED


@rule("CV-42")
async def test_execution_of_a_deleted_canvas_is_not_adopted(
    services: HostServices, other: HostServices, harness: RunHarness
) -> None:
    await leave_waiting(services)
    await other.library.delete(THE_OWNER, "c")
    harness.clock.ahead += CLAIM_SECONDS + 1
    assert await other.actions.renew_and_recover() == 0
