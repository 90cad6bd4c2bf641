"""The life of a run as a table; the database repeats it in its constraints."""

from enum import StrEnum


class Status(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Move(StrEnum):
    CLAIM = "claim"
    HAND_BACK = "hand back"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"


MOVES: dict[Status, dict[Move, Status]] = {
    Status.QUEUED: {
        Move.CLAIM: Status.RUNNING,
        Move.CANCEL: Status.CANCELLED,
    },  # RS-37: a queued run is cancelled at once
    Status.RUNNING: {
        Move.CLAIM: Status.RUNNING,  # the claim ran out and another worker takes over: a new attempt
        Move.HAND_BACK: Status.QUEUED,
        Move.COMPLETE: Status.COMPLETED,
        Move.FAIL: Status.FAILED,
        Move.CANCEL: Status.CANCELLED,
    },
    Status.COMPLETED: {},
    Status.FAILED: {},
    Status.CANCELLED: {},
}
TERMINAL = frozenset(status for status, moves in MOVES.items() if not moves)


def is_terminal(status: Status) -> bool:
    return status in TERMINAL
