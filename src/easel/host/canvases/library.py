"""The library of canvases: create, list, change, accept and delete them.

Owns the order of the steps in each use case. Does not know executions, sockets or how canvases are stored.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from easel.core.access import check_may_delete
from easel.core.action.hints import agree_to_hints, find_weakened, remember_hints
from easel.core.canvas.actions import Confirm
from easel.core.canvas.canvas import (
    Canvas,
    CanvasSnapshot,
    Change,
    NewCanvas,
    check_revision,
    choose_title,
    parse_canvas_id,
    require_agent_id,
    require_canvas_id,
    require_session_key,
    to_ms,
)
from easel.core.canvas.consent import NO_CONSENT, consent_to, why_not_alone, why_not_secrets
from easel.core.canvas.content import (
    ONLY_PEOPLE_ACCEPT,
    ContentWrite,
    Hints,
    change_content,
    may_accept,
    warn_of_session,
)
from easel.core.canvas.events import ACCEPTED_MARK, changed_members
from easel.core.canvas.spec import CanvasSpec, SpecLimits, check_state_size
from easel.core.principal import Principal
from easel.core.session.session import resolve_session_key
from easel.core.stream.notifications import LogDeleted
from easel.core.stream.payload_limit import offload_large_values
from easel.core.values.patch import apply_patch, check_patch_names, offload_patch, parse_patch
from easel.errors import AlreadyExists, Forbidden, InputConflict, NotFound, RevisionConflict, Unavailable
from easel.host.audit.audit import Audit
from easel.host.canvases.assets import CanvasAssets
from easel.host.canvases.drafts import CheckedDraft, Draft, DraftChecker, enabled_refreshes
from easel.host.canvases.transactions import CanvasTransactions, events_for
from easel.host.ports import CanvasStore, Notifier
from easel.host.tools.registry import ToolRegistry
from easel.ids import scoped_key

DEFAULT_AGENT_ID = "main"
NEW_SPEC: Mapping[str, Any] = {"version": 1, "mode": "html"}
NOT_ACCEPTED = (
    "The page of this canvas is not accepted, so its actions ask for confirmation; review and accept it."
)
MAX_COUNTED = 2_000  # canvases of a list; each counted row takes a microsecond
MAX_ATTEMPTS = 5  # of an upsert while other requests create and delete the canvas


class CanvasLibrary:
    """The use cases of authors: people and agents that write canvases."""

    def __init__(
        self,
        canvases: CanvasStore,
        transactions: CanvasTransactions,
        assets: CanvasAssets,
        tools: ToolRegistry,
        *,
        notifier: Notifier,
        audit: Audit,
        limits: SpecLimits,
        floor: Confirm = Confirm.NEVER,
    ) -> None:
        self._canvases = canvases
        self._transactions = transactions
        self._assets = assets
        self._notifier = notifier
        self._audit = audit
        self._limits = limits
        self.drafts = DraftChecker(assets, tools, limits, floor)

    # -- finding ---------------------------------------------------------------------------------------------

    async def get(self, principal: Principal, canvas_id: str) -> CanvasSnapshot:
        """Return a canvas. Raises `NotFound`."""
        return await self.check_tools(principal, await self._transactions.find(principal, canvas_id))

    async def check_tools(self, principal: Principal, snapshot: CanvasSnapshot) -> CanvasSnapshot:
        """Return the snapshot with the tools that claim less effect than remembered. RS-68"""
        canvas = snapshot.canvas
        if not canvas.spec.get("toolPolicy", {}).get("allow"):
            return snapshot
        try:
            definitions = await self.drafts.definitions(principal)
        except Unavailable:
            return snapshot  # an action checks the tools again before it calls one
        weakened = find_weakened(canvas.tool_hints, self.parse_stored(canvas), definitions)
        return replace(snapshot, weakened=weakened) if weakened else snapshot

    async def list_canvases(
        self, principal: Principal, *, agent_id: str | None, after: str | None, limit: int
    ) -> list[Canvas]:
        """Return the canvases whose id is greater than `after`, in the order of their ids."""
        if agent_id is not None:
            require_agent_id(agent_id)
        if after is not None:
            require_canvas_id(after)
        return await self._canvases.list_canvases(
            principal.account_id, agent_id=agent_id, after=after or "", limit=limit
        )

    async def require_agent(self, principal: Principal, canvas_id: str, agent_id: str) -> None:
        """Raise `NotFound` unless this agent has the canvas; it has the canvas for ever. RS-67"""
        found = await self._canvases.get_agent(principal.account_id, parse_canvas_id(canvas_id))
        if found != agent_id:
            raise NotFound(what="canvas", id=canvas_id)

    async def find_at(self, principal: Principal, *, agent_id: str | None, offset: int) -> str | None:
        """Return the id of the canvas at this offset, in the order of ids; None if there are fewer."""
        if agent_id is not None:
            require_agent_id(agent_id)
        return await self._canvases.find_at(principal.account_id, agent_id=agent_id, offset=offset)

    async def count(self, principal: Principal, *, agent_id: str | None) -> int:
        """Return the number of canvases, at most `MAX_COUNTED`."""
        return await self._canvases.count(principal.account_id, agent_id=agent_id, limit=MAX_COUNTED)

    # -- creating and replacing -----------------------------------------------------------------------------

    async def create(self, principal: Principal, draft: Draft) -> CanvasSnapshot:
        """Create a canvas. Raises `AlreadyExists`."""
        if draft.expected_revision not in (None, 0):
            raise RevisionConflict(
                canvas=draft.canvas_id, expected=draft.expected_revision, currentRevision=0
            )
        created = await self._create(principal, await self.drafts.check(principal, draft))
        if created is None:
            raise AlreadyExists(what="canvas", id=draft.canvas_id)
        return await self.check_tools(principal, created)

    async def upsert(self, principal: Principal, draft: Draft) -> CanvasSnapshot:
        """Create a canvas, or replace the parts of an existing one that the draft contains. RS-40"""
        checked = await self.drafts.check(principal, draft)
        for _ in range(MAX_ATTEMPTS):
            current = await self._canvases.get(principal.account_id, checked.canvas_id)
            try:
                if current is not None:
                    replaced = await self._replace(principal, current, checked)
                    return await self.check_tools(principal, replaced)
                if draft.expected_revision not in (None, 0):
                    raise RevisionConflict(
                        canvas=draft.canvas_id, expected=draft.expected_revision, currentRevision=0
                    )
                if (created := await self._create(principal, checked)) is not None:
                    return await self.check_tools(principal, created)
            except NotFound:
                continue  # deleted by another request
        raise Unavailable(what=f"Canvas {draft.canvas_id}")

    async def _create(self, principal: Principal, checked: CheckedDraft) -> CanvasSnapshot | None:
        draft = checked.draft
        if draft.is_accepted and not may_accept(principal):
            raise Forbidden(problem=ONLY_PEOPLE_ACCEPT)
        agent_id = DEFAULT_AGENT_ID if draft.agent_id is None else draft.agent_id
        spec = NEW_SPEC if checked.spec is None else checked.spec
        problem = why_not_secrets(NO_CONSENT, spec, principal)
        if draft.is_accepted and problem:
            raise Forbidden(problem=f"accepted: {problem}")
        is_accepted = may_accept(principal) and draft.is_accepted is not False and not problem
        state = spec.get("state", {}) if checked.state is None else checked.state  # CV-17
        title = choose_title(draft.title, spec, {}, checked.canvas_id) or checked.canvas_id
        assets = await self._assets.store(
            principal.account_id, agent_id, checked.canvas_id, draft.assets or {}
        )
        new = NewCanvas(
            account_id=principal.account_id,
            canvas_id=checked.canvas_id,
            agent_id=agent_id,
            title=title,
            spec=spec,
            state=state,
            owner_session_key=resolve_session_key(draft.owner_session_key, agent_id),
            assets=assets,
            refreshes=checked.refreshes or [],
            is_accepted=is_accepted,
            consent=consent_to(spec) if is_accepted else NO_CONSENT,
            created_by=principal.responsible,
            written_by=principal.author,
            tool_hints={}
            if checked.parsed is None
            else remember_hints(checked.parsed, await self.drafts.definitions(principal)),
            offloaded=checked.offloaded,
        )
        created = await self._transactions.create(principal, new)
        if created is None:
            await self._transactions.delete_blobs(asset.blob_key for asset in assets)
        return created

    async def _replace(
        self, principal: Principal, found: CanvasSnapshot, checked: CheckedDraft
    ) -> CanvasSnapshot:
        draft, canvas_id, current = checked.draft, checked.canvas_id, found.canvas
        if draft.agent_id not in (None, current.agent_id):
            raise AlreadyExists(what="canvas", id=canvas_id)  # of another agent. RS-67
        # Fail before blobs are written; the revision is checked again under the lock.
        check_revision(current, draft.expected_revision)
        title = choose_title(draft.title, checked.spec, current.spec, canvas_id)
        assets = (
            None
            if draft.assets is None
            else await self._assets.store(
                principal.account_id, current.agent_id, canvas_id, draft.assets, found.assets
            )
        )
        paths = {asset.path for asset in assets or ()}
        added = [asset for asset in assets or () if asset not in found.assets]
        events = events_for(principal, canvas_id)
        write = ContentWrite(
            title=title,
            spec=checked.spec,
            refreshes=checked.refreshes,
            hints=await self._hints(principal, checked.parsed),
            session_key=draft.owner_session_key,
            put=assets or (),
            has_all_assets=assets is not None,
            is_accepted=draft.is_accepted,
        )

        def decide(snapshot: CanvasSnapshot) -> Change | None:
            canvas = snapshot.canvas
            check_revision(canvas, draft.expected_revision)
            if not {*added, *snapshot.assets}.issuperset(assets or ()):
                raise NotFound(
                    what="asset", id=canvas_id
                )  # replaced by another write, with its blob: try again
            removed = [asset.path for asset in snapshot.assets if asset.path not in paths]
            full = write if assets is None else replace(write, removed=removed)
            change, marks = change_content(principal, snapshot, full)
            if checked.state is not None:
                marks += changed_members(canvas.state, checked.state)
            if not marks:
                return None
            return replace(
                change,
                events=[events.updated(canvas.revision + 1, marks)],
                offloaded=checked.offloaded,
                state=checked.state,
            )

        return await self._assets.apply(principal, canvas_id, decide, added=added)

    async def _hints(self, principal: Principal, spec: CanvasSpec | None) -> Callable[[Hints], Hints] | None:
        return (
            None if spec is None else partial(remember_hints, spec, await self.drafts.definitions(principal))
        )

    # -- changing --------------------------------------------------------------------------------------------

    async def patch(
        self,
        principal: Principal,
        canvas_id: str,
        *,
        state_patch: list[Any] | None,
        spec: Mapping[str, Any] | None,
        title: str | None,
        expected_revision: int | None,
        owner_session_key: str | None = None,
    ) -> CanvasSnapshot:
        """Apply a state patch, a spec, a title and an owner: all of them, or none. CV-25, CV-44, RS-67"""
        require_session_key(owner_session_key)
        operations = parse_patch(state_patch or [], "statePatch")
        check_patch_names(operations, "statePatch")
        name = parse_canvas_id(canvas_id)
        parsed = None if spec is None else await self.drafts.parse_spec(principal, spec)
        stored_spec, offloaded_of_spec = offload_large_values(spec)
        operations, offloaded_of_state = offload_patch(operations)
        events = events_for(principal, canvas_id)
        write = ContentWrite(
            spec=stored_spec,
            refreshes=None if parsed is None else enabled_refreshes(parsed),
            hints=await self._hints(principal, parsed),
            session_key=owner_session_key,
        )

        def decide(snapshot: CanvasSnapshot) -> Change | None:
            canvas = snapshot.canvas
            check_revision(canvas, expected_revision)
            titled = replace(write, title=choose_title(title, stored_spec, canvas.spec, name))
            change, marks = change_content(principal, snapshot, titled)
            patched = apply_patch(operations, canvas.state, "statePatch") if operations else None
            if patched is not None:
                check_state_size(patched.state, self._limits.state_bytes)
                marks += patched.paths
            if not marks:
                return None
            return replace(
                change,
                events=[events.updated(canvas.revision + 1, marks)],
                offloaded=(*offloaded_of_spec, *offloaded_of_state),
                state=None if patched is None else patched.state,
            )

        # A repeated patch could insert an element into a list twice.
        is_repeatable = not operations or expected_revision is not None
        done = await self._transactions.apply(principal, canvas_id, decide, is_repeatable=is_repeatable)
        return await self.check_tools(principal, done.after)

    async def accept(
        self,
        principal: Principal,
        canvas_id: str,
        revision: int,
        weakened: Mapping[str, str] | None = None,
        created_ms: int | None = None,
    ) -> CanvasSnapshot:
        """Record that a person accepts the spec they have seen at `revision`, with its tools as they are now.

        Raises `InputConflict` if the weakened tools, or the time of creation, are not those that the person
        has seen. RS-59, RS-68, RS-72
        """
        if not may_accept(principal):
            raise Forbidden(problem="Only a person can accept a spec.")
        events = events_for(principal, canvas_id)
        definitions = await self.drafts.definitions(principal)
        found = await self._transactions.find(principal, canvas_id)
        parsed = self._transactions.specs.parse(found.canvas)

        def decide(snapshot: CanvasSnapshot) -> Change | None:
            canvas, spec = snapshot.canvas, parsed.spec
            if not parsed.is_of(canvas) or not canvas.spec_revision <= revision <= canvas.revision:
                raise RevisionConflict(canvas=canvas_id, expected=revision, currentRevision=canvas.revision)
            if problem := why_not_alone(canvas, canvas.spec, principal):
                raise Forbidden(problem=problem)
            if created_ms not in (None, to_ms(canvas.created_at)):
                raise InputConflict(path="The canvas")
            if weakened not in (None, find_weakened(canvas.tool_hints, spec, definitions)):
                raise InputConflict(path="weakenedTools")
            hints = agree_to_hints(spec, definitions, canvas.tool_hints)
            if canvas.is_accepted and hints == canvas.tool_hints and not canvas.unreviewed:
                return None
            return Change(
                events=[events.updated(canvas.revision + 1, [ACCEPTED_MARK])],
                is_accepted=True,
                tool_hints=hints,
            )

        done = await self._transactions.apply(principal, canvas_id, decide)
        return await self.check_tools(principal, done.after)

    def parse_stored(self, canvas: Canvas) -> CanvasSpec:
        """Return the parsed spec of a stored canvas, usually from a cache."""
        return self._transactions.specs.parse(canvas).spec

    async def warnings(
        self,
        principal: Principal,
        spec: Mapping[str, Any] | None,
        canvas: Canvas,
        *,
        session_key: str | None = None,
        names_acceptance: bool = False,
    ) -> list[str]:
        """Return warnings for the author of a write: about the spec and the session that it named. RS-45

        With `names_acceptance`, the first warning says that the canvas is not accepted.
        """
        session = warn_of_session(canvas, session_key)
        if spec is None:
            return session
        is_unaccepted = names_acceptance and not canvas.is_accepted
        warnings = await self.drafts.warnings(principal, spec)
        return [*([NOT_ACCEPTED] if is_unaccepted else []), *session, *warnings]

    async def delete(
        self,
        principal: Principal,
        canvas_id: str,
        expected_revision: int | None = None,
        *,
        agent_id: str | None = None,
    ) -> None:
        """Delete a canvas, with its document. Raises `NotFound`, or `RevisionConflict` at another revision.

        Raises `Forbidden` for a member who did not make it. RS-76

        A canvas of another agent than `agent_id` is not found. RS-67
        """

        def check(snapshot: CanvasSnapshot) -> None:
            if agent_id not in (None, snapshot.canvas.agent_id):
                raise NotFound(what="canvas", id=canvas_id)
            check_may_delete(principal, "canvas", snapshot.canvas.created_by)
            check_revision(snapshot.canvas, expected_revision)

        try:
            blob_keys = await self._canvases.delete(principal.account_id, parse_canvas_id(canvas_id), check)
        except Unavailable as problem:
            raise Unavailable.after_sending("The database", is_repeatable=True) from problem
        if blob_keys is None:
            raise NotFound(what="canvas", id=canvas_id)
        await self._audit.record(principal, "canvas.deleted", subject=canvas_id)
        self._notifier.notify(LogDeleted("canvas", scoped_key(principal.account_id, canvas_id)))
        await self._transactions.delete_blobs(blob_keys)
