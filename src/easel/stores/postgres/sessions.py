"""Sessions, their messages and their threads in Postgres.

The rules are in the statements of `sql/postgres/sessions.sql`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from easel.core.session.message import StoredMessage
from easel.core.session.session import Session
from easel.core.stream.log import LAST_CURSOR, Bounds, LoggedEvent
from easel.ids import RunId, SessionId, UserId, scoped_key
from easel.stores import named_sql
from easel.stores.rows.runs import search_pattern, split_key, to_events, to_message, to_session

if TYPE_CHECKING:
    from easel.stores.postgres.database import Connection, PostgresDatabase

SQL = named_sql.load("postgres", "sessions")


class PostgresSessions:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    async def create(self, user_id: UserId, session_id: SessionId, title: str | None) -> Session | None:
        arguments = {"user_id": user_id, "session_id": session_id, "title": title}
        row = await self._database.row(SQL["create_session"], **arguments)
        if row is None:  # it exists, or is deleted and not purged yet, perhaps just purged by a worker
            await self._database.deletions.finish_session(user_id, session_id)
            row = await self._database.row(SQL["create_session"], **arguments)
        return to_session(row) if row else None

    async def get(self, user_id: UserId, session_id: SessionId) -> Session | None:
        row = await self._database.row(SQL["get_session"], user_id=user_id, session_id=session_id)
        return to_session(row) if row else None

    async def list_sessions(
        self, user_id: UserId, *, search: str, before: tuple[datetime, SessionId] | None, limit: int
    ) -> list[Session]:
        at, name = before or (None, None)
        rows = await self._database.rows(
            SQL["list_sessions"],
            user_id=user_id,
            search=search_pattern(search),
            before_at=at,
            before_id=name,
            limit=limit,
        )
        return [to_session(row) for row in rows]

    async def rename(self, user_id: UserId, session_id: SessionId, title: str) -> Session | None:
        row = await self._database.row(
            SQL["rename_session"], user_id=user_id, session_id=session_id, title=title
        )
        return to_session(row) if row else None

    async def delete(self, user_id: UserId, session_id: SessionId) -> list[RunId] | None:
        ids = {"user_id": user_id, "session_id": session_id}
        async with self._database.connection() as connection, connection.transaction():
            if not await _fetch(connection, "lock_session", ids):
                return None
            runs = await _fetch(connection, "unfinished_run_ids", ids)
            await _fetch(connection, "end_active_run", ids)
            await _fetch(connection, "mark_session", ids)
            return [RunId(row["run_id"]) for row in runs]

    async def list_messages(
        self, user_id: UserId, session_id: SessionId, *, before: int | None, limit: int
    ) -> list[StoredMessage]:
        rows = await self._database.rows(
            SQL["list_messages"],
            user_id=user_id,
            session_id=session_id,
            before=LAST_CURSOR if before is None else before,
            limit=limit,
        )
        return [to_message(row) for row in reversed(rows)]

    async def bounds(self, user_id: UserId, session_id: str, /) -> Bounds | None:
        row = await self._database.row(SQL["thread_bounds"], user_id=user_id, session_id=session_id)
        return Bounds(row["oldest_thread_seq"], row["last_thread_seq"], ended=False) if row else None

    async def heads(self, keys: Sequence[str], /) -> dict[str, int]:
        ids = [split_key(key) for key in keys]
        rows = await self._database.rows(
            SQL["thread_heads"],
            user_ids=[user_id for user_id, _ in ids],
            session_ids=[session_id for _, session_id in ids],
        )
        return {scoped_key(row["user_id"], row["session_id"]): row["last_thread_seq"] for row in rows}

    async def events_after(self, key: str, cursor: int, limit: int, /) -> list[LoggedEvent]:
        user_id, session_id = split_key(key)
        rows = await self._database.rows(
            SQL["thread_after"], user_id=user_id, session_id=session_id, cursor=cursor, limit=limit
        )
        return to_events(rows)


async def _fetch(connection: "Connection", name: str, arguments: dict[str, Any]) -> list[Any]:
    return await connection.fetch(SQL[name].sql, *SQL[name].arguments(arguments))
