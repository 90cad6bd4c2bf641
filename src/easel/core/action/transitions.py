"""The start of an execution, at once or after a confirmation, as one change of its canvas. CV-39, CV-41

Owns the order of the checks and of the events. Functions receive the snapshot of a locked canvas, so they
never decide on a stale spec or state. Does not know stores. The valid transitions: `execution`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from easel.core.action.approval import (
    at_least_auto,
    check_approver,
    needs_another,
    require_gesture,
    require_other_approver,
)
from easel.core.action.confirmation import (
    PendingReply,
    Work,
    check_same_tool,
    from_confirmation,
    has_same_terms,
    to_confirmation,
)
from easel.core.action.execution import (
    Execution,
    ExecutionChange,
    ExecutionStatus,
    PendingLimit,
    Transition,
    events_of,
)
from easel.core.action.fetch import check_is_accepted
from easel.core.action.hints import explain_weakened, find_weakened
from easel.core.action.policy import (
    Definitions,
    admit,
    check_gesture,
    definition_of,
    may_run_unattended,
    needs_consent,
)
from easel.core.action.resolution import (
    CheckArguments,
    ResolvedCall,
    ResolvedMessage,
    resolve_call,
    resolve_message,
)
from easel.core.action.secrets import check_secrets, explain_unreviewed, find_copied
from easel.core.action.state_patch import apply_to_state, resolve_patch
from easel.core.canvas.actions import Action, Approval, CallTool, Confirm, PatchState, SendMessage
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, check_revision
from easel.core.canvas.spec import CanvasSpec
from easel.core.principal import Principal, is_shared
from easel.core.stream.payload_limit import offload_large_values
from easel.core.tool.definition import ToolDefinition
from easel.core.values.paths import check_can_save
from easel.core.values.template import Values
from easel.errors import ConfirmationClosed, Forbidden, HostError, Unavailable
from easel.ids import ArtifactId

NOT_ACCEPTED = "No person has accepted this spec yet."


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionStart:
    """A request to start one execution, from a client or a refresh job."""

    principal: Principal
    actor: Mapping[str, Any]
    action_id: str
    event_id: str
    owner_id: str
    now_ms: int
    salt: str = ""  # random; part of the digest of a confirmation
    input: Any = field(default_factory=dict[str, Any])
    expected_revision: int | None = None
    request_id: str | None = None
    request_digest: str | None = None
    is_attended: bool = True  # whether a person can be asked for a confirmation
    has_gesture: bool = True  # False: the code of a page asks, without a gesture of a person


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The tools, limits and settings of the server that the start of an execution depends on."""

    definitions: Definitions | Unavailable  # the tools of this user, or the error of reading them
    floor: Confirm
    state_bytes: int
    missing_tools: Mapping[str, str] = field(default_factory=dict[str, str])  # of this machine: the reason
    check_arguments: CheckArguments | None = None
    pending_limit: PendingLimit | None = None
    approval_by: Approval = Approval.ANYONE  # of the account, for every call that a person must confirm
    approval_seconds: float = 86_400.0  # how long another person can approve a call
    # Whether another member may approve what this principal asks for. None: not read yet.
    has_other_approver: bool | None = None
    # The content of the artifacts that `MissingArtifacts` named, empty at the first try.
    fetched: Mapping[ArtifactId, bytes] = field(default_factory=dict[ArtifactId, bytes])
    # Tools of the canvas that claim less effect than remembered, with the reason of each. RS-68
    weakened: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedExecution(ExecutionChange):
    """The change of the canvas that starts an execution, and the work to do after it is stored."""

    execution: Execution
    action: Action
    work: Work | PendingReply
    revision: int  # of the canvas after the change
    is_trusted: bool = True  # whether a person had accepted the canvas
    confirmation: Mapping[str, Any] | None = None  # the JSON that a person must confirm before the work
    problem: HostError | None = None  # why the execution failed at its start


class StartFailed(Exception):
    """An action that may run cannot be resolved. The failure is recorded by `ending.fail_start`."""

    def __init__(self, problem: HostError, start: ActionStart, execution: Execution, action: Action) -> None:
        super().__init__(problem)
        self.problem, self.start, self.execution, self.action = problem, start, execution, action


# --- starting -------------------------------------------------------------------------------------


