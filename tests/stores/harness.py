"""What the contract suite says of every store, whichever it is: open it, ask it, and reach behind it by hand.

Owns the differences between the databases (how a time is written, what a refusal is called), so that the tests have none.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec

from easel.core.run.batch import Appended, Batch
from easel.core.run.events import RunEvents
from easel.core.run.run import Claim, NewRun, Run
from easel.core.run.status import Status
from easel.ids import OWNER, MessageId, RunId, SessionId, UserId, WorkerId, new_run_id
from easel.stores.postgres import PostgresDatabase, open_postgres
from easel.stores.sqlite import SqliteDatabase, open_sqlite

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from easel.core.stream.envelope import Envelope
    from easel.core.stream.log import LoggedEvent
    from easel.host.ports import Notifier, RunStore

KINDS = ("sqlite", "postgres")
# What a database says to a row that must not be.
REFUSED = (sqlite3.IntegrityError, asyncpg.IntegrityConstraintViolationError)

A, B = WorkerId("wrk_a"), WorkerId("wrk_b")
LONG = 3600.0  # a claim that does not run out while the test runs
TIMEOUT_SECONDS = 30.0  # a shared machine is slow at times, and that is no finding
_real_time_ns = time.time_ns  # the database's clock; tests move the caller's


def database_clock() -> int:
    return _real_time_ns() // 1000


@dataclass(frozen=True)
class Column:
    type: str
    required: bool
    preset: bool
    key_place: int  # from 1 on within the primary key; 0 outside it


@dataclass
class Store:
    """One open database of either kind."""

    kind: str
    database: SqliteDatabase | PostgresDatabase
    hand: asyncpg.Connection[Any] | None = None
    runs: RunStore = field(init=False)
    notifier: Notifier = field(init=False)
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    def __post_init__(self) -> None:
        self.runs = self.database.runs
        self.notifier = self.database.notifier

    async def sql(self, text: str) -> list[dict[str, Any]]:
        """A statement by hand, past the store."""
        if isinstance(self.database, SqliteDatabase):
            return await self.database.write(
                lambda connection: [dict(row) for row in connection.execute(text).fetchall()]
            )
        assert self.hand is not None
        async with self._one_at_a_time:
            return [dict(row) for row in await self.hand.fetch(text)]

    def ago(self, seconds: float) -> str:
        """A moment by the database's clock, as it is written in SQL."""
        if self.kind == "sqlite":
            return str(database_clock() - round(seconds * 1_000_000))
        return f"clock_timestamp() - interval '{seconds} seconds'"

    async def run_out(self, run_id: RunId, seconds: float = 1) -> None:
        """The claim of this run ended so long ago: its worker did not renew."""
        await self.sql(f"update runs set lease_until = {self.ago(seconds)} where run_id = '{run_id}'")

    async def make_old(self, run_id: RunId, seconds: float) -> None:
        await self.sql(f"update runs set finished_at = {self.ago(seconds)} where run_id = '{run_id}'")

    async def add_user(self, name: str) -> UserId:
        await self.sql(f"insert into users (user_id, name) values ('{name}', '{name}')")
        return UserId(name)

    async def empty(self) -> None:
        """Only the owner is left; everything else goes with its session or its canvas."""
        for table in (
            "sessions",
            "ended_threads",
            "canvases",
            "ended_canvases",
            "artifacts",
            "probes",
            "nodes",
            "calls",
            "tokens",
            "users where user_id <> 'owner'",
        ):
            await self.sql(f"delete from {table}")

    async def columns(self, table: str) -> dict[str, Column]:
        if self.kind == "sqlite":
            found = await self.sql(
                f"select name, type, dflt_value is not null as preset, \"notnull\" as required, pk from pragma_table_info('{table}')"
            )
        else:
            found = await self.sql(
                "select a.attname as name, format_type(a.atttypid, null) as type, a.atthasdef as preset, a.attnotnull as required,"
                " coalesce(array_position(i.indkey::int2[], a.attnum) + 1, 0) as pk from pg_attribute a"
                f" left join pg_index i on i.indrelid = a.attrelid and i.indisprimary where a.attrelid = '{table}'::regclass and a.attnum > 0"
            )
        return {
            row["name"]: Column(row["type"].lower(), bool(row["required"]), bool(row["preset"]), row["pk"])
            for row in found
        }

    async def indexes(self, table: str) -> dict[str, list[str]]:
        """Each index of the table and what it is on."""
        if self.kind == "sqlite":
            found = await self.sql(
                f"select i.name, group_concat(c.name) as columns from pragma_index_list('{table}') i, pragma_index_info(i.name) c group by i.name"
            )
        else:
            found = await self.sql(
                "select x.relname as name, string_agg(a.attname, ',' order by a.attnum) as columns from pg_index i"
                " join pg_class x on x.oid = i.indexrelid join pg_attribute a on a.attrelid = x.oid"
                f" where i.indrelid = '{table}'::regclass group by x.relname"
            )
        return {row["name"]: row["columns"].split(",") for row in found}

    async def close(self) -> None:
        if self.hand is not None:
            await self.hand.close()
        await self.database.close()


