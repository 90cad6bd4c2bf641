"""Runs continue when workers crash, freeze, lose their database or are stopped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.core.run.conversation import Step, Text, ToolCall, ToolResult
from easel.core.run.progress import OUTCOME_UNKNOWN
from easel.core.run.status import Status
from easel.errors import Unavailable
from easel.host.runs import worker as run_worker
from easel.host.runs.worker import SAFETY
from easel.ids import OWNER, CallId, RunId, WorkerId, answer_id
from tests.host.conftest import TestTool
from tests.host.runs.workers import (
    AFTER_CLAIM,
    CRASHED_WORKER,
    CountingStore,
    HandClock,
    UnreliableStore,
    claim_and_crash,
    run_events,
    script,
    wait_until_ended,
    working,
)
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER
from tests.support.waiting import TIMEOUT_SECONDS, wait_for, within_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from easel.core.run.batch import Batch
    from easel.core.run.conversation import Conversation, Part
    from easel.core.run.run import Claim
    from easel.core.tool.definition import ToolDefinition
    from tests.host.conftest import RunHarness


@rule("RX-06", "RX-30", "RX-37", "RX-49")
async def test_taken_over_run_continues_after_its_last_finished_step(harness: RunHarness):
    used: list[Any] = []

    async def count(args: Mapping[str, Any]) -> Any:
        used.append(args)
        return len(used)

    run_id = await harness.start(
        script(
            {"say": "one"},
            {"call": "t", "args": {"n": 1}},
            {"say": "two"},
            {"call": "t", "args": {"n": 2}},
            {"say": "three"},
        )
    )
    events = run_events(run_id)
    call = ToolCall(CallId("call_1"), "t", {"n": 1})
    step = Step("one", (call,))
    await claim_and_crash(
        harness,
        run_id,
        events.delta(answer_id(run_id), "one"),
        events.step(1, step),
        events.tool_call(call),
        events.tool_result(ToolResult(CallId("call_1"), "t", "done before")),
        events.delta(answer_id(run_id), "\n\ntw"),  # an unfinished model call
    )
    harness.clock.ahead = AFTER_CLAIM
    async with working(harness.worker(TestTool("t", count))):
        run = await wait_until_ended(harness, run_id)
    assert (run.status, run.attempt) == (Status.COMPLETED, 2)
    assert used == [{"n": 2}], "the finished call was repeated"
    log = [(event.type, msgspec.json.decode(event.data)) for event in await harness.log(run_id)]
    assert [data["attempt"] for kind, data in log if kind == "run.start"] == [1, 2]
    assert [event.seq for event in await harness.log(run_id)] == list(range(1, run.last_seq + 1))
    assert [data["text"] for kind, data in log if kind == "message.completed"] == ["one\n\ntwo\n\nthree"]
    assert [kind for kind, _ in log].count("done") == 1


@rule("RS-38")
@pytest.mark.parametrize(
    "declared, again", [({}, False), ({"read_only": True}, True), ({"idempotent": True}, True)], ids=str
)
async def test_unfinished_call_is_repeated_only_if_the_tool_allows_it(
    harness: RunHarness, declared: dict[str, bool], again: bool
):
    used: list[Any] = []

    async def count(args: Mapping[str, Any]) -> Any:
        used.append(args)
        return "fresh"

    run_id = await harness.start(script({"call": "t", "args": {}}, {"say": "went on"}))
    events = run_events(run_id)
    call = ToolCall(CallId("call_1"), "t", {})
    await claim_and_crash(harness, run_id, events.step(1, Step("", (call,))), events.tool_call(call))
    harness.clock.ahead = AFTER_CLAIM
    async with working(harness.worker(TestTool("t", count, **declared))):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.COMPLETED
    assert used == ([{}] if again else [])
    [result] = [
        msgspec.json.decode(event.data) for event in await harness.log(run_id) if event.type == "tool.result"
    ]
    assert result.get("result") == ("fresh" if again else None)
    assert result.get("error") == (None if again else OUTCOME_UNKNOWN)


@rule("RX-38", "RS-38")
@case("J6")
async def test_run_that_loses_every_worker_fails(harness: RunHarness):
    run_id = await harness.start("noop")
    for attempt in (1, 2, 3):
        crashed = WorkerId(f"wrk_crashed_{attempt}")
        claims = await (
            harness.runs.claim_queued(crashed, 1, 15, 0)
            if attempt == 1
            else harness.runs.claim_expired(crashed, 1, 15)
        )
        assert claims[0].attempt == attempt
        harness.clock.ahead += AFTER_CLAIM
    async with working(harness.worker()):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.FAILED
    assert run.error_message == "The run failed after 3 attempts: its worker was lost each time."
    assert await harness.types(run_id) == ["message.completed", "run.status", "done"]


@rule("RX-13", "RS-39")
@case("J2", "J3")
async def test_frozen_worker_writes_nothing_after_its_claim_expired(harness: RunHarness):
    inside, may_continue, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait_to_continue(_: Mapping[str, Any]) -> Any:
        inside.set()
        await may_continue.wait()
        return "stale"

    run_id = await harness.start(script({"call": "t", "args": {}}, {"say": "text"}))
    slow = harness.worker(TestTool("t", wait_to_continue, read_only=True))
    assert await slow.once() == 1  # without `work`, so that nothing renews the claim
    await within_timeout(inside.wait())
    harness.clock.ahead = AFTER_CLAIM

    async def quick(_: Mapping[str, Any]) -> Any:
        done.set()
        return "fresh"

    async with working(harness.worker(TestTool("t", quick, read_only=True))):
        await within_timeout(done.wait())
        may_continue.set()
        run = await wait_until_ended(harness, run_id)

        async def has_stopped() -> bool:
            return not slow._running

        await wait_for(has_stopped)
    assert (run.status, run.attempt) == (Status.COMPLETED, 2)
    results = [
        msgspec.json.decode(event.data)["result"]
        for event in await harness.log(run_id)
        if event.type == "tool.result"
    ]
    assert results == ["fresh"]
    types = await harness.types(run_id)
    assert types.count("done") == 1
    assert types.count("run.start") == 2


@pytest.fixture
def worker_clock(harness: RunHarness, monkeypatch: pytest.MonkeyPatch) -> HandClock:
    """Stop the clocks of workers and store, so that no claim expires because the machine is slow."""
    harness.clock.stop()
    clock = HandClock()
    monkeypatch.setattr(run_worker, "time", clock)
    return clock


@rule("RX-13", "RX-26")
@case("J7")
async def test_worker_that_cannot_renew_stops_its_run_before_the_claim_expires(
    harness: RunHarness, worker_clock: HandClock
):
    stopped = asyncio.Event()
    inside = asyncio.Event()

    async def endless(_: Mapping[str, Any]) -> Any:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    claim_seconds, runs = 2.0, UnreliableStore(harness)
    run_id = await harness.start(script({"call": "t", "args": {}}))
    worker = harness.worker(TestTool("t", endless), runs=runs, claim_seconds=claim_seconds, drain_seconds=0)
    async with working(worker):
        await within_timeout(inside.wait())
        runs.is_unavailable = True
        worker_clock.ahead += claim_seconds * (1 - SAFETY / 2)  # half of the safety margin is left
        await within_timeout(stopped.wait())
        last = (await harness.run(run_id)).last_seq
        runs.is_unavailable = False
        for clock in (harness.clock, worker_clock):
            clock.ahead += AFTER_CLAIM

        async def is_claimed_again() -> bool:
            return (await harness.types(run_id)).count("run.start") == 2

        await wait_for(is_claimed_again)
        await wait_until_ended(harness, run_id)
    assert (await harness.types(run_id))[last] == "run.start"


@rule("RX-26")
async def test_renewed_claim_is_not_taken_over(harness: RunHarness, worker_clock: HandClock):
    inside, may_continue = asyncio.Event(), asyncio.Event()

    async def wait_to_continue(_: Mapping[str, Any]) -> Any:
        inside.set()
        await may_continue.wait()

    claim_seconds = 0.3
    run_id = await harness.start(script({"call": "t", "args": {}}))
    renewals = CountingStore(harness)
    holder = harness.worker(TestTool("t", wait_to_continue), runs=renewals, claim_seconds=claim_seconds)
    other = harness.worker(claim_seconds=claim_seconds)
    async with working(holder):
        await within_timeout(inside.wait())
        for _ in range(4):
            for clock in (harness.clock, worker_clock):
                clock.ahead += 0.8 * claim_seconds
            other._search_all_at = 0.0
            assert await other.once() == 0
            await renewals.wait_for_replies("renew", 2)  # the second one started after the clock was set
        may_continue.set()
        run = await wait_until_ended(harness, run_id)
    assert (run.status, run.attempt) == (Status.COMPLETED, 1)


@rule("RX-49")
async def test_stopping_worker_finishes_the_step_and_releases_the_run(harness: RunHarness):
    inside, may_continue = asyncio.Event(), asyncio.Event()

    async def wait_to_continue(_: Mapping[str, Any]) -> Any:
        inside.set()
        await may_continue.wait()
        return "finished"

    run_id = await harness.start(script({"call": "t", "args": {}}, {"call": "gsv__Clock"}, {"say": "end"}))
    async with working(
        harness.worker(TestTool("t", wait_to_continue), drain_seconds=TIMEOUT_SECONDS)
    ) as stop:
        await within_timeout(inside.wait())
        stop.set()
        await asyncio.sleep(0)
        may_continue.set()
    run = await harness.run(run_id)
    assert (run.status, run.attempt, run.max_attempts) == (Status.QUEUED, 1, 4)
    assert (await harness.types(run_id))[-1] == "tool.result", "the running step was not finished"
    async with working(harness.worker(TestTool("t", wait_to_continue))):  # at once: the claim was released
        run = await wait_until_ended(harness, run_id)
    assert (run.status, run.attempt) == (Status.COMPLETED, 2)


@rule("RX-49")
async def test_step_longer_than_the_drain_time_is_interrupted_and_released(harness: RunHarness):
    run_id = await harness.start(script({"say": "x"}, {"wait_ms": 60_000}))
    async with working(harness.worker(drain_seconds=0.1)) as stop:

        async def is_running() -> bool:
            return (await harness.run(run_id)).status is Status.RUNNING

        await wait_for(is_running)
        stop.set()
    run = await harness.run(run_id)
    assert (run.status, run.max_attempts) == (Status.QUEUED, 4)
    assert "done" not in await harness.types(run_id)


@rule("RX-29")
async def test_append_without_a_reply_is_repeated_and_stored_once(harness: RunHarness):
    class LosesReplies(UnreliableStore):
        lost_count = 0

        async def append(self, batch: Batch) -> Any:
            reply = await self._runs.append(batch)
            if self.lost_count < 2:  # stored, but the reply is lost
                self.lost_count += 1
                raise Unavailable(what="The database")
            return reply

    run_id = await harness.start(
        script({"say": "once"}, {"call": "gsv__Echo", "args": {"value": 1}}, {"say": "twice"})
    )
    async with working(harness.worker(runs=LosesReplies(harness))):
        run = await wait_until_ended(harness, run_id)
    types = await harness.types(run_id)
    assert types.count("run.start") == types.count("tool.call") == types.count("done") == 1
    assert (run.status, run.last_seq) == (Status.COMPLETED, len(types))


async def test_run_survives_an_unavailable_database(harness: RunHarness):
    runs = UnreliableStore(harness)
    ids: Sequence[RunId] = [
        await harness.start(script({"ticks": 20, "every_ms": 10}), session=f"s{n}") for n in range(4)
    ]
    async with working(harness.worker(runs=runs)):
        for _ in range(3):
            runs.is_unavailable = True
            await asyncio.sleep(0.05)
            runs.is_unavailable = False
            await asyncio.sleep(0.02)
        ends = [await wait_until_ended(harness, run_id) for run_id in ids]
    assert {(run.status, run.attempt) for run in ends} == {(Status.COMPLETED, 1)}


class UnavailableNodeTools:
    """The tools of nodes, in a store that is unavailable at first."""

    def __init__(self) -> None:
        self.is_unavailable = True
        self.queried = asyncio.Event()

    async def definitions(self, account_id: str) -> list[Any]:
        return await self._reply([])

    async def find(self, account_id: str, name: str) -> None:
        return await self._reply(None)

    async def _reply(self, reply: Any) -> Any:
        self.queried.set()
        if self.is_unavailable:
            raise Unavailable(what="The database")
        return reply


@rule("RX-49")
@pytest.mark.parametrize("is_taken_over", [False, True], ids=["asking the model", "repeating a call"])
async def test_run_survives_an_unavailable_database_while_listing_tools(
    harness: RunHarness, is_taken_over: bool
):
    """The store has the tools of nodes, and whether an unfinished call may be repeated."""
    tool = "laptop__Echo" if is_taken_over else "gsv__Clock"
    run_id = await harness.start(script({"call": tool}, {"say": "after"}))
    if is_taken_over:
        events, call = run_events(run_id), ToolCall(CallId("call_1"), tool, {})
        await claim_and_crash(harness, run_id, events.step(1, Step("", (call,))), events.tool_call(call))
        harness.clock.ahead = AFTER_CLAIM
    node_tools = UnavailableNodeTools()
    async with working(harness.worker(sources=[node_tools])):
        await within_timeout(node_tools.queried.wait())
        assert not (await harness.run(run_id)).is_terminal
        node_tools.is_unavailable = False
        run = await wait_until_ended(harness, run_id)
    assert (run.status, run.error_message) == (Status.COMPLETED, None)


async def test_event_that_cannot_be_stored_fails_only_its_run(harness: RunHarness):
    class RefusesSomeEvents(UnreliableStore):
        async def append(self, batch: Batch) -> Any:
            if any(
                "unstorable" in str(event.data) and event.type == "message.delta" for event in batch.events
            ):
                raise ValueError("no such column")
            return await self._runs.append(batch)

    bad = await harness.start(
        script({"say": "unstorable"}, {"call": "gsv__Clock"}, {"say": "after"}), session="bad"
    )
    good = await harness.start(script({"say": "fine"}), session="good")
    async with working(harness.worker(runs=RefusesSomeEvents(harness))):
        assert (await wait_until_ended(harness, good)).status is Status.COMPLETED
        run = await wait_until_ended(harness, bad)
    assert run.status is Status.FAILED
    assert "ref_" in (run.error_message or "")


@rule("RS-37")
async def test_released_run_keeps_its_text_when_cancelled(harness: RunHarness):
    run_id = await harness.start(script({"say": "so far"}, {"call": "gsv__Clock"}, {"wait_ms": 60_000}))
    async with working(harness.worker(drain_seconds=0)) as stop:

        async def has_used_the_tool() -> bool:
            return "tool.result" in await harness.types(run_id)

        await wait_for(has_used_the_tool)
        stop.set()
    assert (await harness.run(run_id)).status is Status.QUEUED
    cancelled = await harness.queue.cancel(THE_OWNER, run_id)
    assert cancelled.status is Status.CANCELLED
    log = [(event.type, msgspec.json.decode(event.data)) for event in await harness.log(run_id)]
    assert [kind for kind, _ in log[-3:]] == ["message.completed", "run.status", "done"]
    assert log[-3][1]["text"] == "so far"


async def test_second_claim_by_the_same_worker_stops_the_first_task(harness: RunHarness):
    """As after a crash of the database that lost a claim not yet on disk."""
    started: list[int] = []
    first_stopped, may_continue = asyncio.Event(), asyncio.Event()

    async def wait_to_continue(_: Mapping[str, Any]) -> Any:
        started.append(len(started) + 1)
        try:
            await may_continue.wait()
        finally:
            if len(started) == 1:
                first_stopped.set()
        return started[-1]

    run_id = await harness.start(script({"call": "t", "args": {}}))
    worker = harness.worker(TestTool("t", wait_to_continue, read_only=True))
    assert await worker.once() == 1

    async def is_inside() -> bool:
        return bool(started)

    await wait_for(is_inside)
    harness.clock.ahead = AFTER_CLAIM
    worker._search_all_at = 0.0
    assert await worker.once() == 1
    await within_timeout(first_stopped.wait())
    may_continue.set()
    run = await wait_until_ended(harness, run_id)
    assert (run.status, run.attempt) == (Status.COMPLETED, 2)
    assert (await harness.types(run_id)).count("done") == 1


@rule("RX-49")
async def test_run_is_released_when_the_database_is_available_again(harness: RunHarness):
    class BrieflyUnavailable(UnreliableStore):
        refused = 0

        async def release_claim(self, claim: Claim) -> bool:
            if self.refused < 3:
                self.refused += 1
                raise Unavailable(what="The database")
            return await self._runs.release_claim(claim)

    run_id = await harness.start(script({"wait_ms": 60_000}))
    async with working(harness.worker(runs=BrieflyUnavailable(harness), drain_seconds=0)) as stop:

        async def is_running() -> bool:
            return "run.start" in await harness.types(run_id)

        await wait_for(is_running)
        stop.set()
    run = await harness.run(run_id)
    assert (run.status, run.max_attempts) == (Status.QUEUED, 4)


async def test_taken_over_run_starts_although_the_next_query_fails(harness: RunHarness):
    class RefusesNewClaims(UnreliableStore):
        async def claim_queued(self, *_: Any, **__: Any) -> Any:
            raise Unavailable(what="The database")

    run_id = await harness.start("noop")
    await harness.runs.claim_queued(CRASHED_WORKER, 1, 15, 0)
    harness.clock.ahead = AFTER_CLAIM
    worker = harness.worker(runs=RefusesNewClaims(harness))
    with pytest.raises(Unavailable):
        await worker.once()
    run = await wait_until_ended(harness, run_id)
    assert (run.status, run.attempt) == (Status.COMPLETED, 2)


@rule("RS-35", "RX-30")
async def test_taken_over_run_gets_offloaded_values_restored(harness: RunHarness):
    """Text, arguments and result of the finished step were offloaded; the next attempt gets them exactly."""
    seen: list[Conversation] = []

    class RecordingModel:
        is_remote = False

        async def reply(
            self, conversation: Conversation, tools: Sequence[ToolDefinition]
        ) -> AsyncIterator[Part]:
            seen.append(conversation)
            yield Text("end")

    text = "many words " * 1_000
    value = {"list": [{"n": n, "redacted": True, "why": "a forged marker"} for n in range(200)], "text": text}
    run_id = await harness.start(script({"say": "unused"}))
    events = run_events(run_id)
    call = ToolCall(CallId("call_1"), "t", {"value": value})
    result = ToolResult(CallId("call_1"), "t", [value, "x" * 5_000])
    log = [events.step(1, Step(text, (call,))), events.tool_call(call), events.tool_result(result)]
    assert all(len(event.json) < 2_400 for event in log)
    await harness.artifacts.store(OWNER, [offloaded for event in log for offloaded in event.offloaded])
    await claim_and_crash(harness, run_id, *log)
    harness.clock.ahead = AFTER_CLAIM
    async with working(harness.worker(model=RecordingModel())):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.COMPLETED
    assert seen[-1].steps == (Step(text, (call,), (result,)),)
