"""The ends of an execution, each as one change of its canvas. CV-22, CV-39, CV-42

Owns what an end stores and its events, after the last output. Functions return a decision, which receives the
snapshot of the locked canvas. Does not know how an execution is started.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from easel.core.action.execution import (
    Execution,
    ExecutionChange,
    ExecutionStatus,
    Transition,
    asker_of,
    events_of,
)
from easel.core.action.output import OutputChunk, output_events
from easel.core.action.secrets import name_result
from easel.core.action.transitions import StartedExecution, StartFailed
from easel.core.canvas.actions import Approval, PatchState
from easel.core.canvas.canvas import Canvas, CanvasSnapshot
from easel.core.canvas.spec import check_state_size
from easel.core.principal import Principal
from easel.core.stream.marker import is_marker
from easel.core.stream.payload_limit import OffloadedValue, offload_large_values
from easel.core.values.paths import SaveMode, pointer, save_outcome, to_outcome
from easel.errors import BadInput, HostError

EXPIRED = "No person answered in time."
ASKER_LEFT = "The person who asked has left this account, or was disabled."
WITHDRAWN = "Withdrawn by who asked for it."

Decision = Callable[[CanvasSnapshot], ExecutionChange]


def fail_start(canvas: Canvas, failure: StartFailed, message: str) -> StartedExecution:
    """Record the start and the failure of an action that cannot be resolved."""
    error, now_ms = _error(failure.problem, message), failure.start.now_ms
    failed = replace(failure.execution, status=ExecutionStatus.FAILED, answer={"error": error})
    events = events_of(failed, failure.start.principal)
    payload = {**failed.event_fields, "startedAt": now_ms}
    started = events.action("started", canvas.revision, payload)
    ended = events.action("failed", canvas.revision, {**payload, "endedAt": now_ms, "error": error})
    return StartedExecution(
        events=[started, ended],
        is_mutation=False,
        transition=Transition(failed),
        execution=failed,
        action=failure.action,
        work=(),
        revision=canvas.revision,
        problem=failure.problem,
    )


def reject_execution(pending: Execution, principal: Principal, *, owner_id: str, now_ms: int) -> Decision:
    """End a pending execution because a person rejected it. The canvas stays unchanged. CV-22

    The end says if the person who asked for a call of another person's approval has withdrawn it. RS-77
    """
    was_asked_of_another = (pending.resolved or {}).get("approval") == Approval.ANOTHER
    is_withdrawn = was_asked_of_another and principal.responsible == asker_of(pending)
    reason = {"reason": WITHDRAWN} if is_withdrawn else {}
    refused = replace(pending, status=ExecutionStatus.REFUSED, owner_id=owner_id, confirmed_by=principal.name)
    return _end(refused, principal, "refused", {"endedAt": now_ms, "refusedBy": principal.name, **reason})


def expire_confirmation(
    pending: Execution, principal: Principal, now_ms: int, reason: str = EXPIRED
) -> Decision:
    """End a pending execution because no person answered in time, or may answer it any longer. CV-22"""
    refused = replace(pending, status=ExecutionStatus.REFUSED)
    return _end(refused, principal, "refused", {"endedAt": now_ms, "reason": reason})


def complete_execution(
    result: Any,
    started: StartedExecution,
    principal: Principal,
    *,
    now_ms: int,
    state_bytes: int,
    output: Sequence[OutputChunk] = (),
) -> Decision:
    """Return the decision that saves the result, after the last output. CV-21, CV-39, RS-43"""
    small, offloaded = offload_large_values(result)
    saved = to_outcome(small, now_ms)
    # The execution stores the result only if a repeated request could ask for it. `saveAs` is the way to keep
    # a result.
    is_repeatable = started.execution.request_id is not None
    completed = replace(
        started.execution, status=ExecutionStatus.COMPLETED, answer={"result": small} if is_repeatable else {}
    )
    target = None if isinstance(started.action, PatchState) else started.action.save_target
    if target is None:
        stored = offloaded if is_repeatable else ()
        return _end(completed, principal, "finished", {"endedAt": now_ms}, offloaded=stored, output=output)
    path = ".".join(target.path)
    if target.mode is SaveMode.MERGE and isinstance(small, dict) and is_marker(cast("dict[str, Any]", small)):
        # A merge would mix the members of the marker with the members of the stored object.
        raise BadInput(
            problem=f"saveAs {path}: a result that was offloaded cannot be merged; use saveMode replace."
        )
    events = events_of(completed, principal)
    payload = {**completed.event_fields, "endedAt": now_ms, "saveAs": path}

    def decide(snapshot: CanvasSnapshot) -> ExecutionChange:
        after = save_outcome(snapshot.canvas.state, target.path, target.mode, saved)
        check_state_size(after.state, state_bytes)
        revision = snapshot.canvas.revision + 1
        return ExecutionChange(
            events=[
                *output_events(completed, snapshot.canvas.revision, output),
                events.updated(revision, after.paths),
                events.action("finished", revision, payload),
            ],
            offloaded=offloaded,
            state=after.state,
            authors={pointer(target.path): name_result(started.action)},
            transition=Transition(completed, from_status=ExecutionStatus.RUNNING),
        )

    return decide


def fail_execution(
    problem: HostError,
    message: str,
    execution: Execution,
    principal: Principal,
    *,
    now_ms: int,
    output: Sequence[OutputChunk] = (),
) -> Decision:
    """End a running execution with an error, after its last output. The state stays unchanged. CV-42"""
    error = _error(problem, message)
    failed = replace(execution, status=ExecutionStatus.FAILED, answer={"error": error})
    return _end(failed, principal, "failed", {"endedAt": now_ms, "error": error}, output=output)


def _end(
    ended: Execution,
    principal: Principal,
    event: str,
    details: Mapping[str, Any],
    *,
    offloaded: Sequence[OffloadedValue] = (),
    output: Sequence[OutputChunk] = (),
) -> Decision:
    """Return a decision that ends the execution and leaves the state of the canvas unchanged."""
    from_status = (
        ExecutionStatus.ASKED if ended.status is ExecutionStatus.REFUSED else ExecutionStatus.RUNNING
    )
    events = events_of(ended, principal)
    payload = {**ended.event_fields, **details}
    transition = Transition(ended, from_status=from_status)
    return lambda snapshot: ExecutionChange(
        events=[
            *output_events(ended, snapshot.canvas.revision, output),
            events.action(event, snapshot.canvas.revision, payload),
        ],
        offloaded=offloaded,
        is_mutation=False,
        transition=transition,
    )


def _error(problem: HostError, message: str) -> dict[str, Any]:
    return {"code": problem.gateway, "name": problem.code, "message": message}
