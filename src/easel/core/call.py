"""A call across instances: its target is connected to another instance than the caller. DESIGN §5

Owns the lifecycle of a call's row and the stored form of an answer. The target of a call is one connection of
a node or a client: when the connection ends, the call is lost, even if the same node connects again. A call
is answered once. The instance that made the call fetches the answer, which deletes the row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from easel.ids import AccountId, CallId


class CallStatus(StrEnum):
    ASKED = "asked"
    TAKEN = "taken"
    ANSWERED = "answered"


class CallMove(StrEnum):
    TAKE = "take"  # the instance that has the connection sends the call to the target
    ANSWER = "answer"
    LOSE = "lose"  # the connection has ended


# No status for a fetched answer and for a call cancelled before it was taken: their rows are deleted.
CALL_MOVES: Mapping[CallStatus, Mapping[CallMove, CallStatus]] = {
    CallStatus.ASKED: {CallMove.TAKE: CallStatus.TAKEN, CallMove.LOSE: CallStatus.ANSWERED},
    CallStatus.TAKEN: {CallMove.ANSWER: CallStatus.ANSWERED, CallMove.LOSE: CallStatus.ANSWERED},
    CallStatus.ANSWERED: {},
}


@dataclass(frozen=True, slots=True)
class NewCall:
    call_id: CallId
    account_id: AccountId
    target: str  # the id of the connection
    method: str
    params: str  # JSON, with large values offloaded to artifacts
    timeout_seconds: float
    caller_ttl_seconds: float  # the call expires unless the caller renews it within this time


@dataclass(frozen=True, slots=True)
class TakenCall:
    call_id: CallId
    account_id: AccountId
    target: str
    method: str
    params: str
    seconds_left: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a call: a result, an error, or `is_lost` if the connection ended first."""

    result: Any = None
    error: str | None = None
    is_lost: bool = False

    def to_stored(self) -> dict[str, Any]:
        if self.is_lost:
            return {"lost": True}
        return {"result": self.result} if self.error is None else {"error": self.error}

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> "Answer":
        return cls(stored.get("result"), stored.get("error"), is_lost="lost" in stored)


LOST = Answer(is_lost=True)
EXPIRED = Answer(
    error="the call expired: this instance did not renew it in time, or its answer was lost; "
    "its target may or may not have executed it."
)
NOT_SENT = Answer(error="its target is not connected; the call was not sent.")
