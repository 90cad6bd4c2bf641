"""The work of actions: how many transactions it takes, and its time limits."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.tool.definition import ToolDefinition
from easel.errors import ActionFailed, Cancelled, TimedOut, ToolFailed, TooMany, Unavailable
from easel.host.actions import service
from easel.host.actions.retention import RecordRetention
from easel.host.metrics import ACTIONS_ABANDONED
from tests.host.services import HostServices
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER
from tests.support.waiting import TIMEOUT_SECONDS, wait_for, within_timeout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from easel.core.tool.context import ToolContext
    from tests.host.conftest import RunHarness

SET = {"kind": "state.patch", "patch": [{"op": "add", "path": "/n", "value": 1}]}
ECHO = {"kind": "tool.call", "tool": "gsv__Echo", "args": {"value": "hi"}, "confirm": "never"}


@rule("CV-03", "CV-39")
async def test_tool_call_makes_one_change_for_its_start_and_one_for_its_end(
    harness: RunHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = await HostServices.open(harness)
    await services.create({"toolPolicy": {"allow": ["gsv__Echo"]}, "actions": {"echo": ECHO, "set": SET}})
    change, count = harness.database.canvases.change, 0

    async def count_changes(*args: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        return await change(*args, **options)

    monkeypatch.setattr(harness.database.canvases, "change", count_changes)
    await services.run("echo")
    assert count == 2
    await services.run("set")
    assert count == 3
    await services.close()


@rule("CV-25")
@case("D1")
async def test_state_patch_runs_while_tool_definitions_are_unavailable(
    harness: RunHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = await HostServices.open(harness)
    await services.create({"toolPolicy": {"allow": ["gsv__Echo"]}, "actions": {"echo": ECHO, "set": SET}})

    async def fail(account_id: str) -> Any:
        raise Unavailable(what="The database")

    monkeypatch.setattr(services.tools, "definitions", fail)
    await services.run("set")
    assert await services.state() == {"n": 1}
    with pytest.raises(Unavailable):
        await services.run("echo")
    assert len(await services.actions.list_records(THE_OWNER, "c", before=None, limit=10)) == 1, (
        "a tool call that did not start has no record"
    )
    await services.close()


class StubbornTool:
    """A tool that ignores its cancellation until `release` is set."""

    definition = ToolDefinition("test__Stubborn", "For a test.", {"type": "object"}, read_only=True)

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.release = asyncio.Event()

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        self.started.set()
        while not self.release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.release.wait()
        if context.on_output is not None:
            context.on_output("too late\n")
        if args.get("fails"):
            raise ToolFailed(tool="test__Stubborn", reason="too late")
        return "too late"


ENDS = {
    "cancel": Cancelled,
    "timeout of the action": TimedOut,
    "timeout of the registry": TimedOut,
    "stop of the instance": ActionFailed,
}


@rule("CV-23")
@case("X8")
@pytest.mark.parametrize("end, fails", [*((end, False) for end in ENDS), ("cancel", True)])
async def test_tool_that_ignores_its_cancellation_is_abandoned_and_counted_until_it_ends(
    harness: RunHarness, end: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slow disk must not look like a tool that ignores its cancellation.
    monkeypatch.setattr(service, "STOP_SECONDS", TIMEOUT_SECONDS)
    tool = StubbornTool()
    services = await HostServices.open(harness, tool)
    services.executor.grace_seconds = 0.05
    call = {
        "kind": "tool.call",
        "tool": "test__Stubborn",
        "args": {"fails": fails},
        "saveAs": "x",
        "confirm": "never",
    }
    if end == "timeout of the action":
        call["timeoutMs"] = 50
    if end == "timeout of the registry":
        services.tools.timeout_seconds = 0.05
    await services.create({"toolPolicy": {"allow": ["test__Stubborn"]}, "actions": {"go": call}})
    request = asyncio.create_task(services.run("go"))
    await within_timeout(tool.started.wait())
    if end == "cancel":
        [(_, started)] = await services.log("canvas.action.started")
        await within_timeout(services.actions.cancel(THE_OWNER, "c", started["eventId"]))
        assert request.done(), "the request is answered before the cancel is"
    if end == "stop of the instance":
        await within_timeout(services.actions.stop())
    with pytest.raises(ENDS[end]):
        await within_timeout(request)
    assert services.executor.abandoned_count() == ACTIONS_ABANDONED._value.get() == 1
    tool.release.set()
    await wait_for(lambda: services.executor.abandoned_count() == 0, what="the tool has ended")
    assert ACTIONS_ABANDONED._value.get() == 0
    assert [name for name, _ in await services.log() if name.startswith("canvas.action.")] == [
        "canvas.action.started",
        "canvas.action.failed",
    ]
    assert await services.state() == {}
    await services.close()


@rule("CV-23")
async def test_abandoned_tool_counts_against_the_limit_of_running_actions(harness: RunHarness) -> None:
    tool = StubbornTool()
    services = await HostServices.open(harness, tool, max_actions=2)
    services.executor.grace_seconds = 0.01
    call = {"kind": "tool.call", "tool": "test__Stubborn", "confirm": "never", "timeoutMs": 10}
    await services.create({"toolPolicy": {"allow": ["test__Stubborn"]}, "actions": {"go": call}})
    for _ in range(2):
        with pytest.raises(TimedOut):
            await services.run("go")
    with pytest.raises(TooMany):
        await services.run("go")
    tool.release.set()
    await wait_for(lambda: services.executor.abandoned_count() == 0, what="both tools have ended")
    assert (await services.run("go")).result == "too late"
    await services.close()


@rule("CV-42")
@case("D1")
async def test_message_whose_enqueue_reply_was_lost_is_reported_as_maybe_stored(
    harness: RunHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run exists, and only the reply was lost: a blind retry would send the message twice."""
    services = await HostServices.open(harness)
    await services.create(
        {"actions": {"send": {"kind": "session.send", "message": "hello", "confirm": "never"}}}
    )
    enqueue = harness.database.runs.enqueue

    async def lose_reply(new: Any) -> Any:
        await enqueue(new)
        raise Unavailable(what="The database")

    monkeypatch.setattr(harness.database.runs, "enqueue", lose_reply)
    with pytest.raises(Unavailable, match="may have been stored") as problem:
        await services.run("send")
    assert (problem.value.details["mayBeStored"], problem.value.retry_after) == (True, None)
    [(_, failed)] = await services.log("canvas.action.failed")
    assert "may have been stored" in failed["error"]["message"]
    assert len(await harness.queue.list_runs(THE_OWNER, None, [], None, 10)) == 1
    await services.close()


@rule("CV-48")
async def test_expired_records_are_deleted_batch_by_batch_until_none_is_left(
    harness: RunHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = await HostServices.open(harness)
    await services.create({"actions": {"set": SET}})
    await services.run("set")
    batches = [500, 20, 0]

    async def prune(older_than_seconds: float) -> int:
        return batches.pop(0)

    with monkeypatch.context() as patched:
        patched.setattr(harness.database.executions, "prune", prune)
        await RecordRetention(harness.database.executions, 1e-6).prune()
    assert batches == []
    await RecordRetention(harness.database.executions, 0).prune()
    assert await services.actions.list_records(THE_OWNER, "c", before=None, limit=1)
    await RecordRetention(harness.database.executions, 1e-6).prune()
    assert await services.actions.list_records(THE_OWNER, "c", before=None, limit=1) == []
    await services.close()
