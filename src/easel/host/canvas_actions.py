"""Actions of canvases: a button is pressed, a person may have to agree, a tool runs, and what it says lies in the canvas.

Owns the carrying out. What may run and what becomes of the canvas is decided in `core.canvas.pressing`, under the canvas's lock.
An execution belongs to the instance that runs it, not to the connection that asked: who leaves stops nothing. An instance that dies
leaves its executions behind, and any other tells that they were interrupted. CV-39, CV-42
"""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any

import structlog

from easel.core.canvas.canvas import Canvas
from easel.core.canvas.execution import Execution, Overtaken, Repeated, Status, actor_of, may_confirm
from easel.core.canvas.pressing import Begun, Press, agreed, completed, failed, pressed, refused, resolved_as_shown
from easel.core.principal import Principal
from easel.core.run.pace import shortened
from easel.errors import (
    ActionFailed,
    BadInput,
    ConfirmationOver,
    Forbidden,
    HostError,
    IdempotencyConflict,
    NotFound,
    TooMany,
    Unavailable,
)
from easel.host.artifacts import Artifacts
from easel.host.audit import Audit
from easel.host.canvas_changes import CanvasChanges, named
from easel.host.canvas_steps import ActionLimits, CanvasSteps
from easel.host.canvas_work import CanvasWork
from easel.host.metrics import ACTIONS_ENDED, ACTIONS_RUNNING
from easel.host.ports import CanvasActionStore
from easel.host.run_history import whole as whole_value
from easel.ids import CanvasId, UserId, is_made_here, new_event_id

LONGEST_REQUEST_ID = 200
LOST_AT_ONCE = 100
PRUNE_SECONDS = 60.0
STOP_SECONDS = 3.0  # how long a stopping instance tries to tell what it interrupts; later another one does
CLIENT = "client"
INTERRUPTED = "The instance that ran it stopped in the middle; whether the tool has done its work is not known."

