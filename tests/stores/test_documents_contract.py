"""Documents on every store: text, drafts, versions and leases, changed under the lock of the document."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.canvas.canvas import Change
from easel.core.canvas.events import CanvasEvents
from easel.core.document.document import Author, Document, DocumentChange, revision_of
from easel.core.document.lease import Free, Held
from easel.core.run.run import ClaimLost
from easel.errors import LockNotAvailable, StaleEpoch
from easel.ids import OWNER, AccountId, CanvasId, SessionId
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
)
from tests.stores.harness import (
    CLAIM_SECONDS,
    CONSTRAINT_ERRORS,
    B,
    Store,
    decode_payload,
    ending_batch,
    open_migrated_store,
    start_run,
    start_runs,
)

if TYPE_CHECKING:
    from pathlib import Path

    from easel.host.ports import CanvasStore, DocumentStore, RunStore

EVENTS = CanvasEvents(NAME, agent_id="owner", event_id="evt_3")


@pytest.fixture
def documents(store: Store) -> DocumentStore:
    return store.database.documents


@pytest.fixture
def canvases(store: Store) -> CanvasStore:
    return store.database.canvases


async def set_spec(canvases: CanvasStore, **changed: Any) -> None:
    outcome = await canvases.change(
        OWNER, NAME, lambda _: Change(events=[EVENTS.updated(2, ["$spec"])], **changed)
    )
    assert outcome is not None


async def canvas_events(canvases: CanvasStore, name: str = NAME) -> list[tuple[str, dict[str, Any]]]:
    """Return the events of the canvas after its creation."""
    events = await canvases.events_after(f"{OWNER}/{name}", 1, 1_000)
    return [(event.type, decode_payload(event)) for event in events]


# --- existence ----------------------------------------------------------------------------------------------


@rule("CT-33", "CT-30", "RS-51")
async def test_new_markdown_canvas_has_an_empty_document(
    canvases: CanvasStore, documents: DocumentStore
) -> None:
    await create_document(canvases)
    document = await get_document(documents)
    assert (document.text, document.revision_id) == ("", revision_of(""))
    assert (document.session_id, document.canvas_revision) == (SESSION, 1)
    assert (document.lease, document.inspected, document.version_revision_id) == (Free(0), (), None)
    assert abs(document.now - datetime.now(UTC)) < timedelta(minutes=5)
    assert await documents.get(AccountId("ann"), NAME) is None
    assert await documents.get(OWNER, CanvasId("none")) is None
    assert await documents.change(OWNER, CanvasId("none"), write("x")) is None


async def test_document_follows_the_mode_of_its_canvas_and_keeps_its_text(
    canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases, spec={"mode": "html"})
    assert await documents.get(OWNER, NAME) is None
    assert await documents.list_newest(OWNER, SESSION, 1) == []
    await set_spec(canvases, spec={"mode": "markdown"})
    await change(documents, write("kept", promotes=True))
    held = await check_out_for(documents, await start_run(runs))

    await set_spec(canvases, spec={"mode": "html"})
    assert await documents.get(OWNER, NAME) is None
    assert await documents.change(OWNER, NAME, write("x")) is None
    assert await documents.list_newest(OWNER, SESSION, 1) == []
    assert await documents.list_unreported(OWNER, SESSION) == []
    assert await documents.list_versions(OWNER, NAME, before=None, limit=9) == []
    assert await documents.read_revision(OWNER, NAME, revision_of("kept")) is None

    await set_spec(canvases, spec={"mode": "markdown"})
    document = await get_document(documents)
    assert document.text == "kept"
    assert (is_free(document), document.lease.epoch) == (True, held.epoch + 1)


@pytest.mark.parametrize(
    "owner, agent, session",
    [
        ("agent:main:work", "main", "work"),
        ("agent:coder:work", "coder", "agent:coder:work"),
        (None, "main", "main"),
        (None, "coder", "agent:coder:main"),
    ],
)
async def test_document_belongs_to_the_session_of_its_canvas(
    canvases: CanvasStore, documents: DocumentStore, owner: str | None, agent: str, session: str
) -> None:
    await create_document(canvases, owner_session_key=owner, agent_id=agent)
    assert (await get_document(documents)).session_id == session
    assert await documents.list_newest(OWNER, SessionId(session), 1) == [NAME]
    await set_spec(canvases, owner_session_key="agent:main:other")
    assert (await get_document(documents)).session_id == "other"
    assert await documents.list_newest(OWNER, SessionId(session), 1) == []


async def test_newest_document_of_a_session_is_found_and_claims_name_it(
    store: Store, canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases, "z-old")
    await create_document(canvases, "a-new")
    await create_document(canvases, "elsewhere", owner_session_key="agent:main:other")
    assert await documents.list_newest(OWNER, SESSION, 1) == ["a-new"]
    assert await documents.list_newest(AccountId("ann"), SESSION, 1) == []
    [here, there] = await start_runs(runs, ask(), ask("nowhere"))
    assert (here.has_document, there.has_document) == (True, False)
    [again, _] = await runs.claim_unacknowledged(here.worker_id, [], 60, opened=False)
    assert again.has_document
    await store.expire_claim(here.run_id)
    [taken] = await runs.claim_expired(B, 5, 60)
    assert taken.has_document
    assert await canvases.delete(OWNER, CanvasId("a-new"), lambda _: None) is not None
    assert await documents.list_newest(OWNER, SESSION, 1) == ["z-old"]


async def test_deleted_canvas_has_no_document_and_its_rows_are_purged(
    store: Store, canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    await change(documents, write("text", promotes=True))
    await check_out_for(documents, await start_run(runs))
    assert await canvases.delete(OWNER, NAME, lambda _: None) is not None
    assert await documents.get(OWNER, NAME) is None
    assert await documents.list_newest(OWNER, SESSION, 1) == []
    await expire_leases(store)
    assert await documents.list_expired_leases(9) == []
    await store.purge()
    for table in ("documents", "document_drafts", "document_versions"):
        assert await store.sql(f"select * from {table}") == [], table
    await create_document(canvases)
    assert (await get_document(documents)).text == ""


# --- change -------------------------------------------------------------------------------------------------


@rule("CT-33", "CT-30")
async def test_change_stores_text_and_events_and_keeps_the_revision_of_the_canvas(
    canvases: CanvasStore, documents: DocumentStore
) -> None:
    await create_document(canvases)
    text = "# Plan\r\n\tone ü\U0001f600\n`last`"
    stored = await change(documents, write(text))
    assert (stored.text, stored.revision_id) == (text, revision_of(text))
    read = await get_document(documents)
    assert replace(read, now=stored.now) == stored
    assert read.canvas_revision == 1
    [(kind, payload)] = await canvas_events(canvases)
    assert (kind, payload["author"]) == ("canvas.document.changed", {"kind": "person", "id": "ann"})
    snapshot = await canvases.get(OWNER, NAME)
    assert snapshot is not None
    assert (snapshot.canvas.revision, snapshot.canvas.last_seq) == (1, 2)


async def test_refused_or_empty_change_stores_nothing(
    store: Store, canvases: CanvasStore, documents: DocumentStore
) -> None:
    await create_document(canvases)
    before = await change(documents, write("first"))

    def refuse(_: Document) -> DocumentChange:
        raise StaleEpoch(epoch=1)

    with pytest.raises(StaleEpoch):
        await documents.change(OWNER, NAME, refuse)
    assert (await change(documents, lambda _: None)).text == "first"
    assert (await change(documents, write("first"))).revision_id == before.revision_id
    assert len(await store.sql("select * from document_drafts")) == 1


async def test_new_text_without_an_author_is_an_error(
    canvases: CanvasStore, documents: DocumentStore
) -> None:
    await create_document(canvases)
    with pytest.raises(ValueError, match="author"):
        await documents.change(OWNER, NAME, lambda _: DocumentChange(text="x"))
    assert (await get_document(documents)).text == ""


@rule("RS-47")
async def test_shown_lines_belong_to_one_lease_and_one_revision(
    canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    claim = await start_run(runs)
    held = await check_out_for(documents, claim)

    async def show() -> None:
        await change(documents, lambda _: DocumentChange(inspected=[(1, 3), (7, 9)]))
        assert (await get_document(documents)).inspected == ((1, 3), (7, 9))

    await show()
    assert (await change(documents, lambda _: DocumentChange(events=[]))).inspected == ((1, 3), (7, 9))
    assert (await change(documents, write("new"))).inspected == ()
    await show()
    kept = DocumentChange(text="newer", author=ANN, inspected=[(2, 2)])
    assert (await change(documents, lambda _: kept)).inspected == ((2, 2),)
    renewed = replace(held, expires_at=held.expires_at + timedelta(seconds=1))
    assert (await change(documents, lambda _: DocumentChange(lease=renewed))).inspected == ((2, 2),)
    assert (await change(documents, lambda _: DocumentChange(lease=Free(0)))).inspected == ()
    assert (await get_document(documents)).inspected == ()


# --- drafts and versions ------------------------------------------------------------------------------------


@rule("CT-55", "RS-49")
async def test_successive_texts_of_one_author_are_one_draft(
    store: Store, canvases: CanvasStore, documents: DocumentStore
) -> None:
    await create_document(canvases)
    for text, author in (
        ("a", ANN),
        ("ab", ANN),
        ("abc", assistant("run_1")),
        ("abcd", assistant("run_1")),
        ("abcde", assistant("run_2")),
        ("abcdef", BOB),
    ):
        await change(documents, write(text, author))
    drafts = await documents.list_unreported(OWNER, SESSION)
    assert [(draft.draft_no, draft.author, draft.before, draft.text) for draft in drafts] == [
        (1, ANN, "", "ab"),
        (2, assistant("run_1"), "ab", "abcd"),
        (3, assistant("run_2"), "abcd", "abcde"),
        (4, BOB, "abcde", "abcdef"),
    ]
    assert await documents.list_versions(OWNER, NAME, before=None, limit=9) == []
    assert await store.sql("select * from messages") == []


@rule("CT-53")
async def test_text_written_while_a_report_is_made_is_another_draft(
    canvases: CanvasStore, documents: DocumentStore
) -> None:
    """Otherwise the report would mark a text as reported that it does not contain."""
    await create_document(canvases)
    await change(documents, write("one"))
    [listed] = await documents.list_unreported(OWNER, SESSION)
    await change(documents, write("two"))
    await change(documents, write("three"))
    drafts = await documents.list_unreported(OWNER, SESSION)
    assert [(draft.draft_no, draft.before, draft.text) for draft in drafts] == [
        (listed.draft_no, "", "one"),
        (listed.draft_no + 1, "one", "three"),
    ]


@rule("CT-53", "CT-54")
async def test_unreported_drafts_are_those_of_all_documents_of_the_session(
    canvases: CanvasStore, documents: DocumentStore
) -> None:
    for name, session in (("z-old", SESSION), ("a-new", SESSION), ("elsewhere", "other"), ("empty", SESSION)):
        await create_document(canvases, name, owner_session_key=f"agent:main:{session}")
    await change(documents, write("new"), "a-new")
    await change(documents, write("there"), "elsewhere")
    await change(documents, write("old"), "z-old")
    await change(documents, write("older", BOB), "z-old")

    async def unreported(session: str = SESSION) -> list[tuple[str, int, str, str]]:
        drafts = await documents.list_unreported(OWNER, SessionId(session))
        return [(draft.canvas_id, draft.draft_no, draft.before, draft.text) for draft in drafts]

    listed = [("z-old", 1, "", "old"), ("z-old", 2, "old", "older"), ("a-new", 1, "", "new")]
    assert await unreported() == listed
    assert await unreported("other") == [("elsewhere", 1, "", "there")]
    await change(documents, write("newer"), "a-new")
    await change(documents, write("oldest", BOB), "z-old")
    assert await unreported() == [
        *listed[:2],
        ("z-old", 3, "older", "oldest"),
        listed[2],
        ("a-new", 2, "new", "newer"),
    ], "the listing closed the drafts of both documents"


@rule("CT-35", "RS-49")
async def test_text_is_promoted_only_if_it_differs_from_the_newest_version(
    canvases: CanvasStore, documents: DocumentStore
) -> None:
    await create_document(canvases)
    assert (await change(documents, lambda _: DocumentChange(promotes=True))).version_revision_id is None
    first = await change(documents, write("ü", promotes=True))
    assert first.version_revision_id == first.revision_id
    await change(documents, lambda _: DocumentChange(promotes=True))
    await change(documents, write("other", assistant("run_1")))
    await change(documents, write("ü", BOB, promotes=True))
    assert len(await documents.list_versions(OWNER, NAME, before=None, limit=9)) == 1
    await change(documents, write("mine", BOB))
    second = await change(documents, write("mine too", BOB, promotes=True))
    assert (await get_document(documents)).version_revision_id == second.revision_id
    versions = await documents.list_versions(OWNER, NAME, before=None, limit=9)
    assert [(v.version_no, v.revision_id, v.author, v.size) for v in versions] == [
        (3, revision_of("mine too"), BOB, 8),
        (2, revision_of("other"), assistant("run_1"), 5),
        (1, revision_of("ü"), ANN, 2),
    ], "the drafts before become versions too"
    assert [v.version_no for v in await documents.list_versions(OWNER, NAME, before=2, limit=1)] == [1]
    assert abs(versions[0].created_at - datetime.now(UTC)) < timedelta(minutes=5)


@rule("CT-35", "RS-49")
async def test_promoted_draft_that_is_edited_becomes_another_version(
    canvases: CanvasStore, documents: DocumentStore
) -> None:
    await create_document(canvases)
    await change(documents, write("one", promotes=True))
    await change(documents, write("two"))
    await change(documents, write("three", assistant("run_1"), promotes=True))
    assert await list_authors(documents) == [
        (revision_of("one"), ANN),
        (revision_of("two"), ANN),
        (revision_of("three"), assistant("run_1")),
    ]


@rule("CT-35")
async def test_change_can_make_the_text_before_it_a_version(
    canvases: CanvasStore, documents: DocumentStore
) -> None:
    await create_document(canvases)

    def replace_text(text: str, author: Author) -> Any:
        return lambda _: DocumentChange(text=text, author=author, promotes_before=True)

    assert (await change(documents, replace_text("one", ANN))).version_revision_id is None
    stored = await change(documents, replace_text("two", ANN))
    assert (stored.text, stored.version_revision_id) == ("two", revision_of("one"))
    assert (await get_document(documents)).version_revision_id == revision_of("one")
    await change(documents, replace_text("three", BOB))
    assert [revision for revision, _ in await list_authors(documents)] == [
        revision_of("one"),
        revision_of("two"),
    ]


async def test_revision_is_read_from_versions_and_the_current_draft(
    canvases: CanvasStore, documents: DocumentStore
) -> None:
    await create_document(canvases)
    await change(documents, write("one", promotes=True))
    await change(documents, write("two", BOB))
    await change(documents, write("three"))

    async def read(text: str, user: AccountId = OWNER) -> str | None:
        return await documents.read_revision(user, NAME, revision_of(text))

    assert [await read(text) for text in ("one", "two", "three", "")] == ["one", None, "three", None]
    assert await read("one", AccountId("ann")) is None


async def test_oldest_versions_are_deleted(
    store: Store, canvases: CanvasStore, documents: DocumentStore
) -> None:
    await create_document(canvases)
    store.database.documents.max_versions = 3
    for n in range(5):
        await change(documents, write(f"text {n}", promotes=True))
    versions = await documents.list_versions(OWNER, NAME, before=None, limit=9)
    assert [version.version_no for version in versions] == [5, 4, 3]


async def test_large_text_is_stored_exactly(canvases: CanvasStore, documents: DocumentStore) -> None:
    await create_document(canvases)
    text = "".join(f"line {n} ü\r\n" for n in range(80_000))
    await change(documents, write(text, promotes=True))
    assert (await get_document(documents)).text == text
    [version] = await documents.list_versions(OWNER, NAME, before=None, limit=9)
    assert version.size == len(text.encode())


# --- leases -------------------------------------------------------------------------------------------------


@rule("CT-36", "CT-09")
async def test_lease_is_stored_and_refuses_another_holder_until_it_expires(
    store: Store, canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    first, second = await start_runs(runs, ask(), ask("other"))
    held = await check_out_for(documents, first)
    assert (await get_document(documents)).lease == held
    with pytest.raises(LockNotAvailable):
        await check_out_for(documents, second)
    assert await documents.list_expired_leases(9) == []
    await expire_leases(store)
    assert await documents.list_expired_leases(9) == [(OWNER, NAME)]
    assert (await check_out_for(documents, second)).run_id == second.run_id
    assert await documents.list_expired_leases(9) == []


@rule("CT-14")
async def test_live_leases_are_renewed_and_expired_ones_are_not(
    store: Store, canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    for name in ("plan", "second", "third"):
        await create_document(canvases, name)
    first, second = await start_runs(runs, ask(), ask("other"))
    before = [
        await check_out_for(documents, first),
        await check_out_for(documents, first, "second"),
        await check_out_for(documents, second, "third"),
    ]
    await store.sql(f"update documents set lease_expires_at = {store.ago(1)} where canvas_id = 'second'")
    await documents.renew_leases([], 100)
    await documents.renew_leases([first.run_id], 100)
    plan, expired, third = [await get_document(documents, name) for name in ("plan", "second", "third")]
    assert isinstance(plan.lease, Held)
    assert plan.lease.expires_at - before[0].expires_at > timedelta(seconds=50)
    assert isinstance(expired.lease, Held)
    assert not expired.lease.is_live(expired.now)
    assert third.lease == before[2]


@rule("CT-16")
async def test_paused_worker_does_not_release_the_lease_of_a_later_attempt(
    canvases: CanvasStore, documents: DocumentStore, runs: RunStore, store: Store
) -> None:
    await create_document(canvases)
    [first] = await start_runs(runs, ask())
    await check_out_for(documents, first)
    await store.expire_claim(first.run_id)
    [second] = await runs.claim_expired(B, 1, CLAIM_SECONDS)
    kept = (await get_document(documents)).lease
    assert await documents.release_leases(first) == []
    assert (await get_document(documents)).lease == kept
    assert await documents.release_leases(second) == [NAME]


@rule("CT-16")
async def test_leases_of_an_ended_run_are_released_with_the_same_epoch(
    canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    await create_document(canvases, "second")
    first, other = await start_runs(runs, ask(), ask("other"))
    await check_out_for(documents, first)
    kept = await check_out_for(documents, other, "second")
    assert await documents.release_leases(first) == [NAME]
    assert await documents.release_leases(first) == []
    assert (await get_document(documents)).lease == Free(0)
    assert (await get_document(documents, "second")).lease == kept
    [(kind, payload)] = await canvas_events(canvases)
    assert (kind, payload["lease"], payload["canvas_epoch"]) == ("canvas.lease.changed", None, 0)
    assert (payload["canvasId"], payload["revision"], payload["reason"]) == (NAME, 1, "run_ended")
    assert payload["provenance"]["run_id"] == first.run_id


@rule("CT-36", "RX-13")
async def test_change_under_a_lost_claim_is_refused(
    store: Store, canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    claim = await start_run(runs)

    async def is_refused() -> bool:
        try:
            await change(documents, write("x"), claim=claim)
        except ClaimLost:
            return True
        return False

    assert not await is_refused()
    wrong = (
        replace(claim, worker_id=B),
        replace(claim, attempt=2),
        replace(claim, run_id=(await runs.enqueue(ask("other"))).run.run_id),
    )
    for other in wrong:
        with pytest.raises(ClaimLost):
            await change(documents, write("y"), claim=other)
    await store.expire_claim(claim.run_id)
    assert await is_refused()
    [taken] = await runs.claim_expired(B, 1, 60)
    assert await is_refused()
    await change(documents, write("z"), claim=taken)
    assert await runs.append(ending_batch(taken, 1)) is not None
    with pytest.raises(ClaimLost):
        await change(documents, write("late"), claim=taken)
    assert (await get_document(documents)).text == "z"


@rule("CT-19", "RS-79")
async def test_interrupted_run_is_named_to_the_decision(
    canvases: CanvasStore, documents: DocumentStore, runs: RunStore
) -> None:
    await create_document(canvases)
    first, second, third = await start_runs(runs, ask("one"), ask("two"), ask("three"))

    async def is_interrupted(claim: Any) -> bool:
        return (await change(documents, lambda _: None, claim=claim, locks_session=True)).is_interrupted

    assert not await is_interrupted(first)
    await runs.enqueue(ask("one"))
    assert (await is_interrupted(first), await is_interrupted(second)) == (True, False)
    with pytest.raises(StaleEpoch):
        await check_out_for(documents, first)
    await runs.request_cancel(OWNER, second.run_id, None)
    assert (await is_interrupted(second), await is_interrupted(third)) == (True, False)
    await runs.enqueue(ask(SESSION))
    assert await is_interrupted(third), "a later message in the session of the document. RS-79"
    assert not (await get_document(documents)).is_interrupted


@case("C1")
@rule("CT-10", "CT-36")
async def test_one_of_fifty_concurrent_check_outs_succeeds(
    store: Store, folder: Path, url: str, runs: RunStore
) -> None:
    documents = store.database.documents
    await create_document(store.database.canvases)
    claims = await start_runs(runs, *(ask(f"s{n}") for n in range(50)))
    stores = [documents]
    other: Store | None = None
    if store.kind == "postgres":  # SQLite serves one process
        other = await open_migrated_store(store.kind, folder=folder, database_url=url)
        stores.append(other.database.documents)
    try:
        answers = await asyncio.gather(
            *(check_out_for(stores[n % len(stores)], claim) for n, claim in enumerate(claims)),
            return_exceptions=True,
        )
    finally:
        if other is not None:
            await other.close()
    held = [answer for answer in answers if isinstance(answer, Held)]
    assert len(held) == 1
    assert sum(isinstance(answer, LockNotAvailable) for answer in answers) == 49
    assert (await get_document(documents)).lease == held[0]


# --- constraints --------------------------------------------------------------------------------------------

IMPOSSIBLE = [
    # constraint                 change of a leased document
    ("lease_is_complete",     "documents", "lease_run_id = null"),
    ("lease_is_complete",     "documents", "lease_expires_at = null"),
    ("leased_means_active",   "documents", "is_active = false"),
    ("epoch_from_zero",       "documents", "epoch = -1"),
    ("author_is_known",       "document_drafts", "author_kind = 'nobody'"),
    ("reported_means_closed", "document_drafts", "is_reported = true, is_closed = false"),
    ("author_is_known",       "document_versions", "author_kind = 'nobody'"),
    ("version_no_from_one",   "document_versions", "version_no = 0"),
]  # fmt: skip


@rule("CT-36")
@pytest.mark.parametrize("law, table, wrong", IMPOSSIBLE)
async def test_database_refuses_an_impossible_document(
    store: Store, runs: RunStore, law: str, table: str, wrong: str
) -> None:
    documents = store.database.documents
    await create_document(store.database.canvases)
    await change(documents, write("text", promotes=True))
    await check_out_for(documents, await start_run(runs))
    with pytest.raises(CONSTRAINT_ERRORS, match=law):
        await store.sql(f"update {table} set {wrong}")
