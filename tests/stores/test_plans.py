"""Every statement of the stores reads few rows of a large database, on both databases.

A statement that reads a growing table fails here, whether by a scan, by an index that filters most rows away,
or by a sort. Exceptions have a reason each. A new parameter needs a row in `sample_arguments`, a new table
one in `filled_tables`.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg
import pytest
import pytest_asyncio

from easel.stores.named_sql import Statement
from easel.stores.postgres import PostgresDatabase, open_postgres
from easel.stores.sqlite.connection import Connector
from tests.stores import filled_tables
from tests.stores.harness import TIMEOUT_SECONDS
from tests.stores.statement_plans import Complaint, all_statements, check_postgres, check_sqlite
from tests.support.postgres import create_database, drop_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Container, Iterator
    from pathlib import Path

# Statements that read many rows, each with its reason.
EXCEPTIONS = {
    "connections.list_other_secrets": "read once by `easel settings rotate`; a few rows per user",
    "people.revoke_tokens_of": "the tokens of one person, when that person is disabled or deleted",
    "people.count_people": "read once at the start, and only while commands are not isolated",
    "secrets.list_other_secrets": "read once by `easel settings rotate`; a few rows per user",
    "settings.list_other_secrets": "read once by `easel settings rotate`; a few rows per user",
    "orders.list_appenders": "pg_database has one row per database",
    "nodes.sweep_nodes": "a row per connected node; an index on expires_at would be written by every renewal",
    "usage.delete_expired_counts": "a row per account in use; an index would be written by every exchange",
    "tokens.list_tokens": "returns every token; tokens are made by hand",
}


@pytest.fixture(scope="module")
def filled_url(postgres: str, migrated_url: str) -> Iterator[str]:
    """Return a Postgres database with many rows and fresh statistics."""
    url = create_database(postgres, template=migrated_url.rpartition("/")[2])

    async def fill() -> None:
        connection = await asyncpg.connect(url)
        await filled_tables.fill_postgres(connection)
        await connection.execute("analyze")
        await connection.close()

    asyncio.run(fill())
    yield url
    drop_database(postgres, url.rpartition("/")[2])


@pytest_asyncio.fixture
async def filled_postgres(filled_url: str) -> AsyncIterator[PostgresDatabase]:
    database = await open_postgres(filled_url, pool=1, timeout=TIMEOUT_SECONDS)
    async with database.connection() as connection:
        await connection.execute("set session_replication_role = replica")  # no cascades
    yield database
    await database.close()


@pytest.fixture(scope="module")
def filled_sqlite(
    migrated_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sqlite3.Connection]:
    """Return a connection to a SQLite file with many rows. The product collects no statistics."""
    path = tmp_path_factory.mktemp("filled") / "easel.db"
    shutil.copy(migrated_file, path)
    connection = Connector(path, "normal", 5.0).writer()
    filled_tables.fill_sqlite(connection)
    yield connection
    connection.close()


def report(complaints: list[Complaint]) -> str:
    """Return a line per statement and problem, with one set of arguments."""
    found = {f"{one.statement} {one.problem}": one.arguments for one in complaints}
    return "\n".join(f"{problem}, with {arguments}" for problem, arguments in found.items())


async def check_postgres_after(
    database: PostgresDatabase, change: str, names: Container[str]
) -> list[Complaint]:
    """Return the complaints about these statements after a change of the database, which is rolled back."""
    async with database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(change)
        complaints = [
            complaint
            for name, statement in all_statements("postgres")
            if name in names
            for complaint in await check_postgres(connection, name, statement)
        ]
        await transaction.rollback()
    return complaints


async def test_every_exception_is_necessary(
    filled_postgres: PostgresDatabase, filled_sqlite: sqlite3.Connection
):
    complaints = await check_postgres_after(filled_postgres, "select 1", EXCEPTIONS)
    for name, statement in all_statements("sqlite"):
        if name in EXCEPTIONS:
            complaints += check_sqlite(filled_sqlite, name, statement)
    assert {complaint.statement for complaint in complaints} == EXCEPTIONS.keys()


async def test_every_postgres_statement_reads_few_rows(filled_postgres: PostgresDatabase):
    names = {name for name, _ in all_statements("postgres")} - EXCEPTIONS.keys()
    complaints = await check_postgres_after(filled_postgres, "select 1", names)
    assert not complaints, report(complaints)


def test_every_sqlite_statement_reads_few_rows(filled_sqlite: sqlite3.Connection):
    complaints = [
        complaint
        for name, statement in all_statements("sqlite")
        if name not in EXCEPTIONS
        for complaint in check_sqlite(filled_sqlite, name, statement)
    ]
    assert not complaints, report(complaints)


DROPPED = [
    # index, statement that needs it
    ("runs_listing_idx", "runs.list_runs"),
    ("runs_status_listing_idx", "runs.list_runs_by_status"),
    ("runs_session_status_idx", "runs.list_session_runs_by_status"),
    ("executions_listing_idx", "executions.list_executions"),
    ("executions_status_idx", "executions.list_executions_by_status"),
    ("executions_ended_idx", "executions.prune_executions"),
    ("canvases_listing_idx", "canvases.list_canvases"),
    ("canvases_agent_listing_idx", "canvases.list_agent_canvases"),
    ("audit_account_idx", "audit.list_records"),
    ("audit_action_idx", "audit.list_records_of_action"),
    ("documents_session_idx", "documents.list_newest_documents"),
    ("documents_unreported_idx", "documents.list_unreported_drafts"),
    ("documents_leased_idx", "documents.list_expired_leases"),
    ("document_versions_revision_idx", "documents.read_revision"),
    ("messages_answer_idx", "turns.list_turns"),
]


@pytest.mark.parametrize("index, name", DROPPED)
async def test_postgres_check_fails_without_an_index(
    filled_postgres: PostgresDatabase, index: str, name: str
):
    assert await check_postgres_after(filled_postgres, f"drop index {index}", [name])


@pytest.mark.parametrize("session, ended", [("big", None), ("a5", ["leased5"])])
async def test_function_that_ends_leases_scans_no_table(
    filled_postgres: PostgresDatabase, session: str, ended: list[str] | None
):
    """Its statements have no plan that the other checks see."""
    call = "select end_leases('owner', $1, null, 'run', '{\"provenance\": {}}')"
    scans = "select relname, seq_scan from pg_stat_xact_user_tables where seq_scan > 0"
    async with filled_postgres.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        try:
            await connection.execute("insert into canvases select 'owner', 'leased5', 'main', '', '{}', '{}'")
            assert await connection.fetchval(call, session) == ended
            assert await connection.fetch(scans) == []
        finally:
            await transaction.rollback()


def test_sqlite_check_fails_without_an_index(filled_sqlite: sqlite3.Connection):
    changed = sqlite3.connect(":memory:", isolation_level=None)
    filled_sqlite.backup(changed)
    changed.execute("drop index executions_ended_idx")
    statement = dict(all_statements("sqlite"))["executions.prune_executions"]
    assert check_sqlite(changed, "prune_executions", statement)
    changed.close()


def test_check_fails_for_a_parameter_without_a_sample(filled_sqlite: sqlite3.Connection):
    statement = Statement("new", "", "select 1 from runs where run_id = :mood", ("mood",))
    with pytest.raises(LookupError, match="new has parameters without a sample: mood"):
        check_sqlite(filled_sqlite, "runs.new", statement)


async def test_every_table_is_filled_or_cannot_grow(
    filled_postgres: PostgresDatabase, filled_sqlite: sqlite3.Connection
):
    async with filled_postgres.connection() as connection:
        tables = await connection.fetch("select tablename from pg_tables where schemaname = 'public'")
        counts = {
            ("postgres", name): await connection.fetchval(f"select count(*) from {name}")
            for (name,) in tables
        }
    for (name,) in filled_sqlite.execute("select name from sqlite_schema where type = 'table'").fetchall():
        [(counts["sqlite", name],)] = filled_sqlite.execute(f"select count(*) from {name}").fetchall()
    few = [
        f"{dialect} {name}"
        for (dialect, name), count in counts.items()
        if count < 1_000 and name not in filled_tables.BOUNDED_TABLES[dialect]
    ]
    assert few == []


def bloat(index: str) -> str:
    """Return SQL that makes an index as large, and as expensive to the planner, as one in use for long."""
    return f"alter index {index} set (fillfactor = 10); reindex index {index}"


PINNED = [
    # column with pinned statistics, statement that needs it, state of the table
    ("run_events", "run_id", "runs.events_after", bloat("run_events_pkey")),
    ("audit", "account_id", "audit.list_records", "select 1"),
    ("canvases", "agent_id", "canvases.list_agent_canvases", "select 1"),
    ("runs", "session_id", "runs.list_session_runs", bloat("runs_session_idx")),
    ("runs", "status", "runs.list_runs_by_status", "delete from runs where status <> 'completed'"),
    ("executions", "canvas_id", "executions.execution_by_request", "select 1"),
    (
        "executions",
        "status",
        "executions.list_executions_by_status",
        f"delete from executions where status <> 'completed'; {bloat('executions_status_idx')}",
    ),
]


@pytest.mark.parametrize(
    "table, column, name, state", PINNED, ids=[f"{table}.{column}" for table, column, *_ in PINNED]
)
async def test_pinned_statistics_keep_a_plan_that_reads_few_rows(
    filled_postgres: PostgresDatabase, table: str, column: str, name: str, state: str
):
    """The real statistics lead to a plan that reads the whole log or table."""
    unpin = f"alter table {table} alter column {column} reset (n_distinct)"
    pinned = await check_postgres_after(filled_postgres, f"{state}; analyze {table}", [name])
    assert not pinned, report(pinned)
    assert await check_postgres_after(filled_postgres, f"{state}; {unpin}; analyze {table}", [name])


# --- foreign keys -------------------------------------------------------------------------------------------
# A delete searches every table that refers to the row, which no plan shows. Users are never deleted.


@dataclass(frozen=True)
class Index:
    columns: list[str]
    condition: str | None  # of a partial index

    def serves(self, key: list[str]) -> bool:
        """Return whether a search for these columns can use the index."""
        conditions = {f"{column} is not null" for column in key} | {None}
        return set(self.columns[: len(key)]) == set(key) and self.condition in conditions


def unindexed(keys: list[tuple[str, list[str]]], indexes: list[tuple[str, Index]]) -> set[str]:
    return {
        f"{table}({', '.join(key)})"
        for table, key in keys
        if not any(index.serves(key) for indexed, index in indexes if indexed == table)
    }


async def test_every_foreign_key_of_postgres_has_an_index(filled_postgres: PostgresDatabase):
    async with filled_postgres.connection() as connection:
        keys = await connection.fetch(
            "select c.conrelid::regclass::text, array(select a.attname::text from unnest(c.conkey)"
            " with ordinality as k(number, nth) join pg_attribute a on a.attrelid = c.conrelid"
            " and a.attnum = k.number order by k.nth)"
            " from pg_constraint c where c.contype = 'f' and c.confrelid <> 'accounts'::regclass"
        )
        indexes = await connection.fetch(
            "select i.indrelid::regclass::text, array(select pg_get_indexdef(i.indexrelid, n, true)"
            " from generate_series(1, i.indnkeyatts) n),"
            " lower(trim(both '()' from pg_get_expr(i.indpred, i.indrelid)))"
            " from pg_index i where i.indisvalid"
        )
    assert len(keys) > 10
    assert unindexed(
        [(table, key) for table, key in keys],
        [(table, Index(columns, condition)) for table, columns, condition in indexes],
    ) == set()  # fmt: skip


def test_every_foreign_key_of_sqlite_has_an_index(filled_sqlite: sqlite3.Connection):
    keys = filled_sqlite.execute(
        'select t.name, group_concat(k."from") from sqlite_schema t, pragma_foreign_key_list(t.name) k'
        " where t.type = 'table' and k.\"table\" <> 'accounts' group by t.name, k.id"
    ).fetchall()
    indexes = filled_sqlite.execute(
        "select t.name, group_concat(c.name), max(s.sql) from sqlite_schema t, pragma_index_list(t.name) i,"
        " pragma_index_info(i.name) c left join sqlite_schema s on s.name = i.name"
        " where t.type = 'table' group by t.name, i.name"
    ).fetchall()
    assert len(keys) > 10
    assert unindexed(
        [(table, key.split(",")) for table, key in keys],
        [
            (table, Index(columns.split(","), (sql or "").partition(" where ")[2] or None))
            for table, columns, sql in indexes
        ],
    ) == set()  # fmt: skip