def start_execution(
    snapshot: CanvasSnapshot, spec: CanvasSpec, start: ActionStart, rules: Rules
) -> StartedExecution:
    """Check the policy, resolve the action, and ask for a confirmation if the action needs one. CV-40

    Raises if the action is not declared or not allowed; then no execution is recorded. Raises `StartFailed`
    if the action is allowed but cannot be resolved. The allowlist is checked before any template. CV-42
    """
    canvas = snapshot.canvas
    check_revision(canvas, start.expected_revision)
    action = admit(spec, start.action_id)
    if isinstance(action, CallTool) and isinstance(rules.definitions, Unavailable):
        raise rules.definitions  # no execution is recorded
    execution = Execution(
        account_id=canvas.account_id,
        canvas_id=canvas.canvas_id,
        event_id=start.event_id,
        action_id=start.action_id,
        request_id=start.request_id,
        request_digest=start.request_digest,
        status=ExecutionStatus.RUNNING,
        actor=start.actor,
        tool=action.tool if isinstance(action, CallTool) else None,
        owner_id=start.owner_id,
    )
    try:
        rules = replace(rules, weakened=find_weakened(canvas.tool_hints, spec, _known(rules)))
        return _ask_or_start(canvas, execution, action, start, rules=rules, spec=spec)
    except Forbidden:
        raise
    except HostError as problem:
        if isinstance(problem, Unavailable) and not start.is_attended:
            raise  # an unknown tool counts as not read-only, so it must not run unattended. RS-45
        raise StartFailed(problem, start, execution, action) from problem


def _ask_or_start(
    canvas: Canvas,
    execution: Execution,
    action: Action,
    start: ActionStart,
    *,
    rules: Rules,
    spec: CanvasSpec,
) -> StartedExecution:
    definition = _definition_of(action, rules) if isinstance(action, CallTool) else None
    floor = at_least_auto(rules.floor, rules.approval_by, start.principal)
    is_accepted = canvas.is_accepted and not rules.weakened
    work = _resolve(canvas, action, start, rules, spec if is_accepted else replace(spec, data={}))
    _check_can_save(canvas, action)
    check_secrets(canvas, spec, start.action_id, work, definition=definition, weakened=rules.weakened)
    check_is_accepted(action, is_accepted=is_accepted)
    if isinstance(action, CallTool) and action.tool in rules.weakened:
        definition = None  # counts as not read-only, whatever the tool says of itself now. RS-68
    because = explain_unreviewed(canvas, action, work, start.principal)
    is_guarded = needs_another(canvas, action)
    if not start.is_attended and (
        because
        or is_guarded
        or not may_run_unattended(action, definition, floor=floor, is_accepted=is_accepted)
    ):
        reason = because or explain_weakened(rules.weakened) if canvas.is_accepted else NOT_ACCEPTED
        problem = f"a person must confirm `{start.action_id}`, so a refresh cannot run it. {reason}"
        raise Forbidden(problem=problem.rstrip())
    if because or is_guarded or needs_consent(action, definition, floor=floor, is_accepted=is_accepted):
        return _ask(canvas, execution, action, work, because, start=start, rules=rules)
    check_gesture(action, has_gesture=start.has_gesture, is_accepted=is_accepted)
    return _start_work(
        canvas, execution, None, action, work, principal=start.principal, now_ms=start.now_ms, rules=rules
    )


def _known(rules: Rules) -> Definitions:
    return dict[str, ToolDefinition]() if isinstance(rules.definitions, Unavailable) else rules.definitions


def _definition_of(action: CallTool, rules: Rules) -> ToolDefinition:
    if isinstance(rules.definitions, Unavailable):
        raise rules.definitions
    return definition_of(action, rules.definitions, rules.missing_tools)


def _resolve(canvas: Canvas, action: Action, start: ActionStart, rules: Rules, policy: CanvasSpec) -> Work:
    values = Values(canvas.state, start.input, start.now_ms, rules.fetched)
    match action:
        case CallTool():
            definition = _definition_of(action, rules)
            return resolve_call(
                action, definition, values, canvas.session_key, rules.check_arguments, policy=policy
            )
        case SendMessage():
            return ResolvedMessage(canvas.session_of(action.session_key), resolve_message(action, values))
        case PatchState():
            return resolve_patch(action, values)


def _check_can_save(canvas: Canvas, action: Action) -> None:
    if not isinstance(action, PatchState) and action.save_target is not None:
        check_can_save(canvas.state, action.save_target.path, action.save_target.mode)


