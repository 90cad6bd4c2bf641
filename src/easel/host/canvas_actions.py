"""Actions of canvases: a button is pressed, a person may have to agree, a tool runs, and what it says lies in the canvas.

Owns the carrying out. What may run and what becomes of the canvas is decided in `core.canvas.pressing`, under the canvas's lock.
An execution belongs to the instance that runs it, not to the connection that asked: who leaves stops nothing. An instance that dies
leaves its executions behind, and any other tells that they were interrupted. CV-39, CV-42
"""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from easel.core.canvas.actions import Confirm
from easel.core.canvas.canvas import Canvas, Change, WholeCanvas
from easel.core.canvas.execution import Execution, Overtaken, Repeated, Status, actor_of, may_confirm
from easel.core.canvas.pressing import (
    Begun,
    NeedsTools,
    Press,
    Rules,
    agreed,
    completed,
    failed,
    pressed,
    refused,
    resolved_as_shown,
)
from easel.core.canvas.spec import CanvasSpec, checked_spec
from easel.core.principal import Principal
from easel.core.run.pace import shortened
from easel.core.stream.lightness import Moved
from easel.errors import (
    ActionFailed,
    BadInput,
    ConfirmationOver,
    Forbidden,
    HostError,
    NotFound,
    TooMany,
    Unavailable,
)
from easel.host.artifacts import Artifacts
from easel.host.audit import Audit
from easel.host.canvas_changes import CanvasChanges, named
from easel.host.canvas_work import CanvasWork
from easel.host.metrics import ACTIONS_ENDED, ACTIONS_RUNNING
from easel.host.ports import CanvasActionStore
from easel.host.run_history import whole as whole_value
from easel.ids import ArtifactId, CanvasId, UserId, is_made_here, new_event_id

if TYPE_CHECKING:
    from easel.core.canvas.policy import Definitions

MOST_SPECS = 256  # read specs that are remembered
LONGEST_REQUEST_ID = 200
LOST_AT_ONCE = 100
INTERRUPTED = "The instance that ran it stopped in the middle; whether the tool has done its work is not known."

log = structlog.get_logger("actions")