async def open_store(kind: str, *, folder: Path, database_url: str) -> Store:
    if kind == "sqlite":
        # What waits for the disk is tested beside; here a slow one would only make the suite slow, and its waits end.
        store = Store(
            kind, await open_sqlite(folder / "easel.db", clock=database_clock, synchronous="normal")
        )
    else:
        store = Store(
            kind,
            await open_postgres(database_url, timeout=TIMEOUT_SECONDS),
            await asyncpg.connect(database_url),
        )
    await store.database.migrate()
    return store


@asynccontextmanager
async def sqlite_at(path: Path, **options: Any) -> AsyncIterator[SqliteDatabase]:
    """A SQLite database with its schema, opened with these options."""
    database = await open_sqlite(path, **options)
    try:
        await database.migrate()
        yield database
    finally:
        await database.close()


# --- what callers of a store have in hand -----------------------------------------------------------------------------


def a_run(
    session: str = "talk",
    text: str = "hello",
    *,
    user: UserId = OWNER,
    key: str | None = None,
    digest: str | None = None,
    attempts: int = 3,
) -> NewRun:
    return NewRun(new_run_id(), user, SessionId(session), text, attempts, key, digest)


def events_of(run_id: RunId) -> RunEvents:
    return RunEvents(run_id, agent_id="main", node_id="worker")


def says(claim: Claim, number: int, *texts: str) -> Batch:
    """A batch of one delta per text."""
    events = events_of(claim.run_id)
    return Batch(claim, number, [events.delta(MessageId("msg_1"), text) for text in texts])


def ends(claim: Claim, number: int, status: Status = Status.COMPLETED, error: str | None = None) -> Batch:
    """The batch that ends a run, as a worker sends it."""
    return Batch(
        claim,
        number,
        events_of(claim.run_id).ending(MessageId("msg_1"), "text", status, error),
        status,
        error,
    )


def closing(run_id: RunId) -> Sequence[Envelope]:
    """What the log of a run says that was cancelled before it started."""
    return events_of(run_id).stopping(Status.CANCELLED)


async def started(runs: RunStore, *news: NewRun, worker: WorkerId = A) -> list[Claim]:
    """These runs, enqueued and claimed by the worker, which takes nothing else."""
    for new in news:
        await runs.enqueue(new)
    claims = {claim.run_id: claim for claim in await runs.claim_queued(worker, len(news), LONG, 0)}
    return [claims[new.run_id] for new in news]


async def start(runs: RunStore, session: str = "talk", worker: WorkerId = A) -> Claim:
    [claim] = await started(runs, a_run(session), worker=worker)
    return claim


def stored(answer: Appended | None) -> Appended:
    """The answer to a batch that the store took."""
    assert answer is not None
    return answer


async def reload(runs: RunStore, run_id: RunId, user: UserId = OWNER) -> Run:
    run = await runs.get(user, run_id)
    assert run is not None
    return run


async def whole_log(runs: RunStore, run_id: RunId) -> list[LoggedEvent]:
    return await runs.events_after(run_id, 0, 1_000_000)


async def log_types(runs: RunStore, run_id: RunId) -> list[str]:
    return [event.type for event in await whole_log(runs, run_id)]


def data_of(event: LoggedEvent) -> dict[str, Any]:
    return msgspec.json.decode(event.data)
