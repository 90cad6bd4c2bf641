"""The transitions of executions, each decided and committed under the lock of its canvas. CV-39

Owns loading the input of a decision, storing offloaded values before the commit, and retrying the end of an
execution while the store is unavailable. The rules are in `core.action.transitions`.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from easel.core.action.confirmation import PendingReply, can_resume_waiting
from easel.core.action.policy import Definitions
from easel.core.action.transitions import (
    Decision,
    Rules,
    StartedExecution,
    approve_execution,
    start_execution,
)
from easel.core.canvas.actions import Confirm
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, Change
from easel.core.canvas.execution import Execution, ExecutionStatus, PendingLimit, StaleTransition
from easel.core.canvas.spec import CanvasSpec
from easel.core.principal import Principal
from easel.core.run.deltas import shorten
from easel.core.stream.payload_limit import OffloadedValue
from easel.core.values.template import MissingArtifacts
from easel.errors import ActionFailed, HostError, Unavailable
from easel.host.actions.request import ActionRequest
from easel.host.artifacts.artifacts import Artifacts
from easel.host.audit.audit import Audit
from easel.host.canvases.transactions import CanvasTransactions, now_ms
from easel.host.ports import ExecutionStore
from easel.host.tools.registry import ToolRegistry
from easel.ids import AccountId, ArtifactId, CanvasId

Rule = Callable[[CanvasSnapshot, CanvasSpec, Rules], StartedExecution]


MAX_CONFIRMATIONS = 20  # pending ones of a canvas, so that no page can flood a person


@dataclass(frozen=True, slots=True)
class ActionLimits:
    max_running: int  # executions of one instance
    state_bytes: int
    claim_seconds: float  # an instance that does not renew within this time counts as stopped
    poll_seconds: float
    confirm_seconds: float  # how long a confirmation can be answered
    floor: Confirm


class ExecutionTransitions:
    def __init__(
        self,
        actions: ExecutionStore,
        changes: CanvasTransactions,
        artifacts: Artifacts,
        tools: ToolRegistry,
        *,
        audit: Audit,
        limits: ActionLimits,
        instance_id: str,
    ) -> None:
        self._actions = actions
        self._changes = changes
        self._artifacts = artifacts
        self._tools = tools
        self._audit = audit
        self._limits = limits
        self._instance_id = instance_id

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
            lambda snapshot, spec, rules: start_execution(snapshot, spec, start, rules),
            is_repeatable=request.is_repeatable,
        )

    async def approve(self, principal: Principal, pending: Execution) -> StartedExecution:
        """Start a pending execution as it was confirmed. Raises StaleTransition if it was answered before."""

        def approve(snapshot: CanvasSnapshot, spec: CanvasSpec, rules: Rules) -> StartedExecution:
            return approve_execution(
                snapshot, spec, pending, principal, rules, owner_id=self._instance_id, now_ms=now_ms()
            )

        return await self._start(principal, pending.canvas_id, approve)

    async def _start(
        self, principal: Principal, canvas_id: CanvasId, rule: Rule, *, is_repeatable: bool = True
    ) -> StartedExecution:
        """Load the tool definitions, then decide and commit the start in one transaction.

        If a template needs artifacts, they are read and the transaction is repeated.
        """
        definitions = await self._load_definitions(principal.account_id)
        fetched: dict[ArtifactId, bytes] = {}
        started: list[StartedExecution] = []

        def decide(snapshot: CanvasSnapshot) -> tuple[Change, Iterable[OffloadedValue]]:
            rules = self._rules(definitions, fetched)
            started[:] = [rule(snapshot, self._changes.specs.get(snapshot.canvas), rules)]
            return started[0].change, started[0].offloaded

        while True:
            try:
                await self._commit(
                    principal,
                    canvas_id,
                    decide,
                    claim_seconds=self._limits.claim_seconds,
                    is_repeatable=is_repeatable,
                )
            except MissingArtifacts as missing:
                for artifact_id in missing.artifact_ids:
                    fetched[artifact_id] = await self._artifacts.read(principal.account_id, artifact_id)
            else:
                return started[0]

    async def _load_definitions(self, account_id: AccountId) -> Definitions | Unavailable:
        """Return the tools of this user, or the error if they cannot be read.

        The error is not raised, because only an action that calls a tool needs the definitions.
        """
        try:
            return await self._tools.definitions(account_id)
        except Unavailable as problem:
            return problem

    def _rules(self, definitions: Definitions | Unavailable, fetched: dict[ArtifactId, bytes]) -> Rules:
        limits = self._limits
        return Rules(
            definitions=definitions,
            floor=limits.floor,
            state_bytes=limits.state_bytes,
            missing_tools=self._tools.missing,
            public_message=lambda problem: public_message(self._audit, problem),
            check_arguments=self._tools.check_arguments,
            pending_limit=PendingLimit(MAX_CONFIRMATIONS, limits.confirm_seconds),
            fetched=fetched,
        )

    async def adopt(
        self, principal: Principal, orphan: Execution, owner_ids: Sequence[str]
    ) -> StartedExecution | None:
        """Claim an execution whose instance stopped while the execution waited for a run.

        Returns None if there is no such run.
        """
        execution = await self._actions.get(orphan.account_id, orphan.event_id)
        if execution is None:
            return None  # the execution was deleted with its canvas
        canvas = (await self._changes.find(principal, orphan.canvas_id)).canvas
        action = self._changes.specs.get(canvas).actions.get(orphan.action_id)
        if not can_resume_waiting(action, execution):
            return None
        run = await self._actions.adopt(orphan, owner_ids, self._instance_id, self._limits.claim_seconds)
        if run is None:
            return None
        return StartedExecution(
            change=Change(events=[], is_mutation=False),
            execution=replace(execution, owner_id=self._instance_id),
            action=action,
            work=PendingReply(canvas.session_of(action.session_key), run),
            revision=canvas.revision,
        )

    # -- ending ------------------------------------------------------------------------------------

    async def finish(
        self,
        principal: Principal,
        execution: Execution,
        decide: Decision,
        offloaded: Iterable[OffloadedValue] = (),
        *,
        is_retried: bool = True,
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
                return await self._finish_once(
                    principal, execution, decide, offloaded, is_repeated=is_repeated
                )
            except Unavailable as problem:
                uncertain = problem if "mayBeStored" in problem.details else uncertain
                if clock() >= deadline:
                    raise uncertain or problem from problem
                is_repeated = True
                await asyncio.sleep(self._limits.poll_seconds)

    async def _finish_once(
        self,
        principal: Principal,
        execution: Execution,
        decide: Decision,
        offloaded: Iterable[OffloadedValue],
        *,
        is_repeated: bool,
    ) -> int:
        try:
            canvas = await self._commit(
                principal, execution.canvas_id, lambda snapshot: (decide(snapshot), offloaded)
            )
        except StaleTransition:
            stored = await self._actions.get(execution.account_id, execution.event_id)
            status = None if stored is None else stored.status
            if is_repeated and status is ExecutionStatus.COMPLETED and stored and stored.revision is not None:
                return stored.revision  # stored by an earlier attempt whose reply was lost
            if status in (ExecutionStatus.RUNNING, ExecutionStatus.COMPLETED):
                raise  # another instance adopted the execution
            raise ActionFailed(
                problem="The execution had ended before its tool did; the result is not stored."
            ) from None
        return canvas.revision

    # -- transactions ------------------------------------------------------------------------------

    async def _commit(
        self,
        principal: Principal,
        canvas_id: CanvasId,
        decide: Callable[[CanvasSnapshot], tuple[Change, Iterable[OffloadedValue]]],
        *,
        claim_seconds: float = 0,
        is_repeatable: bool = True,
    ) -> Canvas:
        """Commit the change that `decide` returns, after storing the offloaded values that it refers to."""
        stored: set[ArtifactId] = set()

        def decide_when_stored(snapshot: CanvasSnapshot) -> Change:
            change, offloaded = decide(snapshot)
            needed = [*offloaded, *(value for event in change.events for value in event.offloaded)]
            if missing := [value for value in needed if value.artifact_id not in stored]:
                raise ArtifactsNotStored(missing)
            return change

        while True:
            try:
                outcome = await self._changes.apply(
                    principal,
                    canvas_id,
                    decide_when_stored,
                    seconds=claim_seconds,
                    is_repeatable=is_repeatable,
                )
            except ArtifactsNotStored as missing:
                await self._artifacts.store(principal.account_id, missing.offloaded)
                stored |= {value.artifact_id for value in missing.offloaded}
            else:
                return outcome.snapshot.canvas


class ArtifactsNotStored(Exception):
    """A change refers to offloaded values that are not stored yet."""

    def __init__(self, offloaded: list[OffloadedValue]) -> None:
        super().__init__()
        self.offloaded = offloaded


def public_message(audit: Audit, problem: HostError) -> str:
    """Return the message of an error with secrets redacted, shortened to fit into an event."""
    return shorten(audit.redact(problem.message))
