"""Actions of canvases: a button is pressed, a person may have to agree, a tool runs, and what it says lies in the canvas.

Owns the carrying out, and stopping it. What may run and what becomes of the canvas is decided in `core.canvas.pressing`, under the
canvas's lock; how it ends is told by `canvas_endings`.
An execution belongs to the instance that runs it, not to the connection that asked: who leaves stops nothing. An instance that dies
leaves its executions behind: any other tells that they were interrupted, or goes on to wait for a run that one of them has started.
CV-39, CV-42, CV-43
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from easel.core.action.stopping import may_stop, may_withdraw
from easel.core.action.transitions import (
    StartedExecution,
    approve_execution,
    completed,
    reject_execution,
    resolved_as_shown,
    start_execution,
)
from easel.core.canvas.canvas import Canvas
from easel.core.canvas.execution import (
    DuplicateRequest,
    Execution,
    ExecutionStatus,
    StaleTransition,
    may_confirm,
)
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
from easel.host.actions.executor import ActionExecutor, ExecutionContext, RunningExecution
from easel.host.actions.live_output import LiveOutputs
from easel.host.actions.outcomes import (
    GONE,
    INTERRUPTED,
    LEFT,
    ActionResult,
    ExecutionOutcomes,
    told,
    unstored,
)
from easel.host.actions.request import CLIENT, ActionRequest
from easel.host.actions.transitions import ActionLimits, ExecutionTransitions
from easel.host.artifacts import Artifacts
from easel.host.artifacts import restore as whole_value
from easel.host.audit import Audit
from easel.host.canvases.transactions import CanvasTransactions, parse_canvas_id, now_ms
from easel.host.metrics import ACTIONS_RUNNING
from easel.host.ports import CanvasActionStore, Notifier
from easel.ids import CanvasId, is_made_here

STOP_SECONDS = 3.0  # how long a stopping instance tries to tell what it interrupts; later another one does. And how long a stop waits

log = structlog.get_logger("actions")


class ActionService:
    def __init__(
        self,
        actions: CanvasActionStore,
        changes: CanvasTransactions,
        work: ActionExecutor,
        artifacts: Artifacts,
        *,
        outputs: LiveOutputs,
        notifier: Notifier,
        audit: Audit,
        limits: ActionLimits,
        instance_id: str,
        is_alone: bool,
    ) -> None:
        self._actions = actions
        self._changes = changes
        self._work = work
        self._artifacts = artifacts
        self._audit = audit
        self._limits = limits
        self._instance = instance_id
        self._is_alone = (
            is_alone  # no other process can run anything: what is left of another was left by the dead
        )
        self._outputs = outputs
        self._notifier = notifier
        self._steps = ExecutionTransitions(
            actions, changes, artifacts, work.tools, limits, told=partial(told, audit)
        )
        self._endings = ExecutionOutcomes(actions, changes, self._steps, artifacts, audit)
        self._asked: set[asyncio.Task[ActionResult]] = set()  # all that somebody has asked for
        self._at_work: dict[str, RunningExecution] = {}  # the executions that run
        self._wake = asyncio.Event()  # something that runs here may have been ended elsewhere
        self._duty: asyncio.Task[None] | None = None
        self._is_stopping = False
        notifier.listen(self._on_notification)

    # -- pressing --------------------------------------------------------------------------------------------------

    async def execute(self, principal: Principal, ask: ActionRequest) -> ActionResult:
        """Waits for the end; the same request again is answered with the first one's end. CV-36, CV-45"""
        canvas_id = parse_canvas_id(ask.canvas_id)
        ask.check()
        if ask.request_id is not None and (
            earlier := await self._actions.find_by_request_id(principal.user_id, canvas_id, ask.request_id)
        ):
            return await self._again(principal, earlier, ask)
        return await self._owned(self._pressed(principal, canvas_id, ask))

    async def _pressed(self, principal: Principal, canvas_id: CanvasId, ask: ActionRequest) -> ActionResult:
        press = ask.press(principal, self._instance)
        try:
            begun, canvas = await self._steps.begin(
                principal,
                canvas_id,
                lambda snapshot, spec, rules: start_execution(snapshot, spec, press, rules),
                is_repeatable=ask.is_repeatable,
            )
        except DuplicateRequest:
            earlier = await self._actions.find_by_request_id(principal.user_id, canvas_id, ask.request_id or "")
            if earlier is None:
                raise Unavailable(what=f"Canvas {canvas_id}") from None
            return await self._again(principal, earlier, ask)
        except (Forbidden, NotFound, TooMany) as problem:
            self._audit.record_throttled(
                principal,
                "guardrail.refused",
                subject=canvas_id,
                details={"actionId": ask.action_id[:200], "problem": problem.message},
            )
            raise
        return await self._go_on(principal, begun, canvas)

    async def _owned(self, work: Coroutine[Any, Any, ActionResult]) -> ActionResult:
        """To its end, whether or not whoever asked for it is still there then."""
        try:
            if self._is_stopping:
                raise Unavailable(what="This instance")
            if self._at_once >= self._limits.at_once:
                raise TooMany(what="actions at once", limit=self._limits.at_once)
        except HostError:
            work.close()
            raise
        return await asyncio.shield(self._own(work))

    @property
    def _at_once(self) -> int:
        return (
            len(self._asked) + self._work.deadlines.overdue
        )  # what nobody waits for any more still takes its room

    def _own(self, work: Coroutine[Any, Any, ActionResult]) -> asyncio.Task[ActionResult]:
        task = asyncio.create_task(work)
        self._asked.add(task)
        task.add_done_callback(self._let_go)
        return task

    def _let_go(self, task: asyncio.Task[ActionResult]) -> None:
        self._asked.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked may be gone: then nobody else takes note of it

    async def confirm(
        self, principal: Principal, confirmation_id: str, client_id: str, *, approve: bool
    ) -> ActionResult:
        """By a person, once, for exactly what was shown. RS-13, RS-59"""
        if not may_confirm(principal):
            self._audit.record_throttled(
                principal,
                "guardrail.refused",
                subject=confirmation_id[:200],
                details={"problem": "only a person confirms"},
            )
            raise Forbidden(problem="Only a person can confirm; an agent never does.")
        execution = (
            await self._actions.get(principal.user_id, confirmation_id)
            if is_made_here(confirmation_id)
            else None
        )
        if execution is None:
            raise NotFound(what="confirmation", id=confirmation_id[:200])
        if execution.status is not ExecutionStatus.ASKED:
            raise ConfirmationClosed(id=confirmation_id, problem="it was answered already.")
        if self._is_too_old(execution):
            raise ConfirmationClosed(id=confirmation_id, problem="it was asked too long ago.")
        execution = await self._whole(execution)
        return await self._owned(self._answered(principal, execution, client_id, approve=approve))

    async def _answered(
        self, principal: Principal, execution: Execution, client_id: str, *, approve: bool
    ) -> ActionResult:
        ask = ActionRequest(
            canvas_id=execution.canvas_id, action_id=execution.action_id, input={}, client_id=client_id
        )
        press = ask.press(principal, self._instance)
        try:
            if not approve:
                outcome = await self._changes.apply(
                    principal, execution.canvas_id, lambda canvas: reject_execution(canvas, execution, press)
                )
                self._endings.tell_audit(principal, execution, "refused")
                return ActionResult(
                    status=ExecutionStatus.REFUSED,
                    event_id=execution.event_id,
                    revision=outcome.snapshot.canvas.revision,
                )
            begun, canvas = await self._steps.begin(
                principal,
                execution.canvas_id,
                lambda snapshot, spec, rules: approve_execution(snapshot, spec, execution, press, rules),
            )
        except StaleTransition:
            raise ConfirmationClosed(id=execution.event_id, problem="it was answered already.") from None
        self._audit.note(
            principal,
            "canvas.confirmed",
            subject=execution.canvas_id,
            details={"eventId": execution.event_id, "tool": execution.tool},
        )
        return await self._go_on(principal, begun, canvas)

    async def cancel(
        self,
        principal: Principal,
        canvas_id: str,
        event_id: str,
        client_id: str,
        *,
        only_running: bool = False,
    ) -> ActionResult:
        """Whoever may press may stop, on any instance. What waits is refused, unless only what runs is meant; that has ended then. CV-23"""
        if not may_stop(principal):
            self._audit.record_throttled(
                principal,
                "guardrail.refused",
                subject=event_id[:200],
                details={"problem": "an agent stops nothing"},
            )
            raise Forbidden(
                problem="An agent presses no buttons, and stops nothing that others have pressed."
            )
        execution = await self._execution(principal, canvas_id, event_id)
        if execution.status is ExecutionStatus.ASKED and not only_running:
            try:
                return await self._withdrawn(principal, execution, client_id)
            except (
                ConfirmationClosed
            ):  # somebody has answered it meanwhile, and what runs by that is meant too; or its time was over
                execution = await self._execution(principal, canvas_id, event_id)
        if execution.status is not ExecutionStatus.RUNNING:
            raise NotRunning(id=event_id, status=execution.status.value)
        running = self._at_work.get(event_id)
        answer = await self._endings.stopped(principal, execution, running.output if running else None)
        if running is None:
            self._notifier.notify(ActionStopped(event_id))
        else:
            running.give_up()
            await asyncio.wait([running.task], timeout=STOP_SECONDS)  # then all that it started is gone, too
        return answer

    async def _execution(self, principal: Principal, canvas_id: str, event_id: str) -> Execution:
        execution = await self._actions.get(principal.user_id, event_id) if is_made_here(event_id) else None
        if execution is None or execution.canvas_id != parse_canvas_id(canvas_id):
            raise NotFound(what="execution", id=event_id[:200])
        return execution

    async def _withdrawn(self, principal: Principal, asked: Execution, client_id: str) -> ActionResult:
        if not may_withdraw(principal, asked):
            self._audit.record_throttled(
                principal,
                "guardrail.refused",
                subject=asked.event_id,
                details={"problem": "it is somebody else's question"},
            )
            raise Forbidden(
                problem="What waits for a person is withdrawn by a person, or by whoever pressed it."
            )
        if self._is_too_old(asked):
            await self._endings.lapsed(asked)
            raise ConfirmationClosed(id=asked.event_id, problem="it was asked too long ago.")
        return await self._owned(self._answered(principal, asked, client_id, approve=False))

    def _is_too_old(self, asked: Execution) -> bool:
        return asked.age_seconds > self._limits.confirm_seconds

    async def waiting(self, principal: Principal, canvas_id: str) -> list[Execution]:
        """What of a canvas waits for a person, newest first."""
        await self._changes.find(principal, canvas_id)
        found = await self._actions.list_executions(
            principal.user_id, parse_canvas_id(canvas_id), statuses=[ExecutionStatus.ASKED], before=None, limit=100
        )
        return [await self._whole(one) for one in found if not self._is_too_old(one)]

    async def _whole(self, asked: Execution) -> Execution:
        """All of the call, as it would run: whoever agrees sees what is long, too. X6"""
        return replace(asked, resolved=await whole_value(self._artifacts, asked.user_id, asked.resolved))

    async def records(
        self,
        principal: Principal,
        canvas_id: str,
        *,
        status: ExecutionStatus | None = None,
        before: str | None,
        limit: int,
    ) -> list[Execution]:
        if before is not None and not is_made_here(before):
            raise BadInput(problem="before: is the eventId of a record.")
        await self._changes.find(principal, canvas_id)
        return await self._actions.list_executions(
            principal.user_id,
            parse_canvas_id(canvas_id),
            statuses=[status] if status else [],
            before=before,
            limit=limit,
        )

    # -- carrying out ----------------------------------------------------------------------------------------------

    async def _go_on(self, principal: Principal, begun: StartedExecution, canvas: Canvas) -> ActionResult:
        execution = begun.execution
        if begun.problem is not None:
            raise self._endings.told_of(principal, execution, begun.problem)
        if execution.status is ExecutionStatus.ASKED:
            shown = resolved_as_shown(begun.work, begun.action)
            return ActionResult(
                status=ExecutionStatus.ASKED,
                event_id=execution.event_id,
                revision=canvas.revision,
                resolved=shown,
            )
        if execution.status is ExecutionStatus.COMPLETED:
            self._endings.tell_audit(principal, execution, "completed")
            return ActionResult(
                status=ExecutionStatus.COMPLETED, event_id=execution.event_id, revision=canvas.revision
            )
        running = self._begun(principal, execution)
        try:
            return await self._carry_out(principal, begun, running)
        except StaleTransition:
            return await self._ended_elsewhere(principal, execution, running)
        except asyncio.CancelledError:
            if not running.is_over:
                raise
            return await self._ended_elsewhere(principal, execution, running)
        finally:
            running.output.drop()
            del self._at_work[execution.event_id]
            ACTIONS_RUNNING.set(len(self._at_work))

    def _begun(self, principal: Principal, execution: Execution) -> RunningExecution:
        task = asyncio.current_task()
        assert task is not None
        running = self._at_work[execution.event_id] = RunningExecution(task)
        running.output = self._outputs.open(principal, execution, running.give_up)
        # What runs by itself is not told live: a log is kept, and nobody waits for it.
        running.under_way = ExecutionContext(
            running.output.hear if execution.actor.get("trigger") == CLIENT else None
        )
        ACTIONS_RUNNING.set(len(self._at_work))
        return running

    async def _carry_out(
        self, principal: Principal, begun: StartedExecution, running: RunningExecution
    ) -> ActionResult:
        execution, output = begun.execution, running.output
        try:
            result = await self._work.done(principal, begun, running.under_way)
            running.is_ending = True
            decide, offloaded = completed(
                result, begun, principal, now_ms=now_ms(), state_bytes=self._limits.state_bytes
            )
            revision = await self._steps.end(principal, execution, await output.before(decide), offloaded)
        except StaleTransition:
            raise
        except HostError as problem:
            if running.is_ending and isinstance(problem, Unavailable):  # it was waited for long enough
                raise await self._endings.failed(
                    principal, execution, unstored(problem), output, is_patient=False
                ) from problem
            raise await self._failed(principal, execution, running, problem) from problem
        except (
            asyncio.CancelledError
        ):  # this instance stops; or its tool was cancelled by somebody else, and whoever asked still waits
            if running.is_over:
                raise
            if (
                self._is_stopping and running.under_way.run_id is not None
            ):  # its run goes on, and another instance will wait for it
                raise ActionFailed.with_message(LEFT, eventId=execution.event_id) from None
            raise await self._failed(
                principal, execution, running, ActionFailed(problem=INTERRUPTED)
            ) from None
        except Exception as problem:
            self._audit.record_exception(principal, "gateway.error", problem, subject=execution.event_id)
            log.exception("action.error", event_id=execution.event_id)
            broken = ActionFailed(problem="Something broke inside Easel; its log knows more.")
            raise await self._failed(principal, execution, running, broken) from problem
        self._endings.tell_audit(principal, execution, "completed")
        return ActionResult(
            status=ExecutionStatus.COMPLETED,
            event_id=execution.event_id,
            revision=revision,
            result=result,
            has_result=True,
        )

    async def _failed(
        self, principal: Principal, execution: Execution, running: RunningExecution, problem: HostError
    ) -> HostError:
        running.is_ending = True
        return await self._endings.failed(principal, execution, problem, running.output)

    async def _ended_elsewhere(
        self, principal: Principal, execution: Execution, running: RunningExecution
    ) -> ActionResult:
        """As whoever ended it, or goes on with it, has told it. A run that was started only for it, and that somebody stopped, is stopped too."""
        try:
            while (stored := await self._stored(execution)).status is ExecutionStatus.RUNNING:  # noqa: ASYNC110 - the store tells nobody
                await asyncio.sleep(self._limits.poll_seconds)
        except NotFound:  # its record went with the canvas: nobody else tells that it was done
            self._endings.tell_audit(principal, execution, "failed", problem=GONE)
            raise
        try:
            return await self._endings.kept(principal, stored)
        except Cancelled:
            await self._work.stop(principal, running.under_way)
            raise

    async def _again(self, principal: Principal, earlier: Execution, ask: ActionRequest) -> ActionResult:
        if earlier.action_id != ask.action_id or earlier.request_digest not in (None, ask.digest):
            raise IdempotencyConflict(what="requestId", key=earlier.request_id)
        while earlier.status is ExecutionStatus.RUNNING:
            if (running := self._at_work.get(earlier.event_id)) is not None:
                return await asyncio.shield(running.task)
            await asyncio.sleep(self._limits.poll_seconds)
            earlier = await self._stored(earlier)
        if earlier.status is ExecutionStatus.ASKED and self._is_too_old(
            earlier
        ):  # nobody can confirm it any more, nor has told so
            await self._endings.lapsed(earlier)
            earlier = await self._stored(earlier)
        return await self._endings.kept(principal, earlier)

    async def _stored(self, execution: Execution) -> Execution:
        stored = await self._actions.get(execution.user_id, execution.event_id)
        if stored is None:
            raise NotFound(what="canvas", id=execution.canvas_id)
        return stored

    # -- what time brings ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        if self._duty is None:
            if self._is_alone:
                await self.tell_lost(await self._actions.other_active_owners(self._instance))
            self._duty = asyncio.create_task(self._keep_forever())

    async def stop(self) -> None:
        """What still runs is told to have been interrupted: nobody would finish it."""
        self._is_stopping = True
        tasks: list[asyncio.Task[Any]] = [*self._asked, *([self._duty] if self._duty else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _on_notification(self, notification: Notification) -> None:
        if isinstance(notification, ActionStopped) and notification.event_id in self._at_work:
            self._wake.set()

    async def _keep_forever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.lease_seconds / 3):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self.once()
            except Unavailable:
                log.info("actions.database_unavailable")
            except Exception as problem:
                log.exception("actions.error")
                self._audit.record_exception(None, "gateway.error", problem, details={"duty": "actions"})

    async def once(self) -> int:
        """Say that what runs here does, and stop what does not any more; tell what is lost, whosever it was, and how many that were."""
        if held := dict(self._at_work):
            renewed = await self._actions.renew(self._instance, sorted(held), self._limits.lease_seconds)
            for event_id in held.keys() - renewed:
                held[event_id].give_up()
        return await self.tell_lost([])

    async def tell_lost(self, owner_ids: list[str]) -> int:
        return await self._endings.tell_lost(owner_ids, self._limits.confirm_seconds, self._take_up)

    async def _take_up(self, principal: Principal, lost: Execution, owner_ids: list[str]) -> bool:
        """Whoever waited for a run is gone, and the run is not: its answer is waited for here. CV-43"""
        if self._at_once >= self._limits.at_once:
            return True  # as soon as there is room, here or elsewhere: until then it is found again
        left = await self._steps.adopt(principal, lost, owner_ids, self._instance)
        if left is not None:
            self._own(self._go_on(principal, *left))
        return left is not None
