"""Helpers of the contract suite: open a store, run SQL behind it, and build runs, batches and claims.

Owns the differences between the databases (how a time is written, how a constraint fails), so that the tests
have none.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import asyncpg
import msgspec

from easel.core.run.batch import Appended, Batch
from easel.core.run.events import RunEvents
from easel.core.run.run import Claim, NewRun, Run
from easel.core.run.status import Status
from easel.host.deletions import DeletionPurge
from easel.ids import OWNER, AccountId, MessageId, RunId, SessionId, WorkerId, new_run_id
from easel.stores.blobs.store import open_blobs
from easel.stores.postgres import PostgresDatabase, open_postgres
from easel.stores.sqlite import SqliteDatabase, open_sqlite

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from easel.core.stream.envelope import Envelope
    from easel.core.stream.log import LoggedEvent
    from easel.host.ports import Notifier, RunStore

KINDS = ("sqlite", "postgres")
# Raised for a row that a constraint refuses.
CONSTRAINT_ERRORS = (sqlite3.IntegrityError, asyncpg.IntegrityConstraintViolationError)

A, B = WorkerId("wrk_a"), WorkerId("wrk_b")
CLAIM_SECONDS = 3600.0  # longer than any test
TIMEOUT_SECONDS = 30.0  # for a slow machine
_real_time_ns = time.time_ns  # the database's clock; tests replace the caller's


def database_clock() -> int:
    return _real_time_ns() // 1000


@dataclass(frozen=True)
class Column:
    type: str
    required: bool
    has_default: bool
    key_position: int  # within the primary key, from 1; 0 outside it


@dataclass
class Store:
    """One open database of either kind."""

    kind: str
    database: SqliteDatabase | PostgresDatabase
    folder: Path
    runs: RunStore = field(init=False)
    notifier: Notifier = field(init=False)

    def __post_init__(self) -> None:
        self.runs = self.database.runs
        self.notifier = self.database.notifier

    async def sql(self, text: str) -> list[dict[str, Any]]:
        """Run a statement on the database, bypassing the stores."""
        if isinstance(self.database, SqliteDatabase):
            return await self.database.write(
                lambda connection: [dict(row) for row in connection.execute(text).fetchall()]
            )
        async with self.database.connection() as connection:
            return [dict(row) for row in await connection.fetch(text)]

    def ago(self, seconds: float) -> str:
        """Return a past time of the database's clock as SQL."""
        if self.kind == "sqlite":
            return str(database_clock() - round(seconds * 1_000_000))
        return f"clock_timestamp() - interval '{seconds} seconds'"

    async def expire_claim(self, run_id: RunId, seconds: float = 1) -> None:
        """Let the claim of this run expire some seconds ago."""
        await self.sql(f"update runs set lease_until = {self.ago(seconds)} where run_id = '{run_id}'")

    async def set_run_age(self, run_id: RunId, seconds: float) -> None:
        """Let the run have ended some seconds ago."""
        await self.sql(f"update runs set finished_at = {self.ago(seconds)} where run_id = '{run_id}'")

    async def add_user(self, name: str) -> AccountId:
        """Create a person with an account of the same id."""
        await self.sql(f"insert into accounts (account_id) values ('{name}')")
        await self.sql(f"insert into people (user_id) values ('{name}')")
        return AccountId(name)

    async def add_team(self, name: str, **roles: str) -> AccountId:
        """Create a team with the roles of its members."""
        await self.sql(f"insert into accounts (account_id, kind) values ('{name}', 'team')")
        for user, role in roles.items():
            await self.sql(
                f"insert into team_members (account_id, user_id, role) values ('{name}', '{user}', '{role}')"
            )
        return AccountId(name)

    async def purge(self) -> int:
        """Purge all that is deleted. Returns how many rows were deleted."""
        return await DeletionPurge(self.database.deletions, open_blobs(str(self.folder / "blobs"))).once()

    async def empty(self) -> None:
        """Delete everything but the owner; runs and events are deleted with their session or canvas."""
        statements = [
            "delete from sessions",
            "delete from account_orders",
            "delete from unordered_appends",
            "delete from ordered_appends",
            "delete from ended_threads",
            "delete from canvases",
            "delete from ended_canvases",
            "delete from artifacts",
            "delete from probes",
            "delete from sweeps",
            "delete from usage_counts",
            "delete from account_totals",
            "delete from nodes",
            "delete from calls",
            "delete from tokens",
            "delete from sign_ins",
            "delete from ended_accounts",
            "delete from identities",
            "delete from departures",
            "delete from settings",
            "delete from secrets",
            "delete from oauth_state",
            "delete from auth",
            "delete from account_events",
            "delete from accounts where account_id <> 'owner'",
            "update accounts set disabled_at = null, deleted_at = null",
            "delete from audit",
            "delete from audit_head",
            "delete from audit_checkpoint",
            "insert into audit_head (last_seq, last_hash) values (0, '')",
        ]
        if isinstance(self.database, SqliteDatabase):
            for statement in statements:
                await self.sql(statement)
        else:
            async with self.database.connection() as connection:
                await connection.execute("; ".join(statements))

    async def columns(self, table: str) -> dict[str, Column]:
        if self.kind == "sqlite":
            found = await self.sql(
                'select name, type, dflt_value is not null as has_default, "notnull" as required, pk'
                f" from pragma_table_info('{table}')"
            )
        else:
            found = await self.sql(
                "select a.attname as name, format_type(a.atttypid, null) as type,"
                " a.atthasdef as has_default, a.attnotnull as required,"
                " coalesce(array_position(i.indkey::int2[], a.attnum) + 1, 0) as pk from pg_attribute a"
                " left join pg_index i on i.indrelid = a.attrelid and i.indisprimary"
                f" where a.attrelid = '{table}'::regclass and a.attnum > 0"
            )
        return {
            row["name"]: Column(
                row["type"].lower(), bool(row["required"]), bool(row["has_default"]), row["pk"]
            )
            for row in found
        }

    async def indexes(self, table: str) -> dict[str, list[str]]:
        """Return the columns of each index of the table."""
        if self.kind == "sqlite":
            found = await self.sql(
                "select i.name, group_concat(c.name) as columns"
                f" from pragma_index_list('{table}') i, pragma_index_info(i.name) c group by i.name"
            )
        else:
            found = await self.sql(
                "select x.relname as name, string_agg(a.attname, ',' order by a.attnum) as columns"
                " from pg_index i"
                " join pg_class x on x.oid = i.indexrelid join pg_attribute a on a.attrelid = x.oid"
                f" where i.indrelid = '{table}'::regclass group by x.relname"
            )
        return {row["name"]: row["columns"].split(",") for row in found}

    async def close(self) -> None:
        await self.database.close()


