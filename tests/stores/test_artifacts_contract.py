"""The rows of artifacts, on every store: claimed before their blobs are written, kept by references, swept when nobody cares."""

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
    from easel.ids import UserId

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


async def a_canvas(store: Store, name: str = "sketch") -> CanvasId:
    await store.sql(
        f"insert into canvases (user_id, canvas_id, agent_id, title, spec, state) values ('owner', '{name}', 'main', '', '{{}}', '{{}}')"
    )
    return CanvasId(name)


async def stored(artifacts: ArtifactStore, content: bytes, user_id: UserId = OWNER) -> Artifact:
    [claimed] = await artifacts.claim(user_id, [new(content, user_id=user_id)])
    if not claimed.is_stored:
        assert await artifacts.mark_stored(user_id, [claimed]) == {claimed.artifact_id}
    return replace(claimed, is_stored=True)


async def begin(artifacts: ArtifactStore, name: str = "new_1") -> Artifact:
    """An upload has begun: nobody knows yet what it will be."""
    [begun] = await artifacts.claim(OWNER, [NewArtifact(ArtifactId(name), 0, "", aged_key())])
    return begun


def as_content(begun: Artifact, content: bytes) -> NewArtifact:
    return replace(new(content), blob_key=begun.blob_key)


async def make_old(store: Store) -> None:
    await store.sql(f"update artifacts set touched_at = {store.ago(LONG_AGO)}")


async def sweep(artifacts: ArtifactStore, limit: int = 100) -> list[str]:
    """All the way over the rows; the keys of the blobs that they leave."""
    keys, place = list[str](), START
    while place is not None:
        step = await artifacts.sweep(place, GRACE, limit)
        keys += step.blob_keys
        place = step.next
    return keys


async def count(store: Store, table: str) -> int:
    return (await store.sql(f"select count(*) as n from {table}"))[0]["n"]


# --- claiming ---------------------------------------------------------------------------------------------------------


async def test_a_claimed_row_is_not_there_for_readers_before_its_blob_is(artifacts: ArtifactStore) -> None:
    wanted = new(b"a")
    [claimed] = await artifacts.claim(OWNER, [wanted])
    assert (claimed.blob_key, claimed.size, claimed.is_stored) == (wanted.blob_key, 1, False)
    assert await artifacts.get(OWNER, id_of(b"a")) is None
    assert await artifacts.mark_stored(OWNER, [claimed]) == {id_of(b"a")}
    found = await artifacts.get(OWNER, id_of(b"a"))
    assert found is not None
    assert (
        found.user_id,
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
        wanted.blob_key,
        True,
    )


async def test_the_same_content_has_one_row_and_one_blob(store: Store, artifacts: ArtifactStore) -> None:
    [first] = await artifacts.claim(OWNER, [new(b"a")])
    [second] = await artifacts.claim(OWNER, [new(b"a")])
    assert first == second
    assert await count(store, "artifacts") == 1


async def test_many_at_once_are_claimed_and_marked_together(artifacts: ArtifactStore) -> None:
    contents = [bytes([n]) for n in range(40)]
    claimed = await artifacts.claim(OWNER, [new(content) for content in contents])
    assert {one.artifact_id for one in claimed} == {id_of(content) for content in contents}
    assert await artifacts.mark_stored(OWNER, claimed) == {id_of(content) for content in contents}


async def test_claims_of_the_same_contents_in_any_order_do_not_stand_in_each_others_way(
    artifacts: ArtifactStore,
) -> None:
    contents = [bytes([n]) for n in range(20)]

    async def keep(nth: int) -> None:
        turned = contents[nth:] + contents[:nth]
        claimed = await artifacts.claim(OWNER, [new(content) for content in turned])
        assert len(await artifacts.mark_stored(OWNER, claimed)) == len(contents)

    await asyncio.gather(*(keep(nth) for nth in range(20)))


async def test_two_users_with_the_same_content_never_meet(store: Store, artifacts: ArtifactStore) -> None:
    mallory = await store.add_user("mallory")
    mine, theirs = await stored(artifacts, b"a"), await stored(artifacts, b"a", mallory)
    assert mine.blob_key != theirs.blob_key
    await stored(artifacts, b"secret", mallory)
    assert await artifacts.get(OWNER, id_of(b"secret")) is None
    assert await artifacts.mark_stored(OWNER, [theirs]) == set()


