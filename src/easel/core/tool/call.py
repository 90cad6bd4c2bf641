"""A call across instances: somebody here needs what only another instance's connection can do. DESIGN §5

Owns the life of its row. The target is one connection: when that ends, so does the call, whoever comes back under the same name. A call
is answered once, and its row goes with whoever fetches the answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from easel.ids import CallId, UserId


class CallStatus(StrEnum):
    ASKED = "asked"
    TAKEN = "taken"
    ANSWERED = "answered"


class CallMove(StrEnum):
    TAKE = "take"  # by the instance that has the connection
    ANSWER = "answer"
    LOSE = "lose"  # the connection has ended


# A row that is fetched, or cancelled before it was taken, is gone: that is no state.
CALL_MOVES: Mapping[CallStatus, Mapping[CallMove, CallStatus]] = {
    CallStatus.ASKED: {CallMove.TAKE: CallStatus.TAKEN, CallMove.LOSE: CallStatus.ANSWERED},
    CallStatus.TAKEN: {CallMove.ANSWER: CallStatus.ANSWERED, CallMove.LOSE: CallStatus.ANSWERED},
    CallStatus.ANSWERED: {},
}


@dataclass(frozen=True, slots=True)
class NewCall:
    call_id: CallId
    user_id: UserId
    target: str  # a connection
    method: str
    params: str  # JSON, light
    seconds: float  # until nobody waits any more
    caller_ttl_seconds: float  # who made it is believed to wait for so long when nothing is heard of them


@dataclass(frozen=True, slots=True)
class TakenCall:
    call_id: CallId
    user_id: UserId
    target: str
    method: str
    params: str
    seconds_left: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: a result, or why there is none, or that the connection ended before either came."""

    result: Any = None
    error: str | None = None
    is_lost: bool = False

    def as_stored(self) -> dict[str, Any]:
        return (
            {"lost": True}
            if self.is_lost
            else {"result": self.result}
            if self.error is None
            else {"error": self.error}
        )

    @classmethod
    def of_stored(cls, stored: Mapping[str, Any]) -> "Answer":
        return cls(stored.get("result"), stored.get("error"), is_lost="lost" in stored)


LOST = Answer(is_lost=True)
UNHEARD = Answer(
    error="nothing is known of the call any more: this instance was not heard of for too long, so it was stopped, or its answer was lost on "
    "the way; what it was asked may or may not have been done."
)
NOT_ASKED = Answer(error="its node is not connected any more; it was not asked.")