async def open_migrated_store(kind: str, *, folder: Path, database_url: str) -> Store:
    """Open the migrated SQLite file of the folder, or the migrated Postgres database."""
    if kind == "sqlite":
        # Without fsync per commit, for speed; tests of durability open the file themselves.
        path = folder / "easel.db"
        return Store(kind, await open_sqlite(path, clock=database_clock, synchronous="normal"), folder)
    with patch("easel.stores.postgres.MIN_CONNECTIONS", 1):  # most tests need no more
        return Store(kind, await open_postgres(database_url, timeout=TIMEOUT_SECONDS), folder)


async def open_store(kind: str, *, folder: Path, database_url: str) -> Store:
    """Open and migrate the SQLite file of the folder, or the Postgres database."""
    store = await open_migrated_store(kind, folder=folder, database_url=database_url)
    await store.database.migrate()
    return store


@asynccontextmanager
async def other_connection(store: Store) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Open a connection to the Postgres database of the store, outside its pool."""
    assert isinstance(store.database, PostgresDatabase)
    connection = await asyncpg.connect(store.database.url)
    try:
        yield connection
    finally:
        await connection.close()


async def wait_for_blocked_statement(
    connection: asyncpg.Connection[Any], count: int = 1, unless: asyncio.Task[Any] | None = None
) -> None:
    """Wait until this many other connections to this database wait for a lock, or `unless` has ended."""
    blocked = (
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and wait_event_type = 'Lock'"
    )
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not (unless and unless.done()) and await connection.fetchval(blocked) < count:
            # A transaction sees one snapshot of the statistics until it clears it.
            await connection.fetchval("select pg_sleep(0.005), pg_stat_clear_snapshot()")


async def answered_or_blocked(call: asyncio.Task[Any], connection: asyncpg.Connection[Any]) -> None:
    """Wait until the call has returned or waits for a lock.

    No query of the connection is cancelled: that would roll its transaction back.
    """
    await wait_for_blocked_statement(connection, unless=call)


@asynccontextmanager
async def sqlite_at(path: Path, **options: Any) -> AsyncIterator[SqliteDatabase]:
    """Open and migrate a SQLite file with these options."""
    database = await open_sqlite(path, **options)
    try:
        await database.migrate()
        yield database
    finally:
        await database.close()


# --- runs, batches and claims -------------------------------------------------------------------------------


def new_run(
    session: str = "talk",
    text: str = "hello",
    *,
    user: AccountId = OWNER,
    key: str | None = None,
    digest: str | None = None,
    attempts: int = 3,
) -> NewRun:
    return NewRun(new_run_id(), user, SessionId(session), text, attempts, key, digest)


def run_events(run_id: RunId) -> RunEvents:
    return RunEvents(run_id, agent_id="main", node_id="worker")


def delta_batch(claim: Claim, number: int, *texts: str) -> Batch:
    """Return a batch with one delta per text."""
    events = run_events(claim.run_id)
    return Batch(claim, number, [events.delta(MessageId("msg_1"), text) for text in texts])


def ending_batch(
    claim: Claim, number: int, status: Status = Status.COMPLETED, error: str | None = None
) -> Batch:
    """Return the batch that ends a run."""
    return Batch(
        claim,
        number,
        run_events(claim.run_id).end_with_message(MessageId("msg_1"), "text", status, error),
        status,
        error,
    )


def closing_events(run_id: RunId) -> Sequence[Envelope]:
    """Return the events that end the log of a run that is cancelled before it started."""
    return run_events(run_id).end_without_message(Status.CANCELLED)


async def start_runs(runs: RunStore, *news: NewRun, worker: WorkerId = A) -> list[Claim]:
    """Enqueue these runs and claim them for the worker."""
    for new in news:
        await runs.enqueue(new)
    claims = {claim.run_id: claim for claim in await runs.claim_queued(worker, len(news), CLAIM_SECONDS, 0)}
    return [claims[new.run_id] for new in news]


async def start_run(runs: RunStore, session: str = "talk", worker: WorkerId = A) -> Claim:
    [claim] = await start_runs(runs, new_run(session), worker=worker)
    return claim


def assert_stored(answer: Appended | None) -> Appended:
    """Return the answer to a batch that must have been stored."""
    assert answer is not None
    return answer


async def get_run(runs: RunStore, run_id: RunId, user: AccountId = OWNER) -> Run:
    run = await runs.get(user, run_id)
    assert run is not None
    return run


async def read_log(runs: RunStore, run_id: RunId) -> list[LoggedEvent]:
    return await runs.events_after(run_id, 0, 1_000_000)


async def event_types(runs: RunStore, run_id: RunId) -> list[str]:
    return [event.type for event in await read_log(runs, run_id)]


def decode_payload(event: LoggedEvent) -> dict[str, Any]:
    return msgspec.json.decode(event.data)
