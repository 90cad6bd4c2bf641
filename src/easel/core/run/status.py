"""The lifecycle of a run as a table of transitions. The database has constraints for it too."""

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
    # A queued run is cancelled immediately. RS-37
    Status.QUEUED: {Move.CLAIM: Status.RUNNING, Move.CANCEL: Status.CANCELLED},
    Status.RUNNING: {
        Move.CLAIM: Status.RUNNING,  # after the claim expired: a new attempt
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
