"""Outcomes of executions: how each ends, in the store, in the audit trail and in the reply to the caller.
CV-42, CV-48

Owns completion, failure and cancellation. Each execution ends once: if two ends compete, the second one
returns the outcome that the first one stored. Does not know how the work runs.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from easel.core.action.transitions import Decision, StartedExecution, complete_execution, fail_execution
from easel.core.canvas.execution import Execution, ExecutionStatus, StaleTransition
from easel.core.principal import Principal
from easel.errors import ActionFailed, Cancelled, HostError, NotFound, NotRunning, Unavailable
from easel.host.actions.live_output import LiveOutput
from easel.host.actions.request import REFRESH
from easel.host.actions.tallies import RefreshTallies
from easel.host.actions.transitions import ActionLimits, ExecutionTransitions, public_message
from easel.host.artifacts.artifacts import Artifacts, restore
from easel.host.audit.audit import Audit
from easel.host.canvases.transactions import CanvasTransactions, now_ms
from easel.host.metrics import ACTIONS_ENDED
from easel.host.periodic import Periodic, retention_interval
from easel.host.ports import ExecutionStore

PRUNE_SECONDS = 60.0

log = structlog.get_logger("actions")


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


class ExecutionOutcomes:
    def __init__(
        self,
        actions: ExecutionStore,
        changes: CanvasTransactions,
        transitions: ExecutionTransitions,
        artifacts: Artifacts,
        *,
        audit: Audit,
        limits: ActionLimits,
    ) -> None:
        self._actions = actions
        self._changes = changes
        self._transitions = transitions
        self._artifacts = artifacts
        self._audit = audit
        self._limits = limits
        self._tallies = RefreshTallies(audit)
        # Failures that are not stored yet because the store was unavailable, by event id.
        self._unsaved_failures: dict[str, tuple[Principal, Execution, HostError]] = {}

    # -- storing -----------------------------------------------------------------------------------

    async def complete(
        self,
        principal: Principal,
        started: StartedExecution,
        result: Any,
        output: LiveOutput,
        commands: Sequence[Mapping[str, Any]] | None = None,
    ) -> ActionResult:
        """Store the result in the canvas and return the outcome. Raises a HostError if that is impossible."""
        decide, offloaded = complete_execution(
            result, started, principal, now_ms=now_ms(), state_bytes=self._limits.state_bytes
        )
        execution = started.execution
        revision = await self._transitions.finish(
            principal, execution, await output.with_final_output(decide), offloaded
        )
        self.record(principal, execution, "completed", commands=commands)
        return ActionResult(
            status=ExecutionStatus.COMPLETED,
            event_id=execution.event_id,
            revision=revision,
            result=result,
            has_result=True,
        )

    async def fail(
        self,
        principal: Principal,
        execution: Execution,
        problem: HostError,
        output: LiveOutput | None = None,
        *,
        is_retried: bool = True,
    ) -> HostError:
        """Store the failure and return the error for the caller, with the id of the execution."""
        decide = self._failure(principal, execution, problem)
        try:
            await self._transitions.finish(
                principal,
                execution,
                decide if output is None else await output.with_final_output(decide),
                is_retried=is_retried,
            )
        except ActionFailed:  # the execution has ended already
            return await self._stored_failure(execution) or self._error(execution, problem)
        except NotFound:  # the execution was deleted with its canvas
            log.info("actions.failure_not_stored", event_id=execution.event_id)
        except Unavailable:
            log.info("actions.failure_not_stored", event_id=execution.event_id)
            self._unsaved_failures[execution.event_id] = (principal, execution, problem)
        return self.report_failure(principal, execution, problem)

    async def save_pending_failures(self) -> None:
        """Store the failures that could not be stored before.

        Otherwise recovery would store an interruption instead of the actual error.
        """
        for event_id, (principal, execution, problem) in list(self._unsaved_failures.items()):
            # The execution may have ended elsewhere, or may have been deleted with its canvas.
            with contextlib.suppress(StaleTransition, ActionFailed, NotFound):
                await self._transitions.finish(
                    principal, execution, self._failure(principal, execution, problem), is_retried=False
                )
            del self._unsaved_failures[event_id]

    async def cancel(
        self, principal: Principal, execution: Execution, output: LiveOutput | None
    ) -> ActionResult:
        """End a running execution as cancelled. Raises NotRunning if it ended first. CV-23"""
        problem = Cancelled(name=principal.name)
        decide = self._failure(principal, execution, problem)
        try:
            outcome = await self._changes.apply(
                principal,
                execution.canvas_id,
                decide if output is None else await output.with_final_output(decide),
            )
        except StaleTransition:
            stored = await self._actions.get(execution.account_id, execution.event_id)
            status = "ended" if stored is None else stored.status.value
            raise NotRunning(id=execution.event_id, status=status) from None
        except BaseException:
            if output is not None:
                output.reopen()  # the execution still runs
            raise
        self._audit.note(
            principal,
            "canvas.cancelled",
            subject=execution.canvas_id,
            details={"eventId": execution.event_id, "tool": execution.tool},
        )
        self.record(principal, execution, "failed", problem=problem.message)
        return ActionResult(
            status=ExecutionStatus.FAILED,
            event_id=execution.event_id,
            revision=outcome.snapshot.canvas.revision,
        )

    def _failure(self, principal: Principal, execution: Execution, problem: HostError) -> Decision:
        message = public_message(self._audit, problem)
        return fail_execution(problem, message, execution, principal, now_ms())

    # -- replying ----------------------------------------------------------------------------------

    async def stored_answer(self, principal: Principal, execution: Execution) -> ActionResult:
        """Return the stored outcome of an execution. Raises the error that it failed with."""
        answer = await restore(self._artifacts, principal.account_id, execution.answer or {})
        if execution.status is ExecutionStatus.FAILED:
            raise _to_error(execution, answer)
        resolved = (
            await restore(self._artifacts, principal.account_id, execution.resolved)
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

    async def _stored_failure(self, execution: Execution) -> HostError | None:
        try:
            stored = await self._actions.get(execution.account_id, execution.event_id)
        except Unavailable:
            return None
        if stored is None or stored.status is not ExecutionStatus.FAILED or not stored.answer:
            return None
        return _to_error(execution, stored.answer)

    def report_failure(self, principal: Principal, execution: Execution, problem: HostError) -> HostError:
        """Record the failure in the audit trail and return the error for the caller."""
        self.record(principal, execution, "failed", problem=public_message(self._audit, problem))
        return self._error(execution, problem)

    def _error(self, execution: Execution, problem: HostError) -> HostError:
        details = {
            name: value for name, value in problem.details.items() if name not in ("problem", "reason")
        }
        error = type(problem).with_message(
            public_message(self._audit, problem), **details, eventId=execution.event_id
        )
        error.retry_after = problem.retry_after
        return error

    def record(
        self,
        principal: Principal,
        execution: Execution,
        status: str,
        *,
        commands: Sequence[Mapping[str, Any]] | None = None,
        **details: Any,
    ) -> None:
        """Count the end of an execution and record it in the audit trail. CV-48, RS-15

        Successful executions of a refresh job are tallied. RS-69
        """
        ACTIONS_ENDED.labels(status).inc()
        if status == "completed" and execution.actor.get("trigger") == REFRESH:
            self._tallies.add(principal, execution, commands or ())
            return
        names = {"actionId": execution.action_id, "eventId": execution.event_id, "tool": execution.tool}
        self._audit.note(
            principal,
            "canvas.action",
            subject=execution.canvas_id,
            details={**names, "status": status, **details, "actor": dict(execution.actor)},
        )

    def record_commands(
        self, principal: Principal, execution: Execution, commands: Sequence[Mapping[str, Any]] | None
    ) -> None:
        """Record the commands of a refresh job that failed: only successful ones are tallied. SB-16"""
        for details in commands or ():
            self._audit.note(principal, "sandbox.ran", subject=execution.event_id, details=details)

    def close(self) -> None:
        """Record the open tallies."""
        self._tallies.close()


def _to_error(execution: Execution, answer: Any) -> HostError:
    """Return the stored error of a failed execution."""
    kinds = {kind.code: kind for kind in HostError.__subclasses__()}
    return kinds.get(answer["error"]["name"], ActionFailed).with_message(
        answer["error"]["message"], eventId=execution.event_id
    )


def result_not_stored(problem: Unavailable) -> ActionFailed:
    """Return the failure of an execution whose tool ran but whose result was not stored.

    The failure is not `Unavailable`, because a retry by the caller would run the tool twice.
    """
    result = (
        "it is not known whether its result is stored"
        if "mayBeStored" in problem.details
        else "its result could not be stored"
    )
    return ActionFailed(
        problem=f"The tool has done its work; {result}: {problem.details['what']} was unavailable."
    )


class RecordRetention:
    """Deletes the records of executions that ended longer ago than the retention time.

    If `retention_seconds` is 0, records are kept forever.
    """

    def __init__(self, actions: ExecutionStore, retention_seconds: float) -> None:
        self._actions = actions
        self._retention_seconds = retention_seconds

    def periodic(self) -> Periodic:
        every_seconds = retention_interval(PRUNE_SECONDS, self._retention_seconds)
        return Periodic("prune action records", every_seconds, self.prune)

    async def prune(self) -> None:
        """Delete expired records, batch by batch."""
        while self._retention_seconds and await self._actions.prune(self._retention_seconds):
            pass
