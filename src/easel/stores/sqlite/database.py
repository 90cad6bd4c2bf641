"""The SQLite database of one process: its file, its lock, its lanes and its schema.

Owns how the file is opened and that no other process opens it. Whatever keeps a statement from being answered (a full
disk, a lost file, a lock held too long) becomes `Unavailable`; the next statement tries anew.
"""

import asyncio
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from easel.errors import BadSettings
from easel.stores import migrations
from easel.stores.sqlite.artifacts import SqliteArtifacts
from easel.stores.sqlite.audit import SqliteAudit
from easel.stores.sqlite.boards import SqliteBoards
from easel.stores.sqlite.canvas_actions import SqliteCanvasActions
from easel.stores.sqlite.canvases import SqliteCanvases
from easel.stores.sqlite.connection import OLDEST_SQLITE, Connector
from easel.stores.sqlite.executor import Answer, ReaderThreads, Work, WriterThread
from easel.stores.sqlite.nodes import SqliteNodes
from easel.stores.sqlite.notifier import LocalNotifier
from easel.stores.sqlite.runs import SqliteRuns
from easel.stores.sqlite.sessions import SqliteSessions
from easel.stores.sqlite.sign_ins import SqliteSignIns
from easel.stores.sqlite.tokens import SqliteTokens

LOCK_FILE = "easel.lock"
READERS = 2  # one long listing does not hold up the tails
BUSY_SECONDS = 5.0  # a backup tool may hold the file for a moment
SYNCHRONOUS = ("full", "normal")
_MAGIC = b"SQLite format 3\0"

Clock = Callable[[], int]


def wall_clock() -> int:
    """Whole microseconds since 1970, UTC. It runs where the database runs: in this process."""
    return time.time_ns() // 1000


class SqliteDatabase:
    """`runs` and `bell` are the ports it fulfils; the rest is how. Belongs to the event loop that opened it."""

    def __init__(self, path: Path, connector: Connector, clock: Clock, lock: IO[str]) -> None:
        self.path = path
        self.clock = clock
        self._lock = lock
        self._writer = WriterThread("writer", connector.writer)
        self._readers = ReaderThreads("reader", connector.reader, READERS)
        self.runs = SqliteRuns(self)
        self.sessions = SqliteSessions(self)
        self.canvases = SqliteCanvases(self)
        self.canvas_actions = SqliteCanvasActions(self)
        self.audit = SqliteAudit(self)
        self.artifacts = SqliteArtifacts(self)
        self.boards = SqliteBoards(self)
        self.nodes = SqliteNodes(self)
        self.tokens = SqliteTokens(self)
        self.sign_ins = SqliteSignIns(self)
        self.notifier = LocalNotifier()

    @property
    def commits(self) -> int:
        """Transactions committed so far: fewer than writes when writes come together."""
        return self._writer.commits

    async def read(self, work: Work[Answer]) -> Answer:
        return await self._readers.do(work)

    async def write(self, work: Work[Answer]) -> Answer:
        """Durable when it returns; all of it or, when it raises, nothing."""
        return await self._writer.do(work)

    async def migrate(self) -> list[str]:
        """Apply what is missing, all or nothing; the names of what was applied."""
        return await self.write(_apply_missing)

    async def schema_version(self) -> int:
        return await self.read(newest_applied)

    async def close(self) -> None:
        """Ends what was begun, folds the WAL into the file and lets another process have it."""
        await self._readers.close()
        await self._writer.close()
        self._lock.close()


async def open_sqlite(
    path: Path, *, synchronous: str = "full", clock: Clock = wall_clock, busy_seconds: float = BUSY_SECONDS
) -> SqliteDatabase:
    """Opens or makes the file, for this process alone. `migrate()` comes next."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise BadSettings(
            problem=f"Easel needs SQLite {oldest} or newer; this Python has {sqlite3.sqlite_version}."
        )
    if synchronous not in SYNCHRONOUS:
        raise BadSettings(
            problem=f"EASEL_SQLITE_SYNCHRONOUS is {' or '.join(SYNCHRONOUS)}, not {synchronous!r}."
        )
    lock = await asyncio.to_thread(_prepare, path)
    database = SqliteDatabase(path, Connector(path, synchronous, busy_seconds), clock, lock)
    try:
        await database.write(lambda _: None)  # an unusable file is found now, not by the first request
    except BaseException:
        await database.close()
        raise
    return database


def _prepare(path: Path) -> IO[str]:
    """The folder, its lock and the file, readable by their owner only; SQLite gives its WAL the same rights."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = _locked(path.parent)
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CREAT, 0o600), "rb") as file:
            start = file.read(len(_MAGIC))
    except OSError:
        lock.close()
        raise
    if start and start != _MAGIC:
        lock.close()
        raise BadSettings(
            problem=f"{path} is not a SQLite database; move it away or set EASEL_DATA to another folder."
        )
    return lock


def _locked(folder: Path) -> IO[str]:
    """Kept open as long as the database is; the system lets go of it when the process ends, however it ends."""
    lock = os.fdopen(os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600), "r+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        holder = lock.read().strip()
        lock.close()
        principal = f"process {holder}" if holder else "another process"
        raise BadSettings(
            problem=f"The data folder {folder} is in use by {principal}, and SQLite serves one process; "
            "several processes need Postgres: set EASEL_DATABASE_URL, or EASEL_DATA to another folder."
        ) from problem
    lock.truncate()
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _apply_missing(connection: sqlite3.Connection) -> list[str]:
    connection.execute(migrations.CREATE_LEDGER)
    applied = {
        row["version"] for row in connection.execute("select version from schema_migrations").fetchall()
    }
    wanted = migrations.missing("sqlite", applied)
    for migration in wanted:
        for statement in _statements(migration.sql):
            connection.execute(statement)
        connection.execute(
            "insert into schema_migrations (version, name) values (?, ?)", (migration.version, migration.name)
        )
    return [f"{migration.version:04} {migration.name}" for migration in wanted]


def _statements(script: str) -> Iterator[str]:
    """One by one, because `executescript` would commit what was begun."""
    statement = ""
    for piece in script.split(";")[:-1]:
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def newest_applied(connection: sqlite3.Connection) -> int:
    if not connection.execute("select 1 from sqlite_schema where name = 'schema_migrations'").fetchall():
        return 0
    return connection.execute("select coalesce(max(version), 0) from schema_migrations").fetchall()[0][0]
