"""Typed, sortable ids: a short kind, the millisecond it was made, and 80 random bits.

`run_06f8…` sorts by time as text, so that indexes stay compact and a listing reads in order. Knows nothing else.
"""

import os
import re
import time
from typing import NewType

RunId = NewType("RunId", str)
SessionId = NewType("SessionId", str)
UserId = NewType("UserId", str)
WorkerId = NewType("WorkerId", str)
MessageId = NewType("MessageId", str)
CallId = NewType("CallId", str)

OWNER = UserId("owner")  # the one user there is until accounts come

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no letter is mistaken for a digit
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_MADE = re.compile(r"[a-z]{1,8}_[0-9a-hjkmnp-tv-z]{26}")


def _sortable() -> str:
    number = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))


def new_run_id() -> RunId:
    return RunId(f"run_{_sortable()}")


def new_worker_id() -> WorkerId:
    return WorkerId(f"wrk_{_sortable()}")


def answer_id(run_id: RunId) -> MessageId:
    """The assistant's message of a run: the same one however many attempts the run takes."""
    return MessageId("msg_" + run_id.removeprefix("run_"))


def new_reference() -> str:
    """What a user can quote so that an operator finds the log line."""
    return f"ref_{_sortable()}"


def is_made_here(value: str) -> bool:
    """Whether this could be an id of ours at all: anything else is not worth a query."""
    return _MADE.fullmatch(value) is not None


def is_session_name(value: str) -> bool:
    """Callers make their own session ids: 1 to 128 characters of letters, digits and `._:-`."""
    return _NAME.fullmatch(value) is not None
