"""Pending confirmations: executions that wait for a person's answer. CV-22, RS-13, RS-59

Owns who may answer a confirmation and for how long, and how its execution ends without running: rejected,
withdrawn or expired.
"""

from collections.abc import Sequence
from dataclasses import replace

from easel.core.action.confirmation import may_confirm, may_withdraw
from easel.core.action.ending import ASKER_LEFT, EXPIRED, expire_confirmation, reject_execution
from easel.core.action.execution import Execution, ExecutionStatus, StaleTransition
from easel.core.canvas.canvas import parse_canvas_id
from easel.core.principal import Principal, host_for
from easel.errors import ConfirmationClosed, Forbidden, NotFound
from easel.host.actions.outcomes import ExecutionOutcomes
from easel.host.actions.request import ActionResult
from easel.host.actions.transitions import ActionResources
from easel.host.artifacts.artifacts import restore
from easel.host.canvases.transactions import now_ms
from easel.ids import AccountId, is_generated_id

MAX_LISTED = 100
ANSWERED = "it was answered already."
TOO_OLD = "it has expired."


class Confirmations:
    def __init__(self, resources: ActionResources, outcomes: ExecutionOutcomes) -> None:
        self._executions = resources.executions
        self._changes = resources.changes
        self._artifacts = resources.artifacts
        self._audit = resources.audit
        self._limits = resources.limits
        self._instance_id = resources.instance_id
        self._outcomes = outcomes

    async def list_pending(self, principal: Principal, canvas_id: str) -> list[Execution]:
        """Return the executions of a canvas that wait for a confirmation, newest first."""
        await self._changes.find(principal, canvas_id)
        executions = await self._executions.list_executions(
            principal.account_id,
            parse_canvas_id(canvas_id),
            statuses=[ExecutionStatus.ASKED],
            before=None,
            limit=MAX_LISTED,
        )
        return [await self._restore(execution) for execution in executions if not self.is_expired(execution)]

    async def get(self, principal: Principal, confirmation_id: str) -> Execution:
        """Return the execution of a confirmation, answered or not. Raises Forbidden or NotFound. RS-59"""
        if not may_confirm(principal):
            raise self.forbidden(principal, confirmation_id, "Only a person can answer a confirmation.")
        found = (
            await self._executions.get(principal.account_id, confirmation_id)
            if is_generated_id(confirmation_id)
            else None
        )
        if found is None:
            raise NotFound(what="confirmation", id=confirmation_id[:200])
        return found

    async def find(self, principal: Principal, confirmation_id: str) -> Execution:
        """Return the pending execution of a confirmation that this principal may answer now. RS-59

        Raises Forbidden, NotFound, or ConfirmationClosed if it was answered or has expired.
        """
        pending = await self.get(principal, confirmation_id)
        if pending.status is not ExecutionStatus.ASKED:
            raise ConfirmationClosed(id=confirmation_id, problem=ANSWERED)
        if self.is_expired(pending):
            raise ConfirmationClosed(id=confirmation_id, problem=TOO_OLD)
        return await self._restore(pending)

    async def check_withdraw(self, principal: Principal, pending: Execution) -> None:
        """Check that this principal may withdraw the confirmation.

        Raises Forbidden if not, and ConfirmationClosed if the confirmation has expired.
        """
        if not may_withdraw(principal, pending):
            raise self.forbidden(
                principal,
                pending.event_id,
                "A confirmation can be withdrawn by a person or by the program that started the action.",
            )
        if self.is_expired(pending):
            await self.expire(pending)
            raise ConfirmationClosed(id=pending.event_id, problem=TOO_OLD)

    async def reject(self, principal: Principal, pending: Execution) -> ActionResult:
        """End a pending execution as refused. Raises ConfirmationClosed if it was answered before. CV-22"""
        decide = reject_execution(pending, principal, owner_id=self._instance_id, now_ms=now_ms())
        try:
            done = await self._changes.apply(principal, pending.canvas_id, decide)
        except StaleTransition:
            raise ConfirmationClosed(id=pending.event_id, problem=ANSWERED) from None
        self._outcomes.record(principal, pending, "refused")
        return ActionResult(
            status=ExecutionStatus.REFUSED, event_id=pending.event_id, revision=done.after.canvas.revision
        )

    async def expire(self, pending: Execution, reason: str = EXPIRED) -> None:
        """End a pending execution that was not answered in time, unless it was answered or deleted since."""
        principal = host_for(pending.account_id)
        try:
            await self._changes.apply(
                principal, pending.canvas_id, expire_confirmation(pending, principal, now_ms(), reason)
            )
        except (StaleTransition, NotFound):
            return
        self._outcomes.record(principal, pending, "refused", problem=reason)

    async def end_questions(self, account_id: AccountId, event_ids: Sequence[str]) -> None:
        """End pending executions as refused, because who asked for them has left the account."""
        for event_id in event_ids:
            pending = await self._executions.get(account_id, event_id)
            if pending is not None and pending.status is ExecutionStatus.ASKED:
                await self.expire(pending, ASKER_LEFT)

    def is_expired(self, pending: Execution) -> bool:
        return pending.answer_seconds is not None and pending.answer_seconds <= 0

    async def _restore(self, pending: Execution) -> Execution:
        """Return the execution with offloaded arguments restored: a person must see the complete call. X6"""
        return replace(pending, resolved=await restore(self._artifacts, pending.account_id, pending.resolved))

    def forbidden(self, principal: Principal, subject: str, problem: str) -> Forbidden:
        """Return the error, and record the refusal in the audit trail."""
        self._audit.record_throttled(
            principal, "guardrail.refused", subject=subject[:200], details={"problem": problem}
        )
        return Forbidden(problem=problem)
