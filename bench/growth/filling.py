"""Fills a migrated database with SQL, in the same way on Postgres and SQLite.

Owns the rows: finished runs with their logs and messages, canvases with their logs and records, artifacts
with their references, boards, and an audit chain that verifies. Rows are stored without checks of foreign
keys.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from bench.growth.sizes import (
    BIG_CANVAS,
    BIG_SESSIONS,
    EVENTS_PER_CANVAS,
    EVENTS_PER_RUN,
    EXPIRED_SECONDS,
    EXPIRY_SPAN_SECONDS,
    RETENTION_DAYS,
    RUNS_PER_BOARD,
    Size,
)
from bench.setting import connected
from easel.core.audit.chain import START, Link, link_entries
from easel.core.audit.record import new_entry
from easel.stores.postgres import open_postgres
from easel.stores.sqlite import open_sqlite
from easel.stores.sqlite.connection import Connector
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import asyncpg

FILL_SECONDS = 1_800.0
SPEC = {
    "version": 1,
    "state": {"n": 0, "note": ""},
    "writable": ["note"],
    "actions": {
        "set": {"kind": "state.patch", "patch": [{"op": "replace", "path": "/n", "value": 1}]},
        "ask": {
            "kind": "state.patch",
            "confirm": "always",
            "patch": [{"op": "replace", "path": "/n", "value": 2}],
        },
    },
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """SQL expressions that differ between the databases."""

    is_postgres: bool
    now: float  # seconds since 1970

    def json(self, text: str) -> str:
        return f"({text})::jsonb" if self.is_postgres else f"({text})"

    def at(self, share: str) -> str:
        """Return the time of a row; `share` is its place among its table's rows, from 0 to 1."""
        age = f"({RETENTION_DAYS * 86_400 + EXPIRED_SECONDS} - {EXPIRY_SPAN_SECONDS} * ({share}))"
        if self.is_postgres:
            return f"to_timestamp({self.now!r} - {age})"
        return f"cast(({self.now!r} - {age}) * 1000000 as integer)"

    def padded(self, prefix: str, number: str) -> str:
        """Return an id of the form of generated ids, from a number."""
        digits = f"lpad(({number})::text, 25, '0')" if self.is_postgres else f"printf('%025d', {number})"
        return f"'{prefix}_0' || {digits}"

    def digest(self, number: str) -> str:
        """Return 64 hexadecimal digits that are in no order."""
        text = f"({number})::text" if self.is_postgres else f"cast({number} as text)"
        return f"md5({text}) || md5('b' || {text})"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table, one for each number `n` from 1 to `count` and each `k` from 1 to `each`."""

    table: str
    count: int
    columns: dict[str, str]
    each: int = 1

    def to_sql(self) -> str:
        names, values = ", ".join(self.columns), ", ".join(self.columns.values())
        numbers = "(select n from numbers where n <= {0}) a, (select n as k from numbers where n <= {1}) b"
        source = numbers.format(self.count, self.each)
        return f"insert into {self.table} ({names}) select {values} from {source}"


def all_rows(d: Dialect, s: Size) -> list[Rows]:
    return [*_run_rows(d, s), *_canvas_rows(d, s), *_artifact_rows(d, s)]


def _run_rows(d: Dialect, s: Size) -> list[Rows]:
    run, at = d.padded("run", "n"), d.at(f"1.0 * n / {s.runs}")
    big = f"n <= {s.big_runs}"
    session = f"case when {big} then 'big' || (n % {BIG_SESSIONS}) else 's' || (n % {s.sessions} + 1) end"
    start = f"10 * (case when {big} then n / {BIG_SESSIONS} else n / {s.sessions} end)"  # of its thread
    last = 10 * (max(s.runs // s.sessions, s.big_runs // BIG_SESSIONS) + 2)
    owner = {"account_id": "'owner'"}
    thread = {"last_thread_seq": f"{last}", "created_at": at, "last_message_at": at}
    delta = (
        """'{"text": "some words of an answer, as long as a model says at once", "attempt": 1, """
        """"message_id": "msg_0000", "visibility": "public", "n": ' || k || '}'"""
    )
    narrative = "k between 2 and 9"
    text = "'a message of a person or of a model, of the length of one line or two of a chat'"
    payload = d.json("""'{"role": "user", "text": "a message", "visibility": "public"}'""")
    content = d.json("""'"' || """ + text + """ || '"'""")
    message = {**owner, "session_id": session, "run_id": run, "content": content, "created_at": at}
    board = {**owner, "run_id": d.padded("run", f"n * {RUNS_PER_BOARD}"), "agent_id": "'main'"}
    value = {"key": "'plan'", "value": """'{"steps": [1, 2, 3]}'""", "size": "20", "version": "1"}
    return [
        Rows("sessions", s.sessions, {**owner, **thread, "session_id": "'s' || n", "title": "'title ' || n"}),
        Rows("sessions", BIG_SESSIONS, {**owner, **thread, "session_id": "'big' || (n - 1)"}),
        Rows(
            "runs",
            s.runs,
            {
                **owner,
                "run_id": run,
                "session_id": session,
                "status": "case when n % 100 = 0 then 'failed' else 'completed' end",
                "error_message": "case when n % 100 = 0 then 'no answer' end",
                "input_text": text,
                "turn_no": "n",
                **({} if d.is_postgres else {"queue_no": "n"}),
                "attempt": "1",
                "last_seq": f"{EVENTS_PER_RUN}",
                "owner_id": "'worker'",
                "created_at": at,
                "started_at": at,
                "finished_at": at,
            },
        ),
        Rows(
            "run_events",
            s.runs,
            {
                "run_id": run,
                "seq": "k",
                "event_type": "case k when 1 then 'run.start' when 9 then 'message.completed' "
                "when 10 then 'done' else 'message.delta' end",
                "visibility": "'public'",
                "payload": d.json(delta),
                "created_at": at,
                "account_id": f"case when {narrative} then 'owner' end",
                "session_id": f"case when {narrative} then {session} end",
                "thread_seq": f"case when {narrative} then {start} + k end",
            },
            each=EVENTS_PER_RUN,
        ),
        Rows(
            "messages",
            s.runs,
            {
                **message,
                "message_id": d.padded("ask", "n"),
                "thread_seq": f"{start} + 1",
                "role": "'user'",
                "payload": payload,
            },
        ),
        Rows(
            "messages",
            s.runs,
            {
                **message,
                "message_id": d.padded("msg", "n"),
                "thread_seq": f"{start} + 9",
                "role": "'assistant'",
                "status": "'completed'",
            },
        ),
        *(
            Rows(
                "boards",
                s.runs // RUNS_PER_BOARD,
                {**board, **value, "board": f"'{name}'", "edge_id": f"'{edge}'", "node_id": "'planner'"},
            )
            for name, edge in (("whiteboard", "global"), ("blackboard", "planner-writer"))
        ),
    ]


