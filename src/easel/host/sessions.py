"""Sessions: create, find, rename and delete them, and list their messages.

Owns validation, audit and notifications. Does not know how runs are executed.
"""

import contextlib
from datetime import datetime
from functools import partial

from easel.core.access import check_may_delete
from easel.core.principal import Principal
from easel.core.session.events import session_change_by
from easel.core.session.message import StoredMessage
from easel.core.session.session import Session, require_title
from easel.core.stream.notifications import AccountAppended, CancelRequested, LogDeleted
from easel.errors import AlreadyExists, BadInput, NotFound, RunFinished, Unavailable
from easel.host.audit.audit import Audit
from easel.host.ports import LogSource, Notifier, SessionStore
from easel.host.runs.queue import INVALID_SESSION_ID, RunQueue
from easel.ids import SessionId, is_name, new_session_id, scoped_key

MAX_SEARCH_LENGTH = 200


class Sessions:
    def __init__(
        self, sessions: SessionStore, accounts: LogSource, queue: RunQueue, notifier: Notifier, audit: Audit
    ) -> None:
        self._sessions = sessions
        self._accounts = accounts
        self._queue = queue
        self._notifier = notifier
        self._audit = audit

    async def create(self, principal: Principal, session_id: str | None, title: str | None) -> Session:
        if session_id is not None and not is_name(session_id):
            raise BadInput(problem=INVALID_SESSION_ID)
        name = SessionId(session_id) if session_id is not None else new_session_id()
        title = require_title(title) if title is not None else None
        session = await self._sessions.create(
            principal.account_id,
            name,
            title,
            session_change_by(principal, name),
            created_by=principal.responsible,
        )
        if session is None:
            raise AlreadyExists(what="session", id=name)
        await self._audit.record(principal, "session.created", subject=name)
        await self._notify_account(principal)
        return session

    async def get(self, principal: Principal, session_id: str) -> Session:
        session = await self._sessions.get(principal.account_id, _to_id(session_id))
        return _require(session, session_id)

    async def list_sessions(
        self, principal: Principal, search: str, before: tuple[datetime, SessionId] | None, limit: int
    ) -> list[Session]:
        if len(search) > MAX_SEARCH_LENGTH or "\x00" in search:
            raise BadInput(problem=f"search must be at most {MAX_SEARCH_LENGTH} characters without NUL.")
        return await self._sessions.list_sessions(
            principal.account_id, search=search, before=before, limit=limit
        )

    async def rename(self, principal: Principal, session_id: str, title: str) -> Session:
        title = require_title(title)
        by = session_change_by(principal, session_id)
        session = await self._sessions.rename(principal.account_id, _to_id(session_id), title, by)
        renamed = _require(session, session_id)
        await self._audit.record(principal, "session.renamed", subject=session_id)
        await self._notify_account(principal)
        return renamed

    async def delete(self, principal: Principal, session_id: str) -> None:
        """Delete a session with its runs, their logs, boards and messages, and notify workers and viewers.

        Raises `Forbidden` for a member who did not make it. RS-76
        """
        by = session_change_by(principal, session_id)
        check = partial(check_may_delete, principal, "session")
        run_ids = await self._sessions.delete(principal.account_id, _to_id(session_id), by, check=check)
        if run_ids is None:
            raise NotFound(what="session", id=session_id)
        await self._audit.record(
            principal, "session.deleted", subject=session_id, details={"runs": len(run_ids)}
        )
        self._notifier.notify(LogDeleted("session", scoped_key(principal.account_id, session_id)))
        for run_id in run_ids:
            self._notifier.notify(CancelRequested(run_id))
            self._notifier.notify(LogDeleted("run", run_id))
        await self._notify_account(principal)

    async def _notify_account(self, principal: Principal) -> None:
        """Notify the subscribers of the account's log. Without a notification, a poll is enough."""
        with contextlib.suppress(Unavailable):
            for account_id, seq in (await self._accounts.heads([principal.account_id])).items():
                self._notifier.notify(AccountAppended(account_id, seq))

    async def list_messages(
        self, principal: Principal, session_id: str, before: int | None, limit: int
    ) -> list[StoredMessage]:
        await self.get(principal, session_id)
        return await self._sessions.list_messages(
            principal.account_id, SessionId(session_id), before=before, limit=limit
        )

    async def stop(self, principal: Principal, session_id: str) -> None:
        """Cancel the session's active run, if there is one; queued runs stay in the queue."""
        session = await self._sessions.get(principal.account_id, SessionId(session_id))
        if session is None or session.active_run_id is None:
            return
        try:
            await self._queue.cancel(principal, session.active_run_id)
        except (RunFinished, NotFound):
            return  # the run has just ended


def _to_id(session_id: str) -> SessionId:
    if not is_name(session_id):
        raise NotFound(what="session", id=session_id)
    return SessionId(session_id)


def _require(session: Session | None, session_id: str) -> Session:
    if session is None:
        raise NotFound(what="session", id=session_id)
    return session
