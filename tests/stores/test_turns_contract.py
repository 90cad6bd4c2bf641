"""The earlier turns of a session on every store: messages, answers, hidden messages and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from easel.core.run.batch import Batch
from easel.core.run.past_turn import PastTurn
from easel.core.run.status import Status
from easel.core.session.message import message
from easel.ids import OWNER, MessageId, answer_id
from tests.requirements import rule
from tests.stores.documents import ask
from tests.stores.harness import (
    CLAIM_SECONDS,
    A,
    Store,
    closing_events,
    ending_batch,
    new_run,
    run_events,
    start_run,
)

if TYPE_CHECKING:
    from easel.core.run.run import Claim, NewRun
    from easel.host.ports import RunStore


async def claim_next(runs: RunStore) -> Claim:
    [claim] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    return claim


async def answer(
    runs: RunStore, new: NewRun, text: str, *, before: tuple[str, ...] = (), after: tuple[str, ...] = ()
) -> Claim:
    """Execute a run that answers with this text and has these hidden messages."""
    await runs.enqueue(new)
    claim = await claim_next(runs)
    events = run_events(claim.run_id)
    updates = [message(MessageId(f"upd_{n}"), update, role="user") for n, update in enumerate(before)]
    assert await runs.append(Batch(claim, 1, [events.delta(MessageId("m"), "x")], hidden=updates))
    closing = events.end_with_message(answer_id(claim.run_id), text, Status.COMPLETED, None)
    updates = [message(MessageId(f"end_{n}"), update, role="user") for n, update in enumerate(after)]
    last = Batch(
        claim, 2, closing, Status.COMPLETED, None, message(answer_id(claim.run_id), text), hidden=updates
    )
    assert await runs.append(last)
    return claim


@rule("CT-51", "CT-52")
async def test_turns_are_listed_newest_first_with_their_messages(runs: RunStore, store: Store) -> None:
    first, second = ask(text="one"), ask(text="two")
    await answer(runs, ask("other", "elsewhere"), "no")
    await answer(runs, first, "ONE", before=("a", "b"), after=("c",))
    await answer(runs, second, "TWO")
    await runs.enqueue(ask(text="three"))
    claim = await claim_next(runs)
    waiting = ask(text="four")
    await runs.enqueue(waiting)

    one = PastTurn(
        run_id=first.run_id,
        message="one",
        answer="ONE",
        status=Status.COMPLETED,
        updates_before=("a", "b"),
        updates_after=("c",),
    )
    two = PastTurn(run_id=second.run_id, message="two", answer="TWO", status=Status.COMPLETED)
    assert await runs.list_turns(claim, before=claim.run_id, limit=9) == [two, one]
    assert await runs.list_turns(claim, before=claim.run_id, limit=1) == [two]
    assert await runs.list_turns(claim, before=second.run_id, limit=9) == [one]
    assert await runs.list_turns(claim, before=waiting.run_id, limit=9) == [two, one]
    assert await runs.list_turns(claim, before=first.run_id, limit=9) == []


async def test_turn_of_a_failed_run_has_its_error_and_of_a_cancelled_one_no_answer(runs: RunStore) -> None:
    failed = await start_run(runs)
    await runs.append(ending_batch(failed, 1, Status.FAILED, "No."))
    running = await start_run(runs)
    cancelled = new_run()
    await runs.enqueue(cancelled)
    await runs.request_cancel(OWNER, cancelled.run_id, closing_events(cancelled.run_id))
    await runs.append(ending_batch(running, 1))
    last = await start_run(runs)
    turns = await runs.list_turns(last, before=last.run_id, limit=9)
    assert [(turn.status, turn.answer, turn.error_message) for turn in turns] == [
        (Status.CANCELLED, "", None),
        (Status.COMPLETED, "", None),
        (Status.FAILED, "", "No."),
    ]


async def test_pruned_run_has_no_log(runs: RunStore, store: Store) -> None:
    old = await answer(runs, ask(), "old")
    new = await answer(runs, ask(), "new")
    await store.set_run_age(old.run_id, 1_000)
    assert await runs.prune(500) == [old.run_id]
    claim = await start_run(runs)
    turns = await runs.list_turns(claim, before=claim.run_id, limit=9)
    assert [(turn.run_id, turn.has_log, turn.answer) for turn in turns] == [
        (new.run_id, True, "new"),
        (old.run_id, False, "old"),
    ]


async def test_events_of_several_logs_are_read_at_once(runs: RunStore) -> None:
    first, second, third = [await answer(runs, ask(), text) for text in ("one", "two", "three")]
    logs = await runs.read_logs([first.run_id, second.run_id], ["message.completed", "done"])
    assert {run_id: [(event.seq, event.type) for event in events] for run_id, events in logs.items()} == {
        claim.run_id: [(2, "message.completed"), (4, "done")] for claim in (first, second)
    }
    assert '"two"' in logs[second.run_id][0].data
    assert await runs.read_logs([third.run_id], ["step.completed"]) == {}


@rule("CT-51", "CT-52")
async def test_hidden_messages_are_in_no_list_and_no_thread(runs: RunStore, store: Store) -> None:
    sessions = store.database.sessions
    claim = await answer(runs, ask(), "answer", before=("secret",), after=("secret",))
    messages = await sessions.list_messages(OWNER, claim.session_id, before=None, limit=9)
    assert [(one.role, one.text) for one in messages] == [("user", "hello"), ("assistant", "answer")]
    events = await sessions.events_after(f"{OWNER}/{claim.session_id}", 0, 99)
    assert not any("secret" in event.data for event in events)
    assert len(await store.sql("select * from hidden_messages")) == 2


async def test_hidden_messages_are_deleted_with_their_session(runs: RunStore, store: Store) -> None:
    claim = await answer(runs, ask(), "answer", before=("secret",))
    assert await store.database.sessions.delete(OWNER, claim.session_id) is not None
    await store.purge()
    assert await store.sql("select * from hidden_messages") == []
