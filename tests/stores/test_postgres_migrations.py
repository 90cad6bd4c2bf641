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


async def test_instance_stops_waiting_for_the_migration_of_another(
    instances: list[PostgresDatabase], other: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(migrator, "MAX_WAIT_SECONDS", 0.0)
    await other.execute("select pg_advisory_lock($1)", migrator.MIGRATION_LOCK)
    with pytest.raises(Unavailable, match="another instance"):
        await instances[0].migrate()


async def test_migrations_do_not_record_that_a_table_is_empty(observer: asyncpg.Connection[Any]):
    """Postgres plans a full scan of a table that it knows to be empty, and keeps that plan as it grows."""
    known_to_be_empty = await observer.fetch(
        "select relname from pg_class where relkind = 'r' and reltuples = 0"
        " and relnamespace = 'public'::regnamespace"
    )
    assert [row["relname"] for row in known_to_be_empty] == []
