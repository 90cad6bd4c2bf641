"""The SQLite database of one process: its file, its lock, its threads and its schema.

Owns how the file is opened, and prevents that a second server opens it. A transient failure (a full disk, a
missing file, a lock held too long) is raised as `Unavailable`; the next statement opens a new connection.
"""

import asyncio
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO

from easel.core.canvas import versions
from easel.errors import BadSettings
from easel.stores.nouns import NounStores
from easel.stores.rows.documents import DEFAULT_MAX_VERSIONS
from easel.stores.sqlite.audit import SqliteAudit
from easel.stores.sqlite.boards import SqliteBoards
from easel.stores.sqlite.canvases import SqliteCanvases
from easel.stores.sqlite.connection import BUSY_SECONDS, OLDEST_SQLITE, Connector
from easel.stores.sqlite.documents import SqliteDocuments
from easel.stores.sqlite.executor import Answer, ReaderThreads, Work, WriterThread
from easel.stores.sqlite.notifier import LocalNotifier
from easel.stores.sqlite.runs import SqliteRuns
from easel.stores.sqlite.schema import apply_missing_migrations, find_missing, newest_applied
from easel.stores.sqlite.statements import SqliteStatements

LOCK_FILE = "easel.lock"
READER_THREADS = 2  # two, so that one long query does not delay the streams
SYNCHRONOUS = ("full", "normal")
_MAGIC = b"SQLite format 3\0"

Clock = Callable[[], int]


def wall_clock() -> int:
    """Return the time of the database clock: whole microseconds since 1970, UTC."""
    return time.time_ns() // 1000


def start_lease_clock() -> Clock:
    """Return a clock for claims, which starts at the time of the wall clock.

    It does not advance while the machine sleeps and ignores corrections of the wall clock, so that the
    process does not lose its claims by either. No other process can have claims in the file.
    """
    offset = wall_clock() - time.monotonic_ns() // 1000
    return lambda: offset + time.monotonic_ns() // 1000


class SqliteDatabase(NounStores):
    """Provides the stores and the notifier. Belongs to the event loop that opened it."""

    def __init__(
        self,
        path: Path,
        connector: Connector,
        clock: Clock,
        lease_clock: Clock,
        lock: IO[str],
        *,
        max_document_versions: int,
        max_canvas_versions: int,
        max_account_runs: int,
    ) -> None:
        super().__init__(partial(SqliteStatements, self))
        self.path = path
        self.clock = clock
        self.lease_clock = lease_clock
        self._lock = lock
        self._writer = WriterThread("writer", connector.writer)
        self._readers = ReaderThreads("reader", connector.reader, READER_THREADS)
        self.runs = SqliteRuns(self, max_account_runs)
        self.canvases = SqliteCanvases(self, max_canvas_versions)
        self.documents = SqliteDocuments(self, max_document_versions)
        self.audit = SqliteAudit(self)
        self.boards = SqliteBoards(self)
        self.notifier = LocalNotifier()

    @property
    def commits(self) -> int:
        """The number of committed transactions: concurrent writes share one."""
        return self._writer.commits

    async def read(self, work: Work[Answer]) -> Answer:
        return await self._readers.run(work)

    async def write(self, work: Work[Answer]) -> Answer:
        """Run `work` in a transaction. It is durable when `write` returns, rolled back when `work` raises."""
        return await self._writer.run(work)

    async def migrate(self) -> list[str]:
        """Apply the missing migrations in one transaction. Returns their names."""
        return await self.write(apply_missing_migrations)

    async def schema_version(self) -> int:
        return await self.read(newest_applied)

    async def is_migrated(self) -> bool:
        return not await self.read(find_missing)

    async def close(self) -> None:
        """Finish queued work, checkpoint the WAL and release the lock."""
        await self._readers.close()
        await self._writer.close()
        self._lock.close()


async def open_sqlite(
    path: Path,
    *,
    synchronous: str = "full",
    clock: Clock = wall_clock,
    lease_clock: Clock | None = None,
    busy_seconds: float = BUSY_SECONDS,
    max_document_versions: int = DEFAULT_MAX_VERSIONS,
    max_canvas_versions: int = versions.DEFAULT_MAX_VERSIONS,
    max_account_runs: int = 0,
) -> SqliteDatabase:
    """Open or create the file and lock its folder for this process. The caller must call `migrate` next.

    A test that replaces only `clock` replaces the clock of claims too.
    """
    if lease_clock is None:
        lease_clock = start_lease_clock() if clock is wall_clock else clock
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise BadSettings(
            problem=f"Easel needs SQLite {oldest} or newer; this Python has {sqlite3.sqlite_version}."
        )
    if synchronous not in SYNCHRONOUS:
        raise BadSettings(
            problem=f"EASEL_SQLITE_SYNCHRONOUS must be {' or '.join(SYNCHRONOUS)}, not {synchronous!r}."
        )
    lock = await asyncio.to_thread(_prepare, path)
    connector = Connector(path, synchronous, busy_seconds)
    database = SqliteDatabase(
        path,
        connector,
        clock,
        lease_clock,
        lock,
        max_document_versions=max_document_versions,
        max_canvas_versions=max_canvas_versions,
        max_account_runs=max_account_runs,
    )
    try:
        await database.write(lambda _: None)  # fail now if the file is unusable
    except BaseException:
        await database.close()
        raise
    return database


def _prepare(path: Path) -> IO[str]:
    """Create the folder (mode 0700) and the file (0600), and lock the folder. Returns the open lock file."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = _lock_folder(path.parent)
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


def _lock_folder(folder: Path) -> IO[str]:
    """Lock the folder and return the open lock file. The system releases the lock when the process ends."""
    lock = os.fdopen(os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600), "r+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        holder = lock.read().strip()
        lock.close()
        process = f"process {holder}" if holder else "another process"
        raise BadSettings(
            problem=f"The data folder {folder} is in use by {process}, and SQLite serves one process; "
            "several processes need Postgres: set EASEL_DATABASE_URL, or EASEL_DATA to another folder."
        ) from problem
    lock.truncate()
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock
