"""Threads and cancels on every store: deleted threads, polls, and cancels that race with releases."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.artifact.artifact import NewArtifact
from easel.core.run.batch import Batch
from easel.core.run.conversation import Step, ToolCall
from easel.core.run.events import message_of_unstarted_run
from easel.core.run.status import Status
from easel.core.session.message import message
from easel.core.stream.filter import CHAT
from easel.core.stream.log import Bounds
from easel.core.stream.message_text import take_out_runs
from easel.core.stream.notifications import LogDeleted
from easel.errors import CursorOutOfRange
from easel.host.audit.audit import Audit
from easel.host.runs.queue import RunQueue
from easel.host.streams import THREADS, StreamQuota, TailMemory, Tails
from easel.ids import OWNER, CallId, SessionId, answer_id, scoped_key
from tests.requirements import rule
from tests.stores.harness import (
    CLAIM_SECONDS,
    TIMEOUT_SECONDS,
    A,
    Store,
    answered_or_blocked,
    closing_events,
    delta_batch,
    other_connection,
    run_events,
    wait_for_blocked_statement,
)
from tests.stores.test_artifacts_contract import ON_POSTGRES
from tests.stores.test_sessions_contract import TALK, question_run
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from easel.core.stream.log import LoggedEvent
    from easel.host.ports import RunStore

DISABLED_SECONDS = 3600.0


@pytest_asyncio.fixture
async def tails(store: Store) -> AsyncIterator[Tails]:
    options = {
        "poll_seconds": DISABLED_SECONDS,
        "heartbeat_seconds": DISABLED_SECONDS,
        "quota": StreamQuota(10),
        "window": 100,
        "memory": TailMemory(10_000_000),
    }
    sessions: Any = store.database.sessions
    tails = Tails(THREADS, sessions, store.notifier, **options)  # pyright: ignore[reportArgumentType]
    yield tails
    await tails.close()


def texts_of(events: list[LoggedEvent] | None) -> list[Any]:
    return [json.loads(event.data)["text"] for event in events or []]


async def ask_questions(store: Store, *words: str) -> None:
    for text in words:
        await store.runs.enqueue(question_run(text))


@rule("RS-34", "CC-29")
async def test_new_thread_of_the_same_id_has_no_events_of_the_deleted_one(store: Store, tails: Tails) -> None:
    """Even while a subscriber of the deleted thread is connected and its events are in memory."""
    slow = await tails.open(THE_OWNER, "talk", None, CHAT)
    assert slow is not None
    await ask_questions(store, "old 1", "old 2")
    await tails.poll()
    assert texts_of(await slow.next()) == ["old 1", "old 2"]
    await store.database.sessions.delete(OWNER, TALK)
    store.notifier.notify(LogDeleted("session", scoped_key(OWNER, "talk")))
    await ask_questions(store, "new")
    fresh = await tails.open(THE_OWNER, "talk", None, CHAT)
    assert fresh is not None
    assert texts_of(await fresh.next()) == ["new"]


@rule("RS-34")
async def test_subscriber_that_missed_the_deletion_receives_the_whole_new_thread(
    store: Store, tails: Tails
) -> None:
    viewer = await tails.open(THE_OWNER, "talk", None, CHAT)
    assert viewer is not None
    await ask_questions(store, "old 1", "old 2", "old 3")
    await tails.poll()
    assert len(texts_of(await viewer.next())) == 3
    await store.database.sessions.delete(OWNER, TALK)
    await ask_questions(store, "new 1", "new 2")
    await tails.poll()
    assert texts_of(await viewer.next()) == ["new 1", "new 2"]


@rule("RS-34")
async def test_cursor_of_a_deleted_thread_is_out_of_range_in_the_next(store: Store, tails: Tails) -> None:
    await ask_questions(store, "old 1", "old 2", "old 3")
    await store.database.sessions.delete(OWNER, TALK)
    await ask_questions(store, "new 1", "new 2", "new 3", "new 4")
    for cursor in (0, 1, 2):
        with pytest.raises(CursorOutOfRange):
            await tails.open(THE_OWNER, "talk", cursor, CHAT)
    at_its_end = await tails.open(THE_OWNER, "talk", 3, CHAT)
    assert at_its_end is not None
    assert texts_of(await at_its_end.next()) == ["new 1", "new 2", "new 3", "new 4"]


async def test_poll_that_started_before_a_thread_existed_ends_no_subscriber(
    store: Store, tails: Tails, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: Any = store.database.sessions
    viewer = await tails.open(THE_OWNER, "talk", None, CHAT)
    assert viewer is not None
    heads = sessions.heads

    async def slow(keys: Any) -> Any:
        found = await heads(keys)
        await ask_questions(store, "first")
        monkeypatch.undo()
        await tails.poll()
        return found

    monkeypatch.setattr(sessions, "heads", slow)
    await tails.poll()
    assert texts_of(await viewer.next()) == ["first"]


async def test_poll_continues_after_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: Any = store.database.sessions
    heads, broken = sessions.heads, 0

    async def breaks_twice(keys: Any) -> Any:
        nonlocal broken
        broken += 1
        if broken <= 2:
            raise ValueError("no luck")
        return await heads(keys)

    monkeypatch.setattr(sessions, "heads", breaks_twice)
    options = {
        "poll_seconds": 0.02,
        "heartbeat_seconds": DISABLED_SECONDS,
        "quota": StreamQuota(10),
        "window": 100,
        "memory": TailMemory(10_000_000),
    }
    tails = Tails(THREADS, sessions, store.notifier, **options)  # pyright: ignore[reportArgumentType]
    viewer = await tails.open(THE_OWNER, "talk", None, CHAT)
    assert viewer is not None
    await ask_questions(store, "found by the poll alone")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert texts_of(await viewer.next()) == ["found by the poll alone"]
    await tails.close()


@rule("RX-12")
async def test_cancel_during_the_deletion_of_the_session_finds_no_run(store: Store) -> None:
    new = question_run("hello")
    await store.runs.enqueue(new)
    if store.kind == "sqlite":  # one writer: the two never overlap
        await store.database.sessions.delete(OWNER, TALK)
        assert await store.runs.request_cancel(OWNER, new.run_id, closing_events(new.run_id)) is None
        return
    async with other_connection(store) as other, other.transaction():
        await other.fetch("select 1 from sessions for update")
        cancel = asyncio.create_task(store.runs.request_cancel(OWNER, new.run_id, closing_events(new.run_id)))
        await wait_for_blocked_statement(other)
        await other.execute("delete from sessions")
    assert await cancel is None


@rule("CC-24", "RS-35")
async def test_message_of_a_cancelled_run_keeps_its_artifacts(store: Store) -> None:
    new = question_run("hello")
    await store.runs.enqueue(new)
    [claim] = await store.runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    await store.runs.append(delta_batch(claim, 1, "x"))
    assert await store.runs.release_claim(claim)
    text = "many words " * 1_000
    left = message(answer_id(new.run_id), text)
    ending = run_events(new.run_id).end_with_message(answer_id(new.run_id), text, Status.CANCELLED, None)
    offloaded = [value for event in ending for value in event.offloaded]
    assert offloaded, "the text must be too long for an event"
    artifacts = store.database.artifacts
    new_artifacts = [
        NewArtifact(value.artifact_id, len(value.content), "text/plain", "key/" + value.artifact_id)
        for value in offloaded
    ]
    await artifacts.mark_stored(OWNER, await artifacts.claim(OWNER, new_artifacts))
    await store.runs.request_cancel(OWNER, new.run_id, ending, left)
    assert {row["artifact_id"] for row in await store.sql("select artifact_id from artifact_refs")} == {
        value.artifact_id for value in offloaded
    }


@rule("RS-37", "CC-03")
async def test_chat_receives_the_cancel_of_a_run_that_never_started(store: Store) -> None:
    new = question_run("hello")
    await store.runs.enqueue(new)
    answer = await store.runs.request_cancel(
        OWNER, new.run_id, closing_events(new.run_id), message_of_unstarted_run(new.run_id)
    )
    assert answer is not None
    assert answer.thread_seq == 2
    [_, event] = await store.database.sessions.events_after(scoped_key(OWNER, "talk"), 0, 10)
    data = json.loads(event.data)
    assert (event.type, data["role"], data["status"], data["run_id"]) == (
        "message.completed",
        "assistant",
        "cancelled",
        new.run_id,
    )
    assert [
        row["event_type"] for row in await store.sql("select event_type from run_events order by seq")
    ] == ["run.status", "done"]
    [_, answer] = await store.database.sessions.list_messages(OWNER, TALK, before=None, limit=9)
    assert (answer.role, answer.status) == ("assistant", "cancelled")


class ReleasingRunStore:
    """A run store that releases the claim between the two steps of a cancel."""

    def __init__(self, runs: RunStore, claim: Any) -> None:
        self._runs, self._claim = runs, claim

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runs, name)

    async def request_cancel(self, *arguments: Any) -> Any:
        await self._runs.release_claim(self._claim)
        return await self._runs.request_cancel(*arguments)


@rule("RX-12")
async def test_cancel_that_races_with_a_release_keeps_the_output(
    store: Store,
) -> None:
    await store.runs.enqueue(question_run("hello"))
    [claim] = await store.runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    events, text = run_events(claim.run_id), "I said this"
    step = events.step(1, Step(text, (ToolCall(CallId("call_1"), "t", {}),)))
    await store.runs.append(Batch(claim, 1, [events.delta(answer_id(claim.run_id), text), step]))
    audit = Audit(store.database.audit)
    runs: Any = ReleasingRunStore(store.runs, claim)
    queue = RunQueue(
        runs,
        _NoArtifacts(),
        store.notifier,
        audit,
        canvases=store.database.canvases,
        max_attempts=3,
        max_message_bytes=1_000,
    )
    assert (await queue.cancel(THE_OWNER, claim.run_id)).status is Status.CANCELLED
    await audit.close()
    [_, answer] = await store.database.sessions.list_messages(OWNER, SessionId("talk"), before=None, limit=9)
    assert (answer.role, answer.text, answer.status) == ("assistant", text, "cancelled")


class _NoArtifacts:
    async def store(self, account_id: Any, offloaded: Any) -> None:
        assert not offloaded

    async def read(self, account_id: Any, artifact_id: Any) -> bytes:
        raise AssertionError("nothing was moved")

    async def size_of(self, account_id: Any, artifact_id: Any) -> int:
        raise AssertionError("nothing was moved")


# --- numbers after a deletion -------------------------------------------------------------------------------


@ON_POSTGRES
@rule("RS-34")
async def test_message_that_waits_for_the_deletion_of_its_session_continues_after_its_thread(
    store: Store, runs: RunStore
) -> None:
    await runs.enqueue(question_run(text="first"))
    await store.sql("update sessions set last_thread_seq = 50")
    async with other_connection(store) as other:
        async with other.transaction():
            await other.execute("select from sessions for update")
            deleting = asyncio.create_task(store.database.sessions.delete(OWNER, TALK))
            await wait_for_blocked_statement(other)
            enqueuing = asyncio.create_task(runs.enqueue(question_run(text="second")))
            await wait_for_blocked_statement(other, 2)
        assert await deleting is not None
        enqueued = await asyncio.wait_for(enqueuing, TIMEOUT_SECONDS)
    assert enqueued.thread_seq == 51
    assert await store.database.sessions.bounds(OWNER, TALK) == Bounds(51, 51, ended=False)


@ON_POSTGRES
@rule("RS-34")
async def test_session_created_during_its_deletion_continues_after_its_thread(
    store: Store, runs: RunStore
) -> None:
    await runs.enqueue(question_run(text="first"))
    sessions = store.database.sessions
    async with other_connection(store) as other:
        async with other.transaction():
            await other.execute(
                "insert into ended_threads (account_id, session_id, last_thread_seq)"
                " values ('owner', 'talk', 50)"
            )
            await other.execute("delete from sessions")
            creating = asyncio.create_task(sessions.create(OWNER, TALK, None))
            await answered_or_blocked(creating, other)
        created = await creating
    created = created or await sessions.create(OWNER, TALK, None)  # refused while the former one existed
    assert created is not None
    assert (created.oldest_thread_seq, created.last_thread_seq) == (51, 50)


@rule("RS-62", "RS-35", "RS-34")
async def test_long_question_is_in_the_thread_in_deltas_and_not_in_the_log_of_its_run(store: Store) -> None:
    long = "many words " * 500
    key = scoped_key(OWNER, TALK)
    await store.runs.enqueue(question_run("before"))
    new = question_run(long)
    enqueued = await store.runs.enqueue(new)
    await store.runs.enqueue(question_run("after"))
    thread = await store.database.sessions.events_after(key, 0, 100)
    assert [event.seq for event in thread] == list(range(1, len(thread) + 1))
    events = [(event.type, json.loads(event.data)["text"]) for event in thread]
    assert events[0] == ("message.completed", "before")
    assert events[-1] == ("message.completed", "after")
    *deltas, (last_type, last) = events[1:-1]
    assert {event_type for event_type, _ in deltas} == {"message.delta"}
    assert "".join(text for _, text in deltas) == long
    assert last_type == "message.completed"
    assert long.startswith(last)
    assert enqueued.thread_seq == len(thread) - 1
    page = await store.database.sessions.events_after(key, 2, 2)
    assert [event.seq for event in page] == [3, 4], "a page may begin and end between deltas"
    assert await store.runs.events_after(new.run_id, 0, 100) == []
    assert enqueued.run.last_seq == 0


async def test_deltas_of_a_question_are_pruned_with_the_log_of_their_run(store: Store) -> None:
    new = question_run("many words " * 500)
    await store.runs.enqueue(new)
    [claim] = await store.runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    ending = run_events(new.run_id).end_with_message(answer_id(new.run_id), "yes", Status.COMPLETED, None)
    await store.runs.append(
        Batch(claim, 1, ending, Status.COMPLETED, answer=message(answer_id(new.run_id), "yes"))
    )
    assert await store.runs.prune(-1) == [new.run_id]
    [left] = await store.sql("select event_type from run_events")
    assert left["event_type"] == "done"
    bounds = await store.database.sessions.bounds(OWNER, TALK)
    assert bounds is not None
    assert bounds.oldest == bounds.newest + 1, "the start of the thread moves past the deleted events"
    texts = [
        sent.text for sent in await store.database.sessions.list_messages(OWNER, TALK, before=None, limit=9)
    ]
    assert texts == ["many words " * 500, "yes"]


@rule("RS-62")
async def test_attachments_of_the_input_are_stored_with_the_run(store: Store) -> None:
    light = take_out_runs("See " + base64.b64encode(random.Random(1).randbytes(3_000)).decode())
    new = replace(question_run("x"), input_text=light.text, input_attachments=light.attachments)
    await store.runs.enqueue(new)
    run = await store.runs.get(OWNER, new.run_id)
    assert run is not None
    assert (run.input_text, run.input_attachments) == (light.text, light.attachments)
    [listed] = await store.runs.list_runs(OWNER, session_id=None, statuses=[], before=None, limit=5)
    assert listed.input_attachments == light.attachments