def _ask(
    canvas: Canvas,
    execution: Execution,
    action: Action,
    work: Work,
    because: str,
    *,
    start: ActionStart,
    rules: Rules,
) -> StartedExecution:
    definition = _known(rules).get(execution.tool or "")
    by_another = needs_another(canvas, action, rules.approval_by) and is_shared(start.principal)
    if by_another:
        require_gesture(execution.action_id, has_gesture=start.has_gesture)
        require_other_approver(execution.action_id, rules.has_other_approver)
    confirmation = to_confirmation(
        work,
        action,
        start.salt,
        definition,
        because=because,
        asked_by=start.principal.responsible if by_another else None,
    )
    resolved, offloaded = offload_large_values(confirmation)
    pending = replace(execution, status=ExecutionStatus.ASKED, resolved=resolved, owner_id=None)
    payload = {
        **pending.event_fields,
        "confirmationId": pending.event_id,
        "askedAt": start.now_ms,
        "digest": confirmation["digest"],
        **({"approval": Approval.ANOTHER.value} if by_another else {}),
    }
    event = events_of(pending, start.principal).action("asked", canvas.revision, payload)
    return StartedExecution(
        events=[event],
        is_mutation=False,
        transition=Transition(pending, pending_limit=_pending_limit(rules, by_another=by_another)),
        execution=pending,
        action=action,
        work=work,
        revision=canvas.revision,
        offloaded=offloaded,
        confirmation=confirmation,
    )


def _pending_limit(rules: Rules, *, by_another: bool) -> PendingLimit | None:
    limit = rules.pending_limit
    return replace(limit, seconds=rules.approval_seconds) if limit is not None and by_another else limit


def _start_work(
    canvas: Canvas,
    execution: Execution,
    from_status: ExecutionStatus | None,
    action: Action,
    work: Work,
    *,
    principal: Principal,
    now_ms: int,
    rules: Rules,
) -> StartedExecution:
    """Record the start. A patch of the state is applied in the same change, which also completes it."""
    events = events_of(execution, principal)
    payload = {**execution.event_fields, "startedAt": now_ms}
    started = events.action("started", canvas.revision, payload)
    if not isinstance(work, tuple):
        return StartedExecution(
            events=[started],
            is_mutation=False,
            transition=Transition(execution, from_status),
            execution=execution,
            action=action,
            work=work,
            revision=canvas.revision,
            is_trusted=canvas.is_accepted and not rules.weakened,
        )
    patched, offloaded = apply_to_state(work, canvas.state, execution.action_id, rules.state_bytes)
    completed = replace(execution, status=ExecutionStatus.COMPLETED, answer={})
    revision = canvas.revision + bool(patched.paths)
    finished = events.action("finished", revision, {**payload, "endedAt": now_ms})
    updated = [events.updated(revision, patched.paths)] if patched.paths else []
    return StartedExecution(
        events=[started, *updated, finished],
        is_mutation=bool(patched.paths),
        state=patched.state if patched.paths else None,
        authors=find_copied(canvas, action, principal),
        transition=Transition(completed, from_status),
        execution=completed,
        action=action,
        work=work,
        revision=revision,
        offloaded=offloaded,
    )


# --- confirming -----------------------------------------------------------------------------------


def approve_execution(
    snapshot: CanvasSnapshot,
    spec: CanvasSpec,
    pending: Execution,
    principal: Principal,
    rules: Rules,
    *,
    owner_id: str,
    now_ms: int,
) -> StartedExecution:
    """Start exactly the work that a person confirmed. X6

    Raises `ConfirmationClosed` if the canvas no longer declares this action with this tool and these terms,
    or if the tool says something else of itself.
    """
    canvas = snapshot.canvas
    action = spec.actions.get(pending.action_id)
    check_approver(canvas, action, pending, principal, rules.approval_by)
    tool = action.tool if isinstance(action, CallTool) else None
    resolved = pending.resolved or {}
    work = from_confirmation({"sessionKey": canvas.session_key, **resolved})
    if action is None or tool != pending.tool or _work_type(action) is not type(work):
        raise ConfirmationClosed(
            id=pending.event_id, problem="the canvas has changed and no longer declares this action."
        )
    if not has_same_terms(action, resolved):
        raise ConfirmationClosed(
            id=pending.event_id,
            problem="the canvas has changed: this action has other members than you were shown.",
        )
    admit(spec, pending.action_id)
    if isinstance(action, CallTool):
        check_same_tool(pending.event_id, work, resolved, _definition_of(action, rules))
    _check_can_save(canvas, action)
    rules = replace(rules, weakened=find_weakened(canvas.tool_hints, spec, _known(rules)))
    definition = _known(rules).get(tool or "")
    check_secrets(canvas, spec, pending.action_id, work, definition=definition, weakened=rules.weakened)
    running = replace(pending, status=ExecutionStatus.RUNNING, owner_id=owner_id, confirmed_by=principal.name)
    return _start_work(
        canvas, running, ExecutionStatus.ASKED, action, work, principal=principal, now_ms=now_ms, rules=rules
    )


def _work_type(action: Action) -> type:
    return {CallTool: ResolvedCall, SendMessage: ResolvedMessage, PatchState: tuple}[type(action)]