# --- uploads, whose content is known at their end -----------------------------------------------------------------------


async def test_what_was_begun_is_seen_by_nobody_and_becomes_the_content_that_it_is(
    store: Store, artifacts: ArtifactStore
) -> None:
    begun = await begin(artifacts)
    assert await artifacts.get(OWNER, begun.artifact_id) is None
    settled = await artifacts.complete_upload(OWNER, begun.artifact_id, as_content(begun, b"a"), None)
    assert settled is not None
    assert (settled.artifact_id, settled.size, settled.blob_key, settled.is_stored) == (
        id_of(b"a"),
        1,
        begun.blob_key,
        True,
    )
    assert await artifacts.get(OWNER, id_of(b"a")) == settled
    assert await count(store, "artifacts") == 1


async def test_a_blob_goes_to_a_row_that_waits_for_one(store: Store, artifacts: ArtifactStore) -> None:
    """Someone claimed the row and died; whoever comes with the blob in hand gives it his."""
    [dead] = await artifacts.claim(OWNER, [new(b"a")])
    begun = await begin(artifacts)
    alive = await artifacts.complete_upload(OWNER, begun.artifact_id, as_content(begun, b"a"), None)
    assert alive is not None
    assert alive.is_stored
    assert alive.blob_key == begun.blob_key
    assert await artifacts.mark_stored(OWNER, [dead]) == set()
    assert await artifacts.get(OWNER, id_of(b"a")) == alive
    assert await count(store, "artifacts") == 1


async def test_a_row_that_has_its_blob_keeps_it_unless_that_is_the_lost_one(
    store: Store, artifacts: ArtifactStore
) -> None:
    first = await stored(artifacts, b"a")
    for lost in (None, aged_key()):
        begun = await begin(artifacts)
        assert (
            await artifacts.complete_upload(OWNER, begun.artifact_id, as_content(begun, b"a"), lost) == first
        )
    begun = await begin(artifacts)
    mended = await artifacts.complete_upload(
        OWNER, begun.artifact_id, as_content(begun, b"a"), first.blob_key
    )
    assert mended is not None
    assert mended.blob_key == begun.blob_key
    assert await count(store, "artifacts") == 1


@case("D7")
async def test_what_was_begun_and_swept_cannot_be_settled(store: Store, artifacts: ArtifactStore) -> None:
    """Its blob may be in the hands of a sweep."""
    begun = await begin(artifacts)
    await make_old(store)
    assert await sweep(artifacts) == [begun.blob_key]
    assert await artifacts.complete_upload(OWNER, begun.artifact_id, as_content(begun, b"a"), None) is None
    assert await artifacts.get(OWNER, id_of(b"a")) is None
    assert await count(store, "artifacts") == 0


async def test_what_was_begun_can_be_withdrawn_and_what_is_stored_cannot(
    store: Store, artifacts: ArtifactStore
) -> None:
    begun, kept = await begin(artifacts), await stored(artifacts, b"a")
    for one in (begun, begun, kept):
        await artifacts.withdraw(OWNER, one.artifact_id)
    assert await store.sql("select artifact_id from artifacts") == [{"artifact_id": kept.artifact_id}]


async def test_of_many_uploads_of_the_same_one_blob_stays(artifacts: ArtifactStore) -> None:
    begun = [await begin(artifacts, f"new_{n}") for n in range(10)]
    settled = await asyncio.gather(
        *(artifacts.complete_upload(OWNER, one.artifact_id, as_content(one, b"a"), None) for one in begun)
    )
    assert len({one.blob_key for one in settled if one is not None}) == 1


async def test_what_belongs_to_nobody_is_refused(artifacts: ArtifactStore) -> None:
    with pytest.raises(CONSTRAINT_ERRORS):
        await artifacts.claim("nobody", [new(b"a")])  # type: ignore[arg-type]


# --- references and the sweep -----------------------------------------------------------------------------------------


