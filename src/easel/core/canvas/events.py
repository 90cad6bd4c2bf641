"""The events of a canvas's log.

Owns the payload of every event type of a canvas. The provenance of an event names the kind and the id of the
principal that acted, and the run that caused the event or, if there is none, the operation. Does not know the
log. RS-33, RS-68, CV-38
"""

from collections.abc import Mapping, Sequence
from typing import Any

from easel.core.canvas.canvas import View
from easel.core.document.document import Author
from easel.core.document.lease import Held, Lease
from easel.core.principal import ActorKind, Principal
from easel.core.stream.envelope import Envelope, Provenance, seal
from easel.core.stream.json_text import to_json
from easel.core.values.fingerprint import fingerprint
from easel.core.values.paths import pointer
from easel.ids import ArtifactId, CanvasId

STATE_POINTER = ""  # the JSON pointer of the complete state
MAX_PATH_BYTES = 1_000  # of `changedPaths`, so that no part of the event is offloaded


class CanvasEvents:
    """Builds the events of one operation on a canvas. `event_id` identifies the operation."""

    def __init__(
        self,
        canvas_id: CanvasId,
        *,
        agent_id: str,
        event_id: str,
        node_id: str = "canvas",
        kind: ActorKind = ActorKind.AGENT,
    ) -> None:
        self._canvas_id = canvas_id
        self._provenance = Provenance(agent_id, node_id, event_id, kind=kind)

    @classmethod
    def by(
        cls, principal: Principal, canvas_id: CanvasId, *, event_id: str, node_id: str = "canvas"
    ) -> "CanvasEvents":
        """Return a builder for events that the principal causes."""
        return cls(
            canvas_id,
            agent_id=principal.actor_id,
            event_id=principal.run_id or event_id,
            node_id=node_id,
            kind=principal.actor_kind,
        )

    def created(self, revision: int, title: str) -> Envelope:
        return self._seal("canvas.created", revision, {"title": title})

    def updated(self, revision: int, changed_paths: Sequence[str]) -> Envelope:
        return self._seal("canvas.updated", revision, {"changedPaths": list(limit_paths(changed_paths))})

    def view_opened(self, revision: int, view: View, count: int) -> Envelope:
        return self._view(revision, view, "opened", count)

    def view_closed(self, revision: int, view: View, count: int) -> Envelope:
        return self._view(revision, view, "closed", count)

    def snapshot(
        self, revision: int, artifact_id: ArtifactId, uri: str, *, media_type: str, size: int, sha256: str
    ) -> Envelope:
        """Build the event of a snapshot picture, which refers to the picture's artifact. CC-08, CC-24"""
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

    def action(self, name: str, revision: int, payload: Mapping[str, Any]) -> Envelope:
        """Build an event of an execution, such as `canvas.action.started`. CV-37, CV-38"""
        return self._seal(f"canvas.action.{name}", revision, dict(payload))

    def refresh_failed(self, revision: int, payload: Mapping[str, Any]) -> Envelope:
        return self._seal("canvas.refresh.failed", revision, dict(payload))

    def refresh_recovered(self, revision: int, payload: Mapping[str, Any]) -> Envelope:
        return self._seal("canvas.refresh.recovered", revision, dict(payload))

    def document_changed(self, revision: int, revision_id: str, epoch: int, author: Author) -> Envelope:
        """Build the event of a new text of a document. `revision` is that of the canvas."""
        writer = {"kind": author.kind.value, "id": author.id}
        if author.run_id is not None:
            writer["run_id"] = author.run_id
        payload = {"revision_id": revision_id, "canvas_epoch": epoch, "author": writer}
        return self._seal("canvas.document.changed", revision, payload)

    def lease_changed(self, revision: int, lease: Lease, reason: str) -> Envelope:
        """Build the event of a lease that began or ended. It does not contain the id of the lease."""
        held: dict[str, str] | None = None
        if isinstance(lease, Held):
            held = {"run_id": lease.run_id, "expires_at": lease.expires_at.isoformat(timespec="milliseconds")}
        payload = {"canvas_epoch": lease.epoch, "lease": held, "reason": reason}
        return self._seal("canvas.lease.changed", revision, payload)

    def _view(self, revision: int, view: View, status: str, count: int) -> Envelope:
        user = {} if view.user_id is None else {"userId": view.user_id}
        payload = {
            "viewId": view.view_id,
            "clientId": view.client_id,
            **user,
            "status": status,
            "views": count,
        }
        return self._seal("canvas.view.updated", revision, payload)

    def _seal(self, event_type: str, revision: int, payload: dict[str, Any]) -> Envelope:
        return seal(
            event_type, {"canvasId": self._canvas_id, "revision": revision, **payload}, self._provenance
        )


def asset_path_mark(path: str) -> str:
    """Return the entry for an asset in `changedPaths`. `$` distinguishes it from paths of the state."""
    return f"${path}"


SPEC_MARK, TITLE_MARK, SESSION_MARK, ACCEPTED_MARK = "$spec", "$title", "$session", "$accepted"


def limit_paths(paths: Sequence[str]) -> Sequence[str]:
    """Return the changed paths in at most `MAX_PATH_BYTES`.

    If the paths are too long, returns their top-level members. If these are too long, returns the complete
    state for all paths of the state, and `$assets` for all assets. So the result always covers every changed
    path. CV-38
    """
    if _size(paths) <= MAX_PATH_BYTES:
        return paths
    tops = dict.fromkeys(_top(path) for path in paths)
    if _size(list(tops)) <= MAX_PATH_BYTES:
        return list(tops)
    kinds = dict.fromkeys(
        ("$assets" if path.startswith("$assets/") else path) if path.startswith("$") else STATE_POINTER
        for path in paths
    )
    return list(kinds)


def _top(path: str) -> str:
    return path if path.startswith("$") or path == STATE_POINTER else "/" + path.split("/", 2)[1]


def _size(paths: Sequence[str]) -> int:
    return len(to_json(list(paths)).encode())


def changed_members(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the pointers of the top-level members that differ between two states.

    Values are compared as JSON: 1 and true differ, unlike in Python.
    """
    unchanged = {
        name for name in before if name in after and fingerprint(before[name]) == fingerprint(after[name])
    }
    return [pointer((name,)) for name in {**before, **after} if name not in unchanged]
