"""Schema changes: plain SQL files, forward only, numbered per dialect.

A database that is ahead of this code is fine: changes only add, so old code runs on a new schema while a fleet is
being replaced.
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
    folder = resources.files("easel.stores").joinpath("migrations", dialect)
    found = [(match, entry) for entry in folder.iterdir() if (match := _FILE.fullmatch(entry.name))]
    return sorted(
        (Migration(int(match[1]), match[2], entry.read_text("utf-8")) for match, entry in found),
        key=lambda m: m.version,
    )


def missing(dialect: str, applied: set[int]) -> list[Migration]:
    return [migration for migration in available(dialect) if migration.version not in applied]
