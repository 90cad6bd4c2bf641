"""The tool loop: when a step is published, what keeps a lease, how a loop ends, and what is stored of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.core.run.conversation import ProviderData, Repeated, Step, Text, Thought, ToolResult, Usage
from easel.core.run.status import Status
from easel.errors import ModelFailed
from easel.ids import CallId, CanvasId
from tests.host.conftest import TestTool
from tests.host.runs.models import CHOICE, FakeLeases, Pause, RemoteModel, calls
from tests.host.runs.workers import (
    AFTER_CLAIM,
    HandClock,
    claim_and_crash,
    run_events,
    script,
    wait_until_ended,
    working,
)
from tests.requirements import rule
from tests.support.principals import THE_OWNER
from tests.support.waiting import wait_for, within_timeout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from easel.ids import RunId
    from tests.host.conftest import RunHarness

DOCUMENT = CanvasId("notes")


async def logged(harness: RunHarness, run_id: RunId, *types: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        (event.type, msgspec.json.decode(event.data))
        for event in await harness.log(run_id)
        if not types or event.type in types
    ]


@rule("RS-74")
async def test_tool_for_canvases_only_is_not_offered_to_a_model(harness: RunHarness):
    async def nothing(_: Mapping[str, Any]) -> Any:
        return None

    tools = [TestTool("for_all", nothing), TestTool("for_canvases", nothing)]
    tools[1].definition = replace(tools[1].definition, is_for_agents=False)
    model = RemoteModel([Text("done")])
    run_id = await harness.start("hello")
    async with working(harness.worker(*tools, model=model, choice=CHOICE)):
        await wait_until_ended(harness, run_id)
    assert [tool.name for tool in model.tools[0] if tool.name.startswith("for_")] == ["for_all"]


def check_out_tool(leases: FakeLeases, runs: list[RunId]) -> TestTool:
    """Return a tool that gives its run a lease."""

    async def check_out(_: Mapping[str, Any]) -> Any:
        leases.note_checked_out(runs[0], DOCUMENT)
        leases.log.append("check out")
        return {"ok": True}

    return TestTool("canvas_check_out", check_out)


@rule("RS-70", "CT-45")
async def test_text_is_published_as_it_arrives_without_a_lease(harness: RunHarness):
    pause = Pause()
    model = RemoteModel([Text("first "), pause, Text("second")])
    run_id = await harness.start("hello")
    async with working(harness.worker(model=model, choice=CHOICE)):
        await within_timeout(pause.reached.wait())

        async def is_published() -> bool:
            return bool(await logged(harness, run_id, "message.delta"))

        await wait_for(is_published)
        pause.may_go_on.set()
        await wait_until_ended(harness, run_id)
    deltas = await logged(harness, run_id, "message.delta")
    assert "".join(data["text"] for _, data in deltas) == "first second"


@rule("RS-70", "CT-45", "CT-46")
async def test_nothing_of_a_step_is_published_while_a_lease_is_held_and_the_last_text_ends_the_lease(
    harness: RunHarness,
):
    pause, leases = Pause(), FakeLeases()
    runs: list[RunId] = []
    model = RemoteModel(
        [Text("Checking out."), calls("canvas_check_out")],
        [Thought("hm"), Text("All "), pause, Text("done.")],
    )
    runs.append(run_id := await harness.start("edit it"))
    worker = harness.worker(check_out_tool(leases, runs), model=model, choice=CHOICE, leases=leases)
    types_at_release: list[str] = []

    async def note_types() -> None:
        await worker._running[run_id].log.flush()
        types_at_release.extend(await harness.types(run_id))

    leases.on_release = note_types
    async with working(worker):
        await within_timeout(pause.reached.wait())
        await worker._running[run_id].log.flush()
        before = await harness.types(run_id)
        assert before[-1] == "tool.result", "the second step is not complete, so nothing of it is published"
        pause.may_go_on.set()
        await wait_until_ended(harness, run_id)
    deltas = await logged(harness, run_id, "message.delta")
    assert "".join(data["text"] for _, data in deltas) == "Checking out.\n\nAll done."
    assert types_at_release == before, "the lease ends before the last text is published"
    assert leases.log[-1] == "release"
    assert leases.log.count("release") == 1


@rule("RS-80")
async def test_repeated_step_says_so_in_its_deltas_and_the_message_has_the_last_text(harness: RunHarness):
    pause = Pause()
    model = RemoteModel(
        [Text("one"), calls("gsv__Clock")],
        [
            Text("ha"),
            pause,
            Text("lf"),
            Repeated(2),
            Thought("hm"),
            Text("whole"),
            calls("gsv__Clock", call_id="2"),
        ],
        [Text("end")],
    )
    run_id = await harness.start("hello")
    worker = harness.worker(model=model, choice=CHOICE)
    async with working(worker):
        await within_timeout(pause.reached.wait())
        await worker._running[run_id].log.flush()
        pause.may_go_on.set()
        run = await wait_until_ended(harness, run_id)
    assert (run.status, run.attempt) == (Status.COMPLETED, 1)
    deltas = await logged(harness, run_id, "message.delta", "reasoning.delta")
    assert [(data["text"], data.get("try")) for _, data in deltas] == [
        ("one", None),
        ("\n\nha", None),
        ("", 2),
        ("hm", 2),
        ("\n\nwhole", 2),
        ("\n\nend", None),
    ]
    [(_, closing)] = await logged(harness, run_id, "message.completed")
    assert closing["text"] == "one\n\nwhole\n\nend"


@rule("RS-80", "RS-70")
async def test_repeated_step_under_a_lease_publishes_only_the_last_try(harness: RunHarness):
    leases = FakeLeases()
    runs: list[RunId] = []
    model = RemoteModel([calls("canvas_check_out")], [Text("half"), Repeated(2), Text("whole")])
    runs.append(run_id := await harness.start("edit it"))
    worker = harness.worker(check_out_tool(leases, runs), model=model, choice=CHOICE, leases=leases)
    async with working(worker):
        await wait_until_ended(harness, run_id)
    deltas = await logged(harness, run_id, "message.delta")
    assert [(data["text"], data.get("try")) for _, data in deltas] == [("whole", None)]


@rule("RS-80")
async def test_failed_repetition_keeps_the_text_of_the_last_try(harness: RunHarness):
    model = RemoteModel([Text("half"), Repeated(2), Text("mo"), ModelFailed(reason="it was cut.")])
    run_id = await harness.start("hello")
    async with working(harness.worker(model=model, choice=CHOICE)):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.FAILED
    [(_, closing)] = await logged(harness, run_id, "message.completed")
    assert closing["text"] == "mo"


@rule("CT-14")
async def test_calls_results_steps_and_chunks_are_activity(harness: RunHarness):
    leases = FakeLeases()
    runs: list[RunId] = []
    model = RemoteModel(
        [calls("canvas_check_out")], [calls("gsv__Clock", call_id="call_2")], [Text("a"), Text("b")]
    )
    runs.append(run_id := await harness.start("edit it"))
    worker = harness.worker(check_out_tool(leases, runs), model=model, choice=CHOICE, leases=leases)
    async with working(worker):
        await wait_until_ended(harness, run_id)
    # The result of the check-out; start, call part and end of step 2; its call and result; start, two chunks
    # and end of step 3.
    assert leases.log == ["check out", *["activity"] * 10, "release"]


@rule("CT-16", "CT-44")
@pytest.mark.parametrize("end", ["cancel", "failure", "step limit"])
async def test_lease_is_released_however_the_loop_ends(harness: RunHarness, end: str):
    leases, pause = FakeLeases(), Pause()
    runs: list[RunId] = []
    last = {"cancel": [pause], "failure": [ModelFailed(reason="broken")], "step limit": [calls("gsv__Clock")]}
    model = RemoteModel([calls("canvas_check_out")], last[end])
    runs.append(run_id := await harness.start("edit it"))
    worker = harness.worker(
        check_out_tool(leases, runs), model=model, choice=CHOICE, leases=leases, max_steps=2
    )
    async with working(worker):
        if end == "cancel":
            await within_timeout(pause.reached.wait())
            await harness.queue.cancel(THE_OWNER, run_id)
        run = await wait_until_ended(harness, run_id)
    assert leases.log[-1] == "release"
    expected = {
        "cancel": (Status.CANCELLED, ""),
        "failure": (Status.FAILED, "broken"),
        "step limit": (Status.FAILED, "2 steps"),
    }
    status, reason = expected[end]
    assert run.status is status
    assert reason in (run.error_message or "")


@rule("CT-45")
async def test_call_of_an_answer_that_breaks_off_is_not_made(harness: RunHarness):
    used: list[Any] = []

    async def use(args: Mapping[str, Any]) -> Any:
        used.append(args)

    model = RemoteModel([Text("Calling."), calls("t"), ModelFailed(reason="the connection was cut")])
    run_id = await harness.start("hello")
    async with working(harness.worker(TestTool("t", use), model=model, choice=CHOICE)):
        run = await wait_until_ended(harness, run_id)
    assert (run.status, used) == (Status.FAILED, [])
    assert "step.completed" not in await harness.types(run_id)


@rule("RX-27")
async def test_cancel_ends_the_request_to_the_provider(harness: RunHarness):
    pause = Pause()
    model = RemoteModel([Text("so far"), pause])
    run_id = await harness.start("hello")
    async with working(harness.worker(model=model, choice=CHOICE)):
        await within_timeout(pause.reached.wait())
        assert model.closed_count == 0
        await harness.queue.cancel(THE_OWNER, run_id)
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.CANCELLED
    assert model.closed_count == 1
    [(_, closing)] = await logged(harness, run_id, "message.completed")
    assert closing["text"] == "so far"


@rule("CT-15", "RS-70")
async def test_request_in_flight_keeps_the_lease_for_a_limited_time(harness: RunHarness):
    clock, pause = HandClock(), Pause()
    leases = FakeLeases(clock.monotonic)
    model = RemoteModel([pause])
    run_id = await harness.start("hello")
    leases.note_checked_out(run_id, DOCUMENT)
    worker = harness.worker(model=model, choice=CHOICE, leases=leases)
    async with working(worker):
        await within_timeout(pause.reached.wait())
        clock.ahead = 119
        leases.log.clear()
        await leases.renew_in_flight()
        assert leases.log == ["in flight: 1"]
        clock.ahead = 121
        await leases.renew_in_flight()
        assert leases.log == ["in flight: 1"], "the lease is left to expire"
        pause.may_go_on.set()
        await wait_until_ended(harness, run_id)
    leases.note_checked_out(run_id, DOCUMENT)
    await leases.renew_in_flight()
    assert leases.log.count("in flight: 1") == 1


@rule("RS-70")
async def test_wait_of_the_scripted_model_is_silence(harness: RunHarness):
    leases = FakeLeases()
    run_id = await harness.start(script({"wait_ms": 60_000}))
    leases.note_checked_out(run_id, DOCUMENT)
    worker = harness.worker(leases=leases, drain_seconds=0.0)
    async with working(worker):

        async def is_running() -> bool:
            return "run.start" in await harness.types(run_id)

        await wait_for(is_running)
        await leases.renew_in_flight()
        assert "in flight: 1" not in leases.log
        await harness.queue.cancel(THE_OWNER, run_id)
        await wait_until_ended(harness, run_id)


async def test_calls_over_the_limit_of_an_answer_are_refused_and_the_run_goes_on(harness: RunHarness):
    made: list[int] = []

    async def note(args: Mapping[str, Any]) -> Any:
        made.append(args["nth"])

    model = RemoteModel([calls("t", call_id=f"call_{nth}", nth=nth) for nth in range(1_500)], [Text("ok")])
    run_id = await harness.start("go on")
    async with working(harness.worker(TestTool("t", note), model=model, choice=CHOICE)):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.COMPLETED
    assert made == list(range(64))
    [step] = model.conversations[-1].steps
    assert [result.is_error for result in step.results] == [nth >= 64 for nth in range(1_500)]
    assert "at most 64 calls" in step.results[-1].value
    events = await logged(harness, run_id, "tool.call", "tool.result")
    assert len(events) == 2 * 1_500


@rule("RS-52", "CT-44")
async def test_three_rejected_patches_end_the_run_with_a_clear_reason(harness: RunHarness):
    async def reject(_: Mapping[str, Any]) -> Any:
        return {"ok": False, "code": "PATCH_REJECTED"}

    model = RemoteModel(
        *[[Text(f"try {n}"), calls("canvas_apply_patch", call_id=f"call_{n}")] for n in range(9)]
    )
    run_id = await harness.start("edit it")
    async with working(harness.worker(TestTool("canvas_apply_patch", reject), model=model, choice=CHOICE)):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.FAILED
    assert (run.error_message or "").startswith("3 patches in a row were rejected")
    assert len(model.conversations) == 3
    [(_, closing)] = await logged(harness, run_id, "message.completed")
    assert closing["text"] == "try 0\n\ntry 1\n\ntry 2", "what it said is kept"


async def test_token_budget_ends_the_run_and_usage_is_summed(harness: RunHarness):
    used = Usage(1_000, 100, 800, 50)
    model = RemoteModel([calls("gsv__Clock"), used])
    run_id = await harness.start("hello")
    async with working(harness.worker(model=model, choice=CHOICE, max_tokens=2_000)):
        run = await wait_until_ended(harness, run_id)
    assert "used 2200 of 2000 tokens" in (run.error_message or "")
    steps = await logged(harness, run_id, "step.completed")
    assert [data["usage"] for _, data in steps] == [used.to_json()] * 2
    [(_, done)] = await logged(harness, run_id, "done")
    assert done["usage"] == (used + used).to_json()
    assert await harness.queue.read_usage(run) == used + used


async def test_run_without_usage_has_none(harness: RunHarness):
    run_id = await harness.start("noop")
    async with working(harness.worker()):
        run = await wait_until_ended(harness, run_id)
    assert await harness.queue.read_usage(run) is None


async def test_last_step_is_logged_if_it_has_usage(harness: RunHarness):
    model = RemoteModel([Text("hi"), Usage(1, 1)], [Text("never")])
    run_id = await harness.start("hello")
    async with working(harness.worker(model=model, choice=CHOICE)):
        await wait_until_ended(harness, run_id)
    types = await harness.types(run_id)
    assert types[-4:] == ["step.completed", "message.completed", "run.status", "done"]


@rule("RX-30")
async def test_taken_over_run_sends_provider_data_back_unchanged(harness: RunHarness):
    """A signature is opaque: long Base64 is offloaded and restored byte for byte."""
    data = {
        "content": [
            {"type": "thinking", "thinking": "h\u00fcm\u2028", "signature": "Zm9v" * 2_000},
            {"type": "tool_use", "id": "toolu_1", "input": {"a": 1.5, "redacted": True}},
        ]
    }
    answered = RemoteModel([calls("t", call_id="toolu_1"), ProviderData("anthropic", data), Usage(5, 5)])

    async def use(_: Mapping[str, Any]) -> Any:
        return "x"

    crashed_tool = Pause()

    async def hang(_: Mapping[str, Any]) -> Any:
        crashed_tool.reached.set()
        await crashed_tool.may_go_on.wait()

    run_id = await harness.start("hello")
    first = harness.worker(TestTool("t", hang, read_only=True), model=answered, choice=CHOICE)
    assert await first.once() == 1  # without `work`, so that nothing renews the claim
    await within_timeout(crashed_tool.reached.wait())
    harness.clock.ahead = AFTER_CLAIM
    second = RemoteModel([Text("done")])
    async with working(harness.worker(TestTool("t", use, read_only=True), model=second, choice=CHOICE)):
        run = await wait_until_ended(harness, run_id)
        crashed_tool.may_go_on.set()
    assert run.status is Status.COMPLETED
    [step] = second.conversations[0].steps
    assert step.provider_data == ProviderData("anthropic", data)
    assert msgspec.json.encode(step.provider_data) == msgspec.json.encode(ProviderData("anthropic", data))
    assert step.results == (ToolResult(CallId("toolu_1"), "t", "x"),)
    assert (await harness.queue.read_usage(run)) == Usage(5, 5)


async def test_provider_data_of_another_model_is_not_sent_to_the_next(harness: RunHarness):
    run_id = await harness.start("hello")
    events = run_events(run_id)
    call = calls("t", call_id="toolu_1")
    step = Step("one", (call,), provider_data=ProviderData("anthropic", {"s": 1}), prefix="another")
    await claim_and_crash(
        harness,
        run_id,
        events.step(1, step),
        events.tool_call(call),
        events.tool_result(ToolResult(CallId("toolu_1"), "t", "x")),
    )
    harness.clock.ahead = AFTER_CLAIM
    model = RemoteModel([Text("done")])
    async with working(harness.worker(model=model, choice=replace(CHOICE, model="other"))):
        await wait_until_ended(harness, run_id)
    [kept] = model.conversations[0].steps
    assert (kept.text, kept.calls, kept.provider_data) == ("one", (call,), None)
