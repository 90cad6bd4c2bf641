"""Schema migrations: SQL files, numbered per dialect, without downgrades.

A migration only adds tables, columns and indexes, so that instances of the previous release keep working
while they are replaced one by one.
"""

import re
from dataclasses import dataclass
from importlib import resources

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")

CREATE_LEDGER = """create table if not exists schema_migrations (
  version integer primary key, name text not null, applied_at text not null default current_timestamp)"""


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str


def available(dialect: str) -> list[Migration]:
    """Return all migrations of this release, oldest first."""
    folder = resources.files("easel.stores").joinpath("migrations", dialect)
    files = [(match, entry) for entry in folder.iterdir() if (match := _FILE.fullmatch(entry.name))]
    return sorted(
        (Migration(int(match[1]), match[2], entry.read_text("utf-8")) for match, entry in files),
        key=lambda migration: migration.version,
    )


def missing(dialect: str, applied: set[int]) -> list[Migration]:
    return [migration for migration in available(dialect) if migration.version not in applied]
