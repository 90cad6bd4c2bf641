"""Behaviour of Postgres alone: notifications across instances, batched commits, plans."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
import pytest_asyncio

from easel.core.run.run import NewRun
from easel.core.stream.notifications import CancelRequested, Notification, RunAppended, RunReady
from easel.errors import BadSettings, Unavailable
from easel.ids import OWNER, RunId, SessionId, WorkerId, new_run_id
from easel.stores import migrations
from easel.stores.postgres import PostgresDatabase, open_postgres
from easel.stores.postgres.batcher import AppendBatcher
from easel.stores.postgres.notifier import MAX_PAYLOAD_LENGTH, _pack  # pyright: ignore[reportPrivateUsage]
from easel.stores.postgres.runs import SQL
from tests.requirements import case, rule
from tests.stores.harness import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


@pytest_asyncio.fixture
async def two(shared_url: str) -> AsyncIterator[tuple[PostgresDatabase, PostgresDatabase]]:
    """Open two instances on one database."""
    first, second = [await open_postgres(shared_url, timeout=TIMEOUT_SECONDS) for _ in range(2)]
    yield first, second
    await first.close()
    await second.close()


async def wait_until_connected(databases: Sequence[PostgresDatabase]) -> None:
    """Wait until the notifiers of these instances deliver notifications."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        for database in databases:
            await database.notifier.connected.wait()


class Listener:
    """The notifications that one instance receives, in order."""

    def __init__(self, database: PostgresDatabase) -> None:
        self.notifications: asyncio.Queue[Notification] = asyncio.Queue()
        database.notifier.listen(self.notifications.put_nowait)

    async def next(self) -> Notification:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self.notifications.get()


async def test_notification_reaches_every_instance_once(
    two: tuple[PostgresDatabase, PostgresDatabase],
):
    here, there = Listener(two[0]), Listener(two[1])
    await wait_until_connected(two)
    for notification in (
        RunAppended(RunId("run_1"), 7),
        RunReady(anywhere=True),
        CancelRequested(RunId("run_1")),
    ):
        two[0].notifier.notify(notification)
        assert await here.next() == notification
        assert await there.next() == notification
    assert here.notifications.empty()


async def test_pending_notifications_of_one_log_are_sent_as_one(
    two: tuple[PostgresDatabase, PostgresDatabase],
):
    there = Listener(two[1])
    two[0].notifier.listen(lambda _: None)
    await wait_until_connected(two)
    for seq in range(1, 1_001):
        two[0].notifier.notify(RunAppended(RunId("run_1"), seq))
    assert await there.next() == RunAppended(RunId("run_1"), 1_000)
    assert there.notifications.empty()


@case("E6")
@rule("RX-11")
async def test_notifier_reconnects_after_its_connection_was_terminated(
    two: tuple[PostgresDatabase, PostgresDatabase], shared_url: str
):
    there = Listener(two[1])
    two[0].notifier.listen(lambda _: None)
    admin = await asyncpg.connect(shared_url)
    for round_number in range(2):
        await wait_until_connected(two)
        await admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name = 'easel notifier'"
        )
        sent = RunAppended(RunId("run_1"), round_number)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while there.notifications.empty() or there.notifications.get_nowait() != sent:
                two[0].notifier.notify(sent)  # as the next event of the log would
                await asyncio.sleep(0.05)
    await admin.close()


def test_notifications_are_packed_into_payloads_within_the_postgres_limit():
    texts = [f"g{n}.run_{n:026}" for n in range(1_000)]
    packed = _pack(texts)
    assert [text for payload in packed for text in payload.split(" ")] == texts
    assert all(len(payload) < MAX_PAYLOAD_LENGTH for payload in packed)
    assert len(packed) < 10


async def test_items_submitted_during_a_call_share_the_next_call():
    served: list[list[int]] = []
    first_call_started, may_return = asyncio.Event(), asyncio.Event()

    async def serve(items: Sequence[int]) -> list[int]:
        served.append(list(items))
        first_call_started.set()
        await may_return.wait()
        return [item * 10 for item in items]

    batcher = AppendBatcher(serve, max_items=4, max_calls=1)
    submitted = [asyncio.create_task(batcher.submit(n)) for n in range(6)]
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await first_call_started.wait()
    submitted += [asyncio.create_task(batcher.submit(n)) for n in range(6, 9)]
    await asyncio.sleep(0)
    may_return.set()
    assert await asyncio.gather(*submitted) == [n * 10 for n in range(9)]
    assert [len(batch) for batch in served] == [4, 4, 1] or served[0] == [0]
    assert max(map(len, served)) <= 4


