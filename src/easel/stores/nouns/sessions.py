"""Sessions, their messages and their threads. The rules are in the statements of `sessions.sql`."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from easel.core.session.message import StoredMessage
from easel.core.session.session import Session
from easel.core.stream.json_text import to_json
from easel.core.stream.log import LAST_CURSOR, Bounds, LoggedEvent
from easel.ids import AccountId, RunId, SessionId, scoped_key
from easel.stores.nouns.deletions import SqlDeletions
from easel.stores.nouns.statements import Statements, Steps
from easel.stores.rows.runs import search_pattern, split_key, to_events, to_message, to_session


class SqlSessions:
    def __init__(self, statements: Statements, deletions: SqlDeletions) -> None:
        self._sql = statements
        self._deletions = deletions

    async def create(self, account_id: AccountId, session_id: SessionId, title: str | None) -> Session | None:
        arguments = {"account_id": account_id, "session_id": session_id, "title": title}
        created = await self._session("create_session", **arguments)
        if created is None:  # it exists, or is deleted and not purged yet, perhaps just purged by a worker
            await self._deletions.finish_session(account_id, session_id)
            created = await self._session("create_session", **arguments)
        return created

    async def get(self, account_id: AccountId, session_id: SessionId) -> Session | None:
        return await self._session("get_session", account_id=account_id, session_id=session_id)

    async def list_sessions(
        self, account_id: AccountId, *, search: str, before: tuple[datetime, SessionId] | None, limit: int
    ) -> list[Session]:
        at, name = before or (None, None)
        rows = await self._sql.rows(
            "list_sessions",
            account_id=account_id,
            search=search_pattern(search),
            before_at=at,
            before_id=name,
            limit=limit,
        )
        return [to_session(row) for row in rows]

    async def rename(self, account_id: AccountId, session_id: SessionId, title: str) -> Session | None:
        return await self._session(
            "rename_session", account_id=account_id, session_id=session_id, title=title
        )

    async def delete(self, account_id: AccountId, session_id: SessionId) -> list[RunId] | None:
        return await self._sql.transaction(_delete({"account_id": account_id, "session_id": session_id}))

    async def list_messages(
        self, account_id: AccountId, session_id: SessionId, *, before: int | None, limit: int
    ) -> list[StoredMessage]:
        rows = await self._sql.rows(
            "list_messages",
            account_id=account_id,
            session_id=session_id,
            before=LAST_CURSOR if before is None else before,
            limit=limit,
        )
        return [to_message(row) for row in reversed(rows)]

    async def bounds(self, account_id: AccountId, session_id: str, /) -> Bounds | None:
        row = await self._sql.row("thread_bounds", account_id=account_id, session_id=session_id)
        return Bounds(row["oldest_thread_seq"], row["last_thread_seq"], ended=False) if row else None

    async def heads(self, keys: Sequence[str], /) -> dict[str, int]:
        rows = await self._sql.rows("thread_heads", threads=to_json([split_key(key) for key in keys]))
        return {scoped_key(row["account_id"], row["session_id"]): row["last_thread_seq"] for row in rows}

    async def events_after(self, key: str, cursor: int, limit: int, /) -> list[LoggedEvent]:
        account_id, session_id = split_key(key)
        rows = await self._sql.rows(
            "thread_after", account_id=account_id, session_id=session_id, cursor=cursor, limit=limit
        )
        return to_events(row.values() for row in rows)

    async def _session(self, name: str, /, **arguments: str | None) -> Session | None:
        row = await self._sql.row(name, **arguments)
        return to_session(row) if row else None


def _delete(ids: Mapping[str, str]) -> Steps[list[RunId] | None]:
    if not (yield "lock_session", ids):
        return None
    runs = yield "unfinished_run_ids", ids
    yield "end_active_run", ids
    yield "mark_session", ids
    return [RunId(row["run_id"]) for row in runs]
