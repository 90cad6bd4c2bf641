"""A session: a conversation, its title and its place in the list."""

from dataclasses import dataclass
from datetime import datetime

from easel.errors import BadInput
from easel.ids import RunId, SessionId, UserId, is_name

MAX_TITLE_LENGTH = 200
MADE_TITLE = 80  # of a title that we make
_MAIN = "agent:main:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    user_id: UserId
    session_id: SessionId
    title: str | None
    active_run_id: RunId | None
    oldest_thread_seq: int
    last_thread_seq: int
    created_at: datetime
    last_message_at: datetime


def key_of(session_id: str) -> str:
    """A session's key, `agent:{agentId}:{name}`: one that was made by its id is the main agent's, whatever that id looks like.

    No two sessions have the same key: by it they have their folders.
    """
    is_own = is_session_key(session_id) and not session_id.startswith(_MAIN)
    return session_id if is_own else f"{_MAIN}{session_id}"


def session_id_of_key(key: str) -> str:
    """The id of the session that has this key, whether it is there yet or not."""
    return key.removeprefix(_MAIN)


def is_session_key(text: str) -> bool:
    word, agent_id, name = (*text.split(":", 2), "", "")[:3]
    return word == "agent" and is_name(agent_id) and is_name(name)


def make_title(message: str) -> str:
    """The beginning of the first message, on one line, cut between words where that is possible."""
    line = " ".join(message[: 4 * MADE_TITLE].split())
    line = "".join(char for char in line if char.isprintable())
    if len(line) <= MADE_TITLE:
        return line or "Untitled"
    cut = line[: MADE_TITLE - 1].rpartition(" ")[0] or line[: MADE_TITLE - 1]
    return cut.rstrip() + "…"


def require_title(title: str) -> str:
    """A title given by a person: one line of printable characters."""
    plain = " ".join(title.split())
    if not plain or len(plain) > MAX_TITLE_LENGTH or not plain.isprintable():
        raise BadInput(problem=f"title is 1 to {MAX_TITLE_LENGTH} printable characters.")
    return plain
