"""Canvases: making, finding, changing and removing them, and the pictures that are taken of them."""

from collections.abc import AsyncIterable, Mapping
from dataclasses import dataclass
from typing import Any

from easel.core.action.policy import check_reach, check_templates
from easel.core.action.timeouts import time_warnings
from easel.core.artifact.artifact import Artifact
from easel.core.canvas.actions import Confirm, PatchState
from easel.core.canvas.assets import Asset
from easel.core.canvas.canvas import (
    Canvas,
    CanvasSnapshot,
    Change,
    NewCanvas,
    check_revision,
    require_agent_id,
    require_canvas_id,
    require_session_key,
    parse_title,
)
from easel.core.canvas.events import ACCEPTED_MARK, SPEC_MARK, TITLE_MARK, asset_path_mark, changed_members
from easel.core.canvas.spec import CanvasSpec, Refresh, SpecLimits, check_state_size, parse_spec
from easel.core.principal import Principal
from easel.core.stream.notifications import LogDeleted
from easel.core.stream.payload_limit import OffloadedValue, offload_large_values
from easel.core.values.fingerprint import fingerprint
from easel.core.values.patch import Op, Operation, Patch, apply_patch, check_patch_names, parse_patch
from easel.core.values.paths import check_names
from easel.errors import (
    AlreadyExists,
    BadInput,
    Forbidden,
    HostError,
    NotFound,
    RevisionConflict,
    Unavailable,
)
from easel.host.artifacts import Artifacts
from easel.host.audit import Audit
from easel.host.canvases.assets import CanvasAssets
from easel.host.canvases.transactions import (
    CanvasTransactions,
    acceptance_after_spec_change,
    acceptance_after_asset_change,
    events_for,
    parse_canvas_id,
    may_self_approve,
)
from easel.host.ports import CanvasStore, Notifier
from easel.host.tools.registry import ToolRegistry
from easel.ids import CanvasId, owned

SNAPSHOT_MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
DEFAULT_AGENT_ID = "main"
NEW_SPEC: Mapping[str, Any] = {"version": 1, "mode": "html"}
NOT_ACCEPTED = "Nobody has accepted the page that lies there, so the canvas asks before it does anything: look at it, and accept it there."
CANNOT_ACCEPT = "accepted: this canvas is not accepted by what you send; look at it and use `canvas.accept`, or send its spec and all assets."
MAX_ATTEMPTS = 5  # of an upsert whose canvas comes and goes meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A canvas as its author sends it; what is None was not said."""

    canvas_id: str
    agent_id: str | None = None
    title: str | None = None
    owner_session_key: str | None = None
    spec: Mapping[str, Any] | None = None
    state: Mapping[str, Any] | None = None
    assets: Mapping[str, bytes] | None = None
    is_accepted: bool | None = (
        None  # False: a person who does not stand for what they send; True: refused where it would not come true
    )
    expected_revision: int | None = None

    def acceptance(self, principal: Principal, there: CanvasSnapshot, *, is_other: bool) -> bool | None:
        """Whether it is accepted with this, as far as it touches that; `is_other`: it declares something else than before. RS-59"""
        if self.is_accepted is False:
            return False
        if self.spec is not None and (is_other or may_self_approve(principal)):
            return acceptance_after_spec_change(principal, there, has_all_assets=self.assets is not None)
        return None if self.assets is None else acceptance_after_asset_change(principal)


@dataclass(frozen=True, slots=True)
class _CheckedDraft:
    """A draft that may be stored: its parts are as they should be, and light."""

    canvas_id: CanvasId
    draft: Draft
    spec: Mapping[str, Any] | None
    state: Mapping[str, Any] | None
    refreshes: list[Refresh] | None  # what runs by itself, where there is a spec


