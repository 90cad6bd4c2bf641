"""A run that ends keeps the assistant's text, however it ends."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.core.run.conversation import Step, ToolCall, Usage
from easel.core.run.status import Status
from easel.errors import Unavailable
from easel.host.runs import history, log_writer
from easel.ids import OWNER, CallId, SessionId, WorkerId, answer_id
from tests.host.conftest import RunHarness, TestTool, TurnableClock
from tests.host.runs.workers import (
    AFTER_CLAIM,
    UnreliableStore,
    claim_and_crash,
    run_events,
    script,
    wait_until_ended,
    working,
)
from tests.requirements import rule
from tests.stores.harness import sqlite_at
from tests.support.principals import THE_OWNER
from tests.support.waiting import wait_for, within_timeout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from easel.core.run.batch import Appended, Batch
    from easel.core.run.run import Claim


async def claim_until_exhausted(harness: RunHarness, first: Claim) -> None:
    """Let every further worker of the run crash, until no attempt is left."""
    for attempt in range(2, first.max_attempts + 1):
        harness.clock.ahead += AFTER_CLAIM
        [claim] = await harness.runs.claim_expired(WorkerId(f"wrk_crashed_{attempt}"), 1, 15)
        assert claim.attempt == attempt


@rule("RX-28", "RX-37")
@pytest.mark.parametrize("how", ["cancelled", "attempts exhausted", "timed out"])
@pytest.mark.parametrize(
    "unfinished, kept",
    [("", "Part one."), ("\n\nPart t", "Part one.\n\nPart t")],
    ids=["step", "half a step"],
)
async def test_run_that_ends_at_its_takeover_keeps_the_text_and_the_usage_so_far(
    harness: RunHarness, how: str, unfinished: str, kept: str
):
    run_id = await harness.start(script({"say": "Part one."}, {"call": "t"}, {"wait_ms": 60_000}))
    events = run_events(run_id)
    call = ToolCall(CallId("call_1"), "t", {})
    claim = await claim_and_crash(
        harness,
        run_id,
        events.delta(answer_id(run_id), "Part one."),
        events.step(1, Step("Part one.", (call,), usage=Usage(1_000, 200))),
        *([events.delta(answer_id(run_id), unfinished)] if unfinished else []),
    )
    if how == "cancelled":
        await harness.queue.cancel(THE_OWNER, run_id)
    elif how == "attempts exhausted":
        await claim_until_exhausted(harness, claim)
    harness.clock.ahead += AFTER_CLAIM if how != "timed out" else 3600
    async with working(harness.worker(run_timeout_seconds=1800)):
        run = await wait_until_ended(harness, run_id)
    assert run.status is (Status.CANCELLED if how == "cancelled" else Status.FAILED)
    [message] = [
        msgspec.json.decode(event.data)
        for event in await harness.log(run_id)
        if event.type == "message.completed"
    ]
    assert message["text"] == kept
    assert await harness.queue.read_usage(run) == Usage(1_000, 200)
    stored = await harness.database.sessions.list_messages(OWNER, SessionId("s"), before=None, limit=10)
    assert stored[-1].text == kept


class UnavailableArtifacts:
    """Artifacts that can be neither stored nor read."""

    async def store(self, account_id: str, offloaded: Sequence[Any]) -> None:
        if offloaded:
            raise Unavailable(what="The artifact store")

    async def read(self, account_id: str, artifact_id: str) -> bytes:
        raise Unavailable(what="The artifact store")


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["completed", "cancelled"])
async def test_run_with_a_long_answer_ends_without_the_artifact_store(
    harness: RunHarness, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
):
    monkeypatch.setattr(log_writer, "MAX_ARTIFACT_WAIT_SECONDS", 0.1)
    text = "many words " * 1_000
    run_id = await harness.start(script({"say": text}, *([{"wait_ms": 60_000}] if is_cancelled else [])))
    monkeypatch.setattr(harness, "artifacts", UnavailableArtifacts())
    async with working(harness.worker()):
        if is_cancelled:

            async def has_spoken() -> bool:
                return "message.delta" in await harness.types(run_id)

            await wait_for(has_spoken)
            await harness.queue.cancel(THE_OWNER, run_id)
        run = await wait_until_ended(harness, run_id)
    assert run.status is (Status.CANCELLED if is_cancelled else Status.COMPLETED)
    [stored] = (await harness.database.sessions.list_messages(OWNER, SessionId("s"), before=None, limit=10))[
        1:
    ]
    assert stored.text == text, "the message store needs no artifact for plain text"
    log = [(event.type, msgspec.json.decode(event.data)) for event in await harness.log(run_id)]
    [completed] = [data for kind, data in log if kind == "message.completed"]
    assert completed["text"].startswith("many words ")
    assert len(completed["text"]) < 2_000


async def test_takeover_that_ends_a_run_leaves_out_text_in_unavailable_artifacts(
    harness: RunHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(history, "MAX_ARTIFACT_WAIT_SECONDS", 0.1)
    run_id = await harness.start("noop")
    events = run_events(run_id)
    long_step = events.step(2, Step("many words " * 1_000, (ToolCall(CallId("call_2"), "t", {}),)))
    await harness.artifacts.store(OWNER, long_step.offloaded)
    await claim_and_crash(
        harness, run_id, events.step(1, Step("short", (ToolCall(CallId("call_1"), "t", {}),))), long_step
    )
    await harness.queue.cancel(THE_OWNER, run_id)
    harness.clock.ahead += AFTER_CLAIM
    monkeypatch.setattr(harness, "artifacts", UnavailableArtifacts())
    async with working(harness.worker()):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.CANCELLED
    stored = await harness.database.sessions.list_messages(OWNER, SessionId("s"), before=None, limit=10)
    assert stored[-1].text == "short"


# --- a machine that sleeps ----------------------------------------------------------------------------------


@rule("RX-26", "RX-38")
async def test_run_survives_a_machine_that_sleeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """While a machine sleeps the wall clock goes on, but not the monotonic clock."""
    wall, asleep_seconds = time.time_ns, 0
    monkeypatch.setattr(time, "time_ns", lambda: wall() + asleep_seconds * 1_000_000_000)
    inside, may_continue = asyncio.Event(), asyncio.Event()

    async def wait_to_continue(_: Any) -> Any:
        inside.set()
        await may_continue.wait()

    async with sqlite_at(tmp_path / "easel.db", synchronous="normal") as database:
        harness = RunHarness(database, TurnableClock())
        run_id = await harness.start(script({"call": "t", "args": {}}, {"say": "awake"}))
        worker = harness.worker(TestTool("t", wait_to_continue))
        assert await worker.once() == 1
        await within_timeout(inside.wait())
        for _ in range(4):
            asleep_seconds += 3600
            worker._search_all_at = 0.0
            assert await worker.once() == 0, "the worker took over its own run"
            await worker.renew_claims()
        may_continue.set()
        run = await wait_until_ended(harness, run_id)
        await harness.audit.close()
    assert (run.status, run.attempt) == (Status.COMPLETED, 1)


@rule("RX-38", "RS-38")
async def test_process_that_was_frozen_loses_no_attempt_of_its_runs(harness: RunHarness):
    """A frozen process loses its claims, but it takes over its own runs: no worker was lost."""
    run_id = await harness.start(script({"say": "x"}, {"wait_ms": 60_000}))
    worker = harness.worker()
    for attempt in range(1, 6):
        worker._search_all_at = 0.0
        assert await worker.once() == 1
        run = await harness.run(run_id)
        assert (run.attempt, run.max_attempts) == (attempt, attempt + 2)
        harness.clock.ahead += AFTER_CLAIM - 15  # the run's timeout counts the time of all attempts
        await harness.database.write(lambda c: c.execute("update runs set lease_until = 1").rowcount)
    await harness.queue.cancel(THE_OWNER, run_id)
    async with working(worker):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.CANCELLED
    starts = [
        msgspec.json.decode(e.data)["attempt"] for e in await harness.log(run_id) if e.type == "run.start"
    ]
    assert starts == [1, 2, 3, 4, 5, 6]


async def test_deltas_have_the_attempt_that_wrote_them(harness: RunHarness):
    run_id = await harness.start(script({"think": "hm"}, {"say": "whole"}))
    events = run_events(run_id)
    await claim_and_crash(harness, run_id, events.delta(answer_id(run_id), "wh"))
    harness.clock.ahead = AFTER_CLAIM
    async with working(harness.worker()):
        await wait_until_ended(harness, run_id)
    log = [(event.type, msgspec.json.decode(event.data)) for event in await harness.log(run_id)]
    written = [(kind, data["text"], data.get("attempt")) for kind, data in log if kind.endswith(".delta")]
    assert written == [
        ("message.delta", "wh", None),  # as an older version wrote it
        ("message.delta", "", 2),  # readers drop what the lost worker wrote
        ("reasoning.delta", "hm", 2),
        ("message.delta", "whole", 2),
    ]


class CannotComplete(UnreliableStore):
    """The store, which refuses every end of a completed run."""

    async def append(self, batch: Batch) -> Appended | None:
        if batch.ends_as is Status.COMPLETED:
            raise ValueError("a defect")
        return await self._runs.append(batch)


@rule("RX-28", "RS-38")
async def test_run_that_its_worker_cannot_end_fails_after_three_attempts(harness: RunHarness):
    """The worker takes over its own run, which gives the attempt back."""
    run_id = await harness.start(script({"say": "text"}))
    store: Any = CannotComplete(harness)
    async with working(harness.worker(runs=store, claim_seconds=0.2)):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.FAILED
    assert run.error_message is not None
    assert run.error_message.startswith("Internal error")
    assert (await harness.types(run_id)).count("run.start") == 4, "three attempts, and one that only ends"
