"""The limits of accounts on every store: runs at once, queued runs, counts of instances, bytes and tokens."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.account_limits import Counts
from easel.core.artifact.artifact import NewArtifact
from easel.core.run.batch import QueueDepth
from easel.core.run.status import Status
from easel.errors import TooMany
from easel.ids import OWNER, ArtifactId, SessionId
from easel.stores.postgres import PostgresDatabase, open_postgres
from easel.stores.postgres.runs import PostgresRuns
from easel.stores.sqlite.runs import SqliteRuns
from tests.stores.harness import (
    CLAIM_SECONDS,
    TIMEOUT_SECONDS,
    A,
    B,
    Store,
    assert_stored,
    closing_events,
    ending_batch,
    get_run,
    new_run,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from easel.core.artifact.artifact import Artifact
    from easel.core.run.run import Claim, NewRun
    from easel.ids import AccountId


def limited(store: Store, max_runs: int) -> Any:
    """Return the runs of the same database with a limit of runs at once."""
    kind = SqliteRuns if store.kind == "sqlite" else PostgresRuns
    return kind(store.database, max_account_runs=max_runs)  # pyright: ignore[reportArgumentType]


async def enqueue(runs: Any, *sessions: str, account: AccountId = OWNER) -> list[NewRun]:
    news = [new_run(session, user=account) for session in sessions]
    for new in news:
        await runs.enqueue(new)
    return news


async def claim(runs: Any, capacity: int = 100) -> list[Claim]:
    return await runs.claim_queued(A, capacity, CLAIM_SECONDS, 0)


# --- runs at once -------------------------------------------------------------------------------------------


async def test_account_executes_at_most_so_many_runs_and_holds_up_no_other(store: Store):
    runs, other = limited(store, 2), await store.add_user("other")
    mine = await enqueue(runs, *map(str, range(5)))
    theirs = await enqueue(runs, "1", account=other)
    assert await runs.queue_depth() == QueueDepth(ready=3, waiting=3, running=0)
    claims = await claim(runs)
    assert {one.run_id for one in claims} == {mine[0].run_id, mine[1].run_id, theirs[0].run_id}
    assert await claim(runs) == []
    first = next(one for one in claims if one.run_id == mine[0].run_id)
    assert assert_stored(await runs.append(ending_batch(first, 1))).turn_passed
    assert [one.run_id for one in await claim(runs)] == [mine[2].run_id], "the one that waited longest"
    assert await claim(runs) == []


async def test_run_that_waits_for_its_session_waits_for_a_slot_afterwards(store: Store):
    runs = limited(store, 1)
    first, second, third = await enqueue(runs, "talk", "talk", "other")
    for expected in (first, second, third):
        [one] = await claim(runs)
        assert one.run_id == expected.run_id
        answer = assert_stored(await runs.append(ending_batch(one, 1)))
        assert answer.turn_passed == (expected is not third)


async def test_cancelled_run_gives_its_slot_to_the_next(store: Store):
    runs = limited(store, 1)
    ready, waiting, last = await enqueue(runs, "1", "2", "3")
    assert not (await runs.request_cancel(OWNER, waiting.run_id, closing_events(waiting.run_id))).turn_passed
    assert (await runs.request_cancel(OWNER, ready.run_id, closing_events(ready.run_id))).turn_passed
    assert [one.run_id for one in await claim(runs)] == [last.run_id]
    assert (await get_run(runs, waiting.run_id)).status is Status.CANCELLED


async def test_run_of_a_deleted_session_gets_no_slot(store: Store):
    runs = limited(store, 1)
    _, deleted, last = await enqueue(runs, "1", "2", "3")
    [first] = await claim(runs)
    assert await store.database.sessions.delete(OWNER, SessionId("2")) == [deleted.run_id]
    assert assert_stored(await runs.append(ending_batch(first, 1))).turn_passed
    assert [one.run_id for one in await claim(runs)] == [last.run_id]


async def test_taken_over_and_released_runs_keep_their_slot(store: Store):
    runs = limited(store, 1)
    first, second = await enqueue(runs, "1", "2")
    [one] = await claim(runs)
    await store.expire_claim(one.run_id)
    [again] = await runs.claim_expired(B, 5, CLAIM_SECONDS)
    assert await claim(runs) == []
    assert await runs.release_claim(again)
    [again] = await claim(runs)
    assert again.run_id == first.run_id
    assert assert_stored(await runs.append(ending_batch(again, 1))).turn_passed
    assert [one.run_id for one in await claim(runs)] == [second.run_id]


@pytest.mark.parametrize("changed, claimed", [(0, 4), (3, 2)])
async def test_changed_limit_applies_to_waiting_runs(store: Store, changed: int, claimed: int):
    runs = limited(store, 1)
    await enqueue(runs, *map(str, range(5)))
    assert len(await claim(runs)) == 1
    restarted = limited(store, changed)
    assert await restarted.give_slots() == claimed
    assert len(await claim(restarted)) == claimed
    assert await restarted.give_slots() == 0


@asynccontextmanager
async def second_instance(store: Store) -> AsyncIterator[Any]:
    if store.kind == "sqlite":
        yield store.database
        return
    assert isinstance(store.database, PostgresDatabase)
    database = await open_postgres(store.database.url, timeout=TIMEOUT_SECONDS)
    yield database
    await database.close()


async def test_limit_holds_and_no_run_is_forgotten_while_runs_come_and_go_at_once(store: Store):
    """Two instances enqueue, end and cancel at the same time."""
    total, most = 60, 3
    async with second_instance(store) as database:
        queues = [limited(store, most), limited(Store(store.kind, database, store.folder), most)]
        news = [new_run(f"s{n % 20}") for n in range(total)]
        peak, ended = 0, 0

        async def add(nth: int, new: NewRun) -> None:
            await queues[nth % 2].enqueue(new)
            if nth % 7 == 0:
                await queues[nth % 2].request_cancel(OWNER, new.run_id, closing_events(new.run_id))

        async def work(nth: int) -> None:
            nonlocal peak, ended
            while not adding.done() or (await queues[nth].queue_depth()) != QueueDepth(0, 0, 0):
                for one in await queues[nth].claim_queued(A, 5, CLAIM_SECONDS, 0):
                    peak = max(peak, (await queues[nth].queue_depth()).running)
                    await queues[nth].append(ending_batch(one, 1))
                    ended += 1
                await asyncio.sleep(0)

        async def add_all() -> None:
            await asyncio.gather(*(add(nth, new) for nth, new in enumerate(news)))

        adding = asyncio.ensure_future(add_all())
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await asyncio.gather(adding, work(0), work(1))
    rows = await store.sql("select status, count(*) as n from runs group by status")
    assert {row["status"] for row in rows} <= {"completed", "cancelled"}
    assert sum(row["n"] for row in rows) == total
    assert 0 < peak <= most


# --- queued runs --------------------------------------------------------------------------------------------


async def test_queued_runs_of_an_account_are_refused_at_its_limit_and_change_nothing(store: Store):
    runs, other = store.runs, await store.add_user("other")

    def limited_run(session: str, account: AccountId = OWNER, key: str | None = None) -> NewRun:
        return replace(new_run(session, user=account, key=key, digest="d"), max_queued=2)

    assert (await runs.enqueue(limited_run("a", key="k"))).queued_count == 1
    assert (await runs.enqueue(limited_run("a"))).queued_count == 2, "also those that wait for their session"
    with pytest.raises(TooMany) as refused:
        await runs.enqueue(limited_run("new"))
    assert refused.value.details["limit"] == "queued_runs"
    assert refused.value.retry_after == 5
    assert [row["session_id"] for row in await store.sql("select session_id from sessions")] == ["a"]
    assert not (await runs.enqueue(limited_run("a", key="k"))).is_new, "a repetition needs no place"
    assert (await runs.enqueue(limited_run("a", other))).is_new
    assert (await runs.enqueue(new_run("b"))).queued_count is None, "without a limit nothing is counted"
    await claim(runs)
    assert (await runs.enqueue(limited_run("c"))).queued_count == 2


# --- counts of instances ------------------------------------------------------------------------------------


async def test_instances_read_the_counts_of_each_other_and_not_their_own(store: Store):
    usage = store.database.usage
    assert await usage.exchange("one", {"anna": Counts(10, 2, 1), "ben": Counts(1)}, 60) == {}
    assert await usage.exchange("two", {"anna": Counts(5, 1, 0)}, 60) == {"anna": Counts(10, 2, 1)}
    assert await usage.exchange("three", {"anna": Counts(), "ben": Counts()}, 60) == {
        "anna": Counts(15, 3, 1),
        "ben": Counts(1),
    }
    assert await usage.exchange("one", {"anna": Counts(12, 0, 0)}, 60) == {"anna": Counts(5, 1, 0)}
    assert await usage.exchange("two", {"anna": Counts(5, 1, 0)}, 60) == {"anna": Counts(12, 0, 0)}


async def test_counts_that_no_instance_renews_expire_and_are_deleted(store: Store):
    usage = store.database.usage
    await usage.exchange("stopped", {"anna": Counts(10, 2, 1)}, 0)
    assert await usage.exchange("one", {"anna": Counts()}, 60) == {}
    await usage.delete_expired()
    assert [row["instance_id"] for row in await store.sql("select instance_id from usage_counts")] == ["one"]


# --- totals -------------------------------------------------------------------------------------------------

SIZES = {f"art_{name * 64}": size for name, size in (("a", 100), ("b", 20), ("c", 3))}


async def stored_bytes(store: Store, account: AccountId = OWNER) -> int:
    true = "true" if store.kind == "postgres" else "1"
    [row] = await store.sql(
        "select coalesce(sum(size), 0) as size from artifacts"
        f" where is_stored = {true} and account_id = '{account}'"
    )
    total = (await store.database.usage.totals(account, "2026-01-01")).stored_bytes
    assert total == row["size"]
    return total


async def test_stored_bytes_are_those_of_the_stored_artifacts_after_every_statement(store: Store):
    artifacts, other = store.database.artifacts, await store.add_user("other")
    new = [NewArtifact(ArtifactId(name), size, "text/plain", f"key{size}") for name, size in SIZES.items()]
    claimed = await artifacts.claim(OWNER, new)
    assert await stored_bytes(store) == 0
    await artifacts.mark_stored(OWNER, claimed[:2])
    await artifacts.mark_stored(OWNER, claimed[:2])
    assert await stored_bytes(store) == sum(one.size for one in claimed[:2])
    upload = ArtifactId("new_upload")
    for _ in range(2):  # the content exists the second time
        await artifacts.claim(OWNER, [NewArtifact(upload, 0, "text/plain", "upload")])
        await artifacts.complete_upload(
            OWNER, upload, replace(claimed_as_new(claimed[2]), blob_key="up"), None
        )
    assert await stored_bytes(store) == 123
    await artifacts.claim(other, [replace(one, blob_key=f"their {one.blob_key}") for one in new])
    assert await stored_bytes(store, other) == 0
    swept = await artifacts.delete_orphans([(OWNER, claimed[0].artifact_id)], -60)
    assert len(swept) == 1
    assert await stored_bytes(store) == 123 - claimed[0].size
    await store.sql("delete from artifacts")
    assert await stored_bytes(store) == 0


def claimed_as_new(artifact: Artifact) -> NewArtifact:
    return NewArtifact(artifact.artifact_id, artifact.size, artifact.media_type, artifact.blob_key)


async def test_model_tokens_are_counted_per_account_and_day(store: Store):
    usage, other = store.database.usage, await store.add_user("other")
    await usage.add_model_tokens(OWNER, "2026-01-01", 10)
    await usage.add_model_tokens(OWNER, "2026-01-01", 5)
    await usage.add_model_tokens(other, "2026-01-01", 1)
    assert (await usage.totals(OWNER, "2026-01-01")).model_tokens == 15
    assert (await usage.totals(OWNER, "2026-01-02")).model_tokens == 0
    await usage.add_model_tokens(OWNER, "2026-01-02", 7)
    assert (await usage.totals(OWNER, "2026-01-02")).model_tokens == 7
    await usage.add_model_tokens(OWNER, "2026-01-01", 2)  # of an instance whose clock is late
    assert (await usage.totals(OWNER, "2026-01-02")).model_tokens == 9
