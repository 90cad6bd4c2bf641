"""Read-only inspection of a SQLite file: creates no file, checkpoints no WAL, applies no migration."""

import contextlib
import fcntl
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from easel.errors import BadSettings
from easel.stores.sqlite.connection import BUSY_SECONDS
from easel.stores.sqlite.database import LOCK_FILE
from easel.stores.sqlite.schema import find_missing, newest_applied


@dataclass(frozen=True, slots=True)
class SqliteInfo:
    version: int  # of the schema; 0: the file has no schema
    holder: str | None  # pid of the process that holds the lock of the data folder; None: not locked


def inspect_sqlite(path: Path) -> SqliteInfo | None:
    """Return the schema version and the lock holder of a file, None if the file does not exist.

    Raises `BadSettings` if the file cannot be read, or if another development version wrote it.
    """
    try:
        if not path.exists():
            return None
        wal = path.with_name(path.name + "-wal")
        # A WAL holds the newest writes, so it must be read. Without a WAL the file is opened as immutable:
        # otherwise SQLite would create two files next to it.
        mode = "mode=ro" if wal.exists() and wal.stat().st_size else "mode=ro&immutable=1"
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(str(path.absolute()))}?{mode}", timeout=BUSY_SECONDS, uri=True)
        ) as opened:
            find_missing(opened)
            return SqliteInfo(newest_applied(opened), _lock_holder(path.with_name(LOCK_FILE)))
    except (sqlite3.Error, OSError) as problem:
        raise BadSettings(problem=f"{path} cannot be read ({problem}).") from problem


def _lock_holder(lock: Path) -> str | None:
    try:
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read().strip() or "(unknown)"
    except FileNotFoundError:
        pass
    return None