def _canvas_rows(d: Dialect, s: Size) -> list[Rows]:
    count, big = s.big_canvas_events, f"'{BIG_CANVAS}'"
    at, big_at = d.at(f"1.0 * k / {EVENTS_PER_CANVAS}"), d.at(f"1.0 * n / {count}")
    owner = {"account_id": "'owner'"}
    canvas = {
        **owner,
        "agent_id": "'main'",
        "title": "'a canvas'",
        "spec": d.json(f"'{json.dumps(SPEC)}'"),
        "state": d.json("""'{"n": 0, "note": ""}'"""),
    }
    event = {
        **owner,
        "event_type": "'canvas.state'",
        "visibility": "'public'",
        "payload": d.json("""'{"revision": 1, "patch": [{"op": "replace", "path": "/n", "value": 1}]}'"""),
    }
    record = {
        **owner,
        "action_id": "'set'",
        "status": "'completed'",
        "actor": """'{"account_id": "owner", "name": "owner", "kind": "person"}'""",
        "answer": """'{"status": "completed"}'""",
        "revision": "1",
    }

    def ended(when: str) -> dict[str, str]:
        return {"created_at": when, "started_at": when, "ended_at": when}

    small = {"canvas_id": "'c' || n"}
    return [
        Rows("canvases", s.canvases, {**canvas, **small, "last_seq": f"{EVENTS_PER_CANVAS}"}),
        Rows("canvases", 1, {**canvas, "canvas_id": big, "last_seq": f"{count}"}),
        Rows(
            "canvas_events",
            s.canvases,
            {**event, **small, "seq": "k", "created_at": at},
            each=EVENTS_PER_CANVAS,
        ),
        Rows("canvas_events", count, {**event, "canvas_id": big, "seq": "n", "created_at": big_at}),
        Rows(
            "executions",
            s.canvases,
            {
                **record,
                **small,
                "event_id": d.padded("evt", f"n * {EVENTS_PER_CANVAS} + k"),
                "log_seq": "k",
                **ended(at),
            },
            each=EVENTS_PER_CANVAS,
        ),
        Rows(
            "executions",
            count,
            {
                **record,
                "canvas_id": big,
                "event_id": d.padded("evt", f"{EVENTS_PER_CANVAS} * {s.canvases + 2} + n"),
                "log_seq": "n",
                **ended(big_at),
            },
        ),
    ]


def _artifact_rows(d: Dialect, s: Size) -> list[Rows]:
    artifact = {"account_id": "'owner'", "artifact_id": "'art_' || " + d.digest("n")}
    referenced = s.referenced_artifacts
    canvas = f"'c' || (n % {s.canvases} + 1)"
    at = d.at(f"1.0 * n / {s.artifacts}")
    return [
        Rows(
            "artifacts",
            s.artifacts,
            {
                **artifact,
                "size": "3000",
                "media_type": "'image/png'",
                "blob_key": "'accounts/owner/artifacts/' || n",
                "is_stored": "true",
                "touched_at": at,
            },
        ),
        Rows("artifact_refs", referenced, {**artifact, "run_id": d.padded("run", "n * 5")}),
        Rows("artifact_refs", referenced, {**artifact, "canvas_id": canvas, "mentioned_seq": "1 + n % 10"}),
    ]


def _audit_links(d: Dialect, s: Size) -> list[Link]:
    """Return an audit chain that verifies."""
    oldest = datetime.fromtimestamp(d.now, UTC) - timedelta(days=RETENTION_DAYS, seconds=EXPIRED_SECONDS)
    step = timedelta(seconds=EXPIRY_SPAN_SECONDS / max(s.audit_records, 1))
    actions = ("canvas.action", "session.created", "run.failed")
    entries = (
        new_entry(oldest + number * step, THE_OWNER, actions[number % 3], redact=str, subject=f"c{number}")
        for number in range(s.audit_records)
    )
    return link_entries(START, entries)


AUDIT_COLUMNS = ("seq", "account_id", "at", "storage_class", "action", "record", "hash")


# --- Postgres -----------------------------------------------------------------------------------------------


async def fill_postgres(url: str, size: Size) -> None:
    """Migrate and fill an empty database."""
    database = await open_postgres(url, pool=1)
    try:
        await database.migrate()
    finally:
        await database.close()
    dialect = Dialect(is_postgres=True, now=time.time())
    async with connected(url) as connection:
        await connection.execute("set session_replication_role = replica")  # no checks of foreign keys
        await connection.execute("set maintenance_work_mem = '1GB'; set synchronous_commit = off")
        await connection.execute(
            f"create temporary table numbers as select n::bigint from generate_series(1, {size.runs}) n;"
            "analyze numbers"
        )
        rows = all_rows(dialect, size)
        async with _without_indexes(connection, sorted({one.table for one in rows})):
            for one in rows:
                await connection.execute(one.to_sql(), timeout=FILL_SECONDS)
        links = _audit_links(dialect, size)
        records = [tuple(getattr(link, column) for column in AUDIT_COLUMNS) for link in links]
        await connection.copy_records_to_table("audit", records=records, columns=AUDIT_COLUMNS)
        await connection.execute(
            "update audit_head set last_seq = $1, last_hash = $2", links[-1].seq, links[-1].hash
        )
        await connection.execute(f"select setval('claimed_turns', {size.runs + 1})")
        await connection.execute("vacuum analyze", timeout=FILL_SECONDS)
        await connection.execute("checkpoint", timeout=FILL_SECONDS)


@asynccontextmanager
async def _without_indexes(connection: asyncpg.Connection[Any], tables: list[str]) -> AsyncIterator[None]:
    """Build the indexes of these tables after the block. Until then, Postgres does not maintain them."""
    await connection.execute(
        "update pg_index set indisready = false, indisvalid = false where indrelid = any($1::regclass[])",
        tables,
    )
    yield
    for table in tables:
        await connection.execute(f"reindex table {table}", timeout=FILL_SECONDS)


# --- SQLite -------------------------------------------------------------------------------------------------


async def fill_sqlite(path: Path, size: Size) -> None:
    """Migrate and fill an empty file. The product collects no statistics, so this does not either."""
    path.parent.mkdir(parents=True)
    database = await open_sqlite(path)
    try:
        await database.migrate()
    finally:
        await database.close()
    await asyncio.to_thread(_fill_sqlite, path, size)


def _fill_sqlite(path: Path, size: Size) -> None:
    dialect = Dialect(is_postgres=False, now=time.time())
    connection = Connector(path, "normal", 60.0).writer()
    connection.create_function(
        "md5", 1, lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    )
    connection.execute("pragma foreign_keys = off")
    connection.execute("begin")
    connection.execute("create temporary table numbers (n integer primary key)")
    connection.executemany("insert into numbers values (?)", ((n,) for n in range(1, size.runs + 1)))
    for one in all_rows(dialect, size):
        connection.execute(one.to_sql())
    links = _audit_links(dialect, size)
    for link in links:
        at = (link.at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        values = [getattr(link, column) for column in AUDIT_COLUMNS]
        values[AUDIT_COLUMNS.index("at")] = at
        connection.execute(
            f"insert into audit ({', '.join(AUDIT_COLUMNS)}) values (?, ?, ?, ?, ?, ?, ?)", values
        )
    connection.execute("update audit_head set last_seq = ?, last_hash = ?", (links[-1].seq, links[-1].hash))
    connection.execute("update run_counters set queue_no = ?, turn_no = ?", (size.runs, size.runs))
    connection.execute("commit")
    connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
