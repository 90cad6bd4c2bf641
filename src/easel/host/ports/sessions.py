"""Port of sessions: their store."""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from easel.core.session.events import BY_HOST
from easel.core.session.message import StoredMessage
from easel.core.session.session import Session
from easel.core.stream.envelope import Provenance
from easel.host.ports.streams import LogSource
from easel.ids import AccountId, RunId, SessionId, UserId


class SessionStore(LogSource, Protocol):
    """Sessions, their messages and their threads. Each change is appended to the log of the account."""

    async def create(
        self,
        account_id: AccountId,
        session_id: SessionId,
        title: str | None,
        by: Provenance = BY_HOST,
        *,
        created_by: UserId | None = None,
    ) -> Session | None:
        """Create a session. Returns None if the id is taken.

        If a deleted session of this id is not purged yet, it is purged first.
        """
        ...

    async def get(self, account_id: AccountId, session_id: SessionId) -> Session | None: ...

    async def list_sessions(
        self, account_id: AccountId, *, search: str, before: tuple[datetime, SessionId] | None, limit: int
    ) -> list[Session]:
        """Return sessions whose title or id contains `search`, latest message first."""
        ...

    async def rename(
        self, account_id: AccountId, session_id: SessionId, title: str, by: Provenance = BY_HOST
    ) -> Session | None: ...

    async def delete(
        self,
        account_id: AccountId,
        session_id: SessionId,
        by: Provenance = BY_HOST,
        *,
        check: Callable[[UserId | None], None] = ...,
    ) -> list[RunId] | None:
        """Delete a session with its runs and messages. Their rows are purged later, see `DeletionStore`.

        `check` gets who made the session while it is locked, and raises if it must not be deleted.

        The active run loses its claim. Returns the ids of the runs that had not ended, or None if there is no
        such session.
        """
        ...

    async def list_messages(
        self, account_id: AccountId, session_id: SessionId, *, before: int | None, limit: int
    ) -> list[StoredMessage]:
        """Return the newest `limit` messages with a position below `before`, oldest first."""
        ...
