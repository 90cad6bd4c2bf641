"""The assets of canvases: the files of their pages, stored unchanged.

Owns the order in which blobs and rows are written and deleted. A blob is written before its row, under a key
that is never reused, and deleted after its row: a crash leaves at most a blob without a row, which a later
sweep deletes. Does not know where blobs are stored.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from easel.core.canvas.assets import (
    Asset,
    asset_created_at,
    asset_key,
    check_path_conflicts,
    require_asset_path,
    version_name,
)
from easel.core.canvas.canvas import CanvasSnapshot, Change, check_revision
from easel.core.canvas.content import ContentWrite, change_content
from easel.core.principal import Principal
from easel.errors import BadInput, CorruptData, HostError, NotFound, TooLarge, Unavailable
from easel.host.canvases.transactions import CanvasTransactions, events_for
from easel.host.ports import BlobStore, CanvasStore
from easel.ids import AccountId, CanvasId, new_blob_name

MAX_CONCURRENT_PUTS = 8
MAX_READ_ATTEMPTS = 3  # of an asset that is replaced while it is read
GRACE_SECONDS = 3600.0  # a blob without a row is swept after this time; every put ends sooner
PUT_SECONDS = GRACE_SECONDS / 4
SWEEP_BATCH_SIZE = 500
ROOT = "accounts"

log = structlog.get_logger("canvases")


@dataclass(frozen=True, slots=True)
class AssetLimits:
    """The maximum size of an asset, and the maximum number of assets of a canvas."""

    max_bytes: int
    max_count: int = 500  # a canvas lists all of them


class CanvasAssets:
    """Stores, reads and sweeps assets. Limits the number of concurrent puts."""

    def __init__(
        self, canvases: CanvasStore, transactions: CanvasTransactions, blobs: BlobStore, limits: AssetLimits
    ) -> None:
        self._canvases = canvases
        self._transactions = transactions
        self._blobs = blobs
        self._limits = limits
        self._puts = asyncio.Semaphore(MAX_CONCURRENT_PUTS)

    # -- writing ---------------------------------------------------------------------------------------------

    async def put(
        self, principal: Principal, canvas_id: str, path: str, content: bytes, expected_revision: int | None
    ) -> tuple[Asset, int]:
        """Store an asset. Returns the asset and the new revision of the canvas."""
        self.check({path: content})
        canvas = (await self._transactions.find(principal, canvas_id)).canvas
        check_revision(canvas, expected_revision)  # before the blob is written; checked again under the lock
        [asset] = stored = await self.store(
            principal.account_id, canvas.agent_id, canvas.canvas_id, {path: content}
        )
        events = events_for(principal, canvas_id)

        def decide(snapshot: CanvasSnapshot) -> Change | None:
            check_revision(snapshot.canvas, expected_revision)
            self._check_paths(dict.fromkeys(asset.path for asset in (*snapshot.assets, *stored)))
            change, marks = change_content(principal, snapshot, ContentWrite(put=stored))
            updated = [events.updated(snapshot.canvas.revision + 1, marks)]
            return replace(change, events=updated) if marks else None

        snapshot = await self.apply(principal, canvas_id, decide, added=stored)
        return asset, snapshot.canvas.revision

    async def delete(
        self, principal: Principal, canvas_id: str, path: str, expected_revision: int | None
    ) -> int:
        """Delete an asset. Returns the new revision of the canvas."""
        require_asset_path(path)
        events = events_for(principal, canvas_id)

        def decide(snapshot: CanvasSnapshot) -> Change:
            check_revision(snapshot.canvas, expected_revision)
            find_asset(snapshot.assets, path)
            change, marks = change_content(principal, snapshot, ContentWrite(removed=[path]))
            return replace(change, events=[events.updated(snapshot.canvas.revision + 1, marks)])

        return (await self._transactions.apply(principal, canvas_id, decide)).after.canvas.revision

    async def apply(
        self,
        principal: Principal,
        canvas_id: str,
        decide: Callable[[CanvasSnapshot], Change | None],
        *,
        added: Sequence[Asset],
    ) -> CanvasSnapshot:
        """Commit a change and delete those blobs of the added assets that the canvas does not have then.

        It may have had their content already. After `Unavailable` the change may be stored; if it is not, a
        sweep deletes the blobs.
        """
        unused = {asset.blob_key for asset in added}
        try:
            snapshot = (await self._transactions.apply(principal, canvas_id, decide)).after
        except Unavailable:
            raise
        except HostError:
            await self._transactions.delete_blobs(unused)
            raise
        await self._transactions.delete_blobs(unused - {asset.blob_key for asset in snapshot.assets})
        return snapshot

    async def check_stored(self, assets: Sequence[Asset]) -> None:
        """Raise `CorruptData` if the blob of an asset is missing or has another size."""

        async def check(asset: Asset) -> None:
            async with self._puts:
                if await self._blobs.size(asset.blob_key) != asset.size:
                    log.error("asset.corrupt", blob_key=asset.blob_key)
                    raise CorruptData(what="asset", id=asset.path)

        await asyncio.gather(*map(check, assets))

    def check(self, files: Mapping[str, bytes]) -> None:
        """Raise `BadInput` or `TooLarge` for invalid paths, sizes or counts."""
        for path, content in files.items():
            require_asset_path(path)
            self._check_size(path, len(content))
        self._check_paths(files)

    def check_limits(self, assets: Sequence[Asset], added: Sequence[Asset]) -> None:
        """Raise `BadInput` or `TooLarge` if there are too many assets, or one of the added is too large."""
        for asset in added:
            self._check_size(asset.path, asset.size)
        if added:
            self._check_paths(dict.fromkeys(asset.path for asset in assets))

    def _check_size(self, path: str, size: int) -> None:
        if size > self._limits.max_bytes:
            raise TooLarge(what=path, limit=self._limits.max_bytes, setting="EASEL_MAX_ASSET_BYTES")

    def _check_paths(self, paths: Mapping[str, object]) -> None:
        if len(paths) > self._limits.max_count:
            raise BadInput(problem=f"A canvas must have at most {self._limits.max_count} assets.")
        check_path_conflicts(paths)

    async def store(
        self,
        account_id: AccountId,
        agent_id: str,
        canvas_id: CanvasId,
        files: Mapping[str, bytes],
        present: Sequence[Asset] = (),
    ) -> list[Asset]:
        """Write the blobs of these files under new keys, except those that are present with this content.

        The caller stores their rows or deletes the new blobs.
        """
        known = {asset.path: asset for asset in present}
        new = [
            Asset(
                path,
                asset_key(account_id, agent_id, canvas_id, version_name(new_blob_name(), files[path]), path),
                len(files[path]),
            )
            for path in sorted(files)
        ]

        async def put(asset: Asset) -> Asset:
            old = known.get(asset.path)
            async with self._puts:
                if old and old.digest == asset.digest and await self._blobs.size(old.blob_key) == old.size:
                    return old
                await self._blobs.put(asset.blob_key, files[asset.path])
                return asset

        try:
            async with asyncio.timeout(PUT_SECONDS):
                # Wait for every put, so that none continues after an error was raised.
                outcomes = await asyncio.gather(*(put(asset) for asset in new), return_exceptions=True)
        except TimeoutError:
            raise Unavailable(what="The blob store") from None
        stored: list[Asset] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                await self._transactions.delete_blobs(asset.blob_key for asset in new)
                raise outcome
            stored.append(outcome)
        return stored

    # -- reading ---------------------------------------------------------------------------------------------

    async def read(self, principal: Principal, canvas_id: str, path: str) -> tuple[Asset, bytes, int]:
        """Return an asset, its content and the revision of the canvas.

        Raises `CorruptData` for a missing blob.
        """
        require_asset_path(path)
        revision = 0

        async def find() -> Asset:
            nonlocal revision
            snapshot = await self._transactions.find(principal, canvas_id)
            revision = snapshot.canvas.revision
            return find_asset(snapshot.assets, path)

        asset, content = await self.read_found(canvas_id, path, find)
        return asset, content, revision

    async def read_found(
        self, canvas_id: str, path: str, find: Callable[[], Awaitable[Asset]]
    ) -> tuple[Asset, bytes]:
        """Return the asset that `find` returns, and its content. Raises `CorruptData` for a missing blob."""
        for _ in range(MAX_READ_ATTEMPTS):
            asset = await find()
            try:
                content = await self._blobs.get(asset.blob_key)
            except NotFound:
                continue  # probably replaced by another request
            if len(content) == asset.size:
                return asset, content
        log.error("asset.corrupt", canvas_id=canvas_id, path=path)
        raise CorruptData(what="asset", id=path)

    # -- sweeping --------------------------------------------------------------------------------------------

    async def sweep(self, grace_seconds: float = GRACE_SECONDS) -> int:
        """Delete blobs without a row that are older than the grace period. Returns how many were deleted."""
        swept, batch = 0, dict[str, datetime]()
        async for key in self._blobs.list(ROOT):
            if (created := asset_created_at(key)) is not None:
                batch[key] = created
            if len(batch) == SWEEP_BATCH_SIZE:
                swept += await self._delete_unknown(batch, grace_seconds)
                batch = {}
        swept += await self._delete_unknown(batch, grace_seconds)
        if swept:
            log.info("assets.swept", blobs=swept)
        return swept

    async def _delete_unknown(self, keys: Mapping[str, datetime], grace_seconds: float) -> int:
        unknown = await self._canvases.find_unknown_assets(keys, grace_seconds) if keys else []
        for key in unknown:
            await self._blobs.delete(key)
        return len(unknown)


def find_asset(assets: Sequence[Asset], path: str, of: str = "") -> Asset:
    """Return the asset with this path. Raises `NotFound`; `of` says where it was looked for."""
    for asset in assets:
        if asset.path == path:
            return asset
    raise NotFound(what="asset", id=f"{path}{of}")
