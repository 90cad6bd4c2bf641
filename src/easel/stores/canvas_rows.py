"""Canvases between rows and values: what every store reads and writes alike."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from easel.core.canvas.assets import Asset
from easel.core.canvas.canvas import Change, Outcome, View, WholeCanvas
from easel.core.stream.lightness import mentioned
from easel.core.stream.payload import to_json
from easel.stores.rows import Row, Time, canvas_of


def whole_of(row: Row, time: Time = None) -> WholeCanvas:
    assets = [Asset(*one) for one in msgspec.json.decode(row["assets"])]
    views = [View(view_id, client_id, held_by, bool(is_live)) for view_id, client_id, held_by, is_live in msgspec.json.decode(row["views"])]
    return WholeCanvas(canvas_of(row, time), assets, views)


def arguments(change: Change) -> tuple[dict[str, Any], list[str]]:
    """The columns that a change writes, None where one stays, and the artifacts that it speaks of."""
    spec = None if change.spec is None else to_json(change.spec)
    state = None if change.state is None else to_json(change.state)
    given = {
        "title": change.title,
        "owner_session_key": change.owner_session_key,
        "spec": spec,
        "state": state,
        "step": int(change.is_mutation),
        "event_type": change.event.type,
        "visibility": change.event.visibility.value,
        "payload": change.event.json,
    }
    return given, sorted(change.event.refers_to | mentioned(spec or "") | mentioned(state or ""))


def changed(whole: WholeCanvas, change: Change, *, revision: int, last_seq: int, updated_at: datetime) -> Outcome:
    """The canvas as it lies there now, without reading it again."""
    before = whole.canvas
    canvas = replace(
        before,
        title=before.title if change.title is None else change.title,
        owner_session_key=before.owner_session_key if change.owner_session_key is None else change.owner_session_key,
        spec=before.spec if change.spec is None else change.spec,
        state=before.state if change.state is None else change.state,
        revision=revision,
        last_seq=last_seq,
        updated_at=updated_at,
    )
    assets = {one.path: one for one in whole.assets if one.path not in change.removed}
    assets |= {one.path: one for one in change.put}
    views = [view for view in whole.views if view.view_id not in change.closed]
    kept = {one.blob_key for one in assets.values()}
    left = [one.blob_key for one in whole.assets if one.blob_key not in kept]
    return Outcome(
        WholeCanvas(canvas, [assets[path] for path in sorted(assets)], [*views, *([change.opened] if change.opened else [])]),
        is_changed=True,
        left=left,
    )