@dataclass(frozen=True, slots=True)
class ActionLimits:
    at_once: int  # executions of one instance
    state_bytes: int
    lease_seconds: float  # how long an instance is believed to be alive
    poll_seconds: float
    confirm_seconds: float  # how long a person has to agree
    floor: Confirm


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a caller sends. `trigger` says what pressed the button: a client, or a refresh."""

    canvas_id: str
    action_id: str
    input: Any
    client_id: str
    expected_revision: int | None = None
    request_id: str | None = None
    trigger: str = "client"


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
        self._specs: OrderedDict[tuple[str, str, Any, int], CanvasSpec] = OrderedDict()
        self._at_work: dict[str, asyncio.Task[Answer]] = {}
        self._duty: asyncio.Task[None] | None = None

    # -- pressing --------------------------------------------------------------------------------------------------

    async def press(self, who: Principal, ask: Ask) -> Answer:
        """Waits for the end; the same request again is answered with the first one's end. CV-36, CV-45"""
        canvas_id = named(ask.canvas_id)
        _check_request(ask.request_id)
        if ask.request_id is not None and (earlier := await self._actions.of_request(who.user_id, canvas_id, ask.request_id)):
            return await self._again(who, earlier, ask.action_id)
        self._check_room()
        press = self._press(who, ask.action_id, ask.client_id, ask.trigger, ask)
        try:
            begun, whole = await self._begin(who, canvas_id, lambda canvas, rules: pressed(canvas, self._spec(canvas.canvas), press, rules))
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
        return await self._go_on(who, begun, whole)

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
        press = self._press(who, execution.action_id, client_id, "client", None)
        try:
            if not approve:
                outcome = await self._changes.make(who, execution.canvas_id, lambda canvas: refused(canvas, execution, press))
                self._tell_audit(who, execution, "refused")
                return Answer(status=Status.REFUSED, event_id=execution.event_id, revision=outcome.whole.canvas.revision)
            self._check_room()
            begun, whole = await self._begin(
                who, execution.canvas_id, lambda canvas, rules: agreed(canvas, self._spec(canvas.canvas), execution, press, rules)
            )
        except Overtaken:
            raise ConfirmationOver(id=confirmation_id, problem="it was answered already.") from None
        self._audit.note(
            who, "canvas.confirmed", subject=execution.canvas_id, details={"eventId": execution.event_id, "tool": execution.tool}
        )
        return await self._go_on(who, begun, whole)

    async def waiting(self, who: Principal, canvas_id: str) -> list[Execution]:
        """What of a canvas waits for a person, newest first."""
        found = await self._actions.list_executions(who.user_id, named(canvas_id), statuses=[Status.ASKED], before=None, limit=100)
        return [one for one in found if one.age_seconds <= self._limits.confirm_seconds]

    async def records(self, who: Principal, canvas_id: str, *, before: str | None, limit: int) -> list[Execution]:
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
        )

    def _check_room(self) -> None:
        if len(self._at_work) >= self._limits.at_once:
            raise TooMany(what="actions at once", limit=self._limits.at_once)

    async def _begin(self, who: Principal, canvas_id: CanvasId, rule: Callable[[WholeCanvas, Rules], Begun]) -> tuple[Begun, WholeCanvas]:
        """Decided under the canvas's lock. What the decision lacks is fetched, and it is made anew: most need nothing."""
        definitions: Definitions | None = None
        kept: set[ArtifactId] = set()
        begun: list[Begun] = []

        def decide(whole: WholeCanvas) -> Change:
            begun[:] = [rule(whole, Rules(definitions=definitions, floor=self._limits.floor, state_bytes=self._limits.state_bytes))]
            if lacking := [moved for moved in begun[0].moved if moved.artifact_id not in kept]:
                raise _NeedsKeeping(lacking)
            return begun[0].change

        while True:
            try:
                outcome = await self._changes.make(who, canvas_id, decide, seconds=self._limits.lease_seconds)
            except NeedsTools:
                definitions = await self._work.tools.definitions(who.user_id)
            except _NeedsKeeping as lacking:
                await self._artifacts.keep(who.user_id, lacking.moved)
                kept |= {moved.artifact_id for moved in lacking.moved}
            else:
                return begun[0], outcome.whole

    def _spec(self, canvas: Canvas) -> CanvasSpec:
        """Read once for each version. It was checked when it was stored, with the limits of then."""
        key = (canvas.user_id, canvas.canvas_id, canvas.created_at, canvas.spec_revision)
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = checked_spec(canvas.spec)
            while len(self._specs) > MOST_SPECS:
                self._specs.popitem(last=False)
        return spec

    # -- carrying out ----------------------------------------------------------------------------------------------

    async def _go_on(self, who: Principal, begun: Begun, whole: WholeCanvas) -> Answer:
        execution = begun.execution
        revision = whole.canvas.revision
        if execution.status is Status.ASKED:
            shown = resolved_as_shown(begun.work)
            return Answer(status=Status.ASKED, event_id=execution.event_id, revision=revision, resolved=shown)
        if execution.status is Status.COMPLETED:
            self._tell_audit(who, execution, "completed")
            return Answer(status=Status.COMPLETED, event_id=execution.event_id, revision=revision)
        task = asyncio.create_task(self._carry_out(who, begun, whole.canvas))
        self._at_work[execution.event_id] = task
        ACTIONS_RUNNING.set(len(self._at_work))
        task.add_done_callback(lambda _: self._let_go(execution.event_id))
        return await asyncio.shield(task)

    def _let_go(self, event_id: str) -> None:
        task = self._at_work.pop(event_id)
        ACTIONS_RUNNING.set(len(self._at_work))
        if not task.cancelled():
            task.exception()  # whoever asked may be gone: then nobody else takes note of it

    async def _carry_out(self, who: Principal, begun: Begun, canvas: Canvas) -> Answer:
        execution = begun.execution
        try:
            result = await self._work.done(who, begun, canvas)
            decide, moved = completed(result, begun, who, now_ms=_now_ms(), state_bytes=self._limits.state_bytes)
            await self._artifacts.keep(who.user_id, moved)
            outcome = await self._end(who, canvas.canvas_id, decide)
        except HostError as problem:
            raise await self._failed(who, execution, problem) from problem
        except asyncio.CancelledError:
            await self._failed(who, execution, ActionFailed(problem=INTERRUPTED))
            raise
        except Exception as problem:
            self._audit.broke(who, "gateway.broke", problem, subject=execution.event_id)
            log.exception("action.broke", event_id=execution.event_id)
            raise await self._failed(who, execution, ActionFailed(problem="Something broke inside Easel; its log knows more.")) from problem
        self._tell_audit(who, execution, "completed")
        return Answer(
            status=Status.COMPLETED, event_id=execution.event_id, revision=outcome.canvas.revision, result=result, has_result=True
        )

    async def _end(self, who: Principal, canvas_id: CanvasId, decide: Callable[[WholeCanvas], Change]) -> WholeCanvas:
        """What was given up on meanwhile is not stored late. CV-23"""
        while True:
            try:
                return (await self._changes.make(who, canvas_id, decide)).whole
            except Overtaken:
                raise ActionFailed(problem="It was given up on before it ended: its result is not stored.") from None
            except Unavailable:
                await asyncio.sleep(self._limits.poll_seconds)  # how it went is worth waiting for the store

    async def _failed(self, who: Principal, execution: Execution, problem: HostError) -> HostError:
        """Told to whoever watches; what is raised names the execution."""
        message = shortened(self._audit.redacted(problem.message))
        with contextlib.suppress(ActionFailed, NotFound):  # it is told already, or there is nobody to tell
            await self._end(who, execution.canvas_id, failed(problem, message, execution, who, _now_ms()))
        self._tell_audit(who, execution, "failed", problem=message)
        problem.details = {**problem.details, "eventId": execution.event_id}
        return problem

    async def _again(self, who: Principal, earlier: Execution, action_id: str) -> Answer:
        if earlier.action_id != action_id:
            raise BadInput(problem=f"requestId: it was used for the action {earlier.action_id} already.")
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
            raise ActionFailed(problem=answer["error"]["message"], eventId=earlier.event_id, error=answer["error"])
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
        self._audit.note(who, "canvas.action", subject=execution.canvas_id, details={**details, "actor": dict(execution.actor)})

    # -- what time brings ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        if self._duty is None:
            if self._is_alone:
                await self.tell_lost(await self._actions.others_at_work(self._instance))
            self._duty = asyncio.create_task(self._keep_forever())

    async def stop(self) -> None:
        """What still runs is told to have been interrupted: nobody would finish it."""
        tasks: list[asyncio.Task[Any]] = [*self._at_work.values(), *([self._duty] if self._duty else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_forever(self) -> None:
        while True:
            await asyncio.sleep(self._limits.lease_seconds / 3)
            with contextlib.suppress(Unavailable):
                if self._at_work:
                    await self._actions.renew(self._instance, self._limits.lease_seconds)
                await self.tell_lost([])

    async def tell_lost(self, owner_ids: list[str]) -> int:
        """Whose instance is gone is not left running for ever; how many that were."""
        lost = await self._actions.lost(owner_ids, LOST_AT_ONCE)
        for execution in lost:
            who = Principal(UserId(execution.user_id), execution.actor.get("name", execution.user_id))
            await self._failed(who, execution, ActionFailed(problem=INTERRUPTED))
        return len(lost)


class _NeedsKeeping(Exception):
    def __init__(self, moved: list[Moved]) -> None:
        super().__init__()
        self.moved = moved


def _check_request(request_id: str | None) -> None:
    if request_id is not None and (not 0 < len(request_id) <= LONGEST_REQUEST_ID or not request_id.isprintable()):
        raise BadInput(problem=f"requestId is 1 to {LONGEST_REQUEST_ID} printable characters.")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
