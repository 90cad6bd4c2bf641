"""A connection to the SQLite file: how it is set up, and which of its failures mean "not now"."""

import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

OLDEST_SQLITE = (3, 37, 0)  # strict tables; `returning` is older

# Primary result codes that speak of the disk, the file or another process, not of the statement.
_PASSING = frozenset({
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
})  # fmt: skip
_PRIMARY = 0xFF  # the low byte of an extended result code

_FOR_EVERYONE = ("pragma foreign_keys = on", "pragma temp_store = memory", "pragma cache_size = -8000")
_FOR_READERS = ("pragma query_only = on",)
_FOR_THE_WRITER = (
    "pragma journal_mode = wal",
    "pragma journal_size_limit = 67108864",  # a burst does not leave its WAL behind for ever
)
# On macOS a plain fsync does not reach the disk; elsewhere these two change nothing.
_FOR_FULL = ("pragma synchronous = full", "pragma fullfsync = on", "pragma checkpoint_fullfsync = on")
_FOR_NORMAL = ("pragma synchronous = normal",)


def is_passing(problem: BaseException) -> bool:
    """Whether trying again later can help. Such a failure may have ended the whole transaction already."""
    code = getattr(problem, "sqlite_errorcode", None)
    return isinstance(problem, sqlite3.Error) and code is not None and code & _PRIMARY in _PASSING


def _matches(text: str | None, pattern: str) -> bool:
    """SQLite knows the cases of ASCII alone; a pattern as `rows.wanted` makes it is found in linear time."""
    return text is not None and re.search(pattern, text) is not None


@dataclass(frozen=True, slots=True)
class Connector:
    """Opens connections to one file. A connection stays in the thread that opened it."""

    path: Path
    synchronous: str
    busy_seconds: float

    def writer(self) -> sqlite3.Connection:
        return self._connect(
            _FOR_EVERYONE + _FOR_THE_WRITER + (_FOR_FULL if self.synchronous == "full" else _FOR_NORMAL)
        )

    def reader(self) -> sqlite3.Connection:
        return self._connect(_FOR_EVERYONE + _FOR_READERS)

    def _connect(self, pragmas: tuple[str, ...]) -> sqlite3.Connection:
        # No isolation level: transactions begin and end where our code says so, never by themselves.
        opened = sqlite3.connect(self.path, timeout=self.busy_seconds, isolation_level=None)
        try:
            opened.row_factory = sqlite3.Row
            opened.create_function("matches", 2, _matches, deterministic=True)
            for pragma in pragmas:
                opened.execute(pragma).fetchall()
        except sqlite3.Error:
            opened.close()
            raise
        return opened
