"""The outcome of an action request, as callers get it."""

from dataclasses import dataclass
from typing import Any

from easel.core.action.execution import ExecutionStatus
from easel.core.action.transitions import StartedExecution


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """The outcome of an action request.

    `status` is `failed` only in the reply to a cancel: other failures are raised.
    """

    status: ExecutionStatus
    event_id: str
    revision: int
    result: Any = None
    has_result: bool = False
    resolved: Any = None

    @classmethod
    def needs_confirmation(cls, started: StartedExecution) -> "ActionResult":
        return cls(
            status=ExecutionStatus.ASKED,
            event_id=started.execution.event_id,
            revision=started.revision,
            resolved=started.confirmation,
        )

    @classmethod
    def completed(cls, started: StartedExecution) -> "ActionResult":
        return cls(
            status=ExecutionStatus.COMPLETED,
            event_id=started.execution.event_id,
            revision=started.revision,
        )
