"""Going over the logs of all canvases to shorten what is old: where such a round stands, and what one look at it found."""

from collections.abc import Sequence
from dataclasses import dataclass

from easel.ids import CanvasId, UserId

LogPlace = tuple[UserId, CanvasId]  # the canvas that was looked at last, in the order of users and ids
START: LogPlace = (UserId(""), CanvasId(""))


@dataclass(frozen=True, slots=True)
class OldLogs:
    """The canvases whose logs begin with what is old, and where to go on; None: that was all."""

    found: Sequence[LogPlace]
    next: LogPlace | None
