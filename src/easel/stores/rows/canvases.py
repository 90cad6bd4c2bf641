"""Canvases and executions in both stores: conversion of rows to core values, and of changes to arguments."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from easel.core.action.execution import Execution, ExecutionChange, ExecutionStatus, Transition
from easel.core.canvas.assets import Asset
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, Change, NewCanvas, Outcome, View
from easel.core.canvas.refresh import Failing
from easel.core.canvas.retention import OldLogs
from easel.core.canvas.spec import Refresh
from easel.core.stream.envelope import Envelope
from easel.core.stream.json_text import to_json
from easel.core.stream.log import LoggedEvent
from easel.core.stream.payload_limit import mentioned_artifacts
from easel.ids import AccountId, CanvasId
from easel.stores.rows.runs import Row, event_columns, events_columns, to_events


def to_canvas(row: Row) -> Canvas:
    return Canvas(
        account_id=row["account_id"],
        canvas_id=row["canvas_id"],
        agent_id=row["agent_id"],
        title=row["title"],
        owner_session_key=row["owner_session_key"],
        spec_json=row["spec"],
        state=msgspec.json.decode(row["state"]),
        revision=row["revision"],
        last_seq=row["last_seq"],
        spec_revision=row["spec_revision"],
        is_accepted=bool(row["is_accepted"]),
        tool_hints=msgspec.json.decode(row["tool_hints"] or "{}"),
        written_by=row["written_by"],
        titled_by=row["titled_by"],
        unreviewed=msgspec.json.decode(row["unreviewed"]),
        consent_json=row["consent"],
        created_by=row["created_by"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def to_snapshot(row: Row) -> CanvasSnapshot:
    assets = [Asset(*values) for values in msgspec.json.decode(row["assets"])]
    views = [
        View(view_id, client_id, connection_id, user_id, bool(is_live))
        for view_id, client_id, connection_id, user_id, is_live in msgspec.json.decode(row["views"])
    ]
    failing = [Failing(*values) for values in msgspec.json.decode(row["failing"])]
    return CanvasSnapshot(to_canvas(row), assets, views, failing, written_at=row["written_at"])


def to_old_logs(rows: Sequence[Row], limit: int) -> OldLogs:
    keys = [(AccountId(row["account_id"]), CanvasId(row["canvas_id"])) for row in rows]
    old = [key for key, row in zip(keys, rows, strict=True) if row["is_old"]]
    return OldLogs(old, keys[-1] if len(keys) == limit else None)


def to_canvas_events(rows: Sequence[Row]) -> list[LoggedEvent]:
    """Return a page of a canvas's log from rows of an event and the agent that has the canvas.

    The agent is added here, once for all viewers. RS-67
    """
    values = [[*row.values()] for row in rows]
    events = to_events(row[:-1] for row in values)
    agent_id = values[0][-1] if values else None
    start = "{" if agent_id is None else f'{{"agentId":{to_json(agent_id)},'  # None: purged since
    for event in events:
        event.data = start + event.data[1:]
    return events


def create_arguments(new: NewCanvas, event: Envelope) -> dict[str, Any]:
    spec, state = to_json(new.spec), to_json(new.state)
    return {
        "account_id": new.account_id,
        "canvas_id": new.canvas_id,
        "agent_id": new.agent_id,
        "title": new.title,
        "owner_session_key": new.owner_session_key,
        "spec": spec,
        "state": state,
        "is_accepted": new.is_accepted,
        "tool_hints": to_json(new.tool_hints),
        "written_by": new.written_by,
        "consent": new.consent.to_text(),
        "created_by": new.created_by,
        "logs": sorted(event.refers_to | mentioned_artifacts(spec) | mentioned_artifacts(state)),
        "holds": [],
        **event_columns(event),
        **events_columns([event]),
    }


def asset_columns(assets: Sequence[Asset]) -> dict[str, list[Any]]:
    return {
        "paths": [asset.path for asset in assets],
        "blob_keys": [asset.blob_key for asset in assets],
        "sizes": [asset.size for asset in assets],
    }


def job_columns(refreshes: Sequence[Refresh]) -> dict[str, list[Any]]:
    return {
        "refresh_ids": [job.refresh_id for job in refreshes],
        "action_ids": [job.action_id for job in refreshes],
        "every_ms": [job.every_ms for job in refreshes],
        "only_watched": [job.only_watched for job in refreshes],
    }


def change_arguments(change: Change) -> dict[str, Any]:
    """Return the columns of a change (None: unchanged), its events and the artifacts that it mentions.

    `logs` are the artifacts in events and records, `holds` those in state and spec only.
    """
    spec = None if change.spec is None else to_json(change.spec)
    state = None if change.state is None else to_json(change.state)
    logged = frozenset[str]().union(*(event.refers_to for event in change.events))
    if isinstance(change, ExecutionChange):
        execution = change.transition.execution
        kept = [execution.answer, None if execution.status.is_terminal else execution.resolved]
        logged |= mentioned_artifacts(to_json(kept))
    held = mentioned_artifacts(spec or "") | mentioned_artifacts(state or "")
    return {
        "title": change.title,
        "owner_session_key": change.owner_session_key,
        "spec": spec,
        "state": state,
        "is_accepted": change.is_accepted,
        "tool_hints": None if change.tool_hints is None else to_json(change.tool_hints),
        "written_by": change.written_by,
        "titled_by": change.titled_by,
        "unreviewed": None if change.unreviewed is None else to_json(change.unreviewed),
        "consent": None if change.consent is None else change.consent.to_text(),
        "step": int(change.is_mutation),
        "event_count": len(change.events),
        "logs": sorted(logged),
        "holds": sorted(held - logged),
        **events_columns(change.events),
    }


def transition_arguments(transition: Transition, revision: int, last_seq: int) -> dict[str, Any]:
    """Return the columns of an execution except its times, which the store sets.

    `revision` and `last_seq` are those of the canvas after the change.
    """
    execution = transition.execution
    arguments = {
        "account_id": execution.account_id,
        "event_id": execution.event_id,
        "status": execution.status.value,
        "answer": None if execution.answer is None else to_json(execution.answer),
        "owner_id": execution.owner_id,
        "revision": revision if execution.status.is_terminal else None,
    }
    if transition.from_status is not None:
        return {**arguments, "out_of": transition.from_status.value, "confirmed_by": execution.confirmed_by}
    return {
        **arguments,
        "canvas_id": execution.canvas_id,
        "action_id": execution.action_id,
        "request_id": execution.request_id,
        "request_digest": execution.request_digest,
        "actor": to_json(execution.actor),
        "tool": execution.tool,
        "resolved": None if execution.resolved is None else to_json(execution.resolved),
        "log_seq": last_seq,
        "answer_seconds": None if transition.pending_limit is None else transition.pending_limit.seconds,
    }


_EXECUTION_COLUMNS = (
    "account_id",
    "canvas_id",
    "event_id",
    "action_id",
    "request_id",
    "request_digest",
    "tool",
    "owner_id",
    "confirmed_by",
    "revision",
    "answer_seconds",
    "created_at",
    "started_at",
    "ended_at",
)


def to_execution(row: Row) -> Execution:
    decoded: dict[str, Any] = {
        name: None if row[name] is None else msgspec.json.decode(row[name])
        for name in ("actor", "resolved", "answer")
    }
    return Execution(
        status=ExecutionStatus(row["status"]), **{name: row[name] for name in _EXECUTION_COLUMNS}, **decoded
    )


def build_outcome(snapshot: CanvasSnapshot, change: Change, stored: Row) -> Outcome:
    """Return the changed canvas, computed from the snapshot, the change and the stored columns."""
    before = snapshot.canvas
    canvas = Canvas(
        account_id=before.account_id,
        canvas_id=before.canvas_id,
        agent_id=before.agent_id,
        title=before.title if change.title is None else change.title,
        owner_session_key=before.owner_session_key
        if change.owner_session_key is None
        else change.owner_session_key,
        spec_json=before.spec_json if change.spec is None else to_json(change.spec),
        state=before.state if change.state is None else change.state,
        revision=stored["revision"],
        last_seq=stored["last_seq"],
        spec_revision=stored["spec_revision"],
        is_accepted=bool(stored["is_accepted"]),
        created_at=before.created_at,
        updated_at=stored["updated_at"],
        tool_hints=before.tool_hints if change.tool_hints is None else change.tool_hints,
        written_by=before.written_by if change.written_by is None else change.written_by,
        titled_by=before.titled_by if change.titled_by is None else change.titled_by,
        unreviewed=before.unreviewed if change.unreviewed is None else change.unreviewed,
        consent_json=before.consent_json if change.consent is None else change.consent.to_text(),
        created_by=before.created_by,
    )
    if not (change.put or change.removed or change.opened or change.closed):
        return Outcome(CanvasSnapshot(canvas, snapshot.assets, snapshot.views), is_changed=True)
    assets = {asset.path: asset for asset in snapshot.assets if asset.path not in change.removed}
    assets |= {asset.path: asset for asset in change.put}
    views = [view for view in snapshot.views if view.view_id not in change.closed]
    blob_keys = {asset.blob_key for asset in assets.values()}
    orphaned = [asset.blob_key for asset in snapshot.assets if asset.blob_key not in blob_keys]
    return Outcome(
        CanvasSnapshot(
            canvas,
            [assets[path] for path in sorted(assets)],
            [*views, *([change.opened] if change.opened else [])],
        ),
        is_changed=True,
        orphaned_blobs=orphaned,
    )


def all_blob_keys(snapshot: CanvasSnapshot, of_versions: Iterable[str | None]) -> list[str]:
    """Return the keys of the blobs of a canvas and of its versions, each once."""
    keys = [asset.blob_key for asset in snapshot.assets]
    return list(dict.fromkeys([*keys, *(key for key in of_versions if key is not None)]))
