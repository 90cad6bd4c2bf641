"""A look at a SQLite file by somebody who changes nothing: no file is made, no WAL folded in, no schema brought up to date."""

import contextlib
import fcntl
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from easel.errors import BadSettings
from easel.stores.sqlite.database import BUSY_SECONDS, LOCK_FILE, newest_applied


@dataclass(frozen=True, slots=True)
class Found:
    version: int  # of its schema; 0: it has none
    holder: str | None  # the process that has the folder to itself


def look(path: Path) -> Found | None:
    """None: there is no such file."""
    try:
        if not path.exists():
            return None
        wal = path.with_name(path.name + "-wal")
        # A file alone is read as it is; SQLite would put two others beside it. With a WAL, what was written last is in there.
        how = "mode=ro" if wal.exists() and wal.stat().st_size else "mode=ro&immutable=1"
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(str(path.absolute()))}?{how}", timeout=BUSY_SECONDS, uri=True)
        ) as opened:
            return Found(newest_applied(opened), _holder(path.with_name(LOCK_FILE)))
    except (sqlite3.Error, OSError) as problem:
        raise BadSettings(problem=f"{path} cannot be read ({problem}).") from problem


def _holder(lock: Path) -> str | None:
    try:
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read().strip() or "(unknown)"
    except FileNotFoundError:
        pass
    return None
