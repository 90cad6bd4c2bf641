"""Migrations on a Postgres database that other connections use at the same time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
import pytest_asyncio

from easel.errors import Unavailable
from easel.stores import migrations
from easel.stores.migrations import Migration
from easel.stores.postgres import PostgresDatabase, migrator, open_postgres
from tests.requirements import case
from tests.stores.harness import TIMEOUT_SECONDS, wait_for_blocked_statement

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.slow

DEADLOCK_TIMEOUT = "select setting::int from pg_settings where name = 'deadlock_timeout'"  # milliseconds
ADD_COLUMN = Migration(9001, "mood", "alter table runs add column mood text")
ADD_INDEXES = Migration(
    9001,
    "indexes",
    """-- easel: no-transaction
-- Two indexes; the first one
-- has a comment.
create index concurrently if not exists probes_first_idx on probes(probed_at);

create unique index concurrently if not exists probes_second_idx
  on probes(probed_at) where only_row;
""",
)


@pytest_asyncio.fixture
async def instances(own_url: str) -> AsyncIterator[list[PostgresDatabase]]:
    """Open two instances on one database."""
    opened = [await open_postgres(own_url, pool=1, timeout=TIMEOUT_SECONDS) for _ in range(2)]
    yield opened
    for instance in opened:
        await instance.close()


@pytest_asyncio.fixture
async def other(own_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Open a connection of another program."""
    connection = await asyncpg.connect(own_url)
    yield connection
    await connection.close()


