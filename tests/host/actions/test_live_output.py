"""Live output of a running action: in the canvas log, in order, limited, and never delaying the tool."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.action.output import GAP
from easel.errors import ToolFailed, Unavailable
from easel.host.actions import live_output
from easel.ids import OWNER, CanvasId
from tests.host.controlled_tool import SPEC, ControlledTool
from tests.host.services import CLAIM_SECONDS, HostServices
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER
from tests.support.waiting import TIMEOUT_SECONDS, wait_for, within_timeout

if TYPE_CHECKING:
    from tests.host.conftest import RunHarness


@pytest_asyncio.fixture(autouse=True)
async def canvas(services: HostServices) -> None:
    await services.create(SPEC)


async def start(services: HostServices, tool: ControlledTool) -> asyncio.Task[Any]:
    request = asyncio.create_task(services.run("go"))
    await within_timeout(tool.started.wait())
    return request


async def output(services: HostServices) -> str:
    return "".join(event["text"] for _, event in await services.log("canvas.action.output"))


async def wait_for_output(services: HostServices, text: str) -> None:
    async def is_written() -> bool:
        return text in await output(services)

    await wait_for(is_written, what=f"{text!r} is in the log")


async def event_types(services: HostServices) -> list[str]:
    return [name.removeprefix("canvas.").removeprefix("action.") for name, _ in (await services.log())[1:]]


@rule("CV-37", "CV-38")
async def test_output_is_logged_in_order_while_the_tool_runs(
    services: HostServices, tool: ControlledTool
) -> None:
    request = await start(services, tool)
    tool.emit("building\n")
    await wait_for_output(services, "building\n")
    assert not request.done()
    tool.emit("last words\n")
    tool.finish()
    answer = await request
    assert (answer.revision, answer.result) == (2, "done")
    assert await event_types(services) == ["started", "output", "output", "updated", "finished"]
    assert await output(services) == "building\nlast words\n"
    events = await services.log("canvas.action.output")
    assert {
        (event["actionId"], event["eventId"], event["revision"], event["visibility"]) for _, event in events
    } == {("go", answer.event_id, 1, "public")}


@rule("CV-37")
async def test_many_small_outputs_become_one_event(services: HostServices, tool: ControlledTool) -> None:
    request = await start(services, tool)
    for number in range(200):
        tool.emit(f"{number}\n")
    await wait_for_output(services, "199\n")
    assert len(await services.log("canvas.action.output")) == 1
    tool.finish()
    await request


@rule("CV-37", "CV-42")
async def test_last_output_is_logged_before_the_failure(services: HostServices, tool: ControlledTool) -> None:
    request = await start(services, tool)
    tool.emit("no space left on the device\n")
    tool.fail("exit code 1")
    with pytest.raises(ToolFailed):
        await request
    assert await event_types(services) == ["started", "output", "failed"]
    assert "no space left" in await output(services)


@rule("CC-14")
async def test_secrets_in_output_are_redacted(services: HostServices, tool: ControlledTool) -> None:
    request = await start(services, tool)
    tool.emit("export API_KEY=sk-1234567890abcdef\nfine\n")
    tool.finish()
    await request
    assert "1234567890" not in await output(services)
    assert "fine" in await output(services)


@rule("CV-23", "CV-37")
@case("D1")
async def test_output_continues_after_a_cancel_that_was_not_stored(
    services: HostServices, tool: ControlledTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = await start(services, tool)
    [(_, event)] = await services.log("canvas.action.started")

    async def fail_and_emit(*_: Any, **__: Any) -> Any:
        tool.emit("during the cancel\n")
        raise Unavailable(what="The database")

    tool.emit("before\n")
    with monkeypatch.context() as patched:
        patched.setattr(services.harness.database.canvases, "change", fail_and_emit)
        with pytest.raises(Unavailable):
            await services.actions.cancel(THE_OWNER, "c", event["eventId"])
    tool.emit("still here\n")
    await wait_for_output(services, "still here\n")
    assert await output(services) == f"{GAP}during the cancel\nstill here\n", (
        "output that may have been stored is not written twice"
    )
    tool.emit("last words\n")
    tool.finish()
    assert (await request).result == "done"
    assert (await output(services)).endswith("last words\n")


@rule("CV-19", "CV-37")
async def test_output_of_a_refresh_is_not_streamed(services: HostServices, tool: ControlledTool) -> None:
    """It would only grow the log."""
    request = asyncio.create_task(services.run("go", trigger="refresh"))
    await within_timeout(tool.started.wait())
    assert not tool.streams_output
    tool.finish()
    assert (await request).result == "done"
    assert await event_types(services) == ["started", "updated", "finished"]


async def test_output_is_cut_at_its_limit(services: HostServices, tool: ControlledTool) -> None:
    services.actions._outputs.max_bytes = 2_000
    request = await start(services, tool)
    for _ in range(100):
        tool.emit("x" * 999 + "\n")
    tool.finish()
    await request
    events = [event for _, event in await services.log("canvas.action.output")]
    assert [event.get("cut", False) for event in events] == [False, False, True]
    assert sum(len(event["text"]) for event in events[:-1]) == 2_000
    tool.emit("too late\n")
    assert "too late" not in await output(services)


@case("D1")
async def test_unavailable_store_loses_output_but_not_the_tool(
    services: HostServices, tool: ControlledTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = await start(services, tool)
    canvases: Any = services.harness.database.canvases
    change, failed = canvases.change, asyncio.Event()

    async def fail(*_: Any, **__: Any) -> Any:
        failed.set()
        raise Unavailable(what="The database")

    monkeypatch.setattr(canvases, "change", fail)
    tool.emit("failed\n")
    await within_timeout(failed.wait())
    monkeypatch.setattr(canvases, "change", change)
    tool.emit("seen\n")
    await wait_for_output(services, "seen")
    assert await output(services) == GAP + "seen\n", "output that may have been stored is not written twice"
    tool.finish()
    assert (await request).result == "done"


async def finish_during_a_write(
    services: HostServices, tool: ControlledTool, monkeypatch: pytest.MonkeyPatch
) -> tuple[asyncio.Event, asyncio.Event]:
    """Finish the tool while a write of its output hangs and more output is buffered.

    Returns an event that releases the write, and one that is set at its end.
    """
    canvases: Any = services.harness.database.canvases
    change, is_writing, release, has_ended = (
        canvases.change,
        asyncio.Event(),
        asyncio.Event(),
        asyncio.Event(),
    )

    async def slow(*args: Any, **options: Any) -> Any:
        if is_writing.is_set():
            return await change(*args, **options)
        is_writing.set()
        try:
            await release.wait()
            return await change(*args, **options)
        finally:
            has_ended.set()

    monkeypatch.setattr(canvases, "change", slow)
    tool.emit("being written\n")
    await within_timeout(is_writing.wait())
    tool.emit("buffered\n")
    tool.finish()
    return release, has_ended


@case("D1")
async def test_hanging_write_does_not_delay_the_result(
    services: HostServices, tool: ControlledTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_output, "FINAL_WRITE_SECONDS", 0.05)
    request = await start(services, tool)
    release, has_ended = await finish_during_a_write(services, tool, monkeypatch)
    assert (await asyncio.wait_for(request, TIMEOUT_SECONDS)).result == "done"
    release.set()
    await within_timeout(has_ended.wait())
    assert (await event_types(services))[-1] == "finished", "output after the end is not logged"


@rule("CV-38")
async def test_end_is_stored_after_a_write_in_progress(
    services: HostServices, tool: ControlledTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_output, "FINAL_WRITE_SECONDS", TIMEOUT_SECONDS)
    request = await start(services, tool)
    release, _ = await finish_during_a_write(services, tool, monkeypatch)
    ended, _ = await asyncio.wait([request], timeout=0.2)
    assert not ended, "the end is stored after the output before it"
    release.set()
    assert (await request).result == "done"
    assert await event_types(services) == ["started", "output", "output", "updated", "finished"]
    assert await output(services) == "being written\nbuffered\n"


@rule("CV-42")
@case("J2")
async def test_output_of_an_execution_that_another_instance_ended_is_not_logged(
    services: HostServices, tool: ControlledTool, harness: RunHarness
) -> None:
    request = await start(services, tool)
    harness.clock.ahead += CLAIM_SECONDS * 2
    other = await HostServices.open(harness)
    assert await other.actions.renew_and_recover() == 1
    tool.emit("still here\n")
    with pytest.raises(Exception, match="stopped in the middle"):
        await asyncio.wait_for(request, TIMEOUT_SECONDS)
    assert tool.outcomes == ["cancelled"]
    assert await event_types(services) == ["started", "failed"]
    await other.close()


async def test_deleted_canvas_during_the_execution_is_reported_as_not_found(
    services: HostServices, tool: ControlledTool
) -> None:
    request = await start(services, tool)
    await services.harness.database.canvases.delete(OWNER, CanvasId("c"), lambda _: None)
    tool.emit("too late\n")
    tool.finish()
    with pytest.raises(Exception, match="canvas c"):
        await request
