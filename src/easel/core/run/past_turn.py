"""A turn of a session as it is stored: the messages of an ended run, without its log."""

from dataclasses import dataclass

from easel.core.run.status import Status
from easel.ids import RunId


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTurn:
    """`has_log` is false if the log was shortened by retention. The texts have references. RS-62"""

    run_id: RunId
    message: str
    answer: str
    status: Status
    error_message: str | None = None
    has_log: bool = True
    updates_before: tuple[str, ...] = ()  # hidden canvas updates before the message. CT-52
    updates_after: tuple[str, ...] = ()  # and after the answer
