"""A worker executes its runs once and in order, and writes how they ended."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.core.run.status import Status
from easel.core.stream.notifications import RunAppended
from easel.host.artifacts.artifacts import read_text
from easel.ids import OWNER, SessionId
from tests.host.conftest import TestTool
from tests.host.runs.workers import script, wait_until_ended, working
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER
from tests.support.standstill import Stopwatch
from tests.support.waiting import TIMEOUT_SECONDS, wait_for, within_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from easel.core.run.conversation import Conversation, Part
    from easel.core.stream.notifications import Notification
    from easel.core.tool.definition import ToolDefinition
    from tests.host.conftest import RunHarness

NEVER = 3600.0  # seconds between two polls


@rule("RX-24", "RX-25", "RX-28")
async def test_empty_run_has_start_message_status_and_done(harness: RunHarness):
    run_id = await harness.start("noop")
    async with working(harness.worker()):
        run = await wait_until_ended(harness, run_id)
    assert (run.status, run.attempt, run.error_message) == (Status.COMPLETED, 1, None)
    log = await harness.log(run_id)
    assert [event.type for event in log] == ["run.start", "message.completed", "run.status", "done"]
    assert [event.seq for event in log] == [1, 2, 3, 4]
    assert run.last_seq == 4


@rule("RX-24", "RX-33")
async def test_start_is_notified_when_the_run_is_claimed(
    harness: RunHarness,
):
    notifications: list[Notification] = []
    harness.database.notifier.listen(notifications.append)
    run_id = await harness.start(script({"wait_ms": 60_000}))

    async def is_notified() -> bool:
        return RunAppended(run_id, 1) in notifications

    async with working(harness.worker(drain_seconds=0.0)):
        await wait_for(is_notified)
        assert [event.type for event in await harness.log(run_id)] == ["run.start"]
        await harness.queue.cancel(THE_OWNER, run_id)
        await wait_until_ended(harness, run_id)


async def test_deltas_add_up_to_the_answer(harness: RunHarness):
    long = "wörd " * 2_000
    run_id = await harness.start(
        script(
            {"say": "a"},
            {"say": long},
            {"call": "gsv__Echo", "args": {"value": 1}},
            {"think": "hm"},
            {"say": "b"},
        )
    )
    async with working(harness.worker()):
        await wait_until_ended(harness, run_id)
    log = [(event.type, msgspec.json.decode(event.data)) for event in await harness.log(run_id)]
    text = "".join(data["text"] for kind, data in log if kind == "message.delta")
    assert text == f"a{long}\n\nb"
    completed = next(data for kind, data in log if kind == "message.completed")
    assert completed["truncated"] is True, "an event is limited to 2 KB, so its text is the beginning"
    assert text.startswith(completed["text"])
    assert await read_text(harness.artifacts, OWNER, completed) == text
    [_, answer] = await harness.database.sessions.list_messages(OWNER, SessionId("s"), before=None, limit=10)
    assert answer.text == text, "long plain text stays whole in the message store"
    assert (
        max(len(event.data) for event in await harness.log(run_id) if event.type == "message.delta") <= 2_048
    )


async def test_failure_of_the_model_fails_the_run_with_its_reason(harness: RunHarness):
    run_id = await harness.start(script({"say": "so far"}, {"fail": "no more"}))
    async with working(harness.worker()):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.FAILED
    assert run.error_message == "The model failed: no more"
    closing = msgspec.json.decode((await harness.log(run_id))[-3].data)
    assert (closing["status"], closing["text"], closing["error"]) == ("failed", "so far", run.error_message)


@rule("CC-23")
async def test_long_failure_reason_is_shortened(harness: RunHarness):
    """A provider's error may quote all that it was sent, which must not be stored."""
    run_id = await harness.start(script({"fail": "bad image: " + "words of it, " * 900 + " in part 3"}))
    async with working(harness.worker()):
        run = await wait_until_ended(harness, run_id)
    assert run.error_message is not None
    assert len(run.error_message) < 1_100
    assert run.error_message.startswith("The model failed: bad image: words")
    assert run.error_message.endswith("in part 3")
    [_, answer] = await harness.database.sessions.list_messages(OWNER, SessionId("s"), before=None, limit=10)
    assert answer.error_message == run.error_message


async def test_failed_tool_call_is_returned_to_the_model(harness: RunHarness):
    async def fail(_: Mapping[str, Any]) -> Any:
        raise ValueError("secret detail")

    run_id = await harness.start(
        script({"call": "t"}, {"call": "nope"}, {"call": "gsv__Sleep", "args": {"ms": "x"}}, {"say": "ok"})
    )
    async with working(harness.worker(TestTool("t", fail))):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.COMPLETED
    errors = [
        msgspec.json.decode(event.data)["error"]
        for event in await harness.log(run_id)
        if event.type == "tool.result"
    ]
    assert errors[0] == "t: raised ValueError."
    assert "there is no such tool" in errors[1]
    assert errors[2].startswith("gsv__Sleep: ms:")


async def test_result_over_the_limit_is_an_error_for_the_model(harness: RunHarness):
    async def large(_: Mapping[str, Any]) -> Any:
        return "x" * 20_000

    run_id = await harness.start(script({"call": "t"}))
    async with working(harness.worker(TestTool("t", large))):
        await wait_until_ended(harness, run_id)
    [result] = [
        msgspec.json.decode(event.data) for event in await harness.log(run_id) if event.type == "tool.result"
    ]
    assert "over the limit" in result["error"]


