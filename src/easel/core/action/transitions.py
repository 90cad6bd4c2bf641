"""What pressing a button does to a canvas: each step of an action's execution as one change of the canvas. CV-39, CV-41, CV-42

Owns the order of the checks and of what is told. All of it is decided on the canvas as it is under its lock, so neither a spec nor
a state that somebody has changed meanwhile is acted on. Whoever calls brings the time, the tools there are, and who acts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard, cast

from easel.core.action.policy import Definitions, admit, definition_of, may_run_by_itself, needs_consent
from easel.core.canvas.actions import (
    Action,
    CallTool,
    Confirm,
    PatchState,
    ResolvedCall,
    SendMessage,
    read_by_shell,
    resolved_call,
    resolved_message,
)
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, Change, check_revision
from easel.core.canvas.events import CanvasEvents
from easel.core.canvas.execution import Execution, ExecutionStatus, PendingLimit, StartedRun, Transition
from easel.core.canvas.spec import CanvasSpec, check_state_size
from easel.core.principal import Principal
from easel.core.stream.marker import is_marker
from easel.core.stream.payload_limit import OffloadedValue, light_value
from easel.core.tool.definition import ToolDefinition
from easel.core.values.patch import Patch, applied, checked_patch, unchecked
from easel.core.values.paths import SaveMode, check_saving, outcome, saved
from easel.core.values.template import Values
from easel.errors import BadInput, ConfirmationClosed, Forbidden, HostError, Unavailable
from easel.ids import ArtifactId


class NeedsTools(Exception):
    """The action calls a tool, and which tools there are was not said."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a session is sent."""

    session_key: str
    text: str


@dataclass(frozen=True, slots=True)
class PendingReply:
    """What a session was sent by an instance that is gone: there is only its answer to wait for."""

    session_key: str
    awaited: StartedRun


Work = ResolvedCall | Message | Patch  # what is to be done: all that an action's declaration has become


@dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """Somebody presses a button, or time does."""

    principal: Principal
    actor: Mapping[str, Any]
    action_id: str
    event_id: str
    owner_id: str
    now_ms: int
    input: Any = field(default_factory=dict[str, Any])
    expected_revision: int | None = None
    request_id: str | None = None
    request_digest: str | None = None
    is_attended: bool = True  # whether there is a person who can be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for every press."""

    definitions: Definitions | None
    floor: Confirm
    state_bytes: int
    told: Callable[[HostError], str] = str  # what of a problem may be told
    waiting: PendingLimit | None = None  # how many may wait for a person
    fetched: Mapping[ArtifactId, bytes] = field(
        default_factory=dict[ArtifactId, bytes]
    )  # of what `NeedsValues` asked for


@dataclass(frozen=True, slots=True)
class StartedExecution:
    """An execution has begun: what becomes of the canvas, and what is still to be done for it. `moved` has to be kept before.

    With a `problem` it has failed already.
    """

    change: Change
    execution: Execution
    action: Action
    work: Work | PendingReply
    offloaded: tuple[OffloadedValue, ...] = ()
    problem: HostError | None = None


# --- beginning ----------------------------------------------------------------------------------------------------------


def start_execution(
    snapshot: CanvasSnapshot, spec: CanvasSpec, press: Press, rules: Rules
) -> StartedExecution:
    """Whether it may run, what exactly, and whether a person is asked first. The allowlist comes before any template. CV-40

    What may not run is refused, and nothing is told. What may, and cannot, has failed: that is told like any other failure. CV-42
    """
    canvas = snapshot.canvas
    check_revision(canvas, press.expected_revision)
    action = admit(spec, press.action_id)
    if isinstance(action, CallTool) and rules.definitions is None:
        raise NeedsTools
    execution = Execution(
        user_id=canvas.user_id,
        canvas_id=canvas.canvas_id,
        event_id=press.event_id,
        action_id=press.action_id,
        request_id=press.request_id,
        request_digest=press.request_digest,
        status=ExecutionStatus.RUNNING,
        actor=press.actor,
        tool=action.tool if isinstance(action, CallTool) else None,
        owner_id=press.owner_id,
    )
    try:
        return _begun(canvas, execution, action, press, rules)
    except Forbidden:
        raise
    except HostError as problem:
        if isinstance(problem, Unavailable) and not press.is_attended:
            raise  # a tool that nobody knows is not read-only: what runs by itself does not even begin. RS-45
        return _impossible(canvas, execution, action, problem, press=press, rules=rules)