@pytest_asyncio.fixture
async def observer(own_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(own_url)
    yield connection
    await connection.close()


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Callable[[Migration], None]:
    """Return a function that adds a migration to those of this release."""
    released = migrations.available("postgres")
    monkeypatch.setattr(migrator, "MIN_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(migrator, "MAX_RETRY_SECONDS", 0.05)

    def add(migration: Migration) -> None:
        monkeypatch.setattr(migrations, "available", lambda _: [*released, migration])

    return add


async def valid_indexes(connection: asyncpg.Connection[Any], table: str = "probes") -> dict[str, bool]:
    """Return the indexes of a table, except its key, and whether each is valid."""
    rows = await connection.fetch(
        "select indexrelid::regclass::text as name, indisvalid from pg_index"
        " where indrelid = $1::text::regclass and not indisprimary",
        table,
    )
    return {row["name"]: row["indisvalid"] for row in rows}


@case("D6")
async def test_migration_of_a_locked_table_does_not_block_other_statements(
    instances: list[PostgresDatabase],
    other: asyncpg.Connection[Any],
    observer: asyncpg.Connection[Any],
    release: Callable[[Migration], None],
):
    release(ADD_COLUMN)
    reading = other.transaction()
    await reading.start()
    await other.fetch("select * from runs")  # conflicts with `alter table` until the transaction ends
    migration = asyncio.create_task(instances[0].migrate())
    for _ in range(3):
        await wait_for_blocked_statement(observer)
        # Waits behind the migration, which gives up before the transaction ends.
        assert await observer.fetchval("select count(*) from runs", timeout=TIMEOUT_SECONDS) == 0
    assert not migration.done()
    await reading.rollback()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert await migration == ["9001 mood"]
    assert await instances[1].migrate() == []


@case("D6")
async def test_migration_waits_now_and_then_until_autovacuum_gives_up_its_lock(
    instances: list[PostgresDatabase],
    other: asyncpg.Connection[Any],
    observer: asyncpg.Connection[Any],
    release: Callable[[Migration], None],
):
    """Autovacuum is interrupted by a statement that has waited for `deadlock_timeout`, never before."""
    release(ADD_COLUMN)
    has_waited = (
        "select count(*) from pg_stat_activity where datname = current_database()"
        " and wait_event_type = 'Lock' and clock_timestamp() - query_start > $1"
    )
    limit = timedelta(milliseconds=await other.fetchval(DEADLOCK_TIMEOUT))
    async with asyncio.timeout(TIMEOUT_SECONDS), other.transaction():
        await other.execute("lock table runs in share update exclusive mode")
        migration = asyncio.create_task(instances[0].migrate())
        while not await observer.fetchval(has_waited, limit):
            await observer.fetchval("select pg_sleep(0.02)")
    assert await migration == ["9001 mood"]


async def test_migration_fails_if_a_table_stays_locked_and_can_be_repeated(
    instances: list[PostgresDatabase],
    other: asyncpg.Connection[Any],
    release: Callable[[Migration], None],
    monkeypatch: pytest.MonkeyPatch,
):
    release(ADD_COLUMN)
    monkeypatch.setattr(migrator, "MAX_LOCK_SECONDS", 0.0)
    reading = other.transaction()
    await reading.start()
    await other.fetch("select * from runs")
    with pytest.raises(Unavailable, match="migration 9001"):
        await instances[0].migrate()
    await reading.rollback()
    assert await instances[1].migrate() == ["9001 mood"]  # the first one holds no lock


async def test_waiting_instance_does_not_delay_a_concurrent_index(
    instances: list[PostgresDatabase],
    other: asyncpg.Connection[Any],
    observer: asyncpg.Connection[Any],
    release: Callable[[Migration], None],
):
    release(ADD_INDEXES)
    writing = other.transaction()
    await writing.start()
    await other.execute("insert into probes (probed_at) values (now())")  # the index waits for its end
    both = [asyncio.create_task(instance.migrate()) for instance in instances]
    waiting = (
        "select exists (select 1 from pg_stat_activity where datname = current_database()"
        " and query like '%pg_try_advisory_lock%' and state = 'idle' and backend_xmin is null)"
    )
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await wait_for_blocked_statement(observer)
        while not await observer.fetchval(waiting):
            await observer.fetchval("select pg_sleep(0.01)")
        # Writes go on while the index is built.
        await observer.execute("insert into ended_sign_ins values ('s', 'owner', now())")
        await writing.commit()
        applied = await asyncio.gather(*both)
    assert sorted(applied) == [[], ["9001 indexes"]]
    assert await valid_indexes(observer) == {"probes_first_idx": True, "probes_second_idx": True}


async def test_instance_stops_waiting_for_the_migration_of_another(
    instances: list[PostgresDatabase], other: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(migrator, "MAX_WAIT_SECONDS", 0.0)
    await other.execute("select pg_advisory_lock($1)", migrator.MIGRATION_LOCK)
    with pytest.raises(Unavailable, match="another instance"):
        await instances[0].migrate()


async def test_invalid_index_is_built_again(
    instances: list[PostgresDatabase], observer: asyncpg.Connection[Any], release: Callable[[Migration], None]
):
    unique = "create unique index concurrently if not exists audit_hash_idx on audit(hash);"
    release(Migration(9001, "unique", f"-- easel: no-transaction\n{unique}\n"))
    await observer.execute(
        "insert into audit (seq, account_id, at, storage_class, action, record, hash)"
        " select n, 'owner', now(), 'ops', 'x', '', 'same' from generate_series(1, 2) n"
    )
    before = await instances[0].schema_version()
    with pytest.raises(asyncpg.UniqueViolationError):
        await instances[0].migrate()
    assert (await valid_indexes(observer, "audit"))["audit_hash_idx"] is False
    assert await instances[0].schema_version() == before
    await observer.execute("update audit set hash = seq::text")
    assert await instances[0].migrate() == ["9001 unique"]
    assert (await valid_indexes(observer, "audit"))["audit_hash_idx"] is True


async def test_index_migration_that_was_interrupted_is_completed_by_the_next(
    instances: list[PostgresDatabase],
    other: asyncpg.Connection[Any],
    observer: asyncpg.Connection[Any],
    release: Callable[[Migration], None],
):
    release(ADD_INDEXES)
    await observer.execute("create index probes_first_idx on probes(probed_at)")  # its first statement
    writing = other.transaction()
    await writing.start()
    await other.execute("insert into probes (probed_at) values (now())")
    interrupted = asyncio.create_task(instances[0].migrate())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await wait_for_blocked_statement(observer)
        await observer.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and query like '%index concurrently%'"
            " and pid <> pg_backend_pid()"
        )
        with pytest.raises(Unavailable):
            await interrupted
    assert await valid_indexes(observer) == {"probes_first_idx": True, "probes_second_idx": False}
    await writing.commit()
    assert await instances[1].migrate() == ["9001 indexes"]
    assert await valid_indexes(observer) == {"probes_first_idx": True, "probes_second_idx": True}


async def test_migrations_do_not_record_that_a_table_is_empty(observer: asyncpg.Connection[Any]):
    """Postgres plans a full scan of a table that it knows to be empty, and keeps that plan as it grows."""
    known_to_be_empty = await observer.fetch(
        "select relname from pg_class where relkind = 'r' and reltuples = 0"
        " and relnamespace = 'public'::regnamespace"
    )
    assert [row["relname"] for row in known_to_be_empty] == []


def test_migrations_without_a_transaction_have_only_index_statements_that_can_be_repeated():
    assert [name for name, _ in migrator.index_statements(ADD_INDEXES)] == [
        "probes_first_idx",
        "probes_second_idx",
    ]
    for migration in migrations.available("postgres"):
        if "concurrently" in migration.sql:
            assert migrator.index_statements(migration), migration.name
    for statement in (
        "create index concurrently a on b(c);",
        "create index if not exists a on b(c);",
        "update runs set mood = '';",
    ):
        with pytest.raises(ValueError, match="must consist of"):
            migrator.index_statements(Migration(1, "wrong", "-- easel: no-transaction\n" + statement))
