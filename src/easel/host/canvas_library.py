"""Canvases: making, finding and removing them, and the pictures that are taken of them."""

from collections.abc import AsyncIterable, Mapping
from typing import Any

from easel.core.artifact.artifact import Artifact
from easel.core.canvas.canvas import Canvas, NewCanvas, checked_agent_id, checked_canvas_id, checked_title
from easel.core.canvas.events import CanvasEvents
from easel.core.principal import Principal
from easel.core.stream.lightness import light_value
from easel.core.stream.ring import CanvasGrew, LogGone
from easel.core.tool.nesting import DEEPEST, is_too_deep
from easel.errors import AlreadyThere, BadInput, NotFound
from easel.host.artifacts import Artifacts
from easel.host.audit import Audit
from easel.host.ports import Bell, CanvasStore
from easel.ids import CanvasId, new_event_id, owned

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})


class CanvasLibrary:
    def __init__(self, canvases: CanvasStore, artifacts: Artifacts, bell: Bell, audit: Audit) -> None:
        self._canvases = canvases
        self._artifacts = artifacts
        self._bell = bell
        self._audit = audit

    async def create(
        self,
        who: Principal,
        canvas_id: str,
        *,
        agent_id: str,
        title: str | None,
        spec: Mapping[str, Any],
        state: Mapping[str, Any],
    ) -> Canvas:
        name = checked_canvas_id(canvas_id)
        shown = checked_title(title, name)
        if is_too_deep(spec) or is_too_deep(state):
            raise BadInput(problem=f"spec and state are nested at most {DEEPEST} levels deep.")
        light_spec, moved_of_spec = light_value(spec)
        light_state, moved_of_state = light_value(state)
        await self._artifacts.keep(who.user_id, [*moved_of_spec, *moved_of_state])
        events = CanvasEvents(agent_id=who.user_id, event_id=new_event_id())
        new = NewCanvas(
            user_id=who.user_id, canvas_id=name, agent_id=checked_agent_id(agent_id), title=shown, spec=light_spec, state=light_state
        )
        canvas = await self._canvases.create(new, events.created(1, shown))
        if canvas is None:
            raise AlreadyThere(what="canvas", id=canvas_id)
        await self._audit.record(who, "canvas.created", subject=canvas_id)
        self._bell.ring(CanvasGrew(owned(who.user_id, name), canvas.last_seq))
        return canvas

    async def get(self, who: Principal, canvas_id: str) -> Canvas:
        canvas = await self._canvases.get(who.user_id, CanvasId(canvas_id))
        if canvas is None:
            raise NotFound(what="canvas", id=canvas_id)
        return canvas

    async def delete(self, who: Principal, canvas_id: str) -> None:
        if not await self._canvases.delete(who.user_id, CanvasId(canvas_id)):
            raise NotFound(what="canvas", id=canvas_id)
        await self._audit.record(who, "canvas.deleted", subject=canvas_id)
        self._bell.ring(LogGone("canvas", owned(who.user_id, canvas_id)))

    async def add_snapshot(self, who: Principal, canvas_id: str, picture: AsyncIterable[bytes], declared_type: str) -> tuple[Artifact, int]:
        """Kept as an artifact first; then its reference is an event of the canvas, for who watches and who comes later. CC-24"""
        await self.get(who, canvas_id)
        artifact = await self._artifacts.upload(who, picture, declared_type)
        if artifact.media_type not in PICTURES:
            raise BadInput(problem=f"A snapshot is a picture (PNG, JPEG, GIF, WebP or AVIF); these bytes are {artifact.media_type}.")
        event = CanvasEvents(agent_id=who.user_id, event_id=new_event_id()).snapshot(
            artifact.artifact_id, artifact.uri, media_type=artifact.media_type, size=artifact.size, sha256=artifact.sha256
        )
        seq = await self._canvases.append(who.user_id, CanvasId(canvas_id), event)
        if seq is None:
            raise NotFound(what="canvas", id=canvas_id)
        self._bell.ring(CanvasGrew(owned(who.user_id, canvas_id), seq))
        return artifact, seq
