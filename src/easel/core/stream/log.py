"""Events and positions of a log. Owns the validation of cursors."""

from dataclasses import dataclass, field
from datetime import datetime

from easel.core.stream.envelope import Visibility
from easel.errors import BadInput, CursorOutOfRange

LAST_CURSOR = 2**63 - 1  # the database stores `seq` as a bigint


@dataclass(slots=True)
class LoggedEvent:
    """One event of a log. `data` is the stored JSON text, which is sent to clients without decoding it.

    `frame` caches the event in the form of a transport, so that it is rendered once for all viewers.
    """

    seq: int
    type: str
    visibility: Visibility
    at: datetime
    data: str
    frame: bytes | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The first and last position of a log, and whether the log has ended. `newest` is 0 for an empty log."""

    oldest: int
    newest: int
    ended: bool


def parse_cursor(text: str) -> int:
    """Return the cursor. Raises `BadInput` unless it is a whole number from 0 to 2^63-1 in plain digits."""
    if text.isascii() and text.isdigit() and len(text) <= 19 and (value := int(text)) <= LAST_CURSOR:
        return value
    raise BadInput(
        problem="The cursor (Last-Event-ID or last_event_id) must be a whole number from 0 to 2^63-1."
    )


def check_cursor(cursor: int, bounds: Bounds) -> None:
    """Raise `CursorOutOfRange` if the log has no events at the cursor, so that no gap is unnoticed. RS-34"""
    if cursor > bounds.newest or cursor < bounds.oldest - 1:
        raise CursorOutOfRange(cursor=cursor, oldest=bounds.oldest, newest=bounds.newest)
