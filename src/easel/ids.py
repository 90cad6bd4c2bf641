"""Typed, sortable ids: a short kind, the millisecond it was made, and 80 random bits.

`run_06f8…` sorts by time as text, so that indexes stay compact and a listing reads in order. Knows nothing else.
"""

import os
import re
import time
from datetime import UTC, datetime, timedelta
from typing import NewType

RunId = NewType("RunId", str)
SessionId = NewType("SessionId", str)
UserId = NewType("UserId", str)
WorkerId = NewType("WorkerId", str)
MessageId = NewType("MessageId", str)
CallId = NewType("CallId", str)
ArtifactId = NewType("ArtifactId", str)
CanvasId = NewType("CanvasId", str)

OWNER = UserId("owner")  # the one user there is until accounts come

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no letter is mistaken for a digit
_PAIRS = [
    high + low for high in _ALPHABET for low in _ALPHABET
]  # two at a time, since every event and request has an id
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_ARTIFACT = re.compile(r"art_[0-9a-f]{64}")
_MADE = re.compile(r"[a-z]{1,8}_[0-9a-hjkmnp-tv-z]{26}")


def _sortable() -> str:
    """Milliseconds, the microseconds in them, and chance: what one process names one after another is in that order, by its clock."""
    milliseconds, microseconds = divmod(time.time_ns() // 1_000, 1_000)
    number = milliseconds << 80 | microseconds << 70 | int.from_bytes(os.urandom(9), "big") >> 2
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in range(120, -1, -10)])


def new_run_id() -> RunId:
    return RunId(f"run_{_sortable()}")


def new_worker_id() -> WorkerId:
    return WorkerId(f"wrk_{_sortable()}")


def answer_id(run_id: RunId) -> MessageId:
    """The assistant's message of a run: the same one however many attempts the run takes."""
    return MessageId("msg_" + run_id.removeprefix("run_"))


def asked_id(run_id: RunId) -> MessageId:
    """The user's message that a run answers."""
    return MessageId("ask_" + run_id.removeprefix("run_"))


def artifact_id(digest: str) -> ArtifactId:
    """An artifact is named by the SHA-256 of its bytes."""
    return ArtifactId(f"art_{digest}")


def is_artifact_id(value: str) -> bool:
    return _ARTIFACT.fullmatch(value) is not None


def new_session_id() -> SessionId:
    return SessionId(f"ses_{_sortable()}")


def new_event_id() -> str:
    """Names something that was done where no run did it."""
    return f"evt_{_sortable()}"


def new_view_id() -> str:
    return f"view_{_sortable()}"


def new_connection_id() -> str:
    return f"con_{_sortable()}"


def new_instance_id() -> str:
    """Names one start of a process, as the holder of connections."""
    return f"ins_{_sortable()}"


def new_call_id() -> CallId:
    """A call that is made to a tool node."""
    return CallId(f"call_{_sortable()}")


def new_token_id() -> str:
    """Names a token without telling it."""
    return f"tok_{_sortable()}"


def new_sign_in_id() -> str:
    """Names a browser's sign-in: its cookie, and all that is made under it."""
    return f"sign_{_sortable()}"


def new_blob_name() -> str:
    return _sortable()


def made_at(name: str) -> datetime | None:
    """When a sortable name was made: its first ten characters say so. None if no calendar has that day."""
    milliseconds = sum(
        _ALPHABET.index(char) << shift for char, shift in zip(name[:10], range(45, -1, -5), strict=True)
    )
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def new_reference() -> str:
    """What a user can quote so that an operator finds the log line."""
    return f"ref_{_sortable()}"


def is_made_here(value: str) -> bool:
    """Whether this could be an id of ours at all: anything else is not worth a query."""
    return _MADE.fullmatch(value) is not None


def is_name(value: str) -> bool:
    """Callers make their own session and canvas ids: 1 to 128 characters of letters, digits and `._:-`."""
    return _NAME.fullmatch(value) is not None


def owned(user_id: UserId, name: str) -> str:
    """A name that users choose is unique per user only; with its owner it is unique. No name has a slash."""
    return f"{user_id}/{name}"
