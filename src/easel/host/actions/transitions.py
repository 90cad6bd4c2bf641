"""The transitions of executions, each decided and committed under the lock of its canvas. CV-39

Owns loading the input of a decision, storing offloaded values before the commit, and retrying the end of an
execution while the store is unavailable. The rules are in `core.action.transitions`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from easel.core.action.approval import UnknownApprovers
from easel.core.action.confirmation import PendingReply, can_resume_waiting
from easel.core.action.ending import Decision, fail_start
from easel.core.action.execution import Execution, ExecutionStatus, PendingLimit, StaleTransition, Transition
from easel.core.action.policy import Definitions
from easel.core.action.transitions import (
    Rules,
    StartedExecution,
    StartFailed,
    approve_execution,
    start_execution,
)
from easel.core.canvas.actions import Approval, CallTool, Confirm
from easel.core.canvas.canvas import CanvasSnapshot
from easel.core.canvas.spec import CanvasSpec
from easel.core.principal import Principal, is_shared
from easel.core.run.deltas import shorten
from easel.core.values.template import MissingArtifacts
from easel.errors import ActionFailed, HostError, Unavailable
from easel.host.actions.request import ActionRequest
from easel.host.artifacts.artifacts import Artifacts
from easel.host.audit.audit import Audit
from easel.host.canvases.parsed_specs import ParsedSpec
from easel.host.canvases.transactions import CanvasTransactions, now_ms
from easel.host.ports import ExecutionStore
from easel.host.tools.registry import ToolRegistry
from easel.host.usage import AccountUsage
from easel.ids import AccountId, ArtifactId, CanvasId

MAX_CONFIRMATIONS = 20  # pending ones of a canvas, so that no page can flood a person

FindApproval = Callable[[AccountId], Awaitable[Approval]]  # the setting of a team. RS-77
StartRule = Callable[[CanvasSnapshot, CanvasSpec, Rules], StartedExecution]


@dataclass(frozen=True, slots=True)
class ActionLimits:
    max_running: int  # executions of one instance
    state_bytes: int
    claim_seconds: float  # an instance that does not renew within this time counts as stopped
    poll_seconds: float
    confirm_seconds: float  # how long a confirmation can be answered
    approval_seconds: float  # how long one that needs another person can. RS-77
    floor: Confirm


@dataclass(frozen=True, slots=True)
class ActionResources:
    """The parts that all services of actions share, on one instance."""

    executions: ExecutionStore
    changes: CanvasTransactions
    artifacts: Artifacts
    tools: ToolRegistry
    audit: Audit
    limits: ActionLimits
    instance_id: str
    approval_by: FindApproval
    usage: AccountUsage


class ExecutionTransitions:
    def __init__(self, resources: ActionResources) -> None:
        self._executions = resources.executions
        self._changes = resources.changes
        self._artifacts = resources.artifacts
        self._tools = resources.tools
        self._audit = resources.audit
        self._limits = resources.limits
        self._instance_id = resources.instance_id
        self._approval_by = resources.approval_by

    # -- starting ----------------------------------------------------------------------------------

    async def start(
        self, principal: Principal, canvas_id: CanvasId, request: ActionRequest
    ) -> StartedExecution:
        """Start an execution.

        Raises DuplicateRequest if an execution with this request id exists, and a HostError if the action may
        not run.
        """
        start = request.to_start(principal, self._instance_id)
        return await self._start(
            principal,
            canvas_id,
            request.action_id,
            lambda snapshot, spec, rules: start_execution(snapshot, spec, start, rules),
            is_repeatable=request.is_repeatable,
        )

    async def approve(self, principal: Principal, pending: Execution) -> StartedExecution:
        """Start a pending execution as it was confirmed. Raises StaleTransition if it was answered before."""
        decided_ms = now_ms()

        def rule(snapshot: CanvasSnapshot, spec: CanvasSpec, rules: Rules) -> StartedExecution:
            return approve_execution(
                snapshot, spec, pending, principal, rules, owner_id=self._instance_id, now_ms=decided_ms
            )

        return await self._start(principal, pending.canvas_id, pending.action_id, rule)

    async def _start(
        self,
        principal: Principal,
        canvas_id: CanvasId,
        action_id: str,
        rule: StartRule,
        *,
        is_repeatable: bool = True,
    ) -> StartedExecution:
        """Decide the start and commit it.

        The tools and the parsed spec are read before the transaction. A tool call is decided there too: under
        the lock, the decision stands if the canvas is the same, else it is made again. If a template needs
        artifacts, or the approval another member, they are read and the decision is repeated.
        """
        is_team = is_shared(principal)
        approval_by = await self._approval_by(principal.account_id) if is_team else Approval.ANYONE
        has_other_approver: bool | None = None
        try:
            definitions: Definitions | Unavailable = await self._tools.definitions(principal.account_id)
        except Unavailable as problem:
            definitions = problem  # raised by the start of an action that calls a tool: others need no tools
        fetched: dict[ArtifactId, bytes] = {}
        seen: CanvasSnapshot | None = None
        parsed = self._changes.specs.find(principal.account_id, canvas_id)
        if parsed is None or isinstance(parsed.spec.actions.get(action_id), CallTool):
            seen = await self._changes.find(principal, canvas_id)
            parsed = self._changes.specs.parse(seen.canvas)
        while True:
            rules = replace(
                self._rules(definitions, fetched),
                approval_by=approval_by,
                has_other_approver=has_other_approver,
            )
            try:
                early = None if seen is None else (seen, rule(seen, parsed.spec, rules))
                done = await self._changes.apply(
                    principal,
                    canvas_id,
                    partial(_decide, rule, parsed, rules, early),
                    seconds=self._limits.claim_seconds,
                    is_repeatable=is_repeatable,
                )
            except SpecChanged as changed:
                seen, parsed = changed.snapshot, self._changes.specs.parse(changed.snapshot.canvas)
            except StartFailed as failure:
                message = public_message(self._audit, failure.problem)
                rule, seen = partial(_fail, failure, message), None
            except UnknownApprovers:
                has_other_approver = principal.responsible is None or (
                    await self._executions.has_other_approver(principal.account_id, principal.responsible)
                )
            except MissingArtifacts as missing:
                for artifact_id in missing.artifact_ids:
                    fetched[artifact_id] = await self._artifacts.read(principal.account_id, artifact_id)
            else:
                return done.change

    def _rules(self, definitions: Definitions | Unavailable, fetched: dict[ArtifactId, bytes]) -> Rules:
        limits = self._limits
        return Rules(
            definitions=definitions,
            floor=limits.floor,
            state_bytes=limits.state_bytes,
            missing_tools=self._tools.missing,
            check_arguments=self._tools.check_arguments,
            pending_limit=PendingLimit(MAX_CONFIRMATIONS, limits.confirm_seconds),
            approval_seconds=limits.approval_seconds,
            fetched=fetched,
        )

    async def adopt(
        self, principal: Principal, orphan: Execution, owner_ids: Sequence[str]
    ) -> StartedExecution | None:
        """Claim an execution whose instance stopped while the execution waited for a run.

        Returns None if there is no such run.
        """
        execution = await self._executions.get(orphan.account_id, orphan.event_id)
        if execution is None:
            return None  # the execution was deleted with its canvas
        canvas = (await self._changes.find(principal, orphan.canvas_id)).canvas
        action = self._changes.specs.parse(canvas).spec.actions.get(orphan.action_id)
        if not can_resume_waiting(action, execution):
            return None
        run = await self._executions.adopt(orphan, owner_ids, self._instance_id, self._limits.claim_seconds)
        if run is None:
            return None
        adopted = replace(execution, owner_id=self._instance_id)
        return StartedExecution(
            events=[],
            is_mutation=False,
            transition=Transition(adopted, from_status=ExecutionStatus.RUNNING),
            execution=adopted,
            action=action,
            work=PendingReply(canvas.session_of(action.session_key), run),
            revision=canvas.revision,
        )

    # -- ending ------------------------------------------------------------------------------------

    async def finish(
        self, principal: Principal, execution: Execution, decide: Decision, *, is_retried: bool = True
    ) -> int:
        """Commit the end of an execution and return the revision of its canvas. CV-23

        With `is_retried`, retries for the claim time while the store is unavailable. Raises StaleTransition
        if another instance adopted the execution, and ActionFailed if it has ended already.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + (self._limits.claim_seconds if is_retried else 0)
        uncertain: Unavailable | None = None  # the error of an attempt that may have been committed
        is_repeated = False
        while True:
            try:
                return await self._finish_once(principal, execution, decide, is_repeated=is_repeated)
            except Unavailable as problem:
                uncertain = problem if "mayBeStored" in problem.details else uncertain
                if clock() >= deadline:
                    raise uncertain or problem from problem
                is_repeated = True
                await asyncio.sleep(self._limits.poll_seconds)

    async def _finish_once(
        self, principal: Principal, execution: Execution, decide: Decision, *, is_repeated: bool
    ) -> int:
        try:
            done = await self._changes.apply(principal, execution.canvas_id, decide)
        except StaleTransition:
            stored = await self._executions.get(execution.account_id, execution.event_id)
            status = None if stored is None else stored.status
            if is_repeated and status is ExecutionStatus.COMPLETED and stored and stored.revision is not None:
                return stored.revision  # stored by an earlier attempt whose reply was lost
            if status in (ExecutionStatus.RUNNING, ExecutionStatus.COMPLETED):
                raise  # another instance adopted the execution
            raise ActionFailed(
                problem="The execution had ended before its tool did; the result is not stored."
            ) from None
        return done.after.canvas.revision


class SpecChanged(Exception):
    """The canvas has another spec than the one that was parsed before its lock."""

    def __init__(self, snapshot: CanvasSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


def _decide(
    rule: StartRule,
    parsed: ParsedSpec,
    rules: Rules,
    early: tuple[CanvasSnapshot, StartedExecution] | None,
    snapshot: CanvasSnapshot,
) -> StartedExecution:
    """Return the start that was decided on the same canvas before, else decide now. Raises `SpecChanged`."""
    if not parsed.is_of(snapshot.canvas):
        raise SpecChanged(snapshot)
    if early is not None and early[0].canvas.revision == snapshot.canvas.revision:
        return early[1]
    return rule(snapshot, parsed.spec, rules)


def _fail(failure: StartFailed, message: str, snapshot: CanvasSnapshot, *_: Any) -> StartedExecution:
    return fail_start(snapshot.canvas, failure, message)


def public_message(audit: Audit, problem: HostError) -> str:
    """Return the message of an error with secrets redacted, shortened to fit into an event."""
    return shorten(audit.redact(problem.message))
