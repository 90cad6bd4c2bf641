"""Actions of canvases: start, confirm and cancel executions, and recover orphaned ones. CV-39, CV-42, CV-43

Owns the lifecycle of an execution in this process; a disconnected caller does not stop it. `core.action`
decides whether an action may run, `transitions` commits the start, `executor` runs the work and `outcomes`
stores the end. If an instance stops, any other instance marks its executions as interrupted, or adopts the
executions that wait for a run.
"""

import asyncio
import contextlib

import structlog

from easel.core.action.confirmation import may_cancel
from easel.core.action.execution import (
    DuplicateRequest,
    Execution,
    ExecutionStatus,
    StaleTransition,
    principal_of,
)
from easel.core.action.transitions import StartedExecution
from easel.core.canvas.canvas import parse_canvas_id
from easel.core.principal import Principal
from easel.core.stream.notifications import ActionStopped, Notification
from easel.errors import (
    ActionFailed,
    BadInput,
    Cancelled,
    ConfirmationClosed,
    Forbidden,
    HostError,
    IdempotencyConflict,
    NotFound,
    NotRunning,
    TooMany,
    Unavailable,
)
from easel.host.actions.confirmations import ANSWERED, Confirmations
from easel.host.actions.executor import ActionExecutor
from easel.host.actions.live_output import LiveOutputs
from easel.host.actions.outcomes import ExecutionOutcomes, result_not_stored
from easel.host.actions.request import CLIENT, ActionRequest, ActionResult
from easel.host.actions.running import RunningExecution, RunningExecutions
from easel.host.actions.transitions import ActionResources, ExecutionTransitions
from easel.host.periodic import Periodic
from easel.host.ports import Notifier
from easel.ids import is_generated_id

# How long a stopping instance tries to store the interruption of its executions, and how long a cancel waits
# for the tool to end.
STOP_SECONDS = 3.0
ORPHAN_BATCH_SIZE = 100
DELETED = "The canvas was deleted during the execution; it is not known whether the tool has done its work."
HANDED_OVER = (
    "This instance is stopping. The run continues; another instance waits for it and stores the outcome."
)
INTERRUPTED = (
    "The instance that ran it was stopped in the middle, or could not store the outcome; "
    "it is not known whether the tool has done its work."
)
INTERNAL_ERROR = "Something broke inside Easel; the server's log has the details."

log = structlog.get_logger("actions")


