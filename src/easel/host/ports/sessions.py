"""What sessions need from outside: their store."""

from datetime import datetime
from typing import Protocol

from easel.core.session.message import StoredMessage
from easel.core.session.session import Session
from easel.host.ports.streams import LogSource
from easel.ids import RunId, SessionId, UserId


class SessionStore(LogSource, Protocol):
    """Sessions, their messages and their threads."""

    async def create(self, user_id: UserId, session_id: SessionId, title: str | None) -> Session | None:
        """None: there is one already."""
        ...

    async def get(self, user_id: UserId, session_id: SessionId) -> Session | None: ...

    async def list_sessions(
        self, user_id: UserId, *, search: str, before: tuple[datetime, SessionId] | None, limit: int
    ) -> list[Session]:
        """Latest message first; `search` is looked for in titles and ids."""
        ...

    async def rename(self, user_id: UserId, session_id: SessionId, title: str) -> Session | None: ...

    async def delete(self, user_id: UserId, session_id: SessionId) -> list[RunId] | None:
        """With all that belongs to it; the runs that went with it. None: there was no such session."""
        ...

    async def list_messages(
        self, user_id: UserId, session_id: SessionId, *, before: int | None, limit: int
    ) -> list[StoredMessage]:
        """The newest below `before`, oldest first."""
        ...