async def test_a_reference_is_made_once_and_only_to_what_is_stored_and_ones_own(
    store: Store, artifacts: ArtifactStore, run_id: RunId
) -> None:
    mallory = await store.add_user("mallory")
    await stored(artifacts, b"mine")
    await stored(artifacts, b"theirs", mallory)
    await artifacts.claim(OWNER, [new(b"unstored")])
    ids = [id_of(content) for content in (b"mine", b"theirs", b"unstored", b"unknown")]
    for _ in range(2):
        await artifacts.add_references(OWNER, ids, run_id=run_id)
    await artifacts.add_references(OWNER, ids, canvas_id=await a_canvas(store))
    await artifacts.add_references(OWNER, [], run_id=run_id)
    made = await store.sql(
        "select user_id, artifact_id, run_id, canvas_id from artifact_refs order by run_id is null"
    )
    assert made == [
        {"user_id": OWNER, "artifact_id": id_of(b"mine"), "run_id": run_id, "canvas_id": None},
        {"user_id": OWNER, "artifact_id": id_of(b"mine"), "run_id": None, "canvas_id": "sketch"},
    ]


@case("D7")
async def test_a_sweep_takes_what_is_old_and_unreferred_and_nothing_else(
    store: Store, artifacts: ArtifactStore, run_id: RunId
) -> None:
    of_run, of_canvas, loose = [
        await stored(artifacts, content) for content in (b"of a run", b"of a canvas", b"loose")
    ]
    [unstored] = await artifacts.claim(OWNER, [new(b"unstored")])
    await artifacts.add_references(OWNER, [of_run.artifact_id], run_id=run_id)
    await artifacts.add_references(OWNER, [of_canvas.artifact_id], canvas_id=await a_canvas(store))
    assert await sweep(artifacts) == []
    await make_old(store)
    touched = await stored(artifacts, b"touched")
    assert sorted(await sweep(artifacts)) == sorted([loose.blob_key, unstored.blob_key])
    assert await sweep(artifacts) == []
    for kept in (of_run, of_canvas, touched):
        assert await artifacts.get(OWNER, kept.artifact_id) == kept
    assert await artifacts.get(OWNER, loose.artifact_id) is None
    assert await artifacts.mark_stored(OWNER, [unstored]) == set(), (
        "whoever slept meanwhile has to begin again"
    )


async def test_a_claim_touches_so_that_the_sweep_passes_over(store: Store, artifacts: ArtifactStore) -> None:
    first = await stored(artifacts, b"a")
    await make_old(store)
    await artifacts.claim(OWNER, [new(b"a")])
    assert await sweep(artifacts) == []
    assert await artifacts.get(OWNER, first.artifact_id) == first


@pytest.mark.parametrize("gone", ["delete from sessions", "delete from canvases"])
async def test_what_was_kept_for_a_run_or_a_canvas_goes_after_it(
    store: Store, artifacts: ArtifactStore, run_id: RunId, gone: str
) -> None:
    kept = await stored(artifacts, b"a")
    canvas_id = await a_canvas(store)
    if "sessions" in gone:
        await artifacts.add_references(OWNER, [kept.artifact_id], run_id=run_id)
    else:
        await artifacts.add_references(OWNER, [kept.artifact_id], canvas_id=canvas_id)
    await make_old(store)
    assert await sweep(artifacts) == []
    await store.sql(gone)
    assert await sweep(artifacts) == [kept.blob_key]


async def test_after_the_sweep_the_same_content_is_a_new_row_with_a_new_blob(
    store: Store, artifacts: ArtifactStore
) -> None:
    before = await stored(artifacts, b"a")
    await make_old(store)
    assert await sweep(artifacts) == [before.blob_key]
    after = await stored(artifacts, b"a")
    assert after.blob_key != before.blob_key


@pytest.mark.parametrize("limit", [1, 2, 7, 8, 100])
async def test_the_sweep_comes_by_every_row_in_steps_of_any_length(
    store: Store, artifacts: ArtifactStore, limit: int
) -> None:
    mallory = await store.add_user("mallory")
    made = [await stored(artifacts, bytes([n]), user) for user in (OWNER, mallory) for n in range(4)]
    await make_old(store)
    kept = await stored(artifacts, b"\x02", mallory)
    assert sorted(await sweep(artifacts, limit)) == sorted(
        one.blob_key for one in made if one.blob_key != kept.blob_key
    )