async def test_failed_call_fails_its_items_and_later_items_are_served():
    async def serve(items: Sequence[int]) -> list[int]:
        if 1 in items:
            raise Unavailable(what="It")
        return list(items)

    batcher = AppendBatcher(serve, max_items=1, max_calls=1)
    answers = await asyncio.gather(*[batcher.submit(n) for n in range(3)], return_exceptions=True)
    assert [answers[0], answers[2]] == [0, 2]
    assert isinstance(answers[1], Unavailable)


async def test_bad_item_fails_alone():
    async def serve(items: Sequence[int]) -> list[int]:
        if 1 in items:
            raise ValueError("this one cannot be stored")
        return list(items)

    batcher = AppendBatcher(serve, max_items=8, max_calls=1)
    answers = await asyncio.gather(*[batcher.submit(n) for n in range(4)], return_exceptions=True)
    assert [answers[0], *answers[2:]] == [0, 2, 3]
    assert isinstance(answers[1], ValueError)


@case("J11")
@rule("RX-22")
async def test_claims_use_the_index_and_read_few_pages_beside_dead_rows(
    own_url: str,
):
    """Count pages, not time: no claim may read through dead rows that vacuum cannot remove."""
    database = await open_postgres(own_url, timeout=TIMEOUT_SECONDS)
    runs = database.runs
    old_snapshot = await asyncpg.connect(own_url)
    await old_snapshot.execute("begin isolation level repeatable read; select 1")
    await old_snapshot.fetchval("select count(*) from runs")
    admin = await asyncpg.connect(own_url)
    await admin.execute(
        """
        insert into sessions (account_id, session_id)
          select 'owner', 'churn' || n from generate_series(1, 20000) n;
        insert into runs (run_id, account_id, session_id, status, input_text, turn_no)
          select 'run_churn' || n, 'owner', 'churn' || n, 'queued', 'noop', n + 1
            from generate_series(1, 20000) n;
        select setval('claimed_turns', 20001);
        update runs set status = 'cancelled', finished_at = now() where status = 'queued';
        """
    )
    for n in range(8):
        await runs.enqueue(NewRun(new_run_id(), OWNER, SessionId(f"fresh{n}"), "noop", 3))
    statement = SQL["claim_queued"]

    async def pages(after_turn: int) -> int:
        opening = {"opening": "{}", "event_type": "run.start", "visibility": "public"}
        arguments = {
            "worker_id": WorkerId("w"),
            "capacity": 4,
            "seconds": 15.0,
            "after_turn": after_turn,
            "prefer_seconds": 0.1,
            **opening,
        }
        plan = await admin.fetch(
            "explain (analyze, buffers, format json) " + statement.sql, *statement.arguments(arguments)
        )
        root: dict[str, Any] = json.loads(plan[0][0])[0]["Plan"]
        assert "Seq Scan" not in str(root)
        return root["Shared Hit Blocks"] + root["Shared Read Blocks"]

    from_start = await pages(0)
    near = await pages(20_000 - 1_000)
    assert near * 3 < from_start, f"a claim near the end reads {near} pages, one from the start {from_start}"
    await old_snapshot.close()
    await admin.close()
    await database.close()


async def test_wrong_address_is_bad_settings_and_unreachable_server_unavailable():
    with pytest.raises(BadSettings):
        await open_postgres("postgresql://nobody@127.0.0.1:not-a-port/x")
    with pytest.raises(Unavailable):
        await open_postgres("postgresql://nobody@127.0.0.1:1/x", timeout=1)


@case("D3")
async def test_exhausted_pool_is_unavailable_after_its_timeout(shared_url: str):
    small_pool = await open_postgres(shared_url, pool=1, timeout=TIMEOUT_SECONDS)
    try:
        async with small_pool.connection():
            small_pool.timeout = 0.1  # only for this wait, not for a slow machine
            with pytest.raises(Unavailable):
                await small_pool.runs.queue_depth()
            small_pool.timeout = TIMEOUT_SECONDS
        assert await small_pool.runs.queue_depth()
    finally:
        await small_pool.close()


async def test_connection_that_breaks_on_release_does_not_fail_its_statement(
    database_url: str, monkeypatch: pytest.MonkeyPatch
):
    real_release, released = asyncpg.Pool.release, list[Any]()

    async def release(pool: Any, connection: Any, *, timeout: float | None = None) -> None:
        released.append(connection)
        await real_release(pool, connection, timeout=timeout)
        raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")

    database = await open_postgres(database_url)
    monkeypatch.setattr(asyncpg.Pool, "release", release)
    try:
        assert await database.schema_version() == 0
        assert released
    finally:
        await database.close()


async def test_instances_that_start_together_migrate_once(database_url: str):
    instances = [await open_postgres(database_url, pool=1, timeout=TIMEOUT_SECONDS) for _ in range(4)]
    try:
        applied = await asyncio.gather(*[instance.migrate() for instance in instances])
    finally:
        for instance in instances:
            await instance.close()
    names = [migration.title for migration in migrations.available("postgres")]
    assert sorted(applied) == [[], [], [], names]
