"""What is Postgres alone: the bell across instances, the combiner, plans that stay on their index."""

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
from easel.stores.postgres.notifier import MAX_PAYLOAD_LENGTH, _packed  # pyright: ignore[reportPrivateUsage]
from easel.stores.postgres.runs import SQL
from tests.requirements import case, rule
from tests.stores.harness import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


@pytest_asyncio.fixture
async def two(database_url: str) -> AsyncIterator[tuple[PostgresDatabase, PostgresDatabase]]:
    """Two instances over one database."""
    first, second = [await open_postgres(database_url, timeout=TIMEOUT_SECONDS) for _ in range(2)]
    await first.migrate()
    yield first, second
    await first.close()
    await second.close()


async def connected(databases: Sequence[PostgresDatabase]) -> None:
    """Whoever rings now is heard."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        for one in databases:
            await one.notifier.connected.wait()


class Heard:
    """What one instance hears, in order."""

    def __init__(self, database: PostgresDatabase) -> None:
        self.notifications: asyncio.Queue[Notification] = asyncio.Queue()
        database.notifier.listen(self.notifications.put_nowait)

    async def next(self) -> Notification:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self.notifications.get()


async def test_a_ring_is_heard_on_every_instance_and_once_on_its_own(
    two: tuple[PostgresDatabase, PostgresDatabase],
):
    here, there = Heard(two[0]), Heard(two[1])
    await connected(two)
    for notification in (
        RunAppended(RunId("run_1"), 7),
        RunReady(anywhere=True),
        CancelRequested(RunId("run_1")),
    ):
        two[0].notifier.notify(notification)
        assert await here.next() == notification
        assert await there.next() == notification
    assert here.notifications.empty()


async def test_rings_of_one_log_that_wait_together_are_one_ring(
    two: tuple[PostgresDatabase, PostgresDatabase],
):
    there = Heard(two[1])
    two[0].notifier.listen(lambda _: None)
    await connected(two)
    for seq in range(1, 1_001):
        two[0].notifier.notify(RunAppended(RunId("run_1"), seq))
    assert await there.next() == RunAppended(RunId("run_1"), 1_000)
    assert there.notifications.empty()


@case("E6")
@rule("RX-11")
async def test_a_bell_whose_connection_was_ended_mends_itself(
    two: tuple[PostgresDatabase, PostgresDatabase], database_url: str
):
    there = Heard(two[1])
    two[0].notifier.listen(lambda _: None)
    axe = await asyncpg.connect(database_url)
    for round_number in range(3):
        await connected(two)
        await axe.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'easel bell'"
        )
        heard = RunAppended(RunId("run_1"), round_number)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while there.notifications.empty() or there.notifications.get_nowait() != heard:
                two[0].notifier.notify(heard)  # as the next event of the log would
                await asyncio.sleep(0.05)
    await axe.close()


def test_rings_are_packed_into_payloads_that_postgres_takes():
    texts = [f"g{n}.run_{n:026}" for n in range(1_000)]
    packed = _packed(texts)
    assert [text for payload in packed for text in payload.split(" ")] == texts
    assert all(len(payload) < MAX_PAYLOAD_LENGTH for payload in packed)
    assert len(packed) < 10


async def test_what_is_asked_while_a_call_is_under_way_goes_into_the_next_together():
    served: list[list[int]] = []
    first_is_in, go_on = asyncio.Event(), asyncio.Event()

    async def serve(items: Sequence[int]) -> list[int]:
        served.append(list(items))
        first_is_in.set()
        await go_on.wait()
        return [item * 10 for item in items]

    combiner = AppendBatcher(serve, most=4, lanes=1)
    asked = [asyncio.create_task(combiner.submit(n)) for n in range(6)]
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await first_is_in.wait()
    asked += [asyncio.create_task(combiner.submit(n)) for n in range(6, 9)]
    await asyncio.sleep(0)
    go_on.set()
    assert await asyncio.gather(*asked) == [n * 10 for n in range(9)]
    assert [len(batch) for batch in served] == [4, 4, 1] or served[0] == [0]
    assert max(map(len, served)) <= 4


async def test_a_call_that_fails_is_told_to_those_in_it_and_the_combiner_goes_on():
    async def serve(items: Sequence[int]) -> list[int]:
        if 1 in items:
            raise Unavailable(what="It")
        return list(items)

    combiner = AppendBatcher(serve, most=1, lanes=1)
    answers = await asyncio.gather(*[combiner.submit(n) for n in range(3)], return_exceptions=True)
    assert [answers[0], answers[2]] == [0, 2]
    assert isinstance(answers[1], Unavailable)


async def test_one_bad_item_harms_no_other():
    async def serve(items: Sequence[int]) -> list[int]:
        if 1 in items:
            raise ValueError("this one cannot be stored")
        return list(items)

    combiner = AppendBatcher(serve, most=8, lanes=1)
    answers = await asyncio.gather(*[combiner.submit(n) for n in range(4)], return_exceptions=True)
    assert [answers[0], *answers[2:]] == [0, 2, 3]
    assert isinstance(answers[1], ValueError)


@case("J11")
@rule("RX-22")
async def test_claims_stay_on_the_index_and_read_little_while_old_rows_are_pinned(
    two: tuple[PostgresDatabase, PostgresDatabase], database_url: str
):
    """Counted in pages, not in time: dead rows that nobody can clean up must not be walked through by every claim."""
    runs = two[0].runs
    pin = await asyncpg.connect(database_url)
    await pin.execute("begin isolation level repeatable read; select 1")
    await pin.fetchval("select count(*) from runs")
    eye = await asyncpg.connect(database_url)
    await eye.execute(
        """
        insert into sessions (user_id, session_id) select 'owner', 'churn' || n from generate_series(1, 20000) n;
        insert into runs (run_id, user_id, session_id, status, input_text, turn_no)
          select 'run_churn' || n, 'owner', 'churn' || n, 'queued', 'noop', nextval('run_turns') from generate_series(1, 20000) n;
        update runs set status = 'cancelled', finished_at = now() where status = 'queued';
        """
    )
    for n in range(8):
        await runs.enqueue(NewRun(new_run_id(), OWNER, SessionId(f"fresh{n}"), "noop", 3))
    statement = SQL["claim_queued"]

    async def pages(after_turn: int) -> int:
        opening = {"opening": "{}", "event_type": "run.start", "visibility": "public"}
        given = {
            "worker_id": WorkerId("w"),
            "room": 4,
            "seconds": 15.0,
            "after_turn": after_turn,
            "prefer_seconds": 0.1,
            **opening,
        }
        plan = await eye.fetch(
            "explain (analyze, buffers, format json) " + statement.sql, *statement.arguments(given)
        )
        found: dict[str, Any] = json.loads(plan[0][0])[0]["Plan"]
        assert "Seq Scan" not in str(found)
        return found["Shared Hit Blocks"] + found["Shared Read Blocks"]

    everywhere = await pages(0)
    near = await pages(20_000 - 1_000)
    assert near * 3 < everywhere, f"a claim near the end reads {near} pages, one from the start {everywhere}"
    await pin.close()
    await eye.close()


async def test_a_wrong_address_is_explained():
    with pytest.raises(BadSettings):
        await open_postgres("postgresql://nobody@127.0.0.1:not-a-port/x")
    with pytest.raises(Unavailable):
        await open_postgres("postgresql://nobody@127.0.0.1:1/x", timeout=1)


@case("D3")
async def test_when_no_connection_is_free_the_answer_is_unavailable_and_not_a_hang(database_url: str):
    narrow = await open_postgres(database_url, pool=1, timeout=TIMEOUT_SECONDS)
    try:
        await narrow.migrate()
        async with narrow.connection():
            narrow.timeout = 1.0  # for whoever waits for a connection, and not for the machine
            with pytest.raises(Unavailable):
                await narrow.runs.queue_depth()
            narrow.timeout = TIMEOUT_SECONDS
        assert (await narrow.runs.queue_depth()).ready == 0
    finally:
        await narrow.close()


async def test_a_connection_that_breaks_while_it_is_given_back_fails_nothing(
    database_url: str, monkeypatch: pytest.MonkeyPatch
):
    """What was asked has been answered by then."""
    real, broke = asyncpg.Pool.release, list[Any]()

    async def release(pool: Any, lent: Any, *, timeout: float | None = None) -> None:
        broke.append(lent)
        await real(pool, lent, timeout=timeout)
        raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")

    database = await open_postgres(database_url)
    monkeypatch.setattr(asyncpg.Pool, "release", release)
    try:
        assert await database.schema_version() == 0
        assert broke
    finally:
        await database.close()


async def test_two_instances_that_start_together_migrate_once(database_url: str):
    many = [await open_postgres(database_url, timeout=TIMEOUT_SECONDS) for _ in range(4)]
    try:
        applied = await asyncio.gather(*[one.migrate() for one in many])
    finally:
        for one in many:
            await one.close()
    all_of_them = [f"{one.version:04} {one.name}" for one in migrations.missing("postgres", set())]
    assert all_of_them[0] == "0001 spine"
    assert sorted(applied) == [[], [], [], all_of_them]