class CanvasLibrary:
    def __init__(
        self,
        canvases: CanvasStore,
        changes: CanvasTransactions,
        assets: CanvasAssets,
        artifacts: Artifacts,
        tools: ToolRegistry,
        *,
        notifier: Notifier,
        audit: Audit,
        limits: SpecLimits,
        floor: Confirm = Confirm.NEVER,
    ) -> None:
        self._canvases = canvases
        self._changes = changes
        self._assets = assets
        self._artifacts = artifacts
        self._notifier = notifier
        self._tools = tools
        self._audit = audit
        self._limits = limits
        self._floor = floor

    # -- finding ---------------------------------------------------------------------------------------------------

    async def get(self, principal: Principal, canvas_id: str) -> CanvasSnapshot:
        return await self._changes.find(principal, canvas_id)

    async def list_canvases(
        self, principal: Principal, *, agent_id: str | None, after: str | None, limit: int
    ) -> list[Canvas]:
        if agent_id is not None:
            require_agent_id(agent_id)
        if after is not None:
            require_canvas_id(after)
        return await self._canvases.list_canvases(
            principal.user_id, agent_id=agent_id, after=after or "", limit=limit
        )

    # -- making and replacing --------------------------------------------------------------------------------------

    async def create(self, principal: Principal, draft: Draft) -> CanvasSnapshot:
        if draft.expected_revision not in (None, 0):
            raise RevisionConflict(
                canvas=draft.canvas_id, expected=draft.expected_revision, currentRevision=0
            )
        made = await self._create(principal, await self._checked(principal, draft))
        if made is None:
            raise AlreadyExists(what="canvas", id=draft.canvas_id)
        return made

    async def upsert(self, principal: Principal, draft: Draft) -> CanvasSnapshot:
        """A new canvas, or this one in the place of what there is, which keeps what the draft does not speak of. RS-40"""
        checked = await self._checked(principal, draft)
        for _ in range(MAX_ATTEMPTS):
            there = await self._canvases.get(principal.user_id, checked.canvas_id)
            try:
                if there is not None:
                    return await self._replace(principal, there.canvas, checked)
                if draft.expected_revision not in (None, 0):
                    raise RevisionConflict(
                        canvas=draft.canvas_id, expected=draft.expected_revision, currentRevision=0
                    )
                if (made := await self._create(principal, checked)) is not None:
                    return made
            except NotFound:
                continue  # it was deleted meanwhile
        raise Unavailable(what=f"Canvas {draft.canvas_id}")

    async def _create(self, principal: Principal, checked: _CheckedDraft) -> CanvasSnapshot | None:
        draft = checked.draft
        agent_id = DEFAULT_AGENT_ID if draft.agent_id is None else draft.agent_id
        spec = NEW_SPEC if checked.spec is None else checked.spec
        state = spec.get("state", {}) if checked.state is None else checked.state  # CV-17
        title = parse_title(draft.title, checked.canvas_id)
        assets = await self._assets.store(principal.user_id, agent_id, checked.canvas_id, draft.assets or {})
        new = NewCanvas(
            user_id=principal.user_id,
            canvas_id=checked.canvas_id,
            agent_id=agent_id,
            title=title,
            spec=spec,
            state=state,
            owner_session_key=draft.owner_session_key,
            assets=assets,
            refreshes=checked.refreshes or [],
            is_accepted=may_self_approve(principal) and draft.is_accepted is not False,
        )
        try:
            made = await self._canvases.create(new, events_for(principal, checked.canvas_id).created(1, title))
        except Unavailable as problem:
            raise Unavailable.after_sending("The database", is_repeatable=True) from problem
        if made is None:
            await self._changes.drop(asset.blob_key for asset in assets)
            return None
        await self._audit.record(principal, "canvas.created", subject=checked.canvas_id)
        self._changes.notify(made)
        return made

    async def _replace(self, principal: Principal, there: Canvas, checked: _CheckedDraft) -> CanvasSnapshot:
        draft, canvas_id = checked.draft, checked.canvas_id
        check_revision(there, draft.expected_revision)  # before a byte is written; the lock looks again
        if draft.agent_id not in (None, there.agent_id):
            raise BadInput(problem=f"agentId: this canvas belongs to {there.agent_id}.")
        title = None if draft.title is None else parse_title(draft.title, canvas_id)
        assets = (
            None
            if draft.assets is None
            else await self._assets.store(principal.user_id, there.agent_id, canvas_id, draft.assets)
        )
        events = events_for(principal, canvas_id)

        def decide(snapshot: CanvasSnapshot) -> Change | None:
            canvas = snapshot.canvas
            check_revision(canvas, draft.expected_revision)
            gone = _removed_paths(snapshot, assets)
            spec = _changed_spec(canvas, checked.spec)
            # What an agent declares works in its own folder; one that only gives a title takes nothing over.
            owner = draft.owner_session_key if may_self_approve(principal) or checked.spec is not None else None
            is_moved = owner not in (None, canvas.session_key)
            accepted = draft.acceptance(principal, snapshot, is_other=spec is not None or is_moved)
            if draft.is_accepted and not (canvas.is_accepted if accepted is None else accepted):
                raise BadInput(problem=CANNOT_ACCEPT)
            paths = [
                *([TITLE_MARK] if title not in (None, canvas.title) else []),
                *([SPEC_MARK] if spec is not None else []),
            ]
            paths += [asset_path_mark(path) for path in (*gone, *(one.path for one in assets or ()))]
            if checked.state is not None:
                paths += changed_members(canvas.state, checked.state)
            paths += _acceptance_mark(canvas, accepted)
            if not paths and not is_moved:
                return None
            return Change(
                events=[events.updated(canvas.revision + 1, paths)],
                title=title,
                owner_session_key=owner,
                spec=spec,
                state=checked.state,
                put=assets or (),
                removed=gone,
                refreshes=None if spec is None else checked.refreshes,
                is_accepted=accepted,
            )

        try:
            return (await self._changes.apply(principal, canvas_id, decide)).snapshot
        except HostError as problem:
            if not isinstance(
                problem, Unavailable
            ):  # else it may be stored all the same; if not, a sweep finds the blobs
                await self._changes.drop(asset.blob_key for asset in assets or ())
            raise

    # -- changing --------------------------------------------------------------------------------------------------

    async def patch(
        self,
        principal: Principal,
        canvas_id: str,
        *,
        state_patch: list[Any] | None,
        spec: Mapping[str, Any] | None,
        title: str | None,
        expected_revision: int | None,
    ) -> CanvasSnapshot:
        """All of it or nothing, on the state as it is when it is its turn. CV-25, CV-44"""
        operations = parse_patch(state_patch or [], "statePatch")
        check_patch_names(operations, "statePatch")
        name = parse_canvas_id(canvas_id)
        new_title = None if title is None else parse_title(title, name)
        read = None if spec is None else await self._read(principal, spec)
        light_spec, offloaded = offload_large_values(spec) if spec is not None else (None, ())
        operations, moved_of_state = _offload_patch(operations)
        await self._artifacts.store(principal.user_id, [*offloaded, *moved_of_state])
        events = events_for(principal, canvas_id)

        def decide(snapshot: CanvasSnapshot) -> Change | None:
            canvas = snapshot.canvas
            check_revision(canvas, expected_revision)
            new_spec = _changed_spec(canvas, light_spec)
            declares = read is not None and (new_spec is not None or may_self_approve(principal))
            accepted = acceptance_after_spec_change(principal, snapshot, has_all_assets=False) if declares else None
            paths = [
                *([TITLE_MARK] if new_title not in (None, canvas.title) else []),
                *([SPEC_MARK] if new_spec is not None else []),
            ]
            paths += _acceptance_mark(canvas, accepted)
            done = apply_patch(operations, canvas.state, "statePatch") if operations else None
            if done is not None:
                check_state_size(done.state, self._limits.state_bytes)
                paths += done.paths
            if not paths:
                return None
            return Change(
                events=[events.updated(canvas.revision + 1, paths)],
                title=new_title,
                spec=new_spec,
                state=None if done is None else done.state,
                refreshes=None if read is None or new_spec is None else _enabled_refreshes(read),
                is_accepted=accepted,
            )

        is_repeatable = (
            not operations or expected_revision is not None
        )  # what is added to a list would be added twice
        return (await self._changes.apply(principal, canvas_id, decide, is_repeatable=is_repeatable)).snapshot

    async def accept(self, principal: Principal, canvas_id: str, revision: int) -> CanvasSnapshot:
        """A person stands for the spec that they have seen, as an agent wrote it. RS-59"""
        if not principal.is_person:
            raise Forbidden(problem="Only a person can accept a spec; an agent never does.")
        events = events_for(principal, canvas_id)

        def decide(snapshot: CanvasSnapshot) -> Change | None:
            canvas = snapshot.canvas
            if not canvas.spec_revision <= revision <= canvas.revision:
                raise RevisionConflict(canvas=canvas_id, expected=revision, currentRevision=canvas.revision)
            if canvas.is_accepted:
                return None
            return Change(events=[events.updated(canvas.revision + 1, [ACCEPTED_MARK])], is_accepted=True)

        outcome = await self._changes.apply(principal, canvas_id, decide)
        if outcome.is_changed:
            await self._audit.record(
                principal, "canvas.accepted", subject=canvas_id, details={"revision": revision}
            )
        return outcome.snapshot

    async def warnings(
        self, principal: Principal, spec: Mapping[str, Any], stands_for: Canvas | None
    ) -> list[str]:
        """What the author of a spec will want to know; it is stored all the same, in the canvas that they mean to stand for. RS-45"""
        checked, tools = parse_spec(spec, self._limits), await self._tools.definitions(principal.user_id)
        told = [
            *check_templates(checked, tools, floor=self._floor),
            *time_warnings(checked, tools, self._tools.timeout_seconds),
        ]
        return told if stands_for is None or stands_for.is_accepted else [NOT_ACCEPTED, *told]

    async def delete(
        self, principal: Principal, canvas_id: str, expected_revision: int | None = None
    ) -> None:
        def check(snapshot: CanvasSnapshot) -> None:
            check_revision(snapshot.canvas, expected_revision)

        try:
            left = await self._canvases.delete(principal.user_id, parse_canvas_id(canvas_id), check)
        except Unavailable as problem:
            raise Unavailable.after_sending("The database", is_repeatable=True) from problem
        if left is None:
            raise NotFound(what="canvas", id=canvas_id)
        await self._audit.record(principal, "canvas.deleted", subject=canvas_id)
        self._notifier.notify(LogDeleted("canvas", owned(principal.user_id, canvas_id)))
        await self._changes.drop(left)

    async def add_snapshot(
        self, principal: Principal, canvas_id: str, picture: AsyncIterable[bytes], declared_type: str
    ) -> tuple[Artifact, int]:
        """Kept as an artifact first; then its reference is an event of the canvas, for who watches and who comes later. CC-24"""
        await self.get(principal, canvas_id)
        artifact = await self._artifacts.upload(principal, picture, declared_type)
        if artifact.media_type not in SNAPSHOT_MEDIA_TYPES:
            raise BadInput(
                problem=f"A snapshot is a picture (PNG, JPEG, GIF, WebP or AVIF); these bytes are {artifact.media_type}."
            )
        events = events_for(principal, canvas_id)

        def decide(snapshot: CanvasSnapshot) -> Change:
            event = events.snapshot(
                snapshot.canvas.revision,
                artifact.artifact_id,
                artifact.uri,
                media_type=artifact.media_type,
                size=artifact.size,
                sha256=artifact.sha256,
            )
            return Change(events=[event], is_mutation=False)

        outcome = await self._changes.apply(principal, canvas_id, decide)
        return artifact, outcome.snapshot.canvas.last_seq

    # -- checking --------------------------------------------------------------------------------------------------

    async def _checked(self, principal: Principal, draft: Draft) -> _CheckedDraft:
        canvas_id = require_canvas_id(draft.canvas_id)
        parse_title(draft.title, canvas_id)
        require_session_key(draft.owner_session_key)
        if draft.agent_id is not None:
            require_agent_id(draft.agent_id)
        read = None if draft.spec is None else await self._read(principal, draft.spec)
        if draft.state is not None:
            check_state_size(draft.state, self._limits.state_bytes)
            check_names(draft.state, "state")
        self._assets.check(draft.assets or {})
        spec, moved_of_spec = offload_large_values(draft.spec)
        state, moved_of_state = offload_large_values(draft.state)
        await self._artifacts.store(principal.user_id, [*moved_of_spec, *moved_of_state])
        return _CheckedDraft(canvas_id, draft, spec, state, None if read is None else _enabled_refreshes(read))

    async def _read(self, principal: Principal, spec: Mapping[str, Any]) -> CanvasSpec:
        """Held to the tools that there are now, and an agent's spec to the agent's own reach. RS-16, RS-45, RS-59"""
        read = parse_spec(spec, self._limits)
        check_names(spec.get("state"), "state")
        for action_id, action in read.actions.items():
            if isinstance(action, PatchState):
                check_patch_names(action.patch, f"actions.{action_id}.patch")
        definitions = await self._tools.definitions(principal.user_id)
        check_templates(read, definitions, floor=self._floor)
        if not may_self_approve(principal):
            check_reach(read, definitions.__contains__)
        _, heavy = offload_large_values({name: value for name, value in spec.items() if name != "state"})
        if heavy:  # a marker in the place of an argument would be another spec
            raise BadInput(
                problem="spec: Base64 over 2 KB has no place in a spec; make it an asset, or keep it in the state."
            )
        return read