def _begun(
    canvas: Canvas, execution: Execution, action: Action, press: Press, rules: Rules
) -> StartedExecution:
    definition = definition_of(action, rules.definitions or {}) if isinstance(action, CallTool) else None
    work = _resolved(canvas, action, press, rules)
    _check_saving(canvas, action)
    if not press.is_attended and not may_run_by_itself(
        action, definition, floor=rules.floor, is_accepted=canvas.is_accepted
    ):
        why = "" if canvas.is_accepted else " No person has accepted this spec yet."
        raise Forbidden(
            problem=f"a person has to confirm `{press.action_id}`, and what runs by itself has none to ask.{why}"
        )
    if needs_consent(action, definition, floor=rules.floor, is_accepted=canvas.is_accepted):
        return _asked(canvas, execution, action, work, press=press, waits=rules.waiting)
    return _started(canvas, Transition(execution), action, work, press=press, state_bytes=rules.state_bytes)


def approve_execution(
    snapshot: CanvasSnapshot, spec: CanvasSpec, execution: Execution, press: Press, rules: Rules
) -> StartedExecution:
    """A person agreed to exactly this. It runs as it was shown, if the canvas still allows what it is. X6"""
    canvas = snapshot.canvas
    action = spec.actions.get(execution.action_id)
    is_same = action is not None and (action.tool if isinstance(action, CallTool) else None) == execution.tool
    shown = execution.resolved or {}
    work = work_of({"sessionKey": canvas.session_key, **shown})
    if action is None or not is_same or _kind(action) is not type(work):
        raise ConfirmationClosed(
            id=execution.event_id, problem="the canvas has changed, and has no such action any more."
        )
    if not _is_saved_as(action, shown):
        raise ConfirmationClosed(
            id=execution.event_id, problem="the canvas has changed, and its answer would lie elsewhere."
        )
    admit(spec, execution.action_id)
    if isinstance(action, CallTool):
        if rules.definitions is None:
            raise NeedsTools
        _check_same(execution.event_id, work, definition_of(action, rules.definitions))
    _check_saving(canvas, action)
    running = replace(
        execution, status=ExecutionStatus.RUNNING, owner_id=press.owner_id, confirmed_by=press.principal.name
    )
    return _started(
        canvas,
        Transition(running, from_status=ExecutionStatus.ASKED),
        action,
        work,
        press=press,
        state_bytes=rules.state_bytes,
    )


def may_be_awaited(action: Action | None, execution: Execution) -> TypeGuard[SendMessage]:
    """Its instance is gone, and its run is not: whether the canvas still says where the answer lies, and as it was agreed to. CV-43, X6"""
    return isinstance(action, SendMessage) and (
        execution.resolved is None or _is_saved_as(action, execution.resolved)
    )


def _check_same(event_id: str, work: Work, definition: ToolDefinition) -> None:
    """A value that was plain text when it was shown is not handed to a shell now. RS-45"""
    if isinstance(work, ResolvedCall) and work.read_by_shell != read_by_shell(work.args, definition):
        raise ConfirmationClosed(
            id=event_id, problem="the tool has changed, and takes its arguments otherwise."
        )


def reject_execution(snapshot: CanvasSnapshot, execution: Execution, press: Press) -> Change:
    """A person said no: nothing was done, and the canvas is as it was. CV-22"""
    over = replace(
        execution, status=ExecutionStatus.REFUSED, owner_id=press.owner_id, confirmed_by=press.principal.name
    )
    told = {**over.named, "endedAt": press.now_ms, "refusedBy": press.principal.name}
    return Change(
        events=[_events(over, press.principal).action("refused", snapshot.canvas.revision, told)],
        is_mutation=False,
        transition=Transition(over, from_status=ExecutionStatus.ASKED),
    )


