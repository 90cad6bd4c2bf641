"""Schema migrations: SQL files, numbered per dialect, without downgrades.

A migration only adds tables, columns and indexes, so that instances of the previous release keep working
while they are replaced one by one. Until the first public release there is one migration, which is edited.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from easel.errors import BadSettings

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")

CREATE_LEDGER = """create table if not exists schema_migrations (
  version integer primary key, name text not null, checksum text not null,
  applied_at text not null default current_timestamp)"""


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str

    @property
    def title(self) -> str:
        return f"{self.version:04} {self.name}"

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def available(dialect: str) -> list[Migration]:
    """Return all migrations of this release, oldest first."""
    folder = resources.files("easel.stores").joinpath("migrations", dialect)
    files = [(match, entry) for entry in folder.iterdir() if (match := _FILE.fullmatch(entry.name))]
    return sorted(
        (Migration(int(match[1]), match[2], entry.read_text("utf-8")) for match, entry in files),
        key=lambda migration: migration.version,
    )


def missing(dialect: str, recorded: Iterable[Mapping[str, Any]]) -> list[Migration]:
    """Return the migrations that are not recorded in a database, given the rows of its ledger.

    A newer release may have recorded more. Raises `BadSettings` if the recorded migrations are others.
    """
    ours = available(dialect)
    rows = sorted(recorded, key=lambda row: row["version"])
    for migration, row in zip(ours, rows, strict=False):
        if (row["version"], row["name"], row.get("checksum")) != (
            migration.version,
            migration.name,
            migration.checksum,
        ):
            raise BadSettings(
                problem="The database was written by another development version of Easel: its migration "
                f"{row['version']:04} {row['name']} differs from this version's {migration.title}. "
                "Save its canvases with `easel canvas export` of the version that wrote it, then set "
                "EASEL_DATA to a new folder, or EASEL_DATABASE_URL to a new database."
            )
    return ours[len(rows) :]