@case("D7")
async def test_references_and_sweeps_at_the_same_moment_never_leave_one_without_the_other(
    store: Store, artifacts: ArtifactStore, run_id: RunId
) -> None:
    """Either the reference was first, and the artifact stays; or the sweep was, and there is no reference."""
    ids = [(await stored(artifacts, b"%d" % n)).artifact_id for n in range(150)]
    await make_old(store)

    async def sweep_often() -> None:
        for _ in range(10):
            await sweep(artifacts, 10)

    await asyncio.gather(
        sweep_often(),
        *(artifacts.add_references(OWNER, [one], run_id=run_id) for one in reversed(ids)),
        sweep_often(),
    )
    rows = {row["artifact_id"] for row in await store.sql("select artifact_id from artifacts")}
    references = {row["artifact_id"] for row in await store.sql("select artifact_id from artifact_refs")}
    assert rows == references


# SQLite has one writer, so its transactions never overlap.
ON_POSTGRES = pytest.mark.parametrize("kind", ["postgres"])


@ON_POSTGRES
async def test_a_reference_under_way_holds_the_sweep_off_without_making_it_wait(
    store: Store, artifacts: ArtifactStore, run_id: RunId
) -> None:
    kept = await stored(artifacts, b"a")
    await make_old(store)
    async with other_connection(store) as other, other.transaction():
        await other.execute(
            f"insert into artifact_refs (user_id, artifact_id, run_id) values ('owner', '{kept.artifact_id}', '{run_id}')"
        )
        assert await asyncio.wait_for(sweep(artifacts), TIMEOUT_SECONDS) == []
    assert await sweep(artifacts) == []
    assert await artifacts.get(OWNER, kept.artifact_id) == kept


@ON_POSTGRES
async def test_a_reference_to_what_is_being_swept_waits_and_finds_it_gone(
    store: Store, artifacts: ArtifactStore, run_id: RunId
) -> None:
    gone = await stored(artifacts, b"a")
    async with other_connection(store) as other, other.transaction():
        await other.execute(f"delete from artifacts where artifact_id = '{gone.artifact_id}'")
        referring = asyncio.create_task(artifacts.add_references(OWNER, [gone.artifact_id], run_id=run_id))
        await wait_for_blocked_statement(other)
    await referring
    assert await count(store, "artifact_refs") == 0


@ON_POSTGRES
@pytest.mark.parametrize("step", ["claim", "mark"])
async def test_whoever_takes_several_takes_them_in_one_order(
    store: Store, artifacts: ArtifactStore, step: str
) -> None:
    """Else two that take the same ones would each hold what the other waits for."""
    made = sorted([await stored(artifacts, bytes([n])) for n in range(8)], key=lambda one: one.artifact_id)
    backwards = made[::-1]
    async with other_connection(store) as other, other.transaction():
        await other.execute(
            f"update artifacts set touched_at = now() where artifact_id = '{made[0].artifact_id}'"
        )
        if step == "claim":
            new_ones = [
                NewArtifact(one.artifact_id, one.size, one.media_type, aged_key()) for one in backwards
            ]
            taking = asyncio.create_task(artifacts.claim(OWNER, new_ones))
        else:
            taking = asyncio.create_task(artifacts.mark_stored(OWNER, backwards))
        await wait_for_blocked_statement(other)
        await other.execute("update artifacts set touched_at = now()", timeout=TIMEOUT_SECONDS)
    assert len(await taking) == 8


@rule("CC-08")
async def test_no_column_of_the_tables_could_hold_pixels(store: Store) -> None:
    for table in ("artifacts", "artifact_refs"):
        types = {column.type for column in (await store.columns(table)).values()}
        assert not types & {"bytea", "blob", "jsonb"}


# --- blobs without a row ----------------------------------------------------------------------------------------------


async def test_a_blob_is_unknown_when_it_is_old_and_no_row_has_it(
    store: Store, artifacts: ArtifactStore
) -> None:
    known = await stored(artifacts, b"a")
    aged = aged_key(GRACE + 60)
    await store.sql(f"update artifacts set blob_key = '{aged}'")
    old, young, other_users = aged_key(GRACE + 60), aged_key(GRACE - 60), aged_key(GRACE + 60, "gone")  # type: ignore[arg-type]
    asked = {
        key: blob_created_at(key) or datetime.now(UTC)
        for key in (known.blob_key, aged, old, young, other_users)
    }
    assert sorted(await artifacts.find_unknown_blobs(asked, GRACE)) == sorted([old, other_users])
