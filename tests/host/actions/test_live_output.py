"""What a tool says while its action runs: in the canvas's log, in order, within bounds, and never in the tool's way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.action.output import GAP
from easel.core.principal import THE_OWNER
from easel.errors import ToolFailed, Unavailable
from easel.host.actions import live_output as canvas_output
from easel.ids import OWNER, CanvasId
from tests.host.controlled_tool import SPEC, ControlledTool
from tests.host.services import CLAIM_SECONDS, HostServices
from tests.requirements import case, rule
from tests.support.waiting import TIMEOUT_SECONDS, within_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.host.conftest import Bench


@pytest_asyncio.fixture
async def tool() -> ControlledTool:
    return ControlledTool()


@pytest_asyncio.fixture
async def services(bench: Bench, tool: ControlledTool) -> AsyncIterator[HostServices]:
    services = HostServices(bench, tool)
    await services.create(SPEC)
    yield services
    await services.close()


async def started(services: HostServices, tool: ControlledTool) -> asyncio.Task[Any]:
    press = asyncio.create_task(services.run("go"))
    await within_timeout(tool.begun.wait())
    return press


async def said(services: HostServices) -> str:
    return "".join(event["text"] for _, event in await services.log("canvas.action.output"))


async def until_said(services: HostServices, text: str) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while text not in await said(services):  # noqa: ASYNC110 - what is looked at is a log
            await asyncio.sleep(0.01)


async def types(services: HostServices) -> list[str]:
    return [name.removeprefix("canvas.").removeprefix("action.") for name, _ in (await services.log())[1:]]


@rule("CV-37", "CV-38")
async def test_it_is_seen_while_the_tool_runs_and_in_the_order_of_things(
    services: HostServices, tool: ControlledTool
) -> None:
    press = await started(services, tool)
    tool.say("building\n")
    await until_said(services, "building\n")
    assert not press.done()
    tool.say("last words\n")
    tool.end()
    answer = await press
    assert (answer.revision, answer.result) == (2, "done")
    assert await types(services) == ["started", "output", "output", "updated", "finished"]
    assert await said(services) == "building\nlast words\n"
    events = await services.log("canvas.action.output")
    assert {(one["actionId"], one["eventId"], one["revision"], one["visibility"]) for _, one in events} == {
        ("go", answer.event_id, 1, "public")
    }


@rule("CV-37")
async def test_many_words_are_few_events(services: HostServices, tool: ControlledTool) -> None:
    press = await started(services, tool)
    for number in range(200):
        tool.say(f"{number}\n")
    await until_said(services, "199\n")
    assert len(await services.log("canvas.action.output")) == 1
    tool.end()
    await press


@rule("CV-37", "CV-42")
async def test_what_it_said_last_is_there_when_it_fails(services: HostServices, tool: ControlledTool) -> None:
    press = await started(services, tool)
    tool.say("no space left on the device\n")
    tool.fail("exit code 1")
    with pytest.raises(ToolFailed):
        await press
    assert await types(services) == ["started", "output", "failed"]
    assert "no space left" in await said(services)


@rule("CC-14")
async def test_secrets_in_it_are_hidden(services: HostServices, tool: ControlledTool) -> None:
    press = await started(services, tool)
    tool.say("export API_KEY=sk-1234567890abcdef\nfine\n")
    tool.end()
    await press
    assert "1234567890" not in await said(services)
    assert "fine" in await said(services)


@rule("CV-23", "CV-37")
@case("D1")
async def test_a_stop_that_the_store_does_not_take_mutes_nothing(
    services: HostServices, tool: ControlledTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    press = await started(services, tool)
    [(_, event)] = await services.log("canvas.action.started")

    async def is_away(*_: Any, **__: Any) -> Any:
        tool.say("while it was tried\n")
        raise Unavailable(what="The database")

    tool.say("before\n")
    with monkeypatch.context() as patched:
        patched.setattr(services.bench.database.canvases, "change", is_away)
        with pytest.raises(Unavailable):
            await services.actions.cancel(THE_OWNER, "c", event["eventId"])
    tool.say("still here\n")
    await until_said(services, "still here\n")
    assert await said(services) == f"{GAP}while it was tried\nstill here\n", (
        "what may have been stored is not told twice"
    )
    tool.say("last words\n")
    tool.end()
    assert (await press).result == "done"
    assert (await said(services)).endswith("last words\n")


@rule("CV-19", "CV-37")
async def test_what_runs_by_itself_is_not_told_live(services: HostServices, tool: ControlledTool) -> None:
    """A log is kept, and a job that runs every second would fill it with what nobody reads."""
    press = asyncio.create_task(services.run("go", trigger="refresh"))
    await within_timeout(tool.begun.wait())
    assert not tool.is_heard
    tool.end()
    assert (await press).result == "done"
    assert await types(services) == ["started", "updated", "finished"]


async def test_it_is_told_up_to_its_limit_and_the_rest_is_not_kept(
    services: HostServices, tool: ControlledTool
) -> None:
    press = await started(services, tool)
    for _ in range(100):
        tool.say("x" * 999 + "\n")
    tool.end()
    await press
    events = [event for _, event in await services.log("canvas.action.output")]
    assert [one.get("cut", False) for one in events] == [False, False, True]
    assert sum(len(one["text"]) for one in events[:-1]) == 2_000
    tool.say("too late\n")
    assert "too late" not in await said(services)


@case("D1")
async def test_a_store_that_is_away_costs_words_and_not_the_tool(
    services: HostServices, tool: ControlledTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    press = await started(services, tool)
    canvases: Any = services.bench.database.canvases
    change, lost = canvases.change, asyncio.Event()

    async def away(*_: Any, **__: Any) -> Any:
        lost.set()
        raise Unavailable(what="The database")

    monkeypatch.setattr(canvases, "change", away)
    tool.say("lost\n")
    await within_timeout(lost.wait())
    monkeypatch.setattr(canvases, "change", change)
    tool.say("seen\n")
    await until_said(services, "seen")
    assert await said(services) == GAP + "seen\n", "what may or may not have been stored is not told twice"
    tool.end()
    assert (await press).result == "done"


async def ended_in_the_middle_of_a_look(
    services: HostServices, tool: ControlledTool, monkeypatch: pytest.MonkeyPatch
) -> tuple[asyncio.Event, asyncio.Event]:
    """Something is on its way into the log until the first event is set, and the second says that it got there, or not.

    Something is behind it, and the tool has ended.
    """
    canvases: Any = services.bench.database.canvases
    change, entered, let_go, is_over = canvases.change, asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(*args: Any, **more: Any) -> Any:
        if entered.is_set():
            return await change(*args, **more)
        entered.set()
        try:
            await let_go.wait()
            return await change(*args, **more)
        finally:
            is_over.set()

    monkeypatch.setattr(canvases, "change", slow)
    tool.say("on its way\n")
    await within_timeout(entered.wait())
    tool.say("behind it\n")
    tool.end()
    return let_go, is_over


@case("D1")
async def test_a_store_that_hangs_does_not_hold_the_tool_up(
    services: HostServices, tool: ControlledTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    press = await started(services, tool)
    let_go, is_over = await ended_in_the_middle_of_a_look(services, tool, monkeypatch)
    assert (await asyncio.wait_for(press, TIMEOUT_SECONDS)).result == "done"
    let_go.set()
    await within_timeout(is_over.wait())
    assert (await types(services))[-1] == "finished", "what comes after the end is not told"


@rule("CV-38")
async def test_the_end_waits_for_what_is_on_its_way_into_the_log(
    services: HostServices, tool: ControlledTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canvas_output, "LAST_SECONDS", TIMEOUT_SECONDS)
    press = await started(services, tool)
    let_go, _ = await ended_in_the_middle_of_a_look(services, tool, monkeypatch)
    ended, _ = await asyncio.wait([press], timeout=0.2)
    assert not ended, "the end comes after what was said before it"
    let_go.set()
    assert (await press).result == "done"
    assert await types(services) == ["started", "output", "output", "updated", "finished"]
    assert await said(services) == "on its way\nbehind it\n"


@rule("CV-42")
@case("J2")
async def test_nothing_is_told_of_what_another_instance_has_given_up_on(
    services: HostServices, tool: ControlledTool, bench: Bench
) -> None:
    press = await started(services, tool)
    bench.clock.ahead += CLAIM_SECONDS * 2
    other = HostServices(bench)
    assert await other.actions.renew_and_recover() == 1
    tool.say("still here\n")
    with pytest.raises(Exception, match="stopped in the middle"):
        await asyncio.wait_for(press, TIMEOUT_SECONDS)
    assert tool.outcomes == ["cancelled"], "and its tool works no longer for nobody"
    assert await types(services) == ["started", "failed"]
    await other.close()


async def test_a_canvas_that_is_deleted_meanwhile_breaks_nothing(
    services: HostServices, tool: ControlledTool
) -> None:
    press = await started(services, tool)
    await services.bench.database.canvases.delete(OWNER, CanvasId("c"), lambda _: None)
    tool.say("to nobody\n")
    tool.end()
    with pytest.raises(Exception, match="canvas c"):
        await press
