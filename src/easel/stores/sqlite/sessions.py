"""Sessions, their messages and their threads in SQLite.

The rules are in the statements of `sql/sqlite/sessions.sql`.
"""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from easel.core.session.message import StoredMessage
from easel.core.session.session import Session
from easel.core.stream.log import LAST_CURSOR, Bounds, LoggedEvent
from easel.ids import RunId, SessionId, UserId, scoped_key
from easel.stores import named_sql
from easel.stores.rows.runs import search_pattern, split_key, to_events, to_message, to_session
from easel.stores.sqlite.times import from_datetime, to_datetime

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase

SQL = named_sql.load("sqlite", "sessions")


class SqliteSessions:
    def __init__(self, database: "SqliteDatabase") -> None:
        self._database = database

    async def create(self, user_id: UserId, session_id: SessionId, title: str | None) -> Session | None:
        arguments = {"user_id": user_id, "session_id": session_id, "title": title}
        created = await self._change("create_session", now=self._database.clock(), **arguments)
        if created is None:  # it exists, or is deleted and not purged yet, perhaps just purged by a worker
            await self._database.deletions.finish_session(user_id, session_id)
            created = await self._change("create_session", now=self._database.clock(), **arguments)
        return created

    async def get(self, user_id: UserId, session_id: SessionId) -> Session | None:
        rows = await self._read("get_session", user_id=user_id, session_id=session_id)
        return to_session(rows[0], to_datetime) if rows else None

    async def list_sessions(
        self, user_id: UserId, *, search: str, before: tuple[datetime, SessionId] | None, limit: int
    ) -> list[Session]:
        at, name = (from_datetime(before[0]), before[1]) if before else (None, None)
        rows = await self._read(
            "list_sessions",
            user_id=user_id,
            search=search_pattern(search),
            before_at=at,
            before_id=name,
            limit=limit,
        )
        return [to_session(row, to_datetime) for row in rows]

    async def rename(self, user_id: UserId, session_id: SessionId, title: str) -> Session | None:
        return await self._change("rename_session", user_id=user_id, session_id=session_id, title=title)

    async def delete(self, user_id: UserId, session_id: SessionId) -> list[RunId] | None:
        ids = {"user_id": user_id, "session_id": session_id}

        def work(connection: sqlite3.Connection) -> list[RunId] | None:
            marked = {**ids, "now": self._database.clock()}
            if not connection.execute(SQL["mark_session"].sql, marked).fetchall():
                return None
            unfinished = connection.execute(SQL["unfinished_run_ids"].sql, ids).fetchall()
            connection.execute(SQL["end_active_run"].sql, marked)
            return [RunId(row["run_id"]) for row in unfinished]

        return await self._database.write(work)

    async def list_messages(
        self, user_id: UserId, session_id: SessionId, *, before: int | None, limit: int
    ) -> list[StoredMessage]:
        rows = await self._read(
            "list_messages",
            user_id=user_id,
            session_id=session_id,
            before=LAST_CURSOR if before is None else before,
            limit=limit,
        )
        return [to_message(row, to_datetime) for row in reversed(rows)]

    async def bounds(self, user_id: UserId, session_id: str, /) -> Bounds | None:
        rows = await self._read("thread_bounds", user_id=user_id, session_id=session_id)
        return Bounds(rows[0]["oldest_thread_seq"], rows[0]["last_thread_seq"], ended=False) if rows else None

    async def heads(self, keys: Sequence[str], /) -> dict[str, int]:
        rows = await self._read(
            "thread_heads", threads=msgspec.json.encode([split_key(key) for key in keys]).decode()
        )
        return {scoped_key(row["user_id"], row["session_id"]): row["last_thread_seq"] for row in rows}

    async def events_after(self, key: str, cursor: int, limit: int, /) -> list[LoggedEvent]:
        user_id, session_id = split_key(key)
        rows = await self._read(
            "thread_after", user_id=user_id, session_id=session_id, cursor=cursor, limit=limit
        )
        return to_events(rows, to_datetime)

    async def _read(self, name: str, **arguments: Any) -> list[Any]:
        return await self._database.read(
            lambda connection: connection.execute(SQL[name].sql, arguments).fetchall()
        )

    async def _change(self, name: str, **arguments: Any) -> Session | None:
        rows: list[Any] = await self._database.write(
            lambda connection: connection.execute(SQL[name].sql, arguments).fetchall()
        )
        return to_session(rows[0], to_datetime) if rows else None
