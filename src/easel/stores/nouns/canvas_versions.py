"""Versions of canvases. The rules are in the statements of `canvas_versions.sql`.

`canvases` keeps and prunes versions, in the transaction that changes their canvas.
"""

from collections.abc import Sequence
from typing import Any

from easel.core.canvas.canvas import Canvas
from easel.core.canvas.versions import Replaced, Version, VersionContent
from easel.core.stream.json_text import to_json
from easel.core.stream.log import LAST_CURSOR
from easel.ids import AccountId, CanvasId
from easel.stores.nouns.statements import Statements, Steps
from easel.stores.rows.canvas_versions import encode_differences, to_content, to_version


class SqlCanvasVersions:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def current(self, account_id: AccountId, canvas_id: CanvasId) -> Version | None:
        row = await self._sql.row("current_version", account_id=account_id, canvas_id=canvas_id)
        return to_version(row) if row else None

    async def list_versions(
        self,
        account_id: AccountId,
        canvas_id: CanvasId,
        *,
        before: int | None,
        limit: int,
        only_accepted: bool,
    ) -> list[Version]:
        rows = await self._sql.rows(
            "list_canvas_versions",
            account_id=account_id,
            canvas_id=canvas_id,
            before=LAST_CURSOR if before is None else before,
            limit=limit,
            only_accepted=only_accepted,
        )
        return [to_version(row) for row in rows]

    async def get(self, account_id: AccountId, canvas_id: CanvasId, number: int) -> VersionContent | None:
        ids = {"account_id": account_id, "canvas_id": canvas_id}
        row = await self._sql.row("get_version", version=number, **ids)
        return to_content(row) if row else None


def keep_version(canvas: Canvas, replaced: Replaced, max_versions: int) -> Steps[list[str]]:
    """Store what a change replaces as a version, and prune the oldest versions.

    The newest version by a person and the newest accepted one are not pruned. Returns the keys of the blobs
    of the others. Must run before the change is stored. RS-72
    """
    ids: dict[str, Any] = {"account_id": canvas.account_id, "canvas_id": canvas.canvas_id}
    columns = {
        "has_spec": replaced.has_spec,
        "is_complete": replaced.is_complete,
        "next_changed": encode_differences(replaced.differences),
    }
    [row] = yield "keep_version", {**ids, **columns}
    version = row["version_no"]
    if replaced.assets:
        assets = [
            [path, *((asset.blob_key, asset.size) if asset else (None, None))]
            for path, asset in replaced.assets.items()
        ]
        yield "keep_version_assets", {**ids, "version": version, "assets": to_json(assets)}
    if version <= max_versions:
        return []
    up_to = {**ids, "version": version - max_versions}
    pruned = yield "prune_version_assets", up_to
    yield "prune_versions", up_to
    return [row["blob_key"] for row in pruned if row["blob_key"] is not None]


def find_unused_blobs(blob_keys: Sequence[str]) -> Steps[list[str]]:
    """Return those of these blobs that neither a canvas nor a version has."""
    rows = (yield "find_unused_blobs", {"blob_keys": list(blob_keys)}) if blob_keys else []
    return [row["blob_key"] for row in rows]
