"""The cost that the order of an account's events adds to its appends, in the two designs that were compared
(decision 0066).

The product stores a row beside the appends of a transaction, only while the account is followed, and numbers
it later. The other design takes a counter of the account in the transaction of the append, and stores the
number beside each event or beside each append. Each variant has a database of its own; their rounds alternate
within one process, so that the noise of the machine hits all of them alike. The bar is on processor time,
which other programs disturb less than time on the wall.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

from bench import our_store
from bench.figures import Figure, at_most
from easel.core.run.batch import Batch
from easel.core.run.events import RunEvents
from easel.core.stream.notifications import RunAppended
from easel.host.order import AccountOrder
from easel.ids import OWNER, AccountId, answer_id
from easel.stores.postgres import PostgresDatabase
from easel.stores.postgres import runs as postgres_runs
from easel.stores.sqlite import SqliteDatabase, open_sqlite

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Iterator

    from bench.setting import Setting
    from easel.core.run.run import Claim

RUNS = 32
ROUNDS = 21
POLL_SECONDS = 1.0
BATCHES = {1: 20, 50: 4}  # of each run in a round, by the number of events in a batch

_ORDERED = re.compile(r",\s*ordered as \(.*?\n\)", re.DOTALL)
_COUNTER_TABLE = "create table order_counters (account_id text primary key, last_number bigint not null)"
_COUNTED = """, counters as (
  select account_id from order_counters where account_id in (select account_id from grown)
   order by account_id for update
), counted as (
  update order_counters c set last_number = c.last_number + g.count
    from (select account_id, sum(last_seq - base)::bigint as count from grown group by account_id) g
    join counters using (account_id)
   where c.account_id = g.account_id
  returning c.account_id, c.last_number - g.count as base
), numbered as (
  select g.run_id, g.account_id, g.base, g.last_seq,
         c.base + sum(g.last_seq - g.base) over (partition by account_id order by g.run_id) as server_seq
    from grown g join counted c using (account_id)
)"""
_BESIDE_APPENDS = (
    _COUNTED
    + """, ordered as (
  insert into counted_appends select account_id, server_seq, 'run', run_id, base + 1, last_seq from numbered
)"""
)


@dataclass(frozen=True)
class Variant:
    name: str
    tables: tuple[str, ...]
    change: Callable[[str], str]
    is_followed: bool = False
    is_numbered: bool = False
    bar: float | None = None


def _beside_events(sql: str) -> str:
    """Store the number of each event in `run_events`, which needs the account there, too."""
    sql = _ORDERED.sub("", sql)
    counted = _COUNTED.lstrip(", ") + ", logged as ("
    sql = sql.replace("logged as (", counted)
    sql = sql.replace(
        "thread_seq)\n  select run_id, seq,", "thread_seq, order_account, server_seq)\n  select run_id, seq,"
    )
    return sql.replace(
        "session_id end, thread_seq\n    from events",
        "session_id end, thread_seq, account_id, server_seq - last_seq + seq\n"
        "    from events join (select run_id, server_seq, last_seq from numbered) n using (run_id)",
    )


_BESIDE_EVENTS_TABLES = (
    _COUNTER_TABLE,
    "alter table run_events add column order_account text, add column server_seq bigint",
    "create unique index on run_events(order_account, server_seq)",
)
_BESIDE_APPENDS_TABLES = (_COUNTER_TABLE, "create table counted_appends (like ordered_appends including all)")
VARIANTS = (
    Variant("without an order", (), lambda sql: _ORDERED.sub("", sql)),
    Variant("without followers", (), lambda sql: sql, bar=1.05),
    Variant("followed", (), lambda sql: sql, is_followed=True, bar=1.1),
    Variant("followed, with the numbering", (), lambda sql: sql, is_followed=True, is_numbered=True),
    Variant("counter, number beside events", _BESIDE_EVENTS_TABLES, _beside_events),
    Variant(
        "counter, number beside appends",
        _BESIDE_APPENDS_TABLES,
        lambda sql: _ORDERED.sub(_BESIDE_APPENDS, sql),
    ),
)


class Cost(NamedTuple):
    """Seconds of a round: on the wall, and of the processors of this process and of the server."""

    wall: float
    cpu: float


class Contender:
    """A variant with its database, and runs that append to it."""

    def __init__(
        self,
        variant: Variant,
        database: PostgresDatabase | SqliteDatabase,
        claims: list[Claim],
    ) -> None:
        self.variant = variant
        self._database = database
        self._claims = claims
        self._numbers = dict.fromkeys((claim.run_id for claim in claims), 0)
        self.costs: list[Cost] = []

    async def append(self, steps: int, events: int) -> Cost:
        """Append a batch to all runs at once, `steps` times. All runs share one commit."""
        servers, began = await self._read_server_cpu(), Cost(time.perf_counter(), time.process_time())
        for _ in range(steps):
            await asyncio.gather(*(self._append_one(claim, events) for claim in self._claims))
        wall, cpu = time.perf_counter() - began.wall, time.process_time() - began.cpu
        after = await self._read_server_cpu()
        return Cost(wall, cpu + sum(used - servers.get(pid, used) for pid, used in after.items()))

    async def _append_one(self, claim: Claim, events: int) -> None:
        maker, message_id = RunEvents(claim.run_id, agent_id="main", node_id="bench"), answer_id(claim.run_id)
        self._numbers[claim.run_id] += 1
        deltas = [maker.delta(message_id, f"tick {nth}\n") for nth in range(events)]
        appended = await self._database.runs.append(Batch(claim, self._numbers[claim.run_id], deltas))
        if appended is None:
            raise RuntimeError("a claim was lost while nobody else was there")
        self._database.notifier.notify(RunAppended(claim.run_id, appended.last_seq))

    async def _read_server_cpu(self) -> dict[int, float]:
        """Return the processor seconds of each server process of this database; SQLite has none."""
        if isinstance(self._database, SqliteDatabase):
            return {}
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                "select pid from pg_stat_activity where datname = current_database() and wait_event_type is "
                "distinct from 'Activity'"
            )
        return {row["pid"]: _cpu_seconds(row["pid"]) for row in rows}


def _cpu_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


async def order_costs(setting: Setting) -> list[Figure]:
    """The cost of appends in each variant, against those without an order."""
    figures: list[Figure] = []
    for accounts in (1, RUNS):
        async with AsyncExitStack() as opened:
            contenders = [
                await opened.enter_async_context(_on_postgres(setting, one, accounts)) for one in VARIANTS
            ]
            for events in BATCHES:
                figures += await _compare(
                    setting, f"Postgres, {accounts} accounts", contenders, events, _use_on_postgres
                )
    async with AsyncExitStack() as opened:
        contenders = [
            await opened.enter_async_context(_on_sqlite(setting, one)) for one in (*VARIANTS[:4], VARIANTS[5])
        ]
        figures += await _compare(setting, "SQLite", contenders, 1, _use_on_sqlite)
    return figures


async def _compare(
    setting: Setting,
    where: str,
    contenders: list[Contender],
    events: int,
    use: Callable[[Variant], AbstractContextManager[None]],
) -> list[Figure]:
    for contender in contenders:
        contender.costs.clear()
    for turn in range(setting.size(ROUNDS, 1) + 1):
        # The first round warms up; then each one starts with another variant.
        for nth in range(len(contenders)):
            contender = contenders[(turn + nth) % len(contenders)]
            with use(contender.variant):
                contender.costs.append(await contender.append(BATCHES[events], events))
    base, figures = contenders[0].costs[1:], list[Figure]()
    for contender in contenders[1:]:
        name, costs = contender.variant.name, contender.costs[1:]
        wall = _Spread([ours.wall / theirs.wall for ours, theirs in zip(costs, base, strict=True)])
        cpu = _Spread([ours.cpu / theirs.cpu for ours, theirs in zip(costs, base, strict=True)])
        setting.say(f"{where}, {events} events each: {name}: processors {cpu}, wall {wall}")
        per_event = 1e6 * statistics.median(cost.cpu for cost in base) / (RUNS * BATCHES[events] * events)
        figures.append(
            at_most(
                f"{where}, {RUNS} runs, {events} events each: {name}",
                cpu.median * per_event,
                per_event,
                unit="µs of processors per event",
                bar=contender.variant.bar,
                against="without an order",
            )
        )
    return figures


class _Spread:
    """The median and the quartiles of the ratios of adjacent rounds."""

    def __init__(self, ratios: list[float]) -> None:
        ratios.sort()
        self.median = statistics.median(ratios)
        self._quarters = ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self._quarters[0]:.3f} to {self._quarters[1]:.3f})"


@asynccontextmanager
async def _on_postgres(setting: Setting, variant: Variant, accounts: int) -> AsyncIterator[Contender]:
    async with our_store.opened(setting) as (database, _):
        names = [OWNER, *(AccountId(f"account{nth}") for nth in range(1, accounts))]
        async with database.connection() as connection:
            for table in variant.tables:
                await connection.execute(table)
            await connection.executemany(
                "insert into accounts (account_id) values ($1) on conflict do nothing",
                [(name,) for name in names],
            )
            if variant.tables:
                await connection.execute("insert into order_counters select account_id, 0 from accounts")
        async with _contending(variant, database, names) as contender:
            yield contender


@contextmanager
def _use_on_postgres(variant: Variant) -> Iterator[None]:
    statement = postgres_runs.SQL["append_batches"]
    changed = {**postgres_runs.SQL, "append_batches": replace(statement, sql=variant.change(statement.sql))}
    with patch.object(postgres_runs, "SQL", changed):
        yield


@asynccontextmanager
async def _on_sqlite(setting: Setting, variant: Variant) -> AsyncIterator[Contender]:
    folder = setting.folder / f"order-{VARIANTS.index(variant)}"
    database = await open_sqlite(folder / "easel.db")
    try:
        await database.migrate()
        await database.write(lambda connection: _change_triggers(connection, variant))
        async with _contending(variant, database, [OWNER]) as contender:
            yield contender
    finally:
        await database.close()


def _change_triggers(connection: sqlite3.Connection, variant: Variant) -> None:
    """Take the triggers of runs away, or let them take a counter."""
    if variant not in {VARIANTS[0], VARIANTS[5]}:
        return
    connection.execute("drop trigger run_appended")
    if variant is VARIANTS[0]:
        return
    connection.execute(_COUNTER_TABLE)
    connection.execute("insert into order_counters values ('owner', 0)")
    connection.execute("create table counted_appends as select * from ordered_appends")
    connection.execute("create unique index counted_appends_idx on counted_appends(account_id, server_seq)")
    connection.execute(
        "create trigger run_appended after update of last_seq on runs when new.last_seq > old.last_seq begin"
        " update order_counters set last_number = last_number + new.last_seq - old.last_seq"
        " where account_id = new.account_id;"
        " insert into counted_appends"
        " select new.account_id, last_number, 'run', new.run_id, old.last_seq + 1, new.last_seq"
        " from order_counters where account_id = new.account_id; end"
    )


def _use_on_sqlite(_: Variant) -> AbstractContextManager[None]:
    return nullcontext()  # its triggers make the variant


@asynccontextmanager
async def _contending(
    variant: Variant, database: PostgresDatabase | SqliteDatabase, accounts: list[AccountId]
) -> AsyncIterator[Contender]:
    """Yield the variant with running runs, spread over the accounts."""
    order = AccountOrder(database.orders, database.notifier, poll_seconds=POLL_SECONDS)
    for nth in range(RUNS):
        await our_store.enqueue(database, 1, accounts[nth % len(accounts)])
    claims = await our_store.claim(database, our_store.worker(), RUNS)
    async with AsyncExitStack() as following:
        following.push_async_callback(order.close)
        for account_id in accounts if variant.is_followed else ():
            await database.orders.follow(account_id, our_store.CLAIM_SECONDS)
            if variant.is_numbered:
                await following.enter_async_context(order.follow(account_id))
        yield Contender(variant, database, claims)
