"""Rows of artifacts on every store: claims, uploads, references and the sweep."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from easel.core.artifact.artifact import START, NewArtifact, blob_created_at
from easel.ids import OWNER, ArtifactId, CanvasId, RunId
from tests.requirements import case, rule
from tests.stores.harness import (
    CONSTRAINT_ERRORS,
    TIMEOUT_SECONDS,
    Store,
    new_run,
    other_connection,
    wait_for_blocked_statement,
)
from tests.support.artifacts import aged_key, id_of, new

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from easel.core.artifact.artifact import Artifact
    from easel.host.ports import ArtifactStore
    from easel.ids import AccountId

GRACE = 7 * 86_400.0
LONG_AGO = GRACE + 60


@pytest_asyncio.fixture
async def artifacts(store: Store) -> AsyncIterator[ArtifactStore]:
    yield store.database.artifacts
    for table in ("artifact_refs", "canvases", "artifacts"):
        await store.sql(f"delete from {table}")


@pytest_asyncio.fixture
async def run_id(store: Store) -> RunId:
    made = new_run()
    await store.runs.enqueue(made)
    return made.run_id


async def create_canvas(store: Store, name: str = "sketch") -> CanvasId:
    await store.sql(
        "insert into canvases (account_id, canvas_id, agent_id, title, spec, state)"
        f" values ('owner', '{name}', 'main', '', '{{}}', '{{}}')"
    )
    return CanvasId(name)


async def store_content(artifacts: ArtifactStore, content: bytes, account_id: AccountId = OWNER) -> Artifact:
    [claimed] = await artifacts.claim(account_id, [new(content, account_id=account_id)])
    if not claimed.is_stored:
        assert await artifacts.mark_stored(account_id, [claimed]) == {claimed.artifact_id}
    return replace(claimed, is_stored=True)


async def start_upload(artifacts: ArtifactStore, name: str = "new_1") -> Artifact:
    """Start an upload whose content is not known yet."""
    [upload] = await artifacts.claim(OWNER, [NewArtifact(ArtifactId(name), 0, "", aged_key())])
    return upload


def as_content(upload: Artifact, content: bytes) -> NewArtifact:
    return replace(new(content), blob_key=upload.blob_key)


async def set_artifact_age(store: Store) -> None:
    await store.sql(f"update artifacts set touched_at = {store.ago(LONG_AGO)}")


async def sweep(artifacts: ArtifactStore, limit: int = 100) -> list[str]:
    """Sweep all rows. Returns the blob keys of the deleted ones."""
    keys, place = list[str](), START
    while place is not None:
        page = await artifacts.find_orphans(place, GRACE, limit)
        keys += await artifacts.delete_orphans(page.keys, GRACE)
        place = page.next
    return keys


async def count(store: Store, table: str) -> int:
    return (await store.sql(f"select count(*) as n from {table}"))[0]["n"]


# --- claiming -----------------------------------------------------------------------------------------------


async def test_claimed_row_is_not_readable_before_its_blob_is_stored(artifacts: ArtifactStore) -> None:
    requested = new(b"a")
    [claimed] = await artifacts.claim(OWNER, [requested])
    assert (claimed.blob_key, claimed.size, claimed.is_stored) == (requested.blob_key, 1, False)
    assert await artifacts.get(OWNER, id_of(b"a")) is None
    assert await artifacts.mark_stored(OWNER, [claimed]) == {id_of(b"a")}
    found = await artifacts.get(OWNER, id_of(b"a"))
    assert found is not None
    assert (
        found.account_id,
        found.artifact_id,
        found.size,
        found.media_type,
        found.blob_key,
        found.is_stored,
    ) == (
        OWNER,
        id_of(b"a"),
        1,
        "text/plain",
        requested.blob_key,
        True,
    )


async def test_same_content_has_one_row_and_one_blob(store: Store, artifacts: ArtifactStore) -> None:
    [first] = await artifacts.claim(OWNER, [new(b"a")])
    [second] = await artifacts.claim(OWNER, [new(b"a")])
    assert first == second
    assert await count(store, "artifacts") == 1


async def test_many_artifacts_are_claimed_and_marked_in_one_call(artifacts: ArtifactStore) -> None:
    contents = [bytes([n]) for n in range(40)]
    claimed = await artifacts.claim(OWNER, [new(content) for content in contents])
    assert {item.artifact_id for item in claimed} == {id_of(content) for content in contents}
    assert await artifacts.mark_stored(OWNER, claimed) == {id_of(content) for content in contents}


async def test_concurrent_claims_in_opposite_order_do_not_deadlock(
    artifacts: ArtifactStore,
) -> None:
    contents = [bytes([n]) for n in range(20)]

    async def keep(nth: int) -> None:
        turned = contents[nth:] + contents[:nth]
        claimed = await artifacts.claim(OWNER, [new(content) for content in turned])
        assert len(await artifacts.mark_stored(OWNER, claimed)) == len(contents)

    await asyncio.gather(*(keep(nth) for nth in range(20)))


async def test_same_content_of_two_users_has_two_rows(store: Store, artifacts: ArtifactStore) -> None:
    mallory = await store.add_user("mallory")
    mine, theirs = await store_content(artifacts, b"a"), await store_content(artifacts, b"a", mallory)
    assert mine.blob_key != theirs.blob_key
    await store_content(artifacts, b"secret", mallory)
    assert await artifacts.get(OWNER, id_of(b"secret")) is None
    assert await artifacts.mark_stored(OWNER, [theirs]) == set()


# --- uploads -----------------------------------------------------------------------


async def test_upload_is_not_readable_until_completed_under_its_content_id(
    store: Store, artifacts: ArtifactStore
) -> None:
    upload = await start_upload(artifacts)
    assert await artifacts.get(OWNER, upload.artifact_id) is None
    completed = await artifacts.complete_upload(OWNER, upload.artifact_id, as_content(upload, b"a"), None)
    assert completed is not None
    assert (completed.artifact_id, completed.size, completed.blob_key, completed.is_stored) == (
        id_of(b"a"),
        1,
        upload.blob_key,
        True,
    )
    assert await artifacts.get(OWNER, id_of(b"a")) == completed
    assert await count(store, "artifacts") == 1


async def test_completed_upload_fills_a_row_without_a_blob(store: Store, artifacts: ArtifactStore) -> None:
    """The first claimer crashed; the next upload of the content fills its row."""
    [dead] = await artifacts.claim(OWNER, [new(b"a")])
    upload = await start_upload(artifacts)
    completed = await artifacts.complete_upload(OWNER, upload.artifact_id, as_content(upload, b"a"), None)
    assert completed is not None
    assert completed.is_stored
    assert completed.blob_key == upload.blob_key
    assert await artifacts.mark_stored(OWNER, [dead]) == set()
    assert await artifacts.get(OWNER, id_of(b"a")) == completed
    assert await count(store, "artifacts") == 1


async def test_completed_upload_replaces_only_the_blob_that_is_missing(
    store: Store, artifacts: ArtifactStore
) -> None:
    first = await store_content(artifacts, b"a")
    for lost in (None, aged_key()):
        upload = await start_upload(artifacts)
        assert (
            await artifacts.complete_upload(OWNER, upload.artifact_id, as_content(upload, b"a"), lost)
            == first
        )
    upload = await start_upload(artifacts)
    repaired = await artifacts.complete_upload(
        OWNER, upload.artifact_id, as_content(upload, b"a"), first.blob_key
    )
    assert repaired is not None
    assert repaired.blob_key == upload.blob_key
    assert await count(store, "artifacts") == 1


@case("D7")
async def test_upload_that_was_swept_cannot_be_completed(store: Store, artifacts: ArtifactStore) -> None:
    """A sweep may be deleting its blob."""
    upload = await start_upload(artifacts)
    await set_artifact_age(store)
    assert await sweep(artifacts) == [upload.blob_key]
    assert await artifacts.complete_upload(OWNER, upload.artifact_id, as_content(upload, b"a"), None) is None
    assert await artifacts.get(OWNER, id_of(b"a")) is None
    assert await count(store, "artifacts") == 0


async def test_unfinished_upload_can_be_withdrawn_and_stored_artifact_cannot(
    store: Store, artifacts: ArtifactStore
) -> None:
    upload, artifact = await start_upload(artifacts), await store_content(artifacts, b"a")
    for item in (upload, upload, artifact):
        await artifacts.withdraw(OWNER, item.artifact_id)
    assert await store.sql("select artifact_id from artifacts") == [{"artifact_id": artifact.artifact_id}]


async def test_concurrent_uploads_of_the_same_content_keep_one_blob(artifacts: ArtifactStore) -> None:
    uploads = [await start_upload(artifacts, f"new_{n}") for n in range(10)]
    completed = await asyncio.gather(
        *(
            artifacts.complete_upload(OWNER, item.artifact_id, as_content(item, b"a"), None)
            for item in uploads
        )
    )
    assert len({item.blob_key for item in completed if item is not None}) == 1


async def test_artifact_of_an_unknown_user_is_refused(artifacts: ArtifactStore) -> None:
    with pytest.raises(CONSTRAINT_ERRORS):
        await artifacts.claim("nobody", [new(b"a")])  # type: ignore[arg-type]


# --- references and the sweep -------------------------------------------------------------------------------


async def test_reference_is_added_once_and_only_to_stored_artifacts_of_the_user(
    store: Store, artifacts: ArtifactStore, run_id: RunId
) -> None:
    mallory = await store.add_user("mallory")
    await store_content(artifacts, b"mine")
    await store_content(artifacts, b"theirs", mallory)
    await artifacts.claim(OWNER, [new(b"unstored")])
    ids = [id_of(content) for content in (b"mine", b"theirs", b"unstored", b"unknown")]
    for _ in range(2):
        await artifacts.add_references(OWNER, ids, run_id=run_id)
    await artifacts.add_references(OWNER, ids, canvas_id=await create_canvas(store))
    await artifacts.add_references(OWNER, [], run_id=run_id)
    made = await store.sql(
        "select account_id, artifact_id, run_id, canvas_id from artifact_refs order by run_id is null"
    )
    assert made == [
        {"account_id": OWNER, "artifact_id": id_of(b"mine"), "run_id": run_id, "canvas_id": None},
        {"account_id": OWNER, "artifact_id": id_of(b"mine"), "run_id": None, "canvas_id": "sketch"},
    ]


@case("D7")
async def test_sweep_deletes_only_old_artifacts_without_references(
    store: Store, artifacts: ArtifactStore, run_id: RunId
) -> None:
    of_run, of_canvas, loose = [
        await store_content(artifacts, content) for content in (b"of a run", b"of a canvas", b"loose")
    ]
    [unstored] = await artifacts.claim(OWNER, [new(b"unstored")])
    await artifacts.add_references(OWNER, [of_run.artifact_id], run_id=run_id)
    await artifacts.add_references(OWNER, [of_canvas.artifact_id], canvas_id=await create_canvas(store))
    assert await sweep(artifacts) == []
    await set_artifact_age(store)
    touched = await store_content(artifacts, b"touched")
    assert sorted(await sweep(artifacts)) == sorted([loose.blob_key, unstored.blob_key])
    assert await sweep(artifacts) == []
    for artifact in (of_run, of_canvas, touched):
        assert await artifacts.get(OWNER, artifact.artifact_id) == artifact
    assert await artifacts.get(OWNER, loose.artifact_id) is None
    assert await artifacts.mark_stored(OWNER, [unstored]) == set(), "a row that was swept is not marked"


async def test_claim_touches_the_row_so_that_the_sweep_skips_it(
    store: Store, artifacts: ArtifactStore
) -> None:
    first = await store_content(artifacts, b"a")
    await set_artifact_age(store)
    await artifacts.claim(OWNER, [new(b"a")])
    assert await sweep(artifacts) == []
    assert await artifacts.get(OWNER, first.artifact_id) == first


@pytest.mark.parametrize("gone", ["delete from sessions", "delete from canvases"])
async def test_artifact_is_swept_after_its_run_or_canvas_is_deleted(
    store: Store, artifacts: ArtifactStore, run_id: RunId, gone: str
) -> None:
    artifact = await store_content(artifacts, b"a")
    canvas_id = await create_canvas(store)
    if "sessions" in gone:
        await artifacts.add_references(OWNER, [artifact.artifact_id], run_id=run_id)
    else:
        await artifacts.add_references(OWNER, [artifact.artifact_id], canvas_id=canvas_id)
    await set_artifact_age(store)
    assert await sweep(artifacts) == []
    await store.sql(gone)
    assert await sweep(artifacts) == [artifact.blob_key]


async def test_swept_content_can_be_stored_again_with_a_new_blob_key(
    store: Store, artifacts: ArtifactStore
) -> None:
    before = await store_content(artifacts, b"a")
    await set_artifact_age(store)
    assert await sweep(artifacts) == [before.blob_key]
    after = await store_content(artifacts, b"a")
    assert after.blob_key != before.blob_key


@pytest.mark.parametrize("limit", [1, 2, 7, 8, 100])
async def test_sweep_visits_every_row_for_any_step_length(
    store: Store, artifacts: ArtifactStore, limit: int
) -> None:
    mallory = await store.add_user("mallory")
    made = [await store_content(artifacts, bytes([n]), user) for user in (OWNER, mallory) for n in range(4)]
    await set_artifact_age(store)
    artifact = await store_content(artifacts, b"\x02", mallory)
    assert sorted(await sweep(artifacts, limit)) == sorted(
        item.blob_key for item in made if item.blob_key != artifact.blob_key
    )


@case("D7")
async def test_concurrent_references_and_sweeps_stay_consistent(
    store: Store, artifacts: ArtifactStore, run_id: RunId
) -> None:
    """Either the reference is first and the artifact kept, or the sweep is first and no reference added."""
    ids = [(await store_content(artifacts, b"%d" % n)).artifact_id for n in range(150)]
    await set_artifact_age(store)

    async def sweep_often() -> None:
        for _ in range(10):
            await sweep(artifacts, 10)

    await asyncio.gather(
        sweep_often(),
        *(artifacts.add_references(OWNER, [item], run_id=run_id) for item in reversed(ids)),
        sweep_often(),
    )
    rows = {row["artifact_id"] for row in await store.sql("select artifact_id from artifacts")}
    references = {row["artifact_id"] for row in await store.sql("select artifact_id from artifact_refs")}
    assert rows == references


# SQLite has one writer, so its transactions never overlap.
ON_POSTGRES = pytest.mark.parametrize("kind", ["postgres"])


@ON_POSTGRES
async def test_sweep_skips_an_artifact_whose_reference_is_being_added(
    store: Store, artifacts: ArtifactStore, run_id: RunId
) -> None:
    artifact = await store_content(artifacts, b"a")
    await set_artifact_age(store)
    async with other_connection(store) as other, other.transaction():
        await other.execute(
            "insert into artifact_refs (account_id, artifact_id, run_id)"
            f" values ('owner', '{artifact.artifact_id}', '{run_id}')"
        )
        assert await asyncio.wait_for(sweep(artifacts), TIMEOUT_SECONDS) == []
    assert await sweep(artifacts) == []
    assert await artifacts.get(OWNER, artifact.artifact_id) == artifact


@ON_POSTGRES
async def test_reference_waits_for_the_sweep_of_its_artifact_and_is_not_added(
    store: Store, artifacts: ArtifactStore, run_id: RunId
) -> None:
    gone = await store_content(artifacts, b"a")
    async with other_connection(store) as other, other.transaction():
        await other.execute(f"delete from artifacts where artifact_id = '{gone.artifact_id}'")
        referring = asyncio.create_task(artifacts.add_references(OWNER, [gone.artifact_id], run_id=run_id))
        await wait_for_blocked_statement(other)
    await referring
    assert await count(store, "artifact_refs") == 0


@ON_POSTGRES
@pytest.mark.parametrize("step", ["claim", "mark"])
async def test_rows_are_locked_in_one_order(store: Store, artifacts: ArtifactStore, step: str) -> None:
    """Otherwise two calls that lock the same rows could deadlock."""
    made = sorted(
        [await store_content(artifacts, bytes([n])) for n in range(8)], key=lambda item: item.artifact_id
    )
    backwards = made[::-1]
    async with other_connection(store) as other, other.transaction():
        await other.execute(
            f"update artifacts set touched_at = now() where artifact_id = '{made[0].artifact_id}'"
        )
        if step == "claim":
            new_ones = [
                NewArtifact(item.artifact_id, item.size, item.media_type, aged_key()) for item in backwards
            ]
            taking = asyncio.create_task(artifacts.claim(OWNER, new_ones))
        else:
            taking = asyncio.create_task(artifacts.mark_stored(OWNER, backwards))
        await wait_for_blocked_statement(other)
        await other.execute("update artifacts set touched_at = now()", timeout=TIMEOUT_SECONDS)
    assert len(await taking) == 8


@rule("CC-08")
async def test_artifact_tables_have_no_binary_column(store: Store) -> None:
    for table in ("artifacts", "artifact_refs"):
        types = {column.type for column in (await store.columns(table)).values()}
        assert not types & {"bytea", "blob", "jsonb"}


# --- blobs without a row ------------------------------------------------------------------------------------


async def test_old_blob_without_a_row_is_reported_as_unknown(store: Store, artifacts: ArtifactStore) -> None:
    known = await store_content(artifacts, b"a")
    aged = aged_key(GRACE + 60)
    await store.sql(f"update artifacts set blob_key = '{aged}'")
    old, young = aged_key(GRACE + 60), aged_key(GRACE - 60)
    other_users = aged_key(GRACE + 60, "gone")  # type: ignore[arg-type]
    keys = {
        key: blob_created_at(key) or datetime.now(UTC)
        for key in (known.blob_key, aged, old, young, other_users)
    }
    assert sorted(await artifacts.find_unknown_blobs(keys, GRACE)) == sorted([old, other_users])
