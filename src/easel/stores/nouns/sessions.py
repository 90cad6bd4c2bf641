"""Sessions, their messages and their threads. The rules are in the statements of `sessions.sql`."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from easel.core.session.events import BY_HOST, CREATED, REMOVED, RENAMED, session_event
from easel.core.session.message import StoredMessage
from easel.core.session.session import Session
from easel.core.stream.envelope import Provenance
from easel.core.stream.json_text import to_json
from easel.core.stream.log import LAST_CURSOR, Bounds, LoggedEvent
from easel.ids import AccountId, RunId, SessionId, UserId, scoped_key
from easel.stores.nouns.deletions import SqlDeletions
from easel.stores.nouns.statements import Statements, Steps
from easel.stores.rows.runs import search_pattern, split_key, to_events, to_message, to_session

Listed = Mapping[str, str | None]  # the ids and the title of a session


def _may_delete(_created_by: UserId | None, /) -> None:
    """Allow any deletion: the caller has checked it."""


class SqlSessions:
    def __init__(self, statements: Statements, deletions: SqlDeletions) -> None:
        self._sql = statements
        self._deletions = deletions

    async def create(
        self,
        account_id: AccountId,
        session_id: SessionId,
        title: str | None,
        by: Provenance = BY_HOST,
        *,
        created_by: UserId | None = None,
    ) -> Session | None:
        ids = {"account_id": account_id, "session_id": session_id}
        listed = {**ids, "title": title, "created_by": created_by}
        created = await self._sql.transaction(_change("create_session", CREATED, listed, by))
        if created is None:  # it exists, or is deleted and not purged yet, perhaps just purged by a worker
            await self._deletions.finish_session(account_id, session_id)
            created = await self._sql.transaction(_change("create_session", CREATED, listed, by))
        return created

    async def get(self, account_id: AccountId, session_id: SessionId) -> Session | None:
        row = await self._sql.row("get_session", account_id=account_id, session_id=session_id)
        return to_session(row) if row else None

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

    async def rename(
        self, account_id: AccountId, session_id: SessionId, title: str, by: Provenance = BY_HOST
    ) -> Session | None:
        listed = {"account_id": account_id, "session_id": session_id, "title": title}
        return await self._sql.transaction(_change("rename_session", RENAMED, listed, by))

    async def delete(
        self,
        account_id: AccountId,
        session_id: SessionId,
        by: Provenance = BY_HOST,
        *,
        check: Callable[[UserId | None], None] = _may_delete,
    ) -> list[RunId] | None:
        ids = {"account_id": account_id, "session_id": session_id}
        return await self._sql.transaction(_delete(ids, by, check))

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


def append_event(event_type: str, listed: Listed, by: Provenance) -> Steps[int]:
    """Append a change of a session to the log of its account. Returns the position."""
    event = session_event(event_type, str(listed["session_id"]), listed["title"], by)
    rows = yield (
        "append_account_event",
        {"account_id": listed["account_id"], "event_type": event.type, "payload": event.json},
    )
    return rows[0]["seq"]


def _change(name: str, event_type: str, listed: Listed, by: Provenance) -> Steps[Session | None]:
    rows = yield name, listed
    if not rows:
        return None
    yield from append_event(event_type, listed, by)
    return to_session(rows[0])


def _delete(
    ids: Mapping[str, str], by: Provenance, check: Callable[[UserId | None], None]
) -> Steps[list[RunId] | None]:
    if not (found := (yield "lock_session", ids)):
        return None
    check(found[0]["created_by"])
    runs = yield "unfinished_run_ids", ids
    yield "end_active_run", ids
    [marked] = yield "mark_session", ids
    yield from append_event(REMOVED, {**ids, "title": marked["title"]}, by)
    return [RunId(row["run_id"]) for row in runs]
