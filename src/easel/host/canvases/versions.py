"""The versions of a canvas: list them, read one, and restore one.

Owns the order of the steps of a restore. Does not know how versions are stored; `CanvasStore.change` makes
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from easel.core.action.hints import remember_hints, stricter_hints
from easel.core.action.policy import Definitions
from easel.core.canvas.assets import Asset, require_asset_path
from easel.core.canvas.canvas import CanvasSnapshot, Change, check_revision, parse_canvas_id
from easel.core.canvas.content import ContentWrite, Hints, change_content
from easel.core.canvas.spec import CanvasSpec
from easel.core.canvas.versions import Version, VersionContent
from easel.core.principal import Principal
from easel.errors import BadInput, NotFound, Unavailable
from easel.host.audit.audit import Audit
from easel.host.canvases.assets import CanvasAssets, find_asset
from easel.host.canvases.drafts import DraftChecker, enabled_refreshes
from easel.host.canvases.transactions import CanvasTransactions, events_for
from easel.host.ports import CanvasVersionStore

MAX_ATTEMPTS = 10  # of a restore while other requests change the canvas


class CanvasVersions:
    def __init__(
        self,
        versions: CanvasVersionStore,
        transactions: CanvasTransactions,
        assets: CanvasAssets,
        drafts: DraftChecker,
        audit: Audit,
    ) -> None:
        self._versions = versions
        self._transactions = transactions
        self._assets = assets
        self._drafts = drafts
        self._audit = audit

    async def current(self, principal: Principal, canvas_id: str) -> Version:
        """Return the present version of a canvas. Raises `NotFound`."""
        found = await self._versions.current(principal.account_id, parse_canvas_id(canvas_id))
        if found is None:
            raise NotFound(what="canvas", id=canvas_id)
        return found

    async def list_versions(
        self, principal: Principal, canvas_id: str, *, before: int | None, limit: int, only_accepted: bool
    ) -> list[Version]:
        """Return the earlier versions below the number in `before`, newest first."""
        found = parse_canvas_id(canvas_id)
        return await self._versions.list_versions(
            principal.account_id, found, before=before, limit=limit, only_accepted=only_accepted
        )

    async def get(self, principal: Principal, canvas_id: str, number: int) -> VersionContent:
        """Return a version with its spec and its assets; also the present one. Raises `NotFound`."""
        for _ in range(MAX_ATTEMPTS):
            found = await self._versions.get(principal.account_id, parse_canvas_id(canvas_id), number)
            if found is not None:
                return found
            snapshot = await self._transactions.find(principal, canvas_id)
            current, canvas = await self.current(principal, canvas_id), snapshot.canvas
            if number > current.number or (number < current.number and current.revision == canvas.revision):
                raise NotFound(what="version", id=f"{number} of the canvas {canvas_id}")
            if current.revision == canvas.revision:
                hints = canvas.tool_hints
                return VersionContent(
                    current, canvas.spec, snapshot.assets, hints, canvas.revision, snapshot.written_at
                )
        raise Unavailable(what=f"Canvas {canvas_id}")

    async def read_asset(
        self, principal: Principal, canvas_id: str, number: int, path: str
    ) -> tuple[Asset, bytes]:
        """Return an asset of a version and its content. Raises `NotFound` or `CorruptData`."""
        require_asset_path(path)

        async def find() -> Asset:
            found = await self.get(principal, canvas_id, number)
            return find_asset(found.assets, path, f" in version {number} of the canvas {canvas_id}")

        return await self._assets.read_found(canvas_id, path, find)

    async def restore(
        self, principal: Principal, canvas_id: str, number: int, expected_revision: int | None = None
    ) -> CanvasSnapshot:
        """Make the content of an earlier version the present one; the state stays.

        Spec and assets are checked as if they were sent now; only a person restores the session. Raises
        `NotFound`, `RevisionConflict`, `BadInput` for the present version and for a spec that is no longer
        valid, `TooLarge`, or `CorruptData` for an asset whose blob is missing. CV-45
        """
        for _ in range(MAX_ATTEMPTS):
            snapshot = await self._transactions.find(principal, canvas_id)
            check_revision(snapshot.canvas, expected_revision)
            found = await self.get(principal, canvas_id, number)
            if found.canvas_written_at != snapshot.written_at:
                continue
            if found.version.revision == found.canvas_revision:
                raise BadInput(problem=f"Version {number} is the present one; restore an earlier version.")
            self._assets.check_limits(found.assets, _find_put(snapshot, found))
            parsed = await self._drafts.parse_spec(principal, found.spec)
            await self._assets.check_stored(_find_put(snapshot, found))
            definitions = await self._drafts.definitions(principal)
            restore = _Restore(principal, snapshot, found, parsed, definitions, expected_revision)
            try:
                done = await self._transactions.apply(principal, canvas_id, restore.decide)
            except _CanvasChanged:
                # The version may have been pruned, or its blobs replaced by others of the same content.
                continue
            if done.change is not None:
                details = {"version": number, "revision": done.after.canvas.revision}
                await self._audit.record(principal, "canvas.restored", subject=canvas_id, details=details)
            return done.after
        raise Unavailable(what=f"Canvas {canvas_id}")


class _CanvasChanged(Exception):
    """Raised if the spec or an asset has changed since the version was read; the state may change."""


@dataclass(frozen=True, slots=True)
class _Restore:
    principal: Principal
    seen: CanvasSnapshot  # read before the version
    found: VersionContent
    parsed: CanvasSpec
    definitions: Definitions
    expected_revision: int | None

    def decide(self, snapshot: CanvasSnapshot) -> Change | None:
        """Return the change that restores the version, or None if the canvas has its content."""
        canvas, found = snapshot.canvas, self.found
        check_revision(canvas, self.expected_revision)
        before, now = ((one.written_at, one.canvas.spec_json, one.assets) for one in (self.seen, snapshot))
        if before != now:  # the same content may have another blob
            raise _CanvasChanged
        paths = {asset.path for asset in found.assets}
        write = ContentWrite(
            title=found.version.title,
            spec=found.spec,
            refreshes=enabled_refreshes(self.parsed),
            hints=self._restore_hints,
            session_key=found.version.session_key,
            put=_find_put(snapshot, found),
            removed=[asset.path for asset in snapshot.assets if asset.path not in paths],
            restored=found.version,
        )
        change, marks = change_content(self.principal, snapshot, write)
        if not marks:
            return None
        events = events_for(self.principal, canvas.canvas_id)
        return replace(change, events=[events.updated(canvas.revision + 1, marks)])

    def _restore_hints(self, present: Hints) -> Hints:
        both = stricter_hints(present, self.found.tool_hints)
        return remember_hints(self.parsed, self.definitions, both)


def _find_put(snapshot: CanvasSnapshot, found: VersionContent) -> Sequence[Asset]:
    """Return the assets of a version that the canvas does not have with this content."""
    current = {asset.path: asset for asset in snapshot.assets}
    return [
        asset
        for asset in found.assets
        if asset.path not in current or asset.has_other_content(current[asset.path])
    ]
