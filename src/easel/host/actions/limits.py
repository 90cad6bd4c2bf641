"""The limits of the executions of one instance."""

from dataclasses import dataclass

from easel.core.canvas.actions import Confirm

MAX_CONFIRMATIONS = 20  # pending ones of a canvas, so that no page can flood a person


@dataclass(frozen=True, slots=True)
class ActionLimits:
    max_running: int  # executions of one instance
    state_bytes: int
    claim_seconds: float  # an instance that does not renew within this time counts as stopped
    poll_seconds: float
    confirm_seconds: float  # how long a confirmation can be answered
    floor: Confirm
