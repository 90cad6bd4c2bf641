"""The events of a canvas's log, each made in one place. What no run caused names who acted. RS-33, CV-38"""

from collections.abc import Mapping, Sequence
from typing import Any

from easel.core.canvas.actions import fingerprint
from easel.core.stream.envelope import Envelope, Provenance, seal
from easel.core.stream.json_text import to_json
from easel.core.values.paths import pointer
from easel.ids import ArtifactId, CanvasId

WHOLE_STATE = ""  # the pointer of all of it
MAX_PATH_BYTES = 1_000  # of `changedPaths`, so that an event is light by itself


class CanvasEvents:
    """Seals what one principal does with a canvas; `event_id` names the doing where no run does."""

    def __init__(self, canvas_id: CanvasId, *, agent_id: str, event_id: str, node_id: str = "canvas") -> None:
        self._canvas_id = canvas_id
        self._provenance = Provenance(agent_id, node_id, event_id)

    def created(self, revision: int, title: str) -> Envelope:
        return self._seal("canvas.created", revision, {"title": title})

    def updated(self, revision: int, changed_paths: Sequence[str]) -> Envelope:
        return self._seal("canvas.updated", revision, {"changedPaths": list(few(changed_paths))})

    def view_opened(self, revision: int, view_id: str, client_id: str, count: int) -> Envelope:
        return self._view(revision, view_id, client_id, "opened", count)

    def view_closed(self, revision: int, view_id: str, client_id: str, count: int) -> Envelope:
        return self._view(revision, view_id, client_id, "closed", count)

    def snapshot(
        self, revision: int, artifact_id: ArtifactId, uri: str, *, media_type: str, size: int, sha256: str
    ) -> Envelope:
        """A picture by its reference alone: its pixels are in no log. CC-08, CC-24"""
        sidecar: dict[str, Any] = {
            "uri": uri,
            "artifact_id": artifact_id,
            "mime_type": media_type,
            "size_bytes": size,
            "checksum": sha256,
        }
        return self._seal(
            "canvas.snapshot",
            revision,
            {"artifact_id": artifact_id, "media_payload": {"sidecars": [sidecar]}},
        )

    def action(self, what: str, revision: int, told: Mapping[str, Any]) -> Envelope:
        """`what` is asked, started, output, finished, failed or refused. CV-37, CV-38"""
        return self._seal(f"canvas.action.{what}", revision, dict(told))

    def refresh_failed(self, revision: int, told: Mapping[str, Any]) -> Envelope:
        return self._seal("canvas.refresh.failed", revision, dict(told))

    def refresh_recovered(self, revision: int, told: Mapping[str, Any]) -> Envelope:
        return self._seal("canvas.refresh.recovered", revision, dict(told))

    def _view(self, revision: int, view_id: str, client_id: str, what: str, count: int) -> Envelope:
        told = {"viewId": view_id, "clientId": client_id, "status": what, "views": count}
        return self._seal("canvas.view.updated", revision, told)

    def _seal(self, event_type: str, revision: int, more: dict[str, Any]) -> Envelope:
        return seal(event_type, {"canvasId": self._canvas_id, "revision": revision, **more}, self._provenance)


def asset_mark(path: str) -> str:
    """How `changedPaths` names an asset; what begins with a slash is a place in the state."""
    return f"${path}"


SPEC_MARK, TITLE_MARK, ACCEPTED_MARK = "$spec", "$title", "$accepted"


def few(paths: Sequence[str]) -> Sequence[str]:
    """These places, or the members of the state that they lie in, or all of it: never less than what has changed."""
    if _size(paths) <= MAX_PATH_BYTES:
        return paths
    tops = dict.fromkeys(_top(path) for path in paths)
    if _size(list(tops)) <= MAX_PATH_BYTES:
        return list(tops)
    kinds = dict.fromkeys(
        ("$assets" if path.startswith("$assets/") else path) if path.startswith("$") else WHOLE_STATE
        for path in paths
    )
    return list(kinds)


def _top(path: str) -> str:
    return path if path.startswith("$") or path == WHOLE_STATE else "/" + path.split("/", 2)[1]


def _size(paths: Sequence[str]) -> int:
    return len(to_json(list(paths)).encode())


def spread(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Which members a whole new state has changed. For Python 1 and true are one, for JSON they are not."""
    kept = {
        name for name in before if name in after and fingerprint(before[name]) == fingerprint(after[name])
    }
    return [pointer((name,)) for name in {**before, **after} if name not in kept]