log = structlog.get_logger("actions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a caller sends. `trigger` says what pressed the button: a client, or a refresh."""

    canvas_id: str
    action_id: str
    input: Any
    client_id: str
    expected_revision: int | None = None
    request_id: str | None = None
    trigger: str = CLIENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Completed, with its result; or waiting for a person, with what exactly they are asked; or refused by them."""

    status: Status
    event_id: str
    revision: int
    result: Any = None
    has_result: bool = False
    resolved: Any = None


class CanvasActions:
    def __init__(
        self,
        actions: CanvasActionStore,
        changes: CanvasChanges,
        work: CanvasWork,
        artifacts: Artifacts,
        *,
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
        self._is_alone = is_alone  # no other process can run anything: what is left of another was left by the dead
        self._steps = CanvasSteps(actions, changes, artifacts, work.tools, limits, told=self._told)
        self._asked: set[asyncio.Task[Answer]] = set()  # all that somebody has asked for
        self._at_work: dict[str, asyncio.Task[Any] | None] = {}  # the executions that run
        self._duty: asyncio.Task[None] | None = None
        self._is_stopping = False

    # -- pressing --------------------------------------------------------------------------------------------------

    async def press(self, who: Principal, ask: Ask) -> Answer:
        """Waits for the end; the same request again is answered with the first one's end. CV-36, CV-45"""
        canvas_id = named(ask.canvas_id)
        _check_request(ask.request_id)
        if ask.request_id is not None and (earlier := await self._actions.of_request(who.user_id, canvas_id, ask.request_id)):
            return await self._again(who, earlier, ask.action_id)
        return await self._owned(self._pressed(who, canvas_id, ask))

    async def _pressed(self, who: Principal, canvas_id: CanvasId, ask: Ask) -> Answer:
        press = self._press(who, ask.action_id, ask.client_id, ask.trigger, ask)
        try:
            begun, canvas = await self._steps.begin(who, canvas_id, lambda whole, spec, rules: pressed(whole, spec, press, rules))
        except Repeated:
            earlier = await self._actions.of_request(who.user_id, canvas_id, ask.request_id or "")
            if earlier is None:
                raise Unavailable(what=f"Canvas {canvas_id}") from None
            return await self._again(who, earlier, ask.action_id)
        except (Forbidden, NotFound) as problem:
            self._audit.tally(
                who, "guardrail.refused", subject=canvas_id, details={"actionId": ask.action_id[:200], "problem": problem.message}
            )
            raise
        return await self._go_on(who, begun, canvas)

    async def _owned(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """To its end, whether or not whoever asked for it is still there then."""
        try:
            if self._is_stopping:
                raise Unavailable(what="This instance")
            if len(self._asked) >= self._limits.at_once:
                raise TooMany(what="actions at once", limit=self._limits.at_once)
        except HostError:
            work.close()
            raise
        task = asyncio.create_task(work)
        self._asked.add(task)
        task.add_done_callback(self._let_go)
        return await asyncio.shield(task)

    def _let_go(self, task: asyncio.Task[Answer]) -> None:
        self._asked.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked may be gone: then nobody else takes note of it

    async def confirm(self, who: Principal, confirmation_id: str, client_id: str, *, approve: bool) -> Answer:
        """By a person, once, for exactly what was shown. RS-13, RS-59"""
        if not may_confirm(who):
            self._audit.tally(who, "guardrail.refused", subject=confirmation_id[:200], details={"problem": "only a person confirms"})
            raise Forbidden(problem="Only a person can confirm; an agent never does.")
        execution = await self._actions.get(who.user_id, confirmation_id) if is_made_here(confirmation_id) else None
        if execution is None:
            raise NotFound(what="confirmation", id=confirmation_id[:200])
        if execution.status is not Status.ASKED:
            raise ConfirmationOver(id=confirmation_id, problem="it was answered already.")
        if execution.age_seconds > self._limits.confirm_seconds:
            raise ConfirmationOver(id=confirmation_id, problem="it was asked too long ago.")
        execution = replace(execution, resolved=await whole_value(self._artifacts, who.user_id, execution.resolved))
        return await self._owned(self._answered(who, execution, client_id, approve=approve))

    async def _answered(self, who: Principal, execution: Execution, client_id: str, *, approve: bool) -> Answer:
        press = self._press(who, execution.action_id, client_id, CLIENT, None)
        try:
            if not approve:
                outcome = await self._changes.make(who, execution.canvas_id, lambda canvas: refused(canvas, execution, press))
                self._tell_audit(who, execution, "refused")
                return Answer(status=Status.REFUSED, event_id=execution.event_id, revision=outcome.whole.canvas.revision)
            begun, canvas = await self._steps.begin(
                who, execution.canvas_id, lambda whole, spec, rules: agreed(whole, spec, execution, press, rules)
            )
        except Overtaken:
            raise ConfirmationOver(id=execution.event_id, problem="it was answered already.") from None
        self._audit.note(
            who, "canvas.confirmed", subject=execution.canvas_id, details={"eventId": execution.event_id, "tool": execution.tool}
        )
        return await self._go_on(who, begun, canvas)

    async def waiting(self, who: Principal, canvas_id: str) -> list[Execution]:
        """What of a canvas waits for a person, newest first."""
        await self._changes.find(who, canvas_id)
        found = await self._actions.list_executions(who.user_id, named(canvas_id), statuses=[Status.ASKED], before=None, limit=100)
        return [one for one in found if one.age_seconds <= self._limits.confirm_seconds]

    async def records(self, who: Principal, canvas_id: str, *, before: str | None, limit: int) -> list[Execution]:
        if before is not None and not is_made_here(before):
            raise BadInput(problem="before: is the eventId of a record.")
        await self._changes.find(who, canvas_id)
        return await self._actions.list_executions(who.user_id, named(canvas_id), statuses=[], before=before, limit=limit)

    def _press(self, who: Principal, action_id: str, client_id: str, trigger: str, ask: Ask | None) -> Press:
        return Press(
            who=who,
            actor=actor_of(who, client_id, trigger),
            action_id=action_id,
            event_id=new_event_id(),
            owner_id=self._instance,
            now_ms=_now_ms(),
            input=ask.input if ask else {},
            expected_revision=ask.expected_revision if ask else None,
            request_id=ask.request_id if ask else None,
            is_attended=trigger == CLIENT,
        )

    # -- carrying out ----------------------------------------------------------------------------------------------

    async def _go_on(self, who: Principal, begun: Begun, canvas: Canvas) -> Answer:
        execution = begun.execution
        if begun.problem is not None:
            raise self._told_of(who, execution, begun.problem)
        if execution.status is Status.ASKED:
            shown = resolved_as_shown(begun.work)
            return Answer(status=Status.ASKED, event_id=execution.event_id, revision=canvas.revision, resolved=shown)
        if execution.status is Status.COMPLETED:
            self._tell_audit(who, execution, "completed")
            return Answer(status=Status.COMPLETED, event_id=execution.event_id, revision=canvas.revision)
        self._at_work[execution.event_id] = asyncio.current_task()
        ACTIONS_RUNNING.set(len(self._at_work))
        try:
            return await self._carry_out(who, begun, canvas)
        finally:
            del self._at_work[execution.event_id]
            ACTIONS_RUNNING.set(len(self._at_work))

    async def _carry_out(self, who: Principal, begun: Begun, canvas: Canvas) -> Answer:
        execution = begun.execution
        try:
            result = await self._work.done(who, begun, canvas)
            decide, moved = completed(result, begun, who, now_ms=_now_ms(), state_bytes=self._limits.state_bytes)
            revision = await self._steps.end(who, execution, decide, moved)
        except HostError as problem:
            raise await self._failed(who, execution, problem) from problem
        except asyncio.CancelledError:  # this instance stops; or its tool was cancelled by somebody else, and whoever asked still waits
            raise await self._failed(who, execution, ActionFailed(problem=INTERRUPTED)) from None
        except Exception as problem:
            self._audit.broke(who, "gateway.broke", problem, subject=execution.event_id)
            log.exception("action.broke", event_id=execution.event_id)
            raise await self._failed(who, execution, ActionFailed(problem="Something broke inside Easel; its log knows more.")) from problem
        self._tell_audit(who, execution, "completed")
        return Answer(status=Status.COMPLETED, event_id=execution.event_id, revision=revision, result=result, has_result=True)

    async def _failed(self, who: Principal, execution: Execution, problem: HostError) -> HostError:
        """Told to whoever watches; what is raised names the execution."""
        try:
            await self._steps.end(who, execution, failed(problem, self._told(problem), execution, who, _now_ms()))
        except ActionFailed:
            return self._shown(execution, problem)  # somebody else has told how it ended
        except (NotFound, Unavailable):  # it went with its canvas; or there is no store, and later it is found to be lost
            log.info("action.not_told", event_id=execution.event_id)
        return self._told_of(who, execution, problem)

    def _told_of(self, who: Principal, execution: Execution, problem: HostError) -> HostError:
        self._tell_audit(who, execution, "failed", problem=self._told(problem))
        return self._shown(execution, problem)

    def _told(self, problem: HostError) -> str:
        return shortened(self._audit.redacted(problem.message))

    def _shown(self, execution: Execution, problem: HostError) -> HostError:
        details = {name: value for name, value in problem.details.items() if name not in ("problem", "reason")}
        return type(problem).as_told(self._told(problem), **details, eventId=execution.event_id)

    async def _again(self, who: Principal, earlier: Execution, action_id: str) -> Answer:
        if earlier.action_id != action_id:
            raise IdempotencyConflict(key=earlier.request_id)
        while earlier.status is Status.RUNNING:
            if (task := self._at_work.get(earlier.event_id)) is not None:
                return await asyncio.shield(task)
            await asyncio.sleep(self._limits.poll_seconds)
            found = await self._actions.get(who.user_id, earlier.event_id)
            if found is None:
                raise NotFound(what="canvas", id=earlier.canvas_id)
            earlier = found
        answer = await whole_value(self._artifacts, who.user_id, earlier.answer or {})
        if earlier.status is Status.FAILED:
            kinds = {kind.code: kind for kind in HostError.__subclasses__()}
            raise kinds.get(answer["error"]["name"], ActionFailed).as_told(answer["error"]["message"], eventId=earlier.event_id)
        resolved = await whole_value(self._artifacts, who.user_id, earlier.resolved) if earlier.status is Status.ASKED else None
        revision = earlier.revision or (await self._changes.find(who, earlier.canvas_id)).canvas.revision
        return Answer(
            status=earlier.status,
            event_id=earlier.event_id,
            revision=revision,
            result=answer.get("result"),
            has_result="result" in answer,
            resolved=resolved,
        )

    def _tell_audit(self, who: Principal, execution: Execution, status: str, **more: Any) -> None:
        """CV-48, RS-15: beside the record that lies with the canvas, a link of the chain."""
        ACTIONS_ENDED.labels(status).inc()
        details = {"actionId": execution.action_id, "eventId": execution.event_id, "tool": execution.tool, "status": status, **more}
        # Not now but next: the record of it is stored, and whoever asked is answered first.
        asyncio.get_running_loop().call_soon(
            lambda: self._audit.note(who, "canvas.action", subject=execution.canvas_id, details={**details, "actor": dict(execution.actor)})
        )

    # -- what time brings ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        if self._duty is None:
            if self._is_alone:
                await self.tell_lost(await self._actions.others_at_work(self._instance))
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

    async def _keep_forever(self) -> None:
        while True:
            await asyncio.sleep(self._limits.lease_seconds / 3)
            try:
                await self.once()
            except Unavailable:
                log.info("actions.no_database")
            except Exception as problem:
                log.exception("actions.broke")
                self._audit.broke(None, "gateway.broke", problem, details={"duty": "actions"})

    async def once(self) -> int:
        """Say that what runs here does, and tell what is lost, whosever it was; how many that were."""
        if self._at_work:
            await self._actions.renew(self._instance, sorted(self._at_work), self._limits.lease_seconds)
        return await self.tell_lost([])

    async def tell_lost(self, owner_ids: list[str]) -> int:
        """Whose instance is gone is not left running for ever; how many that were."""
        lost = await self._actions.lost(owner_ids, LOST_AT_ONCE)
        for execution in lost:
            who = Principal(UserId(execution.user_id), execution.actor.get("name", execution.user_id))
            await self._failed(who, execution, ActionFailed(problem=INTERRUPTED))
        return len(lost)


def _check_request(request_id: str | None) -> None:
    if request_id is not None and (not 0 < len(request_id) <= LONGEST_REQUEST_ID or not request_id.isprintable()):
        raise BadInput(problem=f"requestId is 1 to {LONGEST_REQUEST_ID} printable characters.")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Records:
    """What is left of executions: kept as long as the logs of runs are; 0: for ever."""

    def __init__(self, actions: CanvasActionStore, retention_seconds: float) -> None:
        self._actions = actions
        self._seconds = retention_seconds

    async def prune_forever(self) -> None:
        while True:
            if self._seconds:
                await self._actions.prune(self._seconds)
            await asyncio.sleep(PRUNE_SECONDS)