async def test_step_limit_ends_a_run(harness: RunHarness):
    run_id = await harness.start(script(*[{"call": "gsv__Clock"}] * 9))
    async with working(harness.worker(max_steps=3)):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.FAILED
    assert "3 steps" in (run.error_message or "")


async def test_run_timeout_ends_a_run(harness: RunHarness):
    run_id = await harness.start(script({"say": "x"}, {"wait_ms": 60_000}))
    async with working(harness.worker(run_timeout_seconds=0.1)):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.FAILED
    assert "timed out after 0.1 s" in (run.error_message or "")


async def test_run_timeout_counts_all_attempts(harness: RunHarness):
    run_id = await harness.start(script({"wait_ms": 60_000}))
    await harness.runs.claim_queued(harness.worker().worker_id, 1, 15, 0)
    harness.clock.ahead = 100
    async with working(harness.worker(run_timeout_seconds=60)):
        run = await wait_until_ended(harness, run_id)
    assert "timed out" in (run.error_message or "")


@rule("RX-27")
@case("J9")
async def test_cancel_stops_the_running_tool_and_ends_the_run_within_a_second(harness: RunHarness):
    inside, stopped = asyncio.Event(), asyncio.Event()

    async def endless(_: Mapping[str, Any]) -> Any:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    run_id = await harness.start(script({"say": "before"}, {"call": "t"}))
    async with working(harness.worker(TestTool("t", endless), poll_seconds=NEVER, claim_seconds=NEVER)):
        await within_timeout(inside.wait())
        watch = Stopwatch()
        await harness.queue.cancel(THE_OWNER, run_id)
        await within_timeout(stopped.wait())
        run = await wait_until_ended(harness, run_id)
        assert watch.seconds < 1
    assert run.status is Status.CANCELLED
    log = [(event.type, msgspec.json.decode(event.data)) for event in await harness.log(run_id)]
    assert [kind for kind, _ in log][-3:] == ["message.completed", "run.status", "done"]
    assert log[-1][1]["status"] == "cancelled"
    assert log[-3][1]["text"] == "before"


@rule("RX-11", "RX-27")
async def test_cancel_with_a_lost_notification_is_found_by_the_poll(harness: RunHarness):
    run_id = await harness.start(script({"wait_ms": 60_000}))
    async with working(harness.worker(claim_seconds=NEVER)):  # so that no renewal reports the cancel

        async def is_running() -> bool:
            return (await harness.run(run_id)).status is Status.RUNNING

        await wait_for(is_running)
        # In the store only, without a notification.
        await harness.runs.request_cancel((await harness.run(run_id)).account_id, run_id, [])
        assert (await wait_until_ended(harness, run_id)).status is Status.CANCELLED


async def test_sessions_run_concurrently_and_runs_of_one_session_in_order(harness: RunHarness):
    together = asyncio.Barrier(6)

    async def meet(_: Mapping[str, Any]) -> Any:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await together.wait()

    apart = [await harness.start(script({"call": "t"}), session=f"s{n}") for n in range(6)]
    queued = [await harness.start("noop", session="one") for _ in range(5)]
    async with working(harness.worker(TestTool("t", meet))):
        runs = [await wait_until_ended(harness, run_id) for run_id in (*apart, *queued)]
    results = [
        msgspec.json.decode(event.data)
        for run_id in apart
        for event in await harness.log(run_id)
        if event.type == "tool.result"
    ]
    assert [result.get("error") for result in results] == [None] * 6, (
        "each tool call waits for all the others"
    )
    order = [(run.started_at, run.finished_at) for run in runs[6:]]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(order) if before[1] and after[0])


@rule("RX-46")
async def test_worker_with_one_slot_executes_one_run_at_a_time(harness: RunHarness):
    current, maximum = 0, 0

    async def count(_: Mapping[str, Any]) -> Any:
        nonlocal current, maximum
        current += 1
        maximum = max(maximum, current)
        await asyncio.sleep(0.01)
        current -= 1

    runs = [await harness.start(script({"call": "t"}), session=f"s{n}") for n in range(5)]
    async with working(harness.worker(TestTool("t", count), slots=1)):
        for run_id in runs:
            await wait_until_ended(harness, run_id)
    assert maximum == 1


async def test_unexpected_error_fails_the_run_with_a_reference_only(harness: RunHarness):
    class FailingModel:
        is_remote = False

        async def reply(
            self, conversation: Conversation, tools: Sequence[ToolDefinition]
        ) -> AsyncIterator[Part]:
            raise RuntimeError("secret detail")
            yield

    run_id = await harness.start("hello")
    async with working(harness.worker(model=FailingModel())):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.FAILED
    assert "secret" not in (run.error_message or "")
    assert "ref_" in (run.error_message or "")


@pytest.mark.parametrize("text", ["nul \x00 inside", "half \ud800 a pair"])
async def test_unstorable_characters_of_a_result_are_replaced(harness: RunHarness, text: str):
    async def odd(_: Mapping[str, Any]) -> Any:
        return {"text": text}

    run_id = await harness.start(script({"call": "t"}, {"say": "after"}))
    async with working(harness.worker(TestTool("t", odd))):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.COMPLETED
    [result] = [
        msgspec.json.decode(event.data) for event in await harness.log(run_id) if event.type == "tool.result"
    ]
    assert "\x00" not in str(result)