class ActionService:
    def __init__(
        self,
        resources: ActionResources,
        executor: ActionExecutor,
        outputs: LiveOutputs,
        notifier: Notifier,
        *,
        single_process: bool,
    ) -> None:
        self._executions = resources.executions
        self._changes = resources.changes
        self._audit = resources.audit
        self._limits = resources.limits
        self._instance_id = resources.instance_id
        self._transitions = ExecutionTransitions(resources)
        self._executor = executor
        self._outcomes = ExecutionOutcomes(resources, self._transitions)
        self.confirmations = Confirmations(resources, self._outcomes)
        self._outputs = outputs
        self._notifier = notifier
        self._single_process = single_process
        self._running = RunningExecutions(
            resources.limits.max_running, executor.abandoned_count, resources.usage
        )
        interval = resources.limits.claim_seconds / 3
        self._maintenance = Periodic(
            "actions", interval, self.renew_and_recover, delay=interval, on_error=self._record_exception
        )
        notifier.listen(self._on_notification)

    # -- requests ----------------------------------------------------------------------------------

    async def execute(self, principal: Principal, request: ActionRequest) -> ActionResult:
        """Run an action and return its outcome. CV-36, CV-45

        A request with a repeated request id returns the outcome of the first one.
        """
        request.validate()
        if previous := await self._find_previous(principal, request):
            return await self._replay(principal, previous, request)
        work = self._start(principal, request)
        return await self._running.detach(work, of_account=principal.account_id)

    async def confirm(self, principal: Principal, confirmation_id: str, *, approve: bool) -> ActionResult:
        """Answer a confirmation: run exactly the confirmed call, once, or refuse it. RS-13, RS-59"""
        pending = await self.confirmations.find(principal, confirmation_id)
        if not approve:
            return await self._running.detach(self.confirmations.reject(principal, pending))
        work = self._approve(principal, pending)
        return await self._running.detach(work, of_account=principal.account_id)

    async def cancel(
        self, principal: Principal, canvas_id: str, event_id: str, *, only_running: bool = False
    ) -> ActionResult:
        """Cancel an execution on any instance, or withdraw a pending one unless `only_running`. CV-23"""
        if not may_cancel(principal):
            problem = "Agents cannot run or cancel canvas actions."
            raise self.confirmations.forbidden(principal, event_id, problem)
        execution = await self._find(principal, canvas_id, event_id)
        if execution.status is ExecutionStatus.ASKED and not only_running:
            try:
                await self.confirmations.check_withdraw(principal, execution)
                return await self._running.detach(self.confirmations.reject(principal, execution))
            except ConfirmationClosed:
                # The confirmation has expired, or it was just approved: then the execution runs and is
                # cancelled below.
                execution = await self._find(principal, canvas_id, event_id)
        if execution.status is not ExecutionStatus.RUNNING:
            raise NotRunning(id=event_id, status=execution.status.value)
        running = self._running.by_event_id.get(event_id)
        result = await self._outcomes.cancel(principal, execution, running.output if running else None)
        if running is None:
            self._notifier.notify(ActionStopped(event_id))
        else:
            running.abandon()
            await asyncio.wait([running.task], timeout=STOP_SECONDS)
        return result

    async def list_records(
        self,
        principal: Principal,
        canvas_id: str,
        *,
        status: ExecutionStatus | None = None,
        before: str | None,
        limit: int,
    ) -> list[Execution]:
        """Return the executions of a canvas, newest first, starting after the event id in `before`."""
        if before is not None and not is_generated_id(before):
            raise BadInput(problem="before must be the eventId of a record.")
        await self._changes.find(principal, canvas_id)
        return await self._executions.list_executions(
            principal.account_id,
            parse_canvas_id(canvas_id),
            statuses=[status] if status else [],
            before=before,
            limit=limit,
        )

    async def _find(self, principal: Principal, canvas_id: str, event_id: str) -> Execution:
        is_valid_id = is_generated_id(event_id)
        execution = await self._executions.get(principal.account_id, event_id) if is_valid_id else None
        if execution is None or execution.canvas_id != parse_canvas_id(canvas_id):
            raise NotFound(what="execution", id=event_id[:200])
        return execution

    # -- starting ----------------------------------------------------------------------------------

    async def _start(self, principal: Principal, request: ActionRequest) -> ActionResult:
        canvas_id = parse_canvas_id(request.canvas_id)
        try:
            started = await self._transitions.start(principal, canvas_id, request)
        except DuplicateRequest:
            previous = await self._find_previous(principal, request)
            if previous is None:
                raise Unavailable(what=f"Canvas {canvas_id}") from None
            return await self._replay(principal, previous, request)
        except (Forbidden, NotFound, TooMany) as problem:
            self._audit.record_throttled(
                principal,
                "guardrail.refused",
                subject=canvas_id,
                details={"actionId": request.action_id[:200], "problem": problem.message},
            )
            raise
        return await self._continue(principal, started)

    async def _approve(self, principal: Principal, pending: Execution) -> ActionResult:
        try:
            started = await self._transitions.approve(principal, pending)
        except StaleTransition:
            raise ConfirmationClosed(id=pending.event_id, problem=ANSWERED) from None
        except Forbidden as problem:
            raise self.confirmations.forbidden(
                principal, pending.event_id, str(problem.details["problem"])
            ) from None
        self._audit.note(
            principal,
            "canvas.confirmed",
            subject=pending.canvas_id,
            details={"eventId": pending.event_id, "tool": pending.tool},
        )
        return await self._continue(principal, started)

    async def _continue(self, principal: Principal, started: StartedExecution) -> ActionResult:
        """Return the outcome of a started execution: at once, or after its work has run."""
        execution = started.execution
        match execution.status:
            case ExecutionStatus.RUNNING:
                return await self._run(principal, started)
            case ExecutionStatus.ASKED | ExecutionStatus.COMPLETED as status:
                if status is ExecutionStatus.COMPLETED:
                    self._outcomes.record(principal, execution, "completed")
                return ActionResult(
                    status=status,
                    event_id=execution.event_id,
                    revision=started.revision,
                    resolved=started.confirmation,
                )
            case ExecutionStatus.FAILED | ExecutionStatus.REFUSED:
                problem = started.problem or ActionFailed(problem=INTERNAL_ERROR)
                raise self._outcomes.report_failure(principal, execution, problem)

    # -- running -----------------------------------------------------------------------------------

    async def _run(self, principal: Principal, started: StartedExecution) -> ActionResult:
        execution = started.execution
        with self._running.register(execution.event_id) as running:
            running.output = self._outputs.open(principal, execution, running.abandon)
            # The output of a refresh job is not streamed: it would only grow the log.
            if execution.actor.get("trigger") == CLIENT:
                running.on_output = running.output.feed
            else:
                running.commands = []
            try:
                return await self._run_to_end(principal, started, running)
            except StaleTransition:
                return await self._wait_for_stored_outcome(principal, execution, running)
            except asyncio.CancelledError:
                if not running.is_abandoned:
                    raise
                return await self._wait_for_stored_outcome(principal, execution, running)
            finally:
                running.output.discard()

    async def _run_to_end(
        self, principal: Principal, started: StartedExecution, running: RunningExecution
    ) -> ActionResult:
        """Run the work and store its outcome.

        Raises StaleTransition if the execution was ended or adopted elsewhere.
        """
        execution = started.execution
        problem: HostError
        cause: BaseException
        is_retried = True
        try:
            result = await self._executor.run(principal, started, running)
            running.is_ending = True
            return await self._outcomes.complete(principal, started, result, running.output, running.commands)
        except StaleTransition:
            raise
        except HostError as error:
            problem = cause = error
            if running.is_ending and isinstance(error, Unavailable):
                # `complete` has already retried for the whole claim time.
                problem, is_retried = result_not_stored(error), False
        except asyncio.CancelledError as error:
            if running.is_abandoned:
                raise
            # This instance stops, or the tool's own task was cancelled.
            if self._running.is_stopping and running.run_id is not None:
                raise ActionFailed.with_message(HANDED_OVER, eventId=execution.event_id) from None
            problem, cause = ActionFailed(problem=INTERRUPTED), error
        except Exception as error:
            self._audit.record_exception(principal, "gateway.error", error, subject=execution.event_id)
            log.exception("actions.error", event_id=execution.event_id)
            problem, cause = ActionFailed(problem=INTERNAL_ERROR), error
        running.is_ending = True
        for details in running.commands or ():  # of a refresh job: only successful ones are tallied. SB-16
            self._audit.note(principal, "sandbox.ran", subject=execution.event_id, details=details)
        raise await self._outcomes.fail(
            principal, execution, problem, running.output, is_retried=is_retried
        ) from cause

    async def _wait_for_stored_outcome(
        self, principal: Principal, execution: Execution, running: RunningExecution
    ) -> ActionResult:
        """Wait for the outcome of an execution that was cancelled or adopted elsewhere, and return it.

        If the execution was cancelled, the run that it started is cancelled too.
        """
        try:
            stored = await self._wait_while_running(execution)
        except NotFound:
            self._outcomes.record(principal, execution, "failed", problem=DELETED)
            raise
        try:
            return await self._outcomes.stored_answer(principal, stored)
        except Cancelled:
            await self._executor.cancel_run(principal, running)
            raise

    # -- repeated requests -------------------------------------------------------------------------

    async def _find_previous(self, principal: Principal, request: ActionRequest) -> Execution | None:
        if request.request_id is None:
            return None
        canvas_id = parse_canvas_id(request.canvas_id)
        return await self._executions.find_by_request_id(principal.account_id, canvas_id, request.request_id)

    async def _replay(
        self, principal: Principal, previous: Execution, request: ActionRequest
    ) -> ActionResult:
        """Return the outcome of the first request with this id.

        Raises IdempotencyConflict if the first request had different content.
        """
        if previous.action_id != request.action_id or previous.request_digest not in (None, request.digest):
            raise IdempotencyConflict(what="requestId", key=previous.request_id)
        if (running := self._running.by_event_id.get(previous.event_id)) is not None:
            return await asyncio.shield(running.task)
        if previous.status is ExecutionStatus.RUNNING:
            previous = await self._wait_while_running(previous)
        if previous.status is ExecutionStatus.ASKED and self.confirmations.is_expired(previous):
            await self.confirmations.expire(previous)
            previous = await self._reload(previous)
        return await self._outcomes.stored_answer(principal, previous)

    async def _wait_while_running(self, execution: Execution) -> Execution:
        """Poll the store until the execution no longer runs. Raises NotFound if its canvas was deleted."""
        stored = await self._reload(execution)
        while stored.status is ExecutionStatus.RUNNING:
            await asyncio.sleep(self._limits.poll_seconds)
            stored = await self._reload(execution)
        return stored

    async def _reload(self, execution: Execution) -> Execution:
        stored = await self._executions.get(execution.account_id, execution.event_id)
        if stored is None:
            raise NotFound(what="canvas", id=execution.canvas_id)
        return stored

    # -- maintenance -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the maintenance. In single-process mode, first recover executions of a crashed process."""
        if self._single_process:
            await self.recover_orphans(await self._executions.other_active_owners(self._instance_id))
        self._maintenance.start()

    async def stop(self) -> None:
        """Stop the maintenance and mark the running executions as interrupted."""
        self._running.is_stopping = True
        await self._maintenance.stop()
        await self._running.stop(STOP_SECONDS)
        self._outcomes.tallies.close()

    def _on_notification(self, notification: Notification) -> None:
        if isinstance(notification, ActionStopped) and self._running.by_event_id.get(notification.event_id):
            self._maintenance.wake()

    def _record_exception(self, problem: Exception) -> None:
        self._audit.record_exception(None, "gateway.error", problem, details={"duty": "actions"})

    async def renew_and_recover(self) -> int:
        """Renew local executions, abandon those whose claim was lost, recover orphans.

        Returns how many were recovered.
        """
        if running := dict(self._running.by_event_id):
            renewed = await self._executions.renew(
                self._instance_id, sorted(running), self._limits.claim_seconds
            )
            for event_id in running.keys() - renewed:
                running[event_id].abandon()
        return await self.recover_orphans([])

    async def recover_orphans(self, owner_ids: list[str]) -> int:
        """End or adopt orphaned executions, and expire old confirmations. Returns how many were found.

        An execution is orphaned if its claim has expired or its owner is in `owner_ids`.
        """
        await self._outcomes.save_pending_failures()
        orphans = await self._executions.find_orphaned(owner_ids, ORPHAN_BATCH_SIZE)
        for execution in orphans:
            if execution.status is ExecutionStatus.ASKED:
                await self.confirmations.expire(execution)
                continue
            # Another instance may have recovered the execution, or it was deleted with its canvas.
            with contextlib.suppress(StaleTransition, NotFound):
                if execution.tool is not None or not await self._adopt(execution, owner_ids):
                    problem = ActionFailed(problem=INTERRUPTED)
                    await self._outcomes.fail(principal_of(execution), execution, problem)
        return len(orphans)

    async def _adopt(self, orphan: Execution, owner_ids: list[str]) -> bool:
        """Wait here for the run of an orphaned execution. Returns False if there is no such run. CV-43"""
        if not self._running.has_capacity:
            return True  # the execution stays orphaned until an instance has capacity
        principal = principal_of(orphan)
        started = await self._transitions.adopt(principal, orphan, owner_ids)
        if started is not None:
            self._running.spawn(self._continue(principal, started))
        return started is not None
