"""Canvases between rows and values: what every store reads and writes alike."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from easel.core.canvas.assets import Asset
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, Change, Outcome, View
from easel.core.canvas.execution import Execution, ExecutionStatus, Transition
from easel.core.canvas.refresh import Failing
from easel.core.canvas.retention import OldLogs
from easel.core.stream.json_text import to_json
from easel.core.stream.payload_limit import mentioned
from easel.errors import current_code
from easel.ids import CanvasId, UserId
from easel.stores.rows.runs import Row, Time, to_canvas


def to_snapshot(row: Row, time: Time = None) -> CanvasSnapshot:
    assets = [Asset(*one) for one in msgspec.json.decode(row["assets"])]
    views = [
        View(view_id, client_id, held_by, bool(is_live))
        for view_id, client_id, held_by, is_live in msgspec.json.decode(row["views"])
    ]
    failing = [Failing(*one) for one in msgspec.json.decode(row["failing"])]
    return CanvasSnapshot(to_canvas(row, time), assets, views, failing)


def to_old_logs(rows: Sequence[Row], limit: int) -> OldLogs:
    places = [(UserId(row["user_id"]), CanvasId(row["canvas_id"])) for row in rows]
    found = [place for place, row in zip(places, rows, strict=True) if row["is_old"]]
    return OldLogs(found, places[-1] if len(places) == limit else None)


def arguments(change: Change) -> tuple[dict[str, Any], list[str]]:
    """The columns that a change writes, None where one stays, and the artifacts that it speaks of."""
    spec = None if change.spec is None else to_json(change.spec)
    state = None if change.state is None else to_json(change.state)
    given = {
        "title": change.title,
        "owner_session_key": change.owner_session_key,
        "spec": spec,
        "state": state,
        "is_accepted": change.is_accepted,
        "step": int(change.is_mutation),
    }
    spoken_of = frozenset[str]().union(
        *(event.refers_to for event in change.events), mentioned(spec or ""), mentioned(state or "")
    )
    if change.transition is not None:
        answer = change.transition.execution.answer
        spoken_of |= mentioned(to_json(change.transition.execution.resolved)) | mentioned(to_json(answer))
    return given, sorted(spoken_of)


def transition_arguments(step: Transition, revision: int) -> dict[str, Any]:
    """The columns of an execution. When it began and ended is the store's to say."""
    one = step.execution
    given = {
        "user_id": one.user_id,
        "event_id": one.event_id,
        "status": one.status.value,
        "answer": None if one.answer is None else to_json(one.answer),
        "owner_id": one.owner_id,
        "revision": revision if one.status.is_terminal else None,
    }
    if step.from_status is not None:
        return {**given, "out_of": step.from_status.value, "confirmed_by": one.confirmed_by}
    return {
        **given,
        "canvas_id": one.canvas_id,
        "action_id": one.action_id,
        "request_id": one.request_id,
        "request_digest": one.request_digest,
        "actor": to_json(one.actor),
        "tool": one.tool,
        "resolved": None if one.resolved is None else to_json(one.resolved),
    }


_OF_EXECUTION = (
    "user_id",
    "canvas_id",
    "event_id",
    "action_id",
    "request_id",
    "request_digest",
    "tool",
    "owner_id",
    "confirmed_by",
    "revision",
    "age_seconds",
)
_TIMES = ("created_at", "started_at", "ended_at")


def to_execution(row: Row, time: Time = None) -> Execution:
    times: dict[str, Any] = {
        name: row[name] if time is None or row[name] is None else time(row[name]) for name in _TIMES
    }
    decoded: dict[str, Any] = {
        name: None if row[name] is None else msgspec.json.decode(row[name])
        for name in ("actor", "resolved", "answer")
    }
    if error := (decoded["answer"] or {}).get("error"):
        error["name"] = current_code(error["name"])
    return Execution(
        status=ExecutionStatus(row["status"]),
        **{name: row[name] for name in _OF_EXECUTION},
        **times,
        **decoded,
    )


def changed(
    snapshot: CanvasSnapshot,
    change: Change,
    *,
    revision: int,
    last_seq: int,
    spec_revision: int,
    is_accepted: bool,
    updated_at: datetime,
) -> Outcome:
    """The canvas as it lies there now, without reading it again."""
    before = snapshot.canvas
    canvas = Canvas(
        user_id=before.user_id,
        canvas_id=before.canvas_id,
        agent_id=before.agent_id,
        title=before.title if change.title is None else change.title,
        owner_session_key=before.owner_session_key
        if change.owner_session_key is None
        else change.owner_session_key,
        spec_json=before.spec_json if change.spec is None else to_json(change.spec),
        state=before.state if change.state is None else change.state,
        revision=revision,
        last_seq=last_seq,
        spec_revision=spec_revision,
        is_accepted=is_accepted,
        created_at=before.created_at,
        updated_at=updated_at,
    )
    if not (change.put or change.removed or change.opened or change.closed):
        return Outcome(CanvasSnapshot(canvas, snapshot.assets, snapshot.views), is_changed=True)
    assets = {one.path: one for one in snapshot.assets if one.path not in change.removed}
    assets |= {one.path: one for one in change.put}
    views = [view for view in snapshot.views if view.view_id not in change.closed]
    kept = {one.blob_key for one in assets.values()}
    left = [one.blob_key for one in snapshot.assets if one.blob_key not in kept]
    return Outcome(
        CanvasSnapshot(
            canvas,
            [assets[path] for path in sorted(assets)],
            [*views, *([change.opened] if change.opened else [])],
        ),
        is_changed=True,
        orphaned_blobs=left,
    )
