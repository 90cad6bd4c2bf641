"""What an action does in the world, and for how long somebody waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.principal import THE_OWNER
from easel.core.tool.definition import ToolDefinition
from easel.errors import ActionFailed, Cancelled, TimedOut, ToolFailed, TooMany, Unavailable
from easel.host.actions import service as canvas_actions
from easel.host.actions.deadlines import Deadlines
from easel.host.actions.outcomes import RecordRetention
from easel.host.metrics import ACTIONS_ABANDONED
from tests.host.stage import Stage
from tests.requirements import case, rule
from tests.support.waiting import TIMEOUT_SECONDS, wait_for, within_timeout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from easel.core.tool.context import ToolContext
    from tests.host.conftest import Bench


@rule("CV-23")
@case("X8")
async def test_what_does_not_let_itself_be_stopped_is_not_heard_when_it_ends_after_all() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "too late"
        return "in time"

    deadlines = Deadlines()
    with pytest.raises(TimedOut):
        await deadlines.within(10, "Stubborn", stubborn())
    assert await deadlines.within(10_000, "Quick", asyncio.sleep(0, "in time")) == "in time"
    assert deadlines.overdue == 0


class Stubborn:
    """A tool that takes no notice of being told to stop."""

    definition = ToolDefinition("test__Stubborn", "For a test.", {"type": "object"}, read_only=True)

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        self.begun.set()
        while not self.let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.let_go.wait()
        if context.on_output is not None:
            context.on_output("too late\n")
        if args.get("fails"):
            raise ToolFailed(tool="test__Stubborn", reason="too late")
        return "too late"


ENDS = {
    "stop": Cancelled,
    "time": TimedOut,
    "the toolbox's time": TimedOut,
    "the instance's end": ActionFailed,
}


@rule("CV-23")
@case("X8")
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("by", ENDS)
async def test_a_tool_that_takes_no_notice_keeps_nobody_waiting_and_is_counted_until_it_ends(
    bench: Bench, by: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        canvas_actions, "STOP_SECONDS", TIMEOUT_SECONDS
    )  # what waits for a slow disk is not what takes no notice
    tool = Stubborn()
    stage = Stage(bench, tool)
    stage.work.deadlines.grace_seconds = 0.05
    call = {
        "kind": "tool.call",
        "tool": "test__Stubborn",
        "args": {"fails": fails},
        "saveAs": "x",
        "confirm": "never",
    }
    if by == "time":
        call["timeoutMs"] = 50
    if by == "the toolbox's time":
        stage.tools.timeout_seconds = 0.05
    await stage.create({"toolPolicy": {"allow": ["test__Stubborn"]}, "actions": {"go": call}})
    press = asyncio.create_task(stage.press("go"))
    await within_timeout(tool.begun.wait())
    if by == "stop":
        [(_, started)] = await stage.log("canvas.action.started")
        await asyncio.wait_for(
            stage.actions.cancel(THE_OWNER, "c", started["eventId"], "test"), TIMEOUT_SECONDS
        )
        assert press.done(), "who stopped it is answered when who pressed is, too"
    if by == "the instance's end":
        await asyncio.wait_for(stage.actions.stop(), TIMEOUT_SECONDS)
    with pytest.raises(ENDS[by]):
        await asyncio.wait_for(press, TIMEOUT_SECONDS)
    assert stage.work.deadlines.overdue == ACTIONS_ABANDONED._value.get() == 1
    tool.let_go.set()

    async def has_ended() -> bool:
        return stage.work.deadlines.overdue == 0

    await wait_for(has_ended)
    assert ACTIONS_ABANDONED._value.get() == 0
    assert [name for name, _ in await stage.log() if name.startswith("canvas.action.")] == [
        "canvas.action.started",
        "canvas.action.failed",
    ]
    assert await stage.state() == {}
    await stage.close()


@rule("CV-23")
async def test_what_nobody_waits_for_still_takes_its_room(bench: Bench) -> None:
    tool = Stubborn()
    stage = Stage(bench, tool, at_once=2)
    stage.work.deadlines.grace_seconds = 0.01
    call = {"kind": "tool.call", "tool": "test__Stubborn", "confirm": "never", "timeoutMs": 10}
    await stage.create({"toolPolicy": {"allow": ["test__Stubborn"]}, "actions": {"go": call}})
    for _ in range(2):
        with pytest.raises(TimedOut):
            await stage.press("go")
    with pytest.raises(TooMany):
        await stage.press("go")
    tool.let_go.set()

    async def has_ended() -> bool:
        return stage.work.deadlines.overdue == 0

    await wait_for(has_ended)
    assert (await stage.press("go")).result == "too late", "in time, now"
    await stage.close()


@rule("CV-42")
@case("D1")
async def test_a_message_that_may_have_been_sent_is_not_told_as_if_it_were_not(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is there, and only the answer to its start was lost: whoever presses again would send it twice."""
    stage = Stage(bench)
    await stage.create(
        {"actions": {"send": {"kind": "session.send", "message": "hello", "confirm": "never"}}}
    )
    enqueue = bench.database.runs.enqueue

    async def forgets(new: Any) -> Any:
        await enqueue(new)
        raise Unavailable(what="The database")

    monkeypatch.setattr(bench.database.runs, "enqueue", forgets)
    with pytest.raises(Unavailable, match="may be stored") as told:
        await stage.press("send")
    assert (told.value.details["mayBeStored"], told.value.retry_after) == (True, None)
    [(_, failed)] = await stage.log("canvas.action.failed")
    assert "may be stored" in failed["error"]["message"]
    assert len(await bench.queue.list_runs(THE_OWNER, None, [], None, 10)) == 1
    await stage.close()


@rule("CV-48")
async def test_records_that_are_old_go_all_of_them_in_one_round(bench: Bench) -> None:
    stage = Stage(bench)
    await stage.create(
        {"actions": {"set": {"kind": "state.patch", "patch": [{"op": "add", "path": "/n", "value": 1}]}}}
    )
    for _ in range(26):
        await asyncio.gather(*(stage.press("set") for _ in range(20)))  # more than one statement takes
    pruning = asyncio.create_task(RecordRetention(bench.database.canvas_actions, 1e-6).prune_forever())
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while await stage.actions.records(THE_OWNER, "c", before=None, limit=1):  # noqa: ASYNC110 - the store tells nobody
                await asyncio.sleep(0.01)
    finally:
        pruning.cancel()
    for_ever = RecordRetention(bench.database.canvas_actions, 0)
    await stage.press("set")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(for_ever.prune_forever(), 0.05)
    assert await stage.actions.records(THE_OWNER, "c", before=None, limit=1)
    await stage.close()
