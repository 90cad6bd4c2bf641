"""Executions while the store loses replies or is unavailable: each outcome is stored once and reported
correctly. D1
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.action.execution import ExecutionStatus
from easel.errors import ActionFailed, NotFound, Unavailable
from tests.host.controlled_tool import NAME, SPEC, ControlledTool
from tests.host.services import CLAIM_SECONDS, HostServices
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER
from tests.support.waiting import within_timeout

if TYPE_CHECKING:
    from tests.host.conftest import RunHarness

INTERRUPTED = "stopped in the middle"


@pytest_asyncio.fixture(autouse=True)
async def canvas(services: HostServices) -> None:
    append = {"kind": "tool.call", "tool": NAME, "saveAs": "x", "saveMode": "append", "confirm": "never"}
    await services.create({**SPEC, "actions": {"go": append}})


def lose_reply(services: HostServices, monkeypatch: pytest.MonkeyPatch, event: str) -> None:
    """Lose the reply of the next change with this event after its commit."""
    canvases: Any = services.harness.database.canvases
    change, is_lost = canvases.change, False

    async def lossy(account_id: Any, canvas_id: Any, decide: Any, **options: Any) -> Any:
        nonlocal is_lost
        types: list[str] = []

        def watched(snapshot: Any) -> Any:
            decided = decide(snapshot)
            types[:] = [] if decided is None else [one.type for one in decided.events]
            return decided

        outcome = await change(account_id, canvas_id, watched, **options)
        if event in types and not is_lost:
            is_lost = True
            raise Unavailable(what="The database")
        return outcome

    monkeypatch.setattr(canvases, "change", lossy)


async def statuses(services: HostServices) -> list[ExecutionStatus]:
    records = await services.actions.list_records(THE_OWNER, "c", before=None, limit=10)
    return [record.status for record in records]


async def event_types(services: HostServices) -> list[str]:
    return [name.removeprefix("canvas.").removeprefix("action.") for name, _ in (await services.log())[1:]]


@rule("CV-39", "CV-42")
@case("D1")
async def test_end_whose_reply_was_lost_returns_the_stored_outcome(
    services: HostServices, tool: ControlledTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_reply(services, monkeypatch, "canvas.action.finished")
    tool.finish("done")
    answer = await services.run("go")
    # The execution has no request id, so its record has no result.
    assert (answer.status, answer.revision, answer.result) == (ExecutionStatus.COMPLETED, 2, "done")
    assert len((await services.state())["x"]) == 1
    assert await event_types(services) == ["started", "updated", "finished"]


@rule("CV-42", "CV-48")
@case("D1")
async def test_start_whose_reply_was_lost_is_ended_as_interrupted(
    services: HostServices, tool: ControlledTool, monkeypatch: pytest.MonkeyPatch, harness: RunHarness
) -> None:
    lose_reply(services, monkeypatch, "canvas.action.started")
    with pytest.raises(Unavailable):
        await services.run("go", request_id="r")
    harness.clock.ahead += 2 * CLAIM_SECONDS
    assert await services.actions.renew_and_recover() == 1
    assert await event_types(services) == ["started", "failed"]
    with pytest.raises(ActionFailed, match=INTERRUPTED):
        await services.run("go", request_id="r")
    assert not tool.started.is_set(), "it is not started again"


@rule("CV-42")
async def test_expired_claim_that_no_instance_took_over_is_renewed(
    services: HostServices, tool: ControlledTool, harness: RunHarness
) -> None:
    """The machine was suspended, and the tool still runs."""
    request = asyncio.create_task(services.run("go"))
    await within_timeout(tool.started.wait())
    harness.clock.ahead += 2 * CLAIM_SECONDS
    assert await services.actions.renew_and_recover() == 0
    assert await statuses(services) == [ExecutionStatus.RUNNING]
    tool.finish("awake")
    assert (await request).result == "awake"


@rule("CV-39", "CV-42", "CV-48")
@case("D1")
async def test_result_that_cannot_be_stored_is_reported_as_done_but_not_stored(
    harness: RunHarness, tool: ControlledTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that believed that nothing was done would run the action again."""
    services = await HostServices.open(harness, tool, claim_seconds=0.2)
    request = asyncio.create_task(services.run("go", request_id="r"))
    await within_timeout(tool.started.wait())

    async def fail(*_: Any, **__: Any) -> Any:
        raise Unavailable(what="The database")

    with monkeypatch.context() as patched:
        patched.setattr(harness.database.canvases, "change", fail)
        tool.finish("deployed")
        with pytest.raises(ActionFailed, match="has done its work; its result could not be stored") as lost:
            await request
    assert await statuses(services) == [ExecutionStatus.RUNNING]
    await services.actions.renew_and_recover()
    assert await statuses(services) == [ExecutionStatus.FAILED], "it is not reported as interrupted"
    with pytest.raises(ActionFailed) as again:
        await services.run("go", request_id="r")
    assert again.value.message == lost.value.message
    assert [details["status"] for details in await services.audited("canvas.action")] == ["failed"]
    await services.close()


@rule("CV-48", "RS-15")
async def test_execution_of_a_deleted_canvas_is_stopped_and_audited(
    services: HostServices, tool: ControlledTool
) -> None:
    """Its record was deleted with the canvas."""
    request = asyncio.create_task(services.run("go"))
    await within_timeout(tool.started.wait())
    await services.library.delete(THE_OWNER, "c")
    await services.actions.renew_and_recover()
    with pytest.raises(NotFound):
        await request
    assert tool.outcomes == ["cancelled"]
    [details] = await services.audited("canvas.action")
    assert (details["actionId"], details["tool"], details["status"]) == ("go", NAME, "failed")
    assert (details["actor"]["name"], "deleted" in details["problem"]) == ("owner", True)
