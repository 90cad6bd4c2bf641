"""Sessions: their keys and titles."""

from dataclasses import dataclass
from datetime import datetime

from easel.errors import BadInput
from easel.ids import AccountId, RunId, SessionId, UserId, is_name

MAX_TITLE_LENGTH = 200
MAX_GENERATED_TITLE_LENGTH = 80
MAIN_ALIAS = "main"  # in place of a session key: the main session of the agent
_MAIN = "agent:main:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    account_id: AccountId
    session_id: SessionId
    title: str | None
    created_by: UserId | None  # the person who made it, or answers for the program that did
    active_run_id: RunId | None
    oldest_thread_seq: int
    last_thread_seq: int
    created_at: datetime
    last_message_at: datetime


def to_session_key(session_id: str) -> str:
    """Return the key of a session, `agent:{agentId}:{name}`. An id without an agent is of agent `main`.

    The key names the session's working directory, so no two sessions have the same key.
    """
    is_own = is_session_key(session_id) and not session_id.startswith(_MAIN)
    return session_id if is_own else f"{_MAIN}{session_id}"


def session_id_of_key(key: str) -> str:
    """Return the id of the session with this key; the session need not exist."""
    return key.removeprefix(_MAIN)


def is_session_key(text: str) -> bool:
    word, agent_id, name = (*text.split(":", 2), "", "")[:3]
    return word == "agent" and is_name(agent_id) and is_name(name)


def main_session_key(agent_id: str) -> str:
    return f"agent:{agent_id}:main"


def resolve_session_key(key: str | None, agent_id: str) -> str | None:
    """Return the session key, with the alias `main` replaced by the main session of the agent. RS-67"""
    return main_session_key(agent_id) if key == MAIN_ALIAS else key


def make_title(message: str) -> str:
    """Return the beginning of a message on one line, cut between words if possible."""
    line = " ".join(message[: 4 * MAX_GENERATED_TITLE_LENGTH].split())
    line = "".join(char for char in line if char.isprintable())
    if len(line) <= MAX_GENERATED_TITLE_LENGTH:
        return line or "Untitled"
    cut = line[: MAX_GENERATED_TITLE_LENGTH - 1].rpartition(" ")[0] or line[: MAX_GENERATED_TITLE_LENGTH - 1]
    return cut.rstrip() + "…"


def require_title(title: str) -> str:
    """Return the title on one line. Raises `BadInput` unless it is printable and short enough."""
    plain = " ".join(title.split())
    if not plain or len(plain) > MAX_TITLE_LENGTH or not plain.isprintable():
        raise BadInput(problem=f"title must be 1 to {MAX_TITLE_LENGTH} printable characters.")
    return plain
