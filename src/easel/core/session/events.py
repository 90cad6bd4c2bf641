"""The events of an account's log: its sessions, created, renamed and removed.

Owns their payload and provenance, which names the principal that acted and the run that caused the change or,
if there is none, the session. Does not know the log.
"""

from easel.core.principal import ActorKind, Principal
from easel.core.session.session import to_session_key
from easel.core.stream.envelope import Envelope, Provenance, seal

CREATED, RENAMED, REMOVED = "session.created", "session.renamed", "session.removed"
BY_HOST = Provenance("easel", "host", "host", kind=ActorKind.SERVICE)


def session_change_by(principal: Principal, cause: str) -> Provenance:
    """Return who changes a session; `cause` is the run or the session."""
    return Provenance(principal.actor_id, "session", principal.run_id or cause, kind=principal.actor_kind)


def session_event(event_type: str, session_id: str, title: str | None, by: Provenance) -> Envelope:
    """Return the event. Its data is the same for the three types."""
    return seal(event_type, {"session_id": session_id, "key": to_session_key(session_id), "title": title}, by)
