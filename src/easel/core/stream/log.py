"""Positions in a log: what a cursor means and when it can no longer be served."""

from dataclasses import dataclass, field
from datetime import datetime

from easel.core.stream.envelope import Visibility
from easel.errors import BadInput, CursorOutOfRange

LAST_CURSOR = 2**63 - 1  # seq is a bigint


@dataclass(slots=True)
class LoggedEvent:
    """One event as it lies in a log. `data` stays the JSON text that was stored: a tail passes it on unread.

    `frame` is what a transport made of it, kept here so that five hundred viewers cost one rendering.
    """

    seq: int
    type: str
    visibility: Visibility
    at: datetime
    data: str
    frame: bytes | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a log holds: `oldest` to `newest`, empty when newest is 0; `ended` when its last event is there."""

    oldest: int
    newest: int
    ended: bool


def parse_cursor(text: str) -> int:
    """A whole number from 0 to 2^63-1, written plainly; anything else is a mistake worth telling."""
    if text.isascii() and text.isdigit() and len(text) <= 19 and (value := int(text)) <= LAST_CURSOR:
        return value
    raise BadInput(
        problem="The cursor (Last-Event-ID or last_event_id) is the id of an event: a whole number from 0 to 9223372036854775807."
    )


def check_cursor(cursor: int, bounds: Bounds) -> None:
    """Outside what is held is an error and never a silent gap. RS-34"""
    if cursor > bounds.newest or cursor < bounds.oldest - 1:
        raise CursorOutOfRange(cursor=cursor, oldest=bounds.oldest, newest=bounds.newest)
