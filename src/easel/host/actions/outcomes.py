"""Outcomes of executions: how each ends, in the store, in the audit trail and in the reply to the caller.
CV-42, CV-48

Owns completion, failure and cancellation. Each execution ends once: if two ends compete, the second one
returns the outcome that the first one stored. Does not know how the work runs.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from easel.core.action.ending import Decision, complete_execution, fail_execution
from easel.core.action.execution import Execution, ExecutionStatus, StaleTransition
from easel.core.action.transitions import StartedExecution
from easel.core.principal import Principal
from easel.errors import ActionFailed, Cancelled, HostError, NotFound, NotRunning, Unavailable, by_code
from easel.host.actions.live_output import LiveOutput
from easel.host.actions.request import REFRESH, ActionResult
from easel.host.actions.tallies import RefreshTallies
from easel.host.actions.transitions import ActionResources, ExecutionTransitions, public_message
from easel.host.artifacts.artifacts import restore
from easel.host.canvases.transactions import now_ms
from easel.host.metrics import ACTIONS_ENDED

log = structlog.get_logger("actions")


class ExecutionOutcomes:
    def __init__(self, resources: ActionResources, transitions: ExecutionTransitions) -> None:
        self._executions = resources.executions
        self._changes = resources.changes
        self._artifacts = resources.artifacts
        self._audit = resources.audit
        self._limits = resources.limits
        self._transitions = transitions
        self.tallies = RefreshTallies(resources.audit)
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
        decide = complete_execution(
            result,
            started,
            principal,
            now_ms=now_ms(),
            state_bytes=self._limits.state_bytes,
            output=await output.take_final(),
        )
        execution = started.execution
        revision = await self._transitions.finish(principal, execution, decide)
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
        decide = await self._failure(principal, execution, problem, output)
        try:
            await self._transitions.finish(principal, execution, decide, is_retried=is_retried)
        except ActionFailed:  # the execution has ended already
            message = public_message(self._audit, problem)
            return await self._stored_failure(execution) or error_of(execution, problem, message)
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
                decide = await self._failure(principal, execution, problem)
                await self._transitions.finish(principal, execution, decide, is_retried=False)
            del self._unsaved_failures[event_id]

    async def cancel(
        self, principal: Principal, execution: Execution, output: LiveOutput | None
    ) -> ActionResult:
        """End a running execution as cancelled. Raises NotRunning if it ended first. CV-23"""
        problem = Cancelled(name=principal.name)
        decide = await self._failure(principal, execution, problem, output)
        try:
            done = await self._changes.apply(principal, execution.canvas_id, decide)
        except StaleTransition:
            stored = await self._executions.get(execution.account_id, execution.event_id)
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
            status=ExecutionStatus.FAILED, event_id=execution.event_id, revision=done.after.canvas.revision
        )

    async def _failure(
        self, principal: Principal, execution: Execution, problem: HostError, output: LiveOutput | None = None
    ) -> Decision:
        """Return the decision that stores the failure after the output that was not written yet."""
        message, last = public_message(self._audit, problem), await output.take_final() if output else ()
        return fail_execution(problem, message, execution, principal, now_ms=now_ms(), output=last)

    # -- replying ----------------------------------------------------------------------------------

    async def stored_answer(self, principal: Principal, execution: Execution) -> ActionResult:
        """Return the stored outcome of an execution. Raises the error that it failed with."""
        answer = await restore(self._artifacts, principal.account_id, execution.answer or {})
        if execution.status is ExecutionStatus.FAILED:
            raise stored_error(execution, answer)
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
            stored = await self._executions.get(execution.account_id, execution.event_id)
        except Unavailable:
            return None
        if stored is None or stored.status is not ExecutionStatus.FAILED or not stored.answer:
            return None
        return stored_error(execution, stored.answer)

    def report_failure(self, principal: Principal, execution: Execution, problem: HostError) -> HostError:
        """Record the failure in the audit trail and return the error for the caller."""
        message = public_message(self._audit, problem)
        self.record(principal, execution, "failed", problem=message)
        return error_of(execution, problem, message)

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
            self.tallies.add(principal, execution, commands or ())
            return
        names = {"actionId": execution.action_id, "eventId": execution.event_id, "tool": execution.tool}
        self._audit.note(
            principal,
            "canvas.action",
            subject=execution.canvas_id,
            details={**names, "status": status, **details, "actor": dict(execution.actor)},
        )


def error_of(execution: Execution, problem: HostError, message: str) -> HostError:
    """Return the error for the caller, with the id of the execution."""
    details = {name: value for name, value in problem.details.items() if name not in ("problem", "reason")}
    error = type(problem).with_message(message, **details, eventId=execution.event_id)
    error.retry_after = problem.retry_after
    return error


def stored_error(execution: Execution, answer: Any) -> HostError:
    """Return the error that is stored in the answer of a failed execution."""
    kind = by_code(answer["error"]["name"], ActionFailed)
    return kind.with_message(answer["error"]["message"], eventId=execution.event_id)


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
