"""The audit chain in SQLite. The rules are in the statements of `sql/sqlite/audit.sql`."""

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from easel.core.audit.chain import ChainEnd, ChainPosition, Checkpoint, Link, link_entries
from easel.core.audit.record import Entry, StorageClass
from easel.core.stream.log import LAST_CURSOR
from easel.errors import BadSettings
from easel.stores import named_sql
from easel.stores.sqlite.connection import BUSY_SECONDS, Connector
from easel.stores.sqlite.executor import Answer, ReaderThreads, Work
from easel.stores.sqlite.schema import newest_applied
from easel.stores.sqlite.times import from_datetime, to_datetime

SQL = named_sql.load("sqlite", "audit")
MAX_COMPARED = 10_000  # newest records among which a repeated entry is searched

Row = Any  # a sqlite3.Row; the types of its columns depend on the statement


class AuditDatabase(Protocol):
    async def read(self, work: Work[Answer]) -> Answer: ...

    async def write(self, work: Work[Answer]) -> Answer: ...


class SqliteAudit:
    def __init__(self, database: AuditDatabase) -> None:
        self._database = database

    async def append(self, entries: Sequence[Entry], *, is_repeat: bool = False) -> None:
        if entries:
            await self._database.write(lambda connection: _append(connection, entries, is_repeat=is_repeat))

    async def get_checkpoint(self) -> Checkpoint | None:
        rows = await self._rows("checkpoint")
        return (
            Checkpoint(ChainPosition(rows[0]["seq"], rows[0]["hash"]), rows[0]["signature"]) if rows else None
        )

    async def signing_key(self) -> str | None:
        rows = await self._rows("stored_signing_key")
        return rows[0]["key"] if rows else None

    async def shorten(self, checkpoint: Checkpoint) -> int:
        return await self._database.write(lambda connection: _shorten(connection, checkpoint))

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


def _shorten(connection: sqlite3.Connection, checkpoint: Checkpoint) -> int:
    stored = {
        "seq": checkpoint.position.seq,
        "hash": checkpoint.position.hash,
        "signature": checkpoint.signature,
        "now": from_datetime(datetime.now(UTC)),
    }
    if not connection.execute(SQL["store_checkpoint"].sql, stored).fetchall():
        return 0
    return connection.execute(SQL["remove_records"].sql, {"seq": checkpoint.position.seq}).rowcount


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
