"""Sessions, messages and threads on every store."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.run.batch import Batch
from easel.core.run.run import NewRun
from easel.core.run.status import Status
from easel.core.session.message import message, question
from easel.core.stream.message_text import take_out_runs
from easel.ids import OWNER, AccountId, RunId, SessionId, answer_id, new_run_id, scoped_key
from tests.requirements import rule
from tests.stores.harness import CLAIM_SECONDS, A, B, Store, assert_stored, run_events

if TYPE_CHECKING:
    from easel.core.run.run import Claim
    from easel.core.stream.log import LoggedEvent
    from easel.host.ports import RunStore, SessionStore

TALK = SessionId("talk")


@pytest.fixture
def sessions(store: Store) -> SessionStore:
    return store.database.sessions


def question_run(
    text: str, session: str = "talk", user: AccountId = OWNER, title: str | None = None
) -> NewRun:
    run_id = new_run_id()
    return NewRun(
        run_id,
        user,
        SessionId(session),
        text,
        3,
        question=question(run_id, take_out_runs(text)),
        title=title or text,
    )


def answer_batch(claim: Claim, number: int, text: str, status: Status = Status.COMPLETED) -> Batch:
    events = run_events(claim.run_id).end_with_message(answer_id(claim.run_id), text, status, None)
    return Batch(claim, number, events, status, None, message(answer_id(claim.run_id), text))


async def read_thread(sessions: SessionStore, session: str = "talk", after: int = 0) -> list[LoggedEvent]:
    return await sessions.events_after(scoped_key(OWNER, session), after, 1_000)


def summarize(events: list[LoggedEvent]) -> list[tuple[int, str, Any]]:
    return [(event.seq, event.type, json.loads(event.data).get("text")) for event in events]


@rule("CC-03", "CC-04", "RS-03", "RS-34")
async def test_thread_has_questions_and_answers_in_order(runs: RunStore, sessions: SessionStore) -> None:
    first = question_run("hello")
    assert (await runs.enqueue(first)).thread_seq == 1
    [claim] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    delta = run_events(first.run_id).delta(answer_id(first.run_id), "hi")
    assert (
        assert_stored(
            await runs.append(Batch(claim, 1, [run_events(first.run_id).start(1), delta]))
        ).thread_seq
        == 2
    )
    second = question_run("and then?")
    assert (await runs.enqueue(second)).thread_seq == 3, (
        "a message sent during a run has its place among the events"
    )
    assert assert_stored(await runs.append(answer_batch(claim, 2, "hi there"))).thread_seq == 4
    assert summarize(await read_thread(sessions)) == [
        (1, "message.completed", "hello"),
        (2, "message.delta", "hi"),
        (3, "message.completed", "and then?"),
        (4, "message.completed", "hi there"),
    ]
    assert summarize(await read_thread(sessions, after=3)) == [(4, "message.completed", "hi there")]
    messages = await sessions.list_messages(OWNER, TALK, before=None, limit=10)
    assert [(sent.role, sent.text, sent.status, sent.thread_seq) for sent in messages] == [
        ("user", "hello", None, 1),
        ("user", "and then?", None, 3),
        ("assistant", "hi there", "completed", 4),
    ]
    bounds = await sessions.bounds(OWNER, TALK)
    assert bounds is not None
    assert (bounds.oldest, bounds.newest, bounds.ended) == (1, 4, False)
    assert await sessions.heads([scoped_key(OWNER, "talk"), scoped_key(OWNER, "none")]) == {
        scoped_key(OWNER, "talk"): 4
    }


@rule("CC-02", "RS-03")
async def test_state_events_have_no_place_in_the_thread(
    runs: RunStore, sessions: SessionStore, store: Store
) -> None:
    await runs.enqueue(question_run("hello"))
    [claim] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    assert (
        assert_stored(await runs.append(Batch(claim, 1, [run_events(claim.run_id).start(1)]))).thread_seq
        is None
    )
    await runs.append(answer_batch(claim, 2, "bye"))
    rows = await store.sql("select event_type, thread_seq, session_id from run_events order by seq")
    assert [(row["event_type"], row["thread_seq"], row["session_id"]) for row in rows] == [
        ("run.start", None, None),
        ("message.completed", 2, "talk"),
        ("run.status", None, None),
        ("done", None, None),
    ]


@rule("RX-13", "RS-34")
async def test_refused_batch_leaves_no_gap_in_the_thread(
    runs: RunStore, sessions: SessionStore, store: Store
) -> None:
    await runs.enqueue(question_run("hello"))
    [stale] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    await store.expire_claim(stale.run_id)
    [claim] = await runs.claim_expired(B, 1, CLAIM_SECONDS)
    assert await runs.append(answer_batch(stale, 1, "from the dead")) is None
    await runs.append(answer_batch(claim, 1, "alive"))
    assert summarize(await read_thread(sessions)) == [
        (1, "message.completed", "hello"),
        (2, "message.completed", "alive"),
    ]


@rule("RX-29")
async def test_repeated_batch_has_one_place_in_the_thread(runs: RunStore, sessions: SessionStore) -> None:
    await runs.enqueue(question_run("hello"))
    [claim] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    delta = run_events(claim.run_id).delta(answer_id(claim.run_id), "hi")
    first = await runs.append(Batch(claim, 1, [delta]))
    assert await runs.append(Batch(claim, 1, [delta])) == first
    assert [event.seq for event in await read_thread(sessions)] == [1, 2]


@rule("RS-34")
async def test_concurrent_runs_leave_no_gap_in_any_thread(runs: RunStore, sessions: SessionStore) -> None:
    """Enqueues race with appends and ends of the active runs of the same sessions."""
    names = [f"s{n}" for n in range(5)]

    async def talk(name: str) -> None:
        for n in range(8):
            await runs.enqueue(question_run(f"{name} {n}", name))

    async def work() -> None:
        done = 0
        while done < len(names) * 8:
            for claim in await runs.claim_queued(A, 5, CLAIM_SECONDS, 0):
                delta = run_events(claim.run_id).delta(answer_id(claim.run_id), "…")
                await runs.append(Batch(claim, 1, [delta, delta]))
                await runs.append(answer_batch(claim, 2, "ok"))
                done += 1

    async with asyncio.timeout(60):
        await asyncio.gather(*(talk(name) for name in names), work())
    for name in names:
        seen = await read_thread(sessions, name)
        assert [event.seq for event in seen] == list(range(1, 8 * 4 + 1))


async def test_cancelled_queued_run_with_output_keeps_its_message(
    runs: RunStore, sessions: SessionStore
) -> None:
    await runs.enqueue(question_run("hello"))
    [claim] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    await runs.append(Batch(claim, 1, [run_events(claim.run_id).delta(answer_id(claim.run_id), "so f")]))
    assert await runs.release_claim(claim)
    closing = run_events(claim.run_id).end_with_message(
        answer_id(claim.run_id), "so far", Status.CANCELLED, None
    )
    answer = await runs.request_cancel(
        OWNER, claim.run_id, closing, message(answer_id(claim.run_id), "so far")
    )
    assert answer is not None
    assert answer.thread_seq == 3
    messages = await sessions.list_messages(OWNER, TALK, before=None, limit=10)
    assert [(sent.role, sent.text, sent.status) for sent in messages] == [
        ("user", "hello", None),
        ("assistant", "so far", "cancelled"),
    ]
    assert [event.seq for event in await read_thread(sessions)] == [1, 2, 3]


async def test_sessions_are_listed_by_latest_message_in_pages(runs: RunStore, sessions: SessionStore) -> None:
    for n in range(5):
        await runs.enqueue(question_run(f"message {n}", f"s{n}"))
    await runs.enqueue(question_run("again", "s1"))
    first = await sessions.list_sessions(OWNER, search="", before=None, limit=3)
    assert [session.session_id for session in first] == ["s1", "s4", "s3"]
    rest = await sessions.list_sessions(
        OWNER, search="", before=(first[-1].last_message_at, first[-1].session_id), limit=3
    )
    assert [session.session_id for session in rest] == ["s2", "s0"]
    assert [session.title for session in first] == ["message 1", "message 4", "message 3"], (
        "only the first message sets the title"
    )


@pytest.mark.parametrize(
    "search, found",
    [("ALPHA", ["a"]), ("100%", ["b"]), ("_", ["c"]), ("a%b", []), ("\\", ["d"]), ("zz", ["zz"])],
)
async def test_search_is_literal(sessions: SessionStore, search: str, found: list[str]) -> None:
    for name, title in (
        ("a", "Alpha beta"),
        ("b", "at 100% now"),
        ("c", "under_score"),
        ("d", "back\\slash"),
        ("zz", "plain"),
    ):
        await sessions.create(OWNER, SessionId(name), title)
    assert [
        session.session_id
        for session in await sessions.list_sessions(OWNER, search=search, before=None, limit=9)
    ] == found


IN_EITHER_CASE = [
    # search, title found
    ("ärger", ["umlaut"]),
    ("ÄRGER ÜBER", ["umlaut"]),
    ("привет", ["cyrillic"]),
    ("ПРИВЕТ", ["cyrillic"]),
    ("οδόσ", ["greek"]),
    ("straße", ["sharp"]),
    ("STRASSE", []),
    ("日本", ["kanji"]),
    ("NOTE-É", ["note-é"]),
    ("(a+)+[b-]{2}^$|?*.", ["signs"]),
    ("***:", []),
    ("a.b", []),
    ("\U0001f600", ["kanji"]),
]


@pytest.mark.parametrize("search, found", IN_EITHER_CASE)
async def test_search_ignores_case_in_every_language(
    sessions: SessionStore, search: str, found: list[str]
) -> None:
    titles = {
        "umlaut": "Ärger über",
        "cyrillic": "Привет, мир",
        "greek": "ΟΔΌΣ",
        "sharp": "Straße",
        "kanji": "日本語 \U0001f600",
        "note-é": "x",
        "signs": "(A+)+[B-]{2}^$|?*.",
    }
    for name, title in {**titles, "0": None}.items():
        await sessions.create(OWNER, SessionId(name), title)
    assert [
        session.session_id
        for session in await sessions.list_sessions(OWNER, search=search, before=None, limit=9)
    ] == found


async def test_session_is_created_once_renamed_and_found(sessions: SessionStore) -> None:
    made = await sessions.create(OWNER, TALK, None)
    assert made is not None
    assert (made.title, made.last_thread_seq, made.active_run_id) == (None, 0, None)
    assert await sessions.create(OWNER, TALK, "another") is None
    renamed = await sessions.rename(OWNER, TALK, "A name")
    assert renamed is not None
    assert (await sessions.get(OWNER, TALK)) == renamed
    assert await sessions.rename(OWNER, SessionId("none"), "x") is None
    assert await sessions.get(OWNER, SessionId("none")) is None


async def test_chosen_title_is_not_replaced_by_a_message(runs: RunStore, sessions: SessionStore) -> None:
    await sessions.create(OWNER, TALK, "My talk")
    await runs.enqueue(question_run("hello"))
    session = await sessions.get(OWNER, TALK)
    assert session is not None
    assert session.title == "My talk"
    assert session.active_run_id is not None


@rule("RX-13")
async def test_deleted_session_deletes_everything_and_its_worker_writes_nothing(
    runs: RunStore, sessions: SessionStore, store: Store
) -> None:
    new = question_run("hello")
    await runs.enqueue(new)
    await runs.enqueue(question_run("keep me", "other"))
    claims = await runs.claim_queued(A, 5, CLAIM_SECONDS, 0)
    claim = next(claim for claim in claims if claim.run_id == new.run_id)
    await runs.append(Batch(claim, 1, [run_events(claim.run_id).delta(answer_id(claim.run_id), "hi")]))
    assert await sessions.delete(OWNER, TALK) == [new.run_id]
    assert await sessions.delete(OWNER, TALK) is None
    assert await runs.append(answer_batch(claim, 2, "too late")) is None
    assert await runs.renew([claim], CLAIM_SECONDS) == {}
    await store.purge()
    for table in ("runs", "run_events", "messages"):
        [row] = await store.sql(f"select count(*) as left_over from {table} where run_id = '{new.run_id}'")
        assert row["left_over"] == 0, table
    assert await sessions.get(OWNER, SessionId("other")) is not None
    assert (await runs.enqueue(question_run("anew"))).thread_seq == 3, (
        "a new session of the same id continues the numbers, so that no old cursor fits"
    )
    assert [message.text for message in await sessions.list_messages(OWNER, TALK, before=None, limit=9)] == [
        "anew"
    ]


@rule("RX-54")
async def test_session_of_another_user_is_not_found(
    runs: RunStore, sessions: SessionStore, store: Store
) -> None:
    await store.sql("insert into accounts (account_id) values ('mallory')")
    await runs.enqueue(question_run("secret", user=AccountId("mallory")))
    assert await sessions.get(OWNER, TALK) is None
    assert await sessions.bounds(OWNER, TALK) is None
    assert await sessions.list_sessions(OWNER, search="", before=None, limit=9) == []
    assert await sessions.list_messages(OWNER, TALK, before=None, limit=9) == []
    assert await read_thread(sessions) == []
    assert await sessions.rename(OWNER, TALK, "mine") is None
    assert await sessions.delete(OWNER, TALK) is None


async def test_messages_are_paged_from_the_newest_in_order(runs: RunStore, sessions: SessionStore) -> None:
    for n in range(5):
        await runs.enqueue(question_run(f"{n}"))
    newest = await sessions.list_messages(OWNER, TALK, before=None, limit=2)
    assert [message.text for message in newest] == ["3", "4"]
    older = await sessions.list_messages(OWNER, TALK, before=newest[0].thread_seq, limit=2)
    assert [message.text for message in older] == ["1", "2"]


@rule("RS-34")
async def test_pruned_run_moves_the_start_of_its_thread_without_a_gap(
    runs: RunStore, sessions: SessionStore, store: Store
) -> None:
    await runs.enqueue(question_run("old"))
    [claim] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    await runs.append(answer_batch(claim, 1, "gone"))
    await store.sql(f"update runs set finished_at = {store.ago(3600)}")
    await runs.enqueue(question_run("new"))
    assert len(await runs.prune(60)) == 1
    bounds = await sessions.bounds(OWNER, TALK)
    assert bounds is not None
    assert (bounds.oldest, bounds.newest) == (3, 3)
    assert summarize(await read_thread(sessions, after=bounds.oldest - 1)) == [
        (3, "message.completed", "new")
    ]
    assert len(await sessions.list_messages(OWNER, TALK, before=None, limit=9)) == 3, (
        "messages are kept; only the stream is trimmed"
    )


async def test_run_without_a_question_takes_no_place_in_the_thread(
    runs: RunStore, sessions: SessionStore
) -> None:
    new = NewRun(RunId(new_run_id()), OWNER, TALK, "by a job", 3)
    assert (await runs.enqueue(new)).thread_seq is None
    assert await read_thread(sessions) == []
