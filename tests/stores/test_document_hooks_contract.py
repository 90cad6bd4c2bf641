"""Documents and runs on every store: messages and cancels end leases, batches report drafts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.document.document import Author, AuthorKind, DocumentChange, Reported, revision_of
from easel.core.document.lease import Free
from easel.core.run.batch import Batch
from easel.core.run.status import Status
from easel.core.session.message import message
from easel.errors import StaleEpoch
from easel.ids import OWNER, CanvasId, MessageId
from tests.requirements import case, rule
from tests.stores.documents import (
    ANN,
    BOB,
    NAME,
    SESSION,
    ask,
    assistant,
    change,
    check_out_for,
    create_document,
    expire_leases,
    get_document,
    is_free,
    list_authors,
    write,
    write_under,
)
from tests.stores.harness import (
    CLAIM_SECONDS,
    A,
    B,
    Store,
    answered_or_blocked,
    closing_events,
    decode_payload,
    delta_batch,
    ending_batch,
    new_run,
    other_connection,
    run_events,
    start_run,
    start_runs,
)
from tests.stores.test_artifacts_contract import ON_POSTGRES

if TYPE_CHECKING:
    from easel.host.ports import CanvasStore, DocumentStore, RunStore


@pytest.fixture
def documents(store: Store) -> DocumentStore:
    return store.database.documents


@pytest.fixture
def canvases(store: Store) -> CanvasStore:
    return store.database.canvases


async def lease_events(canvases: CanvasStore, name: str = NAME) -> list[dict[str, Any]]:
    events = await canvases.events_after(f"{OWNER}/{name}", 0, 1_000)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return [decode_payload(event) for event in events if event.type == "canvas.lease.changed"]


# --- messages and cancels end leases ------------------------------------------------------------------------


@rule("CT-18", "CT-19", "CT-36")
async def test_message_ends_the_leases_of_its_session_and_raises_their_epoch(
    canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    for name, session in (("plan", SESSION), ("second", SESSION), ("third", "other")):
        await create_document(canvases, name, owner_session_key=f"agent:main:{session}")
    here, there = await start_runs(runs, ask(), ask("other"))
    held = await check_out_for(documents, here)
    await check_out_for(documents, here, "second")
    kept = await check_out_for(documents, there, "third")
    await change(documents, lambda _: DocumentChange(inspected=[(1, 2)]))

    new = ask()
    enqueued = await runs.enqueue(new)
    assert sorted(enqueued.preempted) == ["plan", "second"]
    for name in ("plan", "second"):
        document = await get_document(documents, name)
        assert document.lease == Free(1)
        assert document.inspected == ()
        [event] = await lease_events(canvases, name)
        provenance = {"kind": "person", "agent_id": OWNER, "node_id": "chat", "run_id": new.run_id}
        assert event == {
            "canvasId": name,
            "agentId": "main",
            "revision": 1,
            "canvas_epoch": 1,
            "lease": None,
            "reason": "message",
            "visibility": "public",
            "provenance": provenance,
        }
    assert (await get_document(documents, "third")).lease == kept
    with pytest.raises(StaleEpoch):
        await change(documents, write_under(held.lease_id, here, "late"), claim=here)
    assert (await get_document(documents)).text == ""
    assert (await runs.enqueue(ask())).preempted == ()
    assert len(await lease_events(canvases)) == 1


@rule("RS-79", "CT-19")
async def test_message_in_the_session_of_the_document_ends_the_lease_of_a_run_of_another(
    canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    await create_document(canvases, "theirs", owner_session_key="agent:main:other")
    claim = await start_run(runs, "other")
    held = await check_out_for(documents, claim)
    kept = await check_out_for(documents, claim, "theirs")
    assert (await runs.enqueue(ask())).preempted == (NAME,)
    assert (await get_document(documents)).lease == Free(1)
    [event] = await lease_events(canvases)
    assert event["reason"] == "message"
    with pytest.raises(StaleEpoch):
        await change(documents, write_under(held.lease_id, claim, "late"), claim=claim)
    with pytest.raises(StaleEpoch):
        await check_out_for(documents, claim)
    assert (await get_document(documents, "theirs")).lease == kept
    [answering] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    assert (await check_out_for(documents, answering)).epoch == 1


@rule("CT-18")
async def test_only_a_message_of_the_same_user_and_session_ends_a_lease(
    store: Store, canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    claim = await start_run(runs)
    held = await check_out_for(documents, claim)
    ann = await store.add_user("ann")
    assert (await runs.enqueue(replace(ask(), account_id=ann))).preempted == ()
    assert (await runs.enqueue(ask("other"))).preempted == ()
    assert (await runs.enqueue(new_run())).preempted == (), "a run without a message"
    first = ask()
    keyed = replace(first, idempotency_key="k", request_digest="d")
    assert (await get_document(documents)).lease == held
    assert (await runs.enqueue(keyed)).preempted == (NAME,)
    await change(documents, lambda document: DocumentChange(lease=replace(held, epoch=document.lease.epoch)))
    repeated = await runs.enqueue(replace(keyed, run_id=ask().run_id))
    assert (repeated.is_new, repeated.preempted) == (False, ())
    assert not is_free(await get_document(documents))


@rule("CT-18")
async def test_message_ends_an_expired_lease_too(
    store: Store, canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    claim = await start_run(runs)
    held = await check_out_for(documents, claim)
    await expire_leases(store)
    assert (await runs.enqueue(ask())).preempted == (NAME,)
    assert (await get_document(documents)).lease == Free(held.epoch + 1)


@rule("CT-18")
async def test_cancel_ends_the_leases_of_its_run_only(
    canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    await create_document(canvases, "second")
    claim, other = await start_runs(runs, ask(), ask("other"))
    await check_out_for(documents, claim)
    kept = await check_out_for(documents, other, "second")
    answer = await runs.request_cancel(OWNER, claim.run_id, None)
    assert answer is not None
    assert (answer.changed, answer.preempted) == (True, (NAME,))
    assert (await get_document(documents)).lease == Free(1)
    assert (await get_document(documents, "second")).lease == kept
    [event] = await lease_events(canvases)
    assert (event["reason"], event["canvas_epoch"], event["lease"]) == ("cancel", 1, None)
    again = await runs.request_cancel(OWNER, claim.run_id, None)
    assert again is not None
    assert (again.changed, again.preempted) == (False, ())


@rule("CT-18")
async def test_cancel_ends_the_lease_of_a_run_that_was_released_to_the_queue(
    canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    claim = await start_run(runs)
    await check_out_for(documents, claim)
    assert await runs.release_claim(claim)
    answer = await runs.request_cancel(OWNER, claim.run_id, closing_events(claim.run_id))
    assert answer is not None
    assert (answer.run.status, answer.preempted) == (Status.CANCELLED, (NAME,))
    assert is_free(await get_document(documents))


@ON_POSTGRES
@rule("CT-18", "CT-19")
async def test_message_that_waits_for_a_check_out_ends_its_lease(
    store: Store, canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    """The message arrives while the check-out has locked the session, and is stored after it."""
    await create_document(canvases)
    claim = await start_run(runs)
    async with other_connection(store) as other:
        async with other.transaction():
            await other.execute("select 1 from sessions for update")
            await other.execute(
                "update documents set lease_id = 'lease', lease_run_id = $1, lease_session_id = $2,"
                " lease_expires_at = clock_timestamp() + interval '15 seconds'",
                claim.run_id,
                claim.session_id,
            )
            arriving = asyncio.create_task(runs.enqueue(ask()))
            await answered_or_blocked(arriving, other)
            assert not arriving.done()
        assert (await arriving).preempted == (NAME,)
    assert (await get_document(documents)).lease == Free(1)


@ON_POSTGRES
@rule("CT-19", "RS-79")
@pytest.mark.parametrize("session", [SESSION, "other"])
async def test_check_out_that_waits_for_a_message_in_the_session_of_the_document_gets_stale_epoch(
    store: Store, canvases: CanvasStore, documents: DocumentStore, runs: RunStore, session: str
) -> None:
    await create_document(canvases)
    claims = [await start_run(runs, name) for name in dict.fromkeys([SESSION, session])]
    claim = claims[-1]
    async with other_connection(store) as other:
        async with other.transaction():
            await other.execute("select 1 from sessions where session_id = $1 for update", SESSION)
            checking = asyncio.create_task(check_out_for(documents, claim))
            await answered_or_blocked(checking, other)
            assert not checking.done()
            await other.execute(
                "insert into runs (run_id, account_id, session_id, status, input_text)"
                " values ('later', 'owner', $1, 'queued', '')",
                SESSION,
            )
        with pytest.raises(StaleEpoch):
            await checking
    assert is_free(await get_document(documents))


@case("C2")
@rule("CT-19")
async def test_no_write_of_an_interrupted_run_lands_after_the_message(
    canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    for _ in range(5):
        claim = await start_run(runs)
        held = await check_out_for(documents, claim)
        writes = [
            documents.change(OWNER, NAME, write_under(held.lease_id, claim, f"{n}"), claim=claim)
            for n in range(10)
        ]
        writing = asyncio.gather(*writes, return_exceptions=True)
        assert (await runs.enqueue(ask())).preempted == (NAME,)
        before = await get_document(documents)
        late = [answer for answer in await writing if isinstance(answer, BaseException)]
        assert all(isinstance(answer, StaleEpoch) for answer in late)
        after = await get_document(documents)
        assert (after.text, after.lease) == (before.text, before.lease), "nothing landed after the message"
        assert is_free(after)
        await runs.append(ending_batch(claim, 1))
        [queued] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
        await runs.append(ending_batch(queued, 1))


async def test_run_of_a_deleted_session_loses_its_lease_by_expiry(
    store: Store, canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    claim = await start_run(runs)
    await check_out_for(documents, claim)
    assert await store.database.sessions.delete(OWNER, claim.session_id) == [claim.run_id]
    await store.purge()
    await expire_leases(store)
    assert await documents.list_expired_leases(9) == [(OWNER, NAME)]
    await change(documents, lambda document: DocumentChange(lease=Free(document.lease.epoch)))
    assert (await get_document(documents)).lease == Free(0)


# --- batches report drafts ----------------------------------------------------------------------------------


def update(text: str) -> Any:
    return message(MessageId(f"upd_{text}"), text, role="user")


async def reported_rows(store: Store) -> list[tuple[int, bool]]:
    rows = await store.sql("select draft_no, is_reported from document_drafts order by draft_no")
    return [(row["draft_no"], bool(row["is_reported"])) for row in rows]


@rule("CT-34", "CT-35", "CT-51", "RS-49")
async def test_batch_reports_drafts_and_makes_each_a_version(
    store: Store, canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    claim = await start_run(runs)
    await change(documents, write("one"))
    await change(documents, write("two", assistant(claim.run_id)))
    await change(documents, write("two", ANN))  # no new text
    drafts = await documents.list_unreported(OWNER, SESSION)
    await change(documents, write("three", ANN))
    batch = Batch(
        claim,
        1,
        [run_events(claim.run_id).delta(MessageId("m"), "x")],
        hidden=[update("a"), update("b")],
        reported=[Reported(NAME, drafts[-1].draft_no)],
    )
    first = await runs.append(batch)
    assert first is not None
    assert (first.last_seq, first.thread_seq) == (1, 1)
    versions = await documents.list_versions(OWNER, NAME, before=None, limit=9)
    assert [(version.version_no, version.revision_id, version.author) for version in versions] == [
        (2, revision_of("two"), assistant(claim.run_id)),
        (1, revision_of("one"), ANN),
    ]
    assert await reported_rows(store) == [(2, True), (3, False)], "the newest reported draft is kept"
    [draft] = await documents.list_unreported(OWNER, SESSION)
    assert (draft.draft_no, draft.before, draft.text) == (3, "two", "three")
    assert (await get_document(documents)).text == "three"

    assert await runs.append(batch) == first, "a repeated batch stores nothing"
    hidden = await store.sql("select hidden_no, message_id from hidden_messages order by hidden_no")
    assert [(row["hidden_no"], row["message_id"]) for row in hidden] == [(1, "upd_a"), (2, "upd_b")]
    assert len(await documents.list_versions(OWNER, NAME, before=None, limit=9)) == 2


@rule("CT-35")
async def test_reported_draft_that_equals_the_newest_version_is_no_version(
    canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    await change(documents, write("one", promotes=True))
    [draft] = await documents.list_unreported(OWNER, SESSION)
    claim = await start_run(runs)
    await runs.append(Batch(claim, 1, [], reported=[Reported(NAME, draft.draft_no)]))
    assert len(await documents.list_versions(OWNER, NAME, before=None, limit=9)) == 1
    assert await documents.list_unreported(OWNER, SESSION) == []
    await change(documents, write("two"))
    [draft] = await documents.list_unreported(OWNER, SESSION)
    assert (draft.before, draft.text) == ("one", "two")


@rule("CT-34", "CT-54")
async def test_batch_reports_drafts_of_several_documents(
    store: Store, canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    for name in ("second", NAME):
        await create_document(canvases, name)
        await change(documents, write(f"text of {name}"), name)
    await change(documents, write("more", BOB), "second")
    drafts = await documents.list_unreported(OWNER, SESSION)
    assert [(draft.canvas_id, draft.draft_no) for draft in drafts] == [
        ("second", 1),
        ("second", 2),
        (NAME, 1),
    ]
    claim = await start_run(runs)
    await runs.append(Batch(claim, 1, [], reported=[Reported(CanvasId("second"), 1), Reported(NAME, 1)]))
    assert await list_authors(documents) == [(revision_of(f"text of {NAME}"), ANN)]
    assert await list_authors(documents, "second") == [(revision_of("text of second"), ANN)]
    [left] = await documents.list_unreported(OWNER, SESSION)
    assert (left.canvas_id, left.before, left.text) == ("second", "text of second", "more")
    await runs.append(Batch(claim, 2, [], reported=[Reported(CanvasId("second"), 2)]))
    assert await documents.list_unreported(OWNER, SESSION) == []
    assert await store.sql("select 1 as found from documents where has_unreported") == []


@rule("CT-35", "RS-49")
async def test_report_of_promoted_drafts_makes_no_version(
    canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    """A person promotes while a run, whose draft is older, has not ended."""
    await create_document(canvases)
    claim = await start_run(runs)
    await change(documents, write("by the assistant", assistant(claim.run_id)))
    await change(documents, write("by a person", promotes=True))
    versions = [
        (revision_of("by the assistant"), assistant(claim.run_id)),
        (revision_of("by a person"), ANN),
    ]
    assert await list_authors(documents) == versions
    drafts = await documents.list_unreported(OWNER, SESSION)
    assert [draft.text for draft in drafts] == ["by the assistant", "by a person"], "still to be reported"
    await runs.append(Batch(claim, 1, [], reported=[Reported(NAME, 1)]))
    assert await list_authors(documents) == versions
    assert (await get_document(documents)).version_revision_id == revision_of("by a person")
    await change(documents, write("by a person again"))
    [*_, last] = await documents.list_unreported(OWNER, SESSION)
    await runs.append(Batch(claim, 2, [], reported=[Reported(NAME, last.draft_no)]))
    assert await list_authors(documents) == [*versions, (revision_of("by a person again"), ANN)]


@rule("CT-34", "RX-13")
async def test_batch_of_a_lost_claim_reports_nothing(
    store: Store, canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    await change(documents, write("one"))
    [draft] = await documents.list_unreported(OWNER, SESSION)
    claim = await start_run(runs)
    batch = Batch(claim, 1, [], hidden=[update("a")], reported=[Reported(NAME, draft.draft_no)])
    await store.expire_claim(claim.run_id)
    assert await runs.append(batch) is None
    [taken] = await runs.claim_expired(B, 1, CLAIM_SECONDS)
    assert await runs.append(batch) is None
    assert await store.sql("select * from hidden_messages") == []
    assert await documents.list_unreported(OWNER, SESSION) == [draft]
    assert await runs.append(replace(batch, claim=taken)) is not None
    assert await documents.list_unreported(OWNER, SESSION) == []


@rule("CT-54")
async def test_last_batch_reports_drafts_and_passes_the_turn(
    store: Store, canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    claim = await start_run(runs)
    waiting = ask()
    await runs.enqueue(waiting)
    await change(documents, write("done", assistant(claim.run_id)), claim=claim)
    [draft] = await documents.list_unreported(OWNER, SESSION)
    last = replace(ending_batch(claim, 1), hidden=[update("a")], reported=[Reported(NAME, draft.draft_no)])
    appended = await runs.append(last)
    assert appended is not None
    assert appended.turn_passed
    [row] = await store.sql("select follows_answer from hidden_messages")
    assert row["follows_answer"]
    [following] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    assert following.run_id == waiting.run_id
    [version] = await documents.list_versions(OWNER, NAME, before=None, limit=9)
    assert version.author == Author(AuthorKind.ASSISTANT, "main", claim.run_id)


async def test_report_of_a_deleted_canvas_stores_the_batch(
    store: Store, canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    await change(documents, write("one"))
    [draft] = await documents.list_unreported(OWNER, SESSION)
    claim = await start_run(runs)
    assert await canvases.delete(OWNER, NAME, lambda _: None) is not None
    await store.purge()
    batch = replace(delta_batch(claim, 1, "x"), reported=[Reported(NAME, draft.draft_no)])
    assert await runs.append(batch) is not None
    assert await runs.append(delta_batch(claim, 2, "y")) is not None
