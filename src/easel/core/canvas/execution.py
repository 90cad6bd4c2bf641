"""One execution of a canvas's action, from the press to its end: what is stored of it, and by which steps it goes on. CV-42, CV-48

    asked ──► running ──► completed
      │          └──────► failed
      └──► refused

Each step is made in one transaction with the canvas and with the events that tell of it, and only from the state that it leads
out of. So a confirmation is used once, and what was given up on is never stored late. CV-23, X6
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from easel.core.principal import Principal, PrincipalKind
from easel.errors import TooMany
from easel.ids import CanvasId, RunId, UserId


class ExecutionStatus(StrEnum):
    ASKED = "asked"  # a person has to agree first
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    REFUSED = "refused"  # by the person who was asked

    @property
    def is_terminal(self) -> bool:
        return self in (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    user_id: UserId
    canvas_id: CanvasId
    event_id: str
    action_id: str
    status: ExecutionStatus
    actor: Mapping[str, Any]
    request_id: str | None = None
    request_digest: str | None = None  # of what that request asks for
    tool: str | None = None
    resolved: Mapping[str, Any] | None = None
    answer: Mapping[str, Any] | None = None
    owner_id: str | None = None
    confirmed_by: str | None = None
    # What the store adds.
    revision: int | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    age_seconds: float = 0.0

    @property
    def named(self) -> dict[str, Any]:
        """What every event of it says."""
        tool = {"tool": self.tool} if self.tool else {}
        return {"actionId": self.action_id, "eventId": self.event_id, "actor": dict(self.actor), **tool}


@dataclass(frozen=True, slots=True)
class StartedRun:
    """The run that an execution has started, and how many seconds ago that began."""

    run_id: RunId
    seconds: float


@dataclass(frozen=True, slots=True)
class PendingLimit:
    """How many executions of one canvas may wait for a person at once, and how long each of them does."""

    max_count: int
    seconds: float

    def check(self, waiting: int) -> None:
        """A page that asks and asks does not bury what a person has to look at."""
        if waiting >= self.max_count:
            raise TooMany(what="actions of this canvas that wait for a person", limit=self.max_count)


@dataclass(frozen=True, slots=True)
class Transition:
    """What a change of a canvas does to one of its executions: it begins, or leaves the status `out_of`.

    One that begins to wait for a person does so only while there is room among those that `waits` counts.
    """

    execution: Execution
    from_status: ExecutionStatus | None = None
    pending_limit: PendingLimit | None = None


class DuplicateRequest(Exception):
    """There is an execution of this request already: nothing was stored."""


class StaleTransition(Exception):
    """The execution is no longer where this step leads out of: nothing was stored."""


def actor_of(principal: Principal, client_id: str, trigger: str) -> dict[str, str]:
    """Who is made responsible: a client of a user's, an agent in its session, or the host itself. CV-48"""
    return {
        "userId": principal.user_id,
        "kind": principal.kind.value,
        "name": principal.name,
        "clientId": client_id,
        "trigger": trigger,
    }


def may_confirm(principal: Principal) -> bool:
    """A person, and nobody else: an agent never agrees to what it asked for. RS-59"""
    return principal.kind is PrincipalKind.USER
