"""The assets of canvases: files that their pages are made of, kept as they came.

Owns the order in which blobs and rows are written and removed. A blob is there before its row is, under a key that is never used
twice, and goes after its row: whatever dies in between leaves at most a blob that no row speaks of, and a later sweep finds it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from easel.core.canvas.assets import Asset, asset_key, asset_created_at, check_path_conflicts, checked_asset_path
from easel.core.canvas.canvas import CanvasSnapshot, Change, check_revision
from easel.core.canvas.events import asset_path_mark
from easel.core.principal import Principal
from easel.errors import BadInput, CorruptData, HostError, NotFound, TooLarge, Unavailable
from easel.host.canvases.transactions import CanvasTransactions, acceptance_after_asset_change, events_for
from easel.host.ports import Blobs, CanvasStore
from easel.ids import CanvasId, UserId, new_blob_name

MAX_CONCURRENT_PUTS = 8
MAX_READ_ATTEMPTS = 3  # an asset may be replaced while it is read, but hardly each time
GRACE_SECONDS = 3600.0
# A blob without a row that is older than this belongs to nobody: no put takes so long.
PUT_SECONDS = GRACE_SECONDS / 4
SWEEP_SECONDS = 3600.0
SWEEP_BATCH_SIZE = 500
ROOT = "users"

log = structlog.get_logger("canvases")


@dataclass(frozen=True, slots=True)
class AssetLimits:
    tool_bytes: int
    of_one_canvas: int


class CanvasAssets:
    def __init__(
        self, canvases: CanvasStore, changes: CanvasTransactions, blobs: Blobs, limits: AssetLimits
    ) -> None:
        self._canvases = canvases
        self._changes = changes
        self._blobs = blobs
        self._limits = limits
        self._puts = asyncio.Semaphore(MAX_CONCURRENT_PUTS)

    # -- writing ---------------------------------------------------------------------------------------------------

    async def put(
        self, principal: Principal, canvas_id: str, path: str, content: bytes, expected_revision: int | None
    ) -> tuple[Asset, int]:
        """The asset and the canvas's revision after it."""
        self.check({path: content})
        canvas = (await self._changes.find(principal, canvas_id)).canvas
        check_revision(canvas, expected_revision)  # before a byte is written; the lock looks again
        [asset] = stored = await self.store(
            principal.user_id, canvas.agent_id, canvas.canvas_id, {path: content}
        )
        events = events_for(principal, canvas_id)

        def decide(snapshot: CanvasSnapshot) -> Change:
            check_revision(snapshot.canvas, expected_revision)
            self.check_fits(snapshot, stored)
            return Change(
                events=[events.updated(snapshot.canvas.revision + 1, [asset_path_mark(path)])],
                put=stored,
                is_accepted=acceptance_after_asset_change(principal),
            )

        try:
            outcome = await self._changes.apply(principal, canvas_id, decide)
        except HostError as problem:
            if isinstance(problem, Unavailable):  # it may be stored all the same; if not, a sweep finds it
                raise
            await self._changes.drop([asset.blob_key])
            raise
        return asset, outcome.snapshot.canvas.revision

    async def delete(
        self, principal: Principal, canvas_id: str, path: str, expected_revision: int | None
    ) -> int:
        checked_asset_path(path)
        events = events_for(principal, canvas_id)

        def decide(snapshot: CanvasSnapshot) -> Change:
            check_revision(snapshot.canvas, expected_revision)
            _find_asset(snapshot, path)
            told = events.updated(snapshot.canvas.revision + 1, [asset_path_mark(path)])
            return Change(events=[told], removed=[path], is_accepted=acceptance_after_asset_change(principal))

        return (await self._changes.apply(principal, canvas_id, decide)).snapshot.canvas.revision

    def check(self, files: Mapping[str, bytes]) -> None:
        for path, content in files.items():
            checked_asset_path(path)
            if len(content) > self._limits.tool_bytes:
                raise TooLarge(what=path, limit=self._limits.tool_bytes, setting="EASEL_MAX_ASSET_BYTES")
        self._check_paths(files)

    def check_fits(self, snapshot: CanvasSnapshot, put: Sequence[Asset]) -> None:
        self._check_paths(dict.fromkeys([*(one.path for one in snapshot.assets), *(one.path for one in put)]))

    def _check_paths(self, paths: Mapping[str, object]) -> None:
        if len(paths) > self._limits.of_one_canvas:
            raise BadInput(problem=f"A canvas has at most {self._limits.of_one_canvas} assets.")
        check_path_conflicts(paths)

    async def store(
        self, user_id: UserId, agent_id: str, canvas_id: CanvasId, files: Mapping[str, bytes]
    ) -> list[Asset]:
        """The blobs of these files, under new keys; whoever asked gives them rows, or drops them."""
        new = [
            Asset(path, asset_key(user_id, agent_id, canvas_id, new_blob_name(), path), len(files[path]))
            for path in sorted(files)
        ]

        async def put(asset: Asset) -> None:
            async with self._puts:
                await self._blobs.put(asset.blob_key, files[asset.path])

        try:
            async with asyncio.timeout(PUT_SECONDS):
                # All of them end before this does: nobody writes on after the caller has given up.
                outcomes = await asyncio.gather(*(put(asset) for asset in new), return_exceptions=True)
        except TimeoutError:
            raise Unavailable(what="The blob store") from None
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                await self._changes.drop(asset.blob_key for asset in new)
                raise outcome
        return new

    # -- reading ---------------------------------------------------------------------------------------------------

    async def read(self, principal: Principal, canvas_id: str, path: str) -> tuple[Asset, bytes, int]:
        """The asset, its bytes, and the revision of the canvas that it was an asset of."""
        checked_asset_path(path)
        for _ in range(MAX_READ_ATTEMPTS):
            snapshot = await self._changes.find(principal, canvas_id)
            asset = _find_asset(snapshot, path)
            try:
                content = await self._blobs.get(asset.blob_key)
            except NotFound:
                continue  # replaced meanwhile, most likely
            if len(content) == asset.size:
                return asset, content, snapshot.canvas.revision
        log.error("asset.damaged", canvas_id=canvas_id, path=path)
        raise CorruptData(what="asset", id=path)

    # -- sweeping --------------------------------------------------------------------------------------------------

    async def sweep_forever(self) -> None:
        """A duty of every worker; several may sweep at once."""
        while True:
            try:
                await self.sweep()
            except Unavailable as problem:
                log.warning("assets.not_swept", reason=problem.message)
            await asyncio.sleep(SWEEP_SECONDS)

    async def sweep(self, grace_seconds: float = GRACE_SECONDS) -> int:
        """Remove blobs that no row speaks of; how many."""
        swept, seen = 0, dict[str, datetime]()
        async for key in self._blobs.list(ROOT):
            if (made := asset_created_at(key)) is not None:
                seen[key] = made
            if len(seen) == SWEEP_BATCH_SIZE:
                swept += await self._remove_strays(seen, grace_seconds)
                seen = {}
        swept += await self._remove_strays(seen, grace_seconds)
        if swept:
            log.info("assets.swept", blobs=swept)
        return swept

    async def _remove_strays(self, keys: Mapping[str, datetime], grace_seconds: float) -> int:
        strays = await self._canvases.find_unknown_assets(keys, grace_seconds) if keys else []
        for key in strays:
            await self._blobs.delete(key)
        return len(strays)


def _find_asset(snapshot: CanvasSnapshot, path: str) -> Asset:
    for asset in snapshot.assets:
        if asset.path == path:
            return asset
    raise NotFound(what="asset", id=path)
