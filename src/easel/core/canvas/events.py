"""The events of a canvas's log, each made in one place. What no run caused names who acted. RS-33"""

from typing import Any

from easel.core.stream.envelope import Envelope, Provenance, seal
from easel.ids import ArtifactId


class CanvasEvents:
    """Seals what one principal does with a canvas; `event_id` names the doing where no run does."""

    def __init__(self, *, agent_id: str, event_id: str) -> None:
        self._provenance = Provenance(agent_id, "canvas", event_id)

    def created(self, revision: int, title: str) -> Envelope:
        return seal("canvas.created", {"revision": revision, "title": title}, self._provenance)

    def snapshot(self, artifact_id: ArtifactId, uri: str, *, media_type: str, size: int, sha256: str) -> Envelope:
        """A picture by its reference alone: its pixels are in no log. CC-08, CC-24"""
        sidecar: dict[str, Any] = {"uri": uri, "artifact_id": artifact_id, "mime_type": media_type, "size_bytes": size, "checksum": sha256}
        return seal("canvas.snapshot", {"artifact_id": artifact_id, "media_payload": {"sidecars": [sidecar]}}, self._provenance)