def _asked(
    canvas: Canvas,
    execution: Execution,
    action: Action,
    work: Work,
    *,
    press: Press,
    waits: PendingLimit | None,
) -> StartedExecution:
    shown, offloaded = light_value(resolved_as_shown(work, action))
    asked = replace(execution, status=ExecutionStatus.ASKED, resolved=shown, owner_id=None)
    told = {**asked.named, "confirmationId": asked.event_id, "askedAt": press.now_ms, "resolved": shown}
    event = _events(asked, press.principal).action("asked", canvas.revision, told)
    return StartedExecution(
        Change(events=[event], is_mutation=False, transition=Transition(asked, pending_limit=waits)),
        asked,
        action,
        work,
        offloaded,
    )


def _started(
    canvas: Canvas, step: Transition, action: Action, work: Work, *, press: Press, state_bytes: int
) -> StartedExecution:
    execution = step.execution
    events = _events(execution, press.principal)
    told = {**execution.named, "startedAt": press.now_ms}
    started = events.action("started", canvas.revision, told)
    if not isinstance(work, tuple):
        return StartedExecution(
            Change(events=[started], is_mutation=False, transition=step), execution, action, work
        )
    # A patch of the state is all in one: there is nothing to wait for.
    done = applied(work, canvas.state, f"actions.{execution.action_id}.patch")
    check_state_size(done.state, state_bytes)
    completed = replace(execution, status=ExecutionStatus.COMPLETED, answer={})
    revision = canvas.revision + bool(done.paths)
    ended = events.action("finished", revision, {**told, "endedAt": press.now_ms})
    updated = [events.updated(revision, done.paths)] if done.paths else []
    return StartedExecution(
        Change(
            events=[started, *updated, ended],
            is_mutation=bool(done.paths),
            state=done.state if done.paths else None,
            transition=Transition(completed, step.from_status),
        ),
        completed,
        action,
        work,
    )


def _impossible(
    canvas: Canvas, execution: Execution, action: Action, problem: HostError, *, press: Press, rules: Rules
) -> StartedExecution:
    """It came to its end where it began."""
    error = _error(problem, rules.told(problem))
    over = replace(execution, status=ExecutionStatus.FAILED, answer={"error": error})
    events = _events(over, press.principal)
    told = {**over.named, "startedAt": press.now_ms}
    started = events.action("started", canvas.revision, told)
    ended = events.action("failed", canvas.revision, {**told, "endedAt": press.now_ms, "error": error})
    return StartedExecution(
        Change(events=[started, ended], is_mutation=False, transition=Transition(over)),
        over,
        action,
        (),
        problem=problem,
    )


def _check_saving(canvas: Canvas, action: Action) -> None:
    if not isinstance(action, PatchState) and action.saving is not None:
        check_saving(canvas.state, action.saving.path, action.saving.mode)


def _resolved(canvas: Canvas, action: Action, press: Press, rules: Rules) -> Work:
    values = Values(canvas.state, press.input, press.now_ms, rules.fetched)
    match action:
        case CallTool():
            return resolved_call(
                action, definition_of(action, rules.definitions or {}), values, canvas.session_key
            )
        case SendMessage():
            return Message(action.session_key or canvas.session_key, resolved_message(action, values))
        case PatchState():
            return action.patch


def _kind(action: Action) -> type:
    return {CallTool: ResolvedCall, SendMessage: Message, PatchState: tuple}[type(action)]


# --- what a person is shown ---------------------------------------------------------------------------------------------


def resolved_as_shown(work: Work | PendingReply, action: Action) -> dict[str, Any]:
    """What is stored until somebody agrees, and what they are shown: one and the same. Where it works and what it writes is part of it."""
    match work:
        case ResolvedCall(tool, args, session_key):
            shell = {"shell": list(work.read_by_shell)} if work.read_by_shell else {}
            call = {
                "kind": "tool.call",
                "tool": tool,
                "args": dict(args),
                "sessionKey": session_key,
                "digest": work.digest,
            }
            return {**call, **shell, **_saving_shown(action)}
        case Message(session_key, text):
            return {
                "kind": "session.send",
                "sessionKey": session_key,
                "message": text,
                **_saving_shown(action),
            }
        case PendingReply():
            raise AssertionError("what was sent was agreed to before")
        case _:
            return {"kind": "state.patch", "patch": unchecked(work)}


