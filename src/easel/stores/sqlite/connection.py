"""Connections to a SQLite file: their settings, and the classification of transient failures."""

import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

OLDEST_SQLITE = (3, 37, 0)  # the first version with strict tables
BUSY_SECONDS = 5.0  # another process, such as a backup tool, may lock the file briefly

# Primary result codes of failures caused by the disk, the file or another process, not by the statement.
_TRANSIENT = frozenset({
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
_PRIMARY = 0xFF  # the low byte of an extended result code is the primary code

_COMMON_PRAGMAS = ("pragma foreign_keys = on", "pragma temp_store = memory", "pragma cache_size = -8000")
_READER_PRAGMAS = ("pragma query_only = on",)
_WRITER_PRAGMAS = (
    "pragma journal_mode = wal",
    "pragma journal_size_limit = 67108864",  # truncate a WAL that grew larger in a burst
)
# On macOS a plain fsync does not reach the disk. Elsewhere the two fullfsync settings have no effect.
_FULL_PRAGMAS = ("pragma synchronous = full", "pragma fullfsync = on", "pragma checkpoint_fullfsync = on")
_NORMAL_PRAGMAS = ("pragma synchronous = normal",)


def is_transient(problem: BaseException) -> bool:
    """Return whether a retry can succeed.

    SQLite may have rolled back the whole transaction after a transient failure.
    """
    code = getattr(problem, "sqlite_errorcode", None)
    return isinstance(problem, sqlite3.Error) and code is not None and code & _PRIMARY in _TRANSIENT


def _matches(text: str | None, pattern: str) -> bool:
    """Return whether a pattern of `rows.runs.search_pattern` is found in the text.

    SQLite's own `like` ignores the case of ASCII letters only.
    """
    return text is not None and re.search(pattern, text) is not None


@dataclass(frozen=True, slots=True)
class Connector:
    """Opens connections to one file. A connection belongs to the thread that opened it."""

    path: Path
    synchronous: str
    busy_seconds: float

    def writer(self) -> sqlite3.Connection:
        durability = _FULL_PRAGMAS if self.synchronous == "full" else _NORMAL_PRAGMAS
        return self._connect(_COMMON_PRAGMAS + _WRITER_PRAGMAS + durability)

    def reader(self) -> sqlite3.Connection:
        return self._connect(_COMMON_PRAGMAS + _READER_PRAGMAS)

    def _connect(self, pragmas: tuple[str, ...]) -> sqlite3.Connection:
        # `isolation_level=None`: otherwise Python would begin transactions implicitly.
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
