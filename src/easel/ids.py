"""Typed, sortable ids: a short kind, the time of creation, and random bits.

`run_06f8…` sorts by time as text, so that indexes stay compact and lists are in order. Imports no other
module of Easel.
"""

import os
import re
import time
from datetime import UTC, datetime, timedelta
from typing import NewType

RunId = NewType("RunId", str)
SessionId = NewType("SessionId", str)
AccountId = NewType("AccountId", str)
UserId = NewType("UserId", str)  # a person; equal to the id of the person's own account
WorkerId = NewType("WorkerId", str)
MessageId = NewType("MessageId", str)
CallId = NewType("CallId", str)
ArtifactId = NewType("ArtifactId", str)
CanvasId = NewType("CanvasId", str)

OWNER = AccountId("owner")  # the account of the person who operates the host

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32
# Ids are encoded two characters at a time, to be fast: every event and request has an id.
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_ARTIFACT = re.compile(r"art_[0-9a-f]{64}")
_GENERATED = re.compile(r"[a-z]{1,8}_[0-9a-hjkmnp-tv-z]{26}")


def _sortable() -> str:
    """Return 48 bits of milliseconds, 10 of microseconds and 70 random bits as text."""
    milliseconds, microseconds = divmod(time.time_ns() // 1_000, 1_000)
    number = milliseconds << 80 | microseconds << 70 | int.from_bytes(os.urandom(9), "big") >> 2
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in range(120, -1, -10)])


def new_run_id() -> RunId:
    return RunId(f"run_{_sortable()}")


def new_worker_id() -> WorkerId:
    return WorkerId(f"wrk_{_sortable()}")


def answer_id(run_id: RunId) -> MessageId:
    """Return the id of the assistant's message of a run, which is the same for every attempt."""
    return MessageId("msg_" + run_id.removeprefix("run_"))


def question_id(run_id: RunId) -> MessageId:
    """Return the id of the user's message that started a run."""
    return MessageId("ask_" + run_id.removeprefix("run_"))


def artifact_id(digest: str) -> ArtifactId:
    """Return the id of an artifact: the SHA-256 of its content."""
    return ArtifactId(f"art_{digest}")


def is_artifact_id(value: str) -> bool:
    return _ARTIFACT.fullmatch(value) is not None


def new_session_id() -> SessionId:
    return SessionId(f"ses_{_sortable()}")


def new_event_id() -> str:
    """Return the id of an event outside of a run, such as an execution of a canvas action."""
    return f"evt_{_sortable()}"


def new_view_id() -> str:
    return f"view_{_sortable()}"


def new_connection_id() -> str:
    return f"con_{_sortable()}"


def new_instance_id() -> str:
    """Return the id of one process, as the owner of connections."""
    return f"ins_{_sortable()}"


def new_call_id() -> CallId:
    """Return the id of a call to a tool node."""
    return CallId(f"call_{_sortable()}")


def new_token_id() -> str:
    """Return the public id of a token, which does not reveal the secret."""
    return f"tok_{_sortable()}"


def new_sign_in_id() -> str:
    """Return the id of a browser's sign-in, shared by its cookie and its page tokens."""
    return f"sign_{_sortable()}"


def new_revision_id() -> str:
    """Return the id of one state of a connection's tokens, or of one refresh of them."""
    return f"rev_{_sortable()}"


def new_blob_name() -> str:
    return _sortable()


def timestamp_of(name: str) -> datetime | None:
    """Return the creation time of a sortable name, or None if it is out of range."""
    milliseconds = sum(
        _ALPHABET.index(char) << shift for char, shift in zip(name[:10], range(45, -1, -5), strict=True)
    )
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def new_reference() -> str:
    """Return a reference that a user can quote, so that an operator finds the log line."""
    return f"ref_{_sortable()}"


def is_generated_id(value: str) -> bool:
    """Return whether the value has the form of a generated id; a lookup of any other value can be skipped."""
    return _GENERATED.fullmatch(value) is not None


def is_name(value: str) -> bool:
    """Return whether the value can be a session or canvas id: 1 to 128 letters, digits and `._:-`."""
    return _NAME.fullmatch(value) is not None


def scoped_key(account_id: AccountId, name: str) -> str:
    """Return a globally unique key for a name that is unique per user. No name contains a slash."""
    return f"{account_id}/{name}"
