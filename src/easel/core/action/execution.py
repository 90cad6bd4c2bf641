"""One execution of a canvas action: its record, its statuses, and the table of transitions between them.
CV-42, CV-48

    asked ──► running ──► completed
      │          └──────► failed
      └──► refused

A transition is stored in one transaction with the canvas and its events, and only if the execution still has
the status that the transition starts from. So a confirmation is used at most once, and the result of an
abandoned execution is never stored. CV-23, X6
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from easel.core.canvas.canvas import Change
from easel.core.canvas.events import CanvasEvents
from easel.core.principal import Principal, PrincipalKind
from easel.errors import TooMany
from easel.ids import AccountId, CanvasId, RunId


class ExecutionStatus(StrEnum):
    ASKED = "asked"  # waits for a person's confirmation
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    REFUSED = "refused"  # rejected by a person, or not confirmed in time

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL


class ExecutionMove(StrEnum):
    ASK = "ask"
    START = "start"
    APPROVE = "approve"
    REJECT = "reject"
    EXPIRE = "expire"
    COMPLETE = "complete"
    FAIL = "fail"  # the tool failed, the execution was cancelled, or its instance stopped
    ADOPT = "adopt"  # another instance takes over waiting for the run that the execution started
    OUTPUT = "output"  # live output is appended to the log


# The first status of an execution. A patch of the state completes immediately; an action that cannot be
# resolved fails immediately.
EXECUTION_STARTS: Mapping[ExecutionMove, ExecutionStatus] = {
    ExecutionMove.ASK: ExecutionStatus.ASKED,
    ExecutionMove.START: ExecutionStatus.RUNNING,
    ExecutionMove.COMPLETE: ExecutionStatus.COMPLETED,
    ExecutionMove.FAIL: ExecutionStatus.FAILED,
}
EXECUTION_TRANSITIONS: Mapping[ExecutionStatus, Mapping[ExecutionMove, ExecutionStatus]] = {
    ExecutionStatus.ASKED: {
        ExecutionMove.APPROVE: ExecutionStatus.RUNNING,
        ExecutionMove.COMPLETE: ExecutionStatus.COMPLETED,  # an approved patch of the state
        ExecutionMove.REJECT: ExecutionStatus.REFUSED,
        ExecutionMove.EXPIRE: ExecutionStatus.REFUSED,
    },
    ExecutionStatus.RUNNING: {
        ExecutionMove.COMPLETE: ExecutionStatus.COMPLETED,
        ExecutionMove.FAIL: ExecutionStatus.FAILED,
        ExecutionMove.ADOPT: ExecutionStatus.RUNNING,
        ExecutionMove.OUTPUT: ExecutionStatus.RUNNING,
    },
    ExecutionStatus.COMPLETED: {},
    ExecutionStatus.FAILED: {},
    ExecutionStatus.REFUSED: {},
}
TERMINAL = frozenset(status for status, moves in EXECUTION_TRANSITIONS.items() if not moves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    account_id: AccountId
    canvas_id: CanvasId
    event_id: str
    action_id: str
    status: ExecutionStatus
    actor: Mapping[str, Any]
    request_id: str | None = None
    request_digest: str | None = None  # of the request's action, input and expected revision
    tool: str | None = None
    resolved: Mapping[str, Any] | None = None
    answer: Mapping[str, Any] | None = None
    owner_id: str | None = None
    confirmed_by: str | None = None
    # The fields below are set by the store.
    revision: int | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    answer_seconds: float | None = None  # in which a person can answer the question; None: not asked

    @property
    def event_fields(self) -> dict[str, Any]:
        """Return the members that are in the payload of every event of this execution."""
        tool = {"tool": self.tool} if self.tool else {}
        return {"actionId": self.action_id, "eventId": self.event_id, "actor": dict(self.actor), **tool}


@dataclass(frozen=True, slots=True)
class StartedRun:
    """The run that an execution started, and the seconds since its start."""

    run_id: RunId
    seconds: float


@dataclass(frozen=True, slots=True)
class PendingLimit:
    """How many executions of one canvas may wait for a confirmation, each for at most `seconds`."""

    max_count: int
    seconds: float

    def check(self, pending_count: int) -> None:
        """Raise `TooMany` at the limit, so that a page cannot flood a person with confirmations."""
        if pending_count >= self.max_count:
            raise TooMany(what="actions of this canvas that wait for a person", limit=self.max_count)


@dataclass(frozen=True, slots=True)
class Transition:
    """A transition of one execution, stored with a change of its canvas. `execution` has the new status.

    Without `from_status` the execution is created. With `pending_limit` it is created only if the canvas has
    fewer pending confirmations.
    """

    execution: Execution
    from_status: ExecutionStatus | None = None
    pending_limit: PendingLimit | None = None

    def __post_init__(self) -> None:
        moves = EXECUTION_STARTS if self.from_status is None else EXECUTION_TRANSITIONS[self.from_status]
        if self.execution.status not in moves.values():
            raise ValueError(f"an execution must not go from {self.from_status} to {self.execution.status}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionChange(Change):
    """A change of a canvas that makes a transition of one of its executions."""

    transition: Transition


class DuplicateRequest(Exception):
    """An execution with this request id exists; nothing was stored."""


class StaleTransition(Exception):
    """The execution no longer has the status that the transition starts from; nothing was stored."""


def principal_of(execution: Execution) -> Principal:
    """Return the principal that started an execution, from its stored actor."""
    actor = execution.actor
    return Principal(
        execution.account_id,
        actor["name"],
        kind=PrincipalKind(actor["kind"]),
        user_id=actor.get("userId"),
        on_behalf_of=actor.get("onBehalfOf"),
    )


def asker_of(execution: Execution) -> str | None:
    """Return the person who asked for an execution, or who answers for the program that did. RS-77"""
    return execution.actor.get("userId") or execution.actor.get("onBehalfOf")


def events_of(execution: Execution, principal: Principal) -> CanvasEvents:
    """Return a builder for the events of an execution that the principal causes."""
    return CanvasEvents.by(
        principal, execution.canvas_id, event_id=execution.event_id, node_id=execution.action_id
    )


def actor_of(principal: Principal, client_id: str, trigger: str) -> dict[str, str]:
    """Return the actor of an execution: a person's client, an agent in a session, or the host. CV-48"""
    user = {} if principal.user_id is None else {"userId": principal.user_id}
    answering = {} if principal.on_behalf_of is None else {"onBehalfOf": principal.on_behalf_of}
    return {
        "accountId": principal.account_id,
        **user,
        **answering,
        "kind": principal.kind.value,
        "name": principal.name,
        "clientId": client_id,
        "trigger": trigger,
    }
