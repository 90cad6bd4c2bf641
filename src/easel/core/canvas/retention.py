"""Values for trimming the logs of all canvases in batches. Does not know stores or time."""

from collections.abc import Sequence
from dataclasses import dataclass

from easel.ids import AccountId, CanvasId

LogKey = tuple[AccountId, CanvasId]  # also a cursor: logs are listed in this order
START: LogKey = (AccountId(""), CanvasId(""))


@dataclass(frozen=True, slots=True)
class OldLogs:
    """A batch of canvases whose logs begin with old events. `next` is None after the last batch."""

    keys: Sequence[LogKey]
    next: LogKey | None
