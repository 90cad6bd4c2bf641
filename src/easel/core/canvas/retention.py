"""Values for trimming the logs of all canvases in batches. Does not know stores or time."""

from collections.abc import Sequence
from dataclasses import dataclass

from easel.ids import CanvasId, UserId

LogKey = tuple[UserId, CanvasId]  # also a position in the order of users and ids
START: LogKey = (UserId(""), CanvasId(""))


@dataclass(frozen=True, slots=True)
class OldLogs:
    """Canvases whose logs begin with old events, and the position of the next batch;

    None after the last one.
    """

    keys: Sequence[LogKey]
    next: LogKey | None
