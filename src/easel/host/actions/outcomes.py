"""How executions of actions end, and who is told: what is stored of it, what the audit trail says, and what whoever asked is answered.

Owns every end: a failure, a stop by somebody, a question that nobody answered, an instance that died. Each is stored once, whoever else tries
at the same time; who comes second answers with what the first one has stored. CV-42, CV-48
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog

from easel.core.action.stopping import NOBODY, lapsed
from easel.core.action.transitions import failed
from easel.core.canvas.execution import Execution, ExecutionStatus, StaleTransition
from easel.core.principal import Principal
from easel.core.run.deltas import shortened
from easel.errors import ActionFailed, Cancelled, HostError, NotFound, NotRunning, Unavailable
from easel.host.actions.live_output import LiveOutput
from easel.host.actions.transitions import ExecutionTransitions
from easel.host.artifacts import Artifacts
from easel.host.artifacts import restore as whole_value
from easel.host.audit import Audit
from easel.host.canvases.transactions import CanvasTransactions, now_ms
from easel.host.metrics import ACTIONS_ENDED
from easel.host.ports import CanvasActionStore
from easel.ids import UserId

LOST_AT_ONCE = 100
PRUNE_SECONDS = 60.0
GONE = "Its canvas was deleted while it ran; whether the tool has done its work is not known."
LEFT = "This instance stops. Its run goes on: another instance waits for the answer, and tells how it ended."
INTERRUPTED = "The instance that ran it stopped in the middle, or could not tell its end; whether the tool has done its work is not known."

TakeUp = Callable[
    [Principal, Execution, list[str]], Awaitable[bool]
]  # whether somebody goes on with it; these instances are gone

log = structlog.get_logger("actions")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """Completed, with its result; or waiting for a person, with what exactly they are asked; or refused by them; or, failed, stopped."""

    status: ExecutionStatus
    event_id: str
    revision: int
    result: Any = None
    has_result: bool = False
    resolved: Any = None


class ExecutionOutcomes:
    def __init__(
        self,
        actions: CanvasActionStore,
        changes: CanvasTransactions,
        steps: ExecutionTransitions,
        artifacts: Artifacts,
        audit: Audit,
    ) -> None:
        self._actions = actions
        self._changes = changes
        self._steps = steps
        self._artifacts = artifacts
        self._audit = audit
        self._untold: dict[
            str, tuple[Principal, Execution, HostError]
        ] = {}  # ends that could not be stored in time

    # -- what is stored --------------------------------------------------------------------------------------------

    async def failed(
        self,
        principal: Principal,
        execution: Execution,
        problem: HostError,
        output: LiveOutput | None = None,
        *,
        is_patient: bool = True,
    ) -> HostError:
        """Told to whoever watches; what is given back names the execution."""
        decide = failed(problem, told(self._audit, problem), execution, principal, now_ms())
        try:
            await self._steps.end(
                principal,
                execution,
                decide if output is None else await output.before(decide),
                is_patient=is_patient,
            )
        except ActionFailed:  # somebody else has told how it ended
            return await self._as_told(execution) or self._shown(execution, problem)
        except NotFound:  # it went with its canvas
            log.info("action.not_told", event_id=execution.event_id)
        except Unavailable:
            log.info("action.not_told", event_id=execution.event_id)
            self._untold[execution.event_id] = (principal, execution, problem)
        return self.told_of(principal, execution, problem)

    async def _tell_untold(self) -> None:
        """How it ended, now that there is a store again; else it would be told that its instance is gone."""
        for event_id, (principal, execution, problem) in list(self._untold.items()):
            decide = failed(problem, told(self._audit, problem), execution, principal, now_ms())
            with contextlib.suppress(
                StaleTransition, ActionFailed, NotFound
            ):  # somebody else has told it, or it went with its canvas
                await self._steps.end(principal, execution, decide, is_patient=False)
            del self._untold[event_id]

    async def stopped(
        self, principal: Principal, execution: Execution, output: LiveOutput | None
    ) -> ActionResult:
        """From now on nothing of it is stored. Against its own end, and against another stop, one wins. CV-23"""
        problem = Cancelled(name=principal.name)
        decide = failed(problem, told(self._audit, problem), execution, principal, now_ms())
        try:
            outcome = await self._changes.apply(
                principal, execution.canvas_id, decide if output is None else await output.before(decide)
            )
        except StaleTransition:
            now = await self._actions.get(execution.user_id, execution.event_id)
            raise NotRunning(
                id=execution.event_id, status="ended" if now is None else now.status.value
            ) from None
        except BaseException:  # it goes on, as far as anybody knows
            if output is not None:
                output.resume()
            raise
        self._audit.note(
            principal,
            "canvas.cancelled",
            subject=execution.canvas_id,
            details={"eventId": execution.event_id, "tool": execution.tool},
        )
        self.tell_audit(principal, execution, "failed", problem=problem.message)
        return ActionResult(
            status=ExecutionStatus.FAILED,
            event_id=execution.event_id,
            revision=outcome.snapshot.canvas.revision,
        )

    async def tell_lost(self, owner_ids: list[str], confirm_seconds: float, adopt: TakeUp) -> int:
        """Whose instance is gone is taken up or not left running for ever, nor a question that nobody answers; how many that were."""
        await self._tell_untold()
        lost = await self._actions.find_orphaned(owner_ids, confirm_seconds, LOST_AT_ONCE)
        for execution in lost:
            if execution.status is ExecutionStatus.ASKED:
                await self.lapsed(execution)
                continue
            principal = _who_pressed(execution)
            with contextlib.suppress(
                StaleTransition, NotFound
            ):  # another instance goes on with it, or it went with its canvas
                if execution.tool is not None or not await adopt(principal, execution, owner_ids):
                    await self.failed(principal, execution, ActionFailed(problem=INTERRUPTED))
        return len(lost)

    async def lapsed(self, execution: Execution) -> None:
        """A question that nobody has answered in time."""
        principal = _who_pressed(execution)
        try:
            await self._changes.apply(principal, execution.canvas_id, lapsed(execution, now_ms()))
        except (StaleTransition, NotFound):
            return  # somebody answered at the last moment, another instance told it, or it went with its canvas
        self.tell_audit(principal, execution, "refused", problem=NOBODY)

    # -- what is answered ------------------------------------------------------------------------------------------

    async def kept(self, principal: Principal, execution: Execution) -> ActionResult:
        """As it is stored. Raises what it failed with."""
        answer = await whole_value(self._artifacts, principal.user_id, execution.answer or {})
        if execution.status is ExecutionStatus.FAILED:
            raise _problem(execution, answer)
        resolved = (
            await whole_value(self._artifacts, principal.user_id, execution.resolved)
            if execution.status is ExecutionStatus.ASKED
            else None
        )
        revision = (
            execution.revision or (await self._changes.find(principal, execution.canvas_id)).canvas.revision
        )
        return ActionResult(
            status=execution.status,
            event_id=execution.event_id,
            revision=revision,
            result=answer.get("result"),
            has_result="result" in answer,
            resolved=resolved,
        )

    async def _as_told(self, execution: Execution) -> HostError | None:
        try:
            stored = await self._actions.get(execution.user_id, execution.event_id)
        except Unavailable:
            return None
        return (
            _problem(execution, stored.answer)
            if stored is not None and stored.status is ExecutionStatus.FAILED and stored.answer
            else None
        )

    def told_of(self, principal: Principal, execution: Execution, problem: HostError) -> HostError:
        self.tell_audit(principal, execution, "failed", problem=told(self._audit, problem))
        return self._shown(execution, problem)

    def _shown(self, execution: Execution, problem: HostError) -> HostError:
        details = {
            name: value for name, value in problem.details.items() if name not in ("problem", "reason")
        }
        shown = type(problem).with_message(told(self._audit, problem), **details, eventId=execution.event_id)
        shown.retry_after = problem.retry_after
        return shown

    def tell_audit(self, principal: Principal, execution: Execution, status: str, **more: Any) -> None:
        """CV-48, RS-15: beside the record that lies with the canvas, a link of the chain."""
        ACTIONS_ENDED.labels(status).inc()
        details = {
            "actionId": execution.action_id,
            "eventId": execution.event_id,
            "tool": execution.tool,
            "status": status,
            **more,
        }
        self._audit.note(
            principal,
            "canvas.action",
            subject=execution.canvas_id,
            details={**details, "actor": dict(execution.actor)},
        )


def _problem(execution: Execution, answer: Any) -> HostError:
    kinds = {kind.code: kind for kind in HostError.__subclasses__()}
    return kinds.get(answer["error"]["name"], ActionFailed).with_message(
        answer["error"]["message"], eventId=execution.event_id
    )


def _who_pressed(execution: Execution) -> Principal:
    return Principal(UserId(execution.user_id), execution.actor.get("name", execution.user_id))


def told(audit: Audit, problem: HostError) -> str:
    """What of a problem may be told."""
    return shortened(audit.redacted(problem.message))


def unstored(problem: Unavailable) -> ActionFailed:
    """What is done is done, and is not told as if it were not: whoever presses again does it again."""
    result = (
        "it is not known whether its result is stored"
        if "mayBeStored" in problem.details
        else "its result could not be stored"
    )
    return ActionFailed(
        problem=f"The tool has done its work; {result}: {problem.details['what']} could not be reached in time."
    )


class RecordRetention:
    """What is left of executions: kept as long as the logs of runs are; 0: for ever."""

    def __init__(self, actions: CanvasActionStore, retention_seconds: float) -> None:
        self._actions = actions
        self._seconds = retention_seconds

    async def prune_forever(self) -> None:
        while True:
            while self._seconds and await self._actions.prune(self._seconds):
                pass  # some at a time, until none is left
            await asyncio.sleep(PRUNE_SECONDS)
