"""The lifecycle of a run as a table; the database enforces it with constraints."""

from enum import StrEnum


class Status(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Move(StrEnum):
    CLAIM = "claim"
    RELEASE = "release"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"


MOVES: dict[Status, dict[Move, Status]] = {
    # RS-37: a queued run is cancelled at once
    Status.QUEUED: {Move.CLAIM: Status.RUNNING, Move.CANCEL: Status.CANCELLED},
    Status.RUNNING: {
        Move.CLAIM: Status.RUNNING,  # the claim has expired: a new attempt of another worker
        Move.RELEASE: Status.QUEUED,
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