def _saving_shown(action: Action) -> dict[str, Any]:
    saving = None if isinstance(action, PatchState) else action.saving
    return {"saveAs": ".".join(saving.path), "saveMode": saving.mode.value} if saving else {}


def _is_saved_as(action: Action, shown: Mapping[str, Any]) -> bool:
    return _saving_shown(action) == {name: shown[name] for name in ("saveAs", "saveMode") if name in shown}


def work_of(shown: Mapping[str, Any]) -> Work:
    match shown.get("kind"):
        case "tool.call":
            args, shell = cast("Mapping[str, Any]", shown["args"]), tuple[str, ...](shown.get("shell", ()))
            return ResolvedCall(shown["tool"], args, shown["sessionKey"], shell)
        case "session.send":
            return Message(shown["sessionKey"], shown["message"])
        case _:
            return checked_patch(shown.get("patch", []))


# --- ending -------------------------------------------------------------------------------------------------------------


def completed(
    result: Any, begun: StartedExecution, principal: Principal, *, now_ms: int, state_bytes: int
) -> tuple[Callable[[CanvasSnapshot], Change], tuple[OffloadedValue, ...]]:
    """How a result gets into the canvas, as the canvas is when it is there; what has to be kept before. CV-21, CV-39, RS-43"""
    light, offloaded = light_value(result)
    done = outcome(light, now_ms)
    # The record says how it went. What it gave lies in the state, if it was to be kept, and once more only where it can be asked for again.
    is_kept = begun.execution.request_id is not None
    over = replace(
        begun.execution, status=ExecutionStatus.COMPLETED, answer={"result": light} if is_kept else {}
    )
    events = _events(over, principal)
    saving = None if isinstance(begun.action, PatchState) else begun.action.saving
    if (
        saving is not None
        and saving.mode is SaveMode.MERGE
        and isinstance(light, dict)
        and is_marker(cast("dict[str, Any]", light))
    ):
        # Merged, the marker's members would pass for those of the object that is there.
        raise BadInput(
            problem=f"saveAs {'.'.join(saving.path)}: a result that is Base64 all over cannot be merged; replace what is there."
        )
    told = {**over.named, "endedAt": now_ms}

    def decide(snapshot: CanvasSnapshot) -> Change:
        canvas = snapshot.canvas
        if saving is None:
            return Change(
                events=[events.action("finished", canvas.revision, told)],
                is_mutation=False,
                transition=_end(over),
            )
        after = saved(canvas.state, saving.path, saving.mode, done)
        check_state_size(after.state, state_bytes)
        revision = canvas.revision + 1
        return Change(
            events=[
                events.updated(revision, after.paths),
                events.action("finished", revision, {**told, "saveAs": ".".join(saving.path)}),
            ],
            state=after.state,
            transition=_end(over),
        )

    return decide, offloaded if is_kept or saving is not None else ()


def failed(
    problem: HostError, message: str, execution: Execution, principal: Principal, now_ms: int
) -> Callable[[CanvasSnapshot], Change]:
    """Told once, and nothing of it is stored in the state. CV-42"""
    error = _error(problem, message)
    over = replace(execution, status=ExecutionStatus.FAILED, answer={"error": error})
    event = _events(over, principal)
    told = {**over.named, "endedAt": now_ms, "error": error}
    return lambda snapshot: Change(
        events=[event.action("failed", snapshot.canvas.revision, told)],
        is_mutation=False,
        transition=_end(over),
    )


def _end(over: Execution) -> Transition:
    return Transition(over, from_status=ExecutionStatus.RUNNING)


def _error(problem: HostError, message: str) -> dict[str, Any]:
    return {"code": problem.gateway, "name": problem.code, "message": message}


def _events(execution: Execution, principal: Principal) -> CanvasEvents:
    return CanvasEvents(
        execution.canvas_id,
        agent_id=principal.user_id,
        event_id=execution.event_id,
        node_id=execution.action_id,
    )