def _changed_spec(canvas: Canvas, spec: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A spec that is not the one that the canvas has: the very same one again is no change."""
    return None if spec is None or fingerprint(spec) == fingerprint(canvas.spec) else spec


def _acceptance_mark(canvas: Canvas, accepted: bool | None) -> list[str]:
    return [] if accepted in (None, canvas.is_accepted) else [ACCEPTED_MARK]


def _enabled_refreshes(spec: CanvasSpec) -> list[Refresh]:
    return [refresh for refresh in spec.refreshes if refresh.is_enabled]


def _removed_paths(snapshot: CanvasSnapshot, assets: list[Asset] | None) -> list[str]:
    """What a whole new set of assets leaves out."""
    if assets is None:
        return []
    kept = {one.path for one in assets}
    return [one.path for one in snapshot.assets if one.path not in kept]


def _offload_patch(operations: Patch) -> tuple[Patch, list[OffloadedValue]]:
    """The same operations with light values, and what was moved out of them."""
    light: list[Operation] = []
    offloaded: list[OffloadedValue] = []
    for operation in operations:
        if operation.op is Op.REMOVE:
            light.append(operation)
            continue
        value, of_value = offload_large_values(operation.value)
        light.append(Operation(operation.op, operation.path, value))
        offloaded += of_value
    return tuple(light), offloaded
