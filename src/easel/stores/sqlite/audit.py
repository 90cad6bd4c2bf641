"""The audit chain in SQLite. The rules are in the statements of `audit.sql`."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from easel.core.audit.chain import ChainPosition, Link, link_entries
from easel.core.audit.record import Entry
from easel.stores import named_sql
from easel.stores.nouns.audit import MAX_COMPARED, SqlAudit
from easel.stores.sqlite.statements import SqliteAccess, SqliteStatements
from easel.stores.sqlite.times import from_datetime

SQL = named_sql.load("sqlite", "audit")


class SqliteAudit(SqlAudit):
    def __init__(self, database: SqliteAccess) -> None:
        super().__init__(SqliteStatements(database, "audit"))
        self._database = database

    async def append(self, entries: Sequence[Entry], *, is_repeat: bool = False) -> None:
        if entries:
            await self._database.write(lambda connection: _append(connection, entries, is_repeat=is_repeat))


def _append(connection: sqlite3.Connection, entries: Sequence[Entry], *, is_repeat: bool) -> None:
    if is_repeat:
        rows = connection.execute(SQL["newest_records"].sql, {"limit": MAX_COMPARED}).fetchall()
        stored = {row["rest"] for row in rows}
        entries = [entry for entry in entries if entry.rest not in stored]
        if not entries:
            return
    head = connection.execute(SQL["head"].sql).fetchall()
    if not head:
        raise LookupError("The head of the audit chain is missing; no record can be appended.")
    links = link_entries(ChainPosition(head[0]["last_seq"], head[0]["last_hash"]), entries)
    connection.executemany(SQL["add_record"].sql, [_columns(link) for link in links])
    connection.execute(SQL["move_head"].sql, {"last_seq": links[-1].seq, "last_hash": links[-1].hash})


def _columns(link: Link) -> dict[str, Any]:
    return {
        "seq": link.seq,
        "account_id": link.account_id,
        "at": from_datetime(link.at),
        "storage_class": link.storage_class,
        "action": link.action,
        "record": link.record,
        "hash": link.hash,
    }
