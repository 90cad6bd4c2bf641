"""The audit chain in SQLite. The rules are in the statements of `sql/sqlite/audit.sql`."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from easel.core.audit.chain import ChainEnd, ChainPosition, Link, link_entries
from easel.core.audit.record import Entry, StorageClass
from easel.core.stream.log import LAST_CURSOR
from easel.errors import BadSettings
from easel.stores import named_sql
from easel.stores.sqlite.connection import BUSY_SECONDS, Connector
from easel.stores.sqlite.executor import Answer, ReaderThreads, Work
from easel.stores.sqlite.schema import newest_applied
from easel.stores.sqlite.times import from_datetime, to_datetime

SQL = named_sql.load("sqlite", "audit")

Row = Any  # a sqlite3.Row; the types of its columns depend on the statement


class AuditDatabase(Protocol):
    async def read(self, work: Work[Answer]) -> Answer: ...

    async def write(self, work: Work[Answer]) -> Answer: ...


class SqliteAudit:
    def __init__(self, database: AuditDatabase) -> None:
        self._database = database

    async def append(self, entries: Sequence[Entry]) -> None:
        if entries:
            await self._database.write(lambda connection: _append(connection, entries))

    async def get_end(self) -> ChainEnd:
        row = (await self._rows("end_of_chain"))[0]
        return ChainEnd(
            None if row["last_seq"] is None else ChainPosition(row["last_seq"], row["last_hash"]),
            row["newest"],
        )

    async def list_after(self, seq: int, last: int, limit: int) -> list[Link]:
        return [_link(row) for row in await self._rows("records_after", seq=seq, last=last, limit=limit)]

    async def list_records(
        self,
        *,
        action: str | None,
        storage_class: StorageClass | None,
        since: datetime | None,
        until: datetime | None,
        before: int | None,
        limit: int,
    ) -> list[Link]:
        rows = await self._rows(
            "list_records" if action is None else "list_records_of_action",
            action=action,
            storage_class=storage_class.value if storage_class else None,
            since=None if since is None else from_datetime(since),
            until=None if until is None else from_datetime(until),
            before=LAST_CURSOR if before is None else before,
            limit=limit,
        )
        return [_link(row) for row in rows]

    async def _rows(self, name: str, **arguments: Any) -> list[Row]:
        return await self._database.read(
            lambda connection: connection.execute(SQL[name].sql, arguments).fetchall()
        )


class AuditReader:
    """Reads the audit chain of a file that a running server may have open. Does not lock the data folder."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise BadSettings(
                problem=f"There is no database at {path}; "
                "set its folder with --data, or set EASEL_DATABASE_URL."
            )
        self._readers = ReaderThreads("audit", Connector(path, "full", BUSY_SECONDS).reader, 1)
        self.audit = SqliteAudit(self)

    async def read(self, work: Work[Answer]) -> Answer:
        return await self._readers.run(work)

    async def write(self, work: Work[Answer]) -> Answer:
        raise NotImplementedError("The audit reader is read-only.")

    async def schema_version(self) -> int:
        return await self.read(newest_applied)

    async def close(self) -> None:
        await self._readers.close()


def _append(connection: sqlite3.Connection, entries: Sequence[Entry]) -> None:
    head = connection.execute(SQL["head"].sql).fetchall()
    if not head:
        raise LookupError("The head of the audit chain is missing; no record can be appended.")
    links = link_entries(ChainPosition(head[0]["last_seq"], head[0]["last_hash"]), entries)
    connection.executemany(SQL["add_record"].sql, [_columns(link) for link in links])
    connection.execute(SQL["move_head"].sql, {"last_seq": links[-1].seq, "last_hash": links[-1].hash})


def _columns(link: Link) -> dict[str, Any]:
    return {
        "seq": link.seq,
        "user_id": link.user_id,
        "at": from_datetime(link.at),
        "storage_class": link.storage_class,
        "action": link.action,
        "record": link.record,
        "hash": link.hash,
    }


def _link(row: Row) -> Link:
    columns: dict[str, Any] = dict(row)
    columns["at"] = to_datetime(columns["at"])
    return Link(**columns)
