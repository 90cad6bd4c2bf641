"""Versions of canvases in Postgres. The rules are in the statements of `sql/postgres/canvas_versions.sql`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from easel.core.canvas.canvas import CanvasSnapshot, Change
from easel.core.canvas.versions import Version, VersionContent, find_replaced
from easel.core.stream.log import LAST_CURSOR
from easel.ids import AccountId, CanvasId
from easel.stores import named_sql
from easel.stores.rows.canvas_versions import encode_differences, to_content, to_version

if TYPE_CHECKING:
    from easel.stores.postgres.database import Connection, PostgresDatabase

SQL = named_sql.load("postgres", "canvas_versions")


class PostgresCanvasVersions:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    async def current(self, account_id: AccountId, canvas_id: CanvasId) -> Version | None:
        row = await self._database.row(SQL["current_version"], account_id=account_id, canvas_id=canvas_id)
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
        rows = await self._database.rows(
            SQL["list_versions"],
            account_id=account_id,
            canvas_id=canvas_id,
            before=LAST_CURSOR if before is None else before,
            limit=limit,
            only_accepted=only_accepted,
        )
        return [to_version(row) for row in rows]

    async def get(self, account_id: AccountId, canvas_id: CanvasId, number: int) -> VersionContent | None:
        row = await self._database.row(
            SQL["get_version"], account_id=account_id, canvas_id=canvas_id, version=number
        )
        return to_content(row) if row else None


async def keep_version(
    connection: "Connection", before: CanvasSnapshot, change: Change, max_versions: int
) -> list[str]:
    """Store what the change replaces, if it makes a version, and prune the oldest versions.

    The newest version by a person and the newest accepted one are not pruned. Returns the keys of the blobs
    of the others. Must run before the change is stored. RS-72
    """
    replaced = find_replaced(before, change)
    if replaced is None:
        return []
    ids = {"account_id": before.canvas.account_id, "canvas_id": before.canvas.canvas_id}
    assets = replaced.assets.values()
    columns = {
        "paths": list(replaced.assets),
        "blob_keys": [None if asset is None else asset.blob_key for asset in assets],
        "sizes": [None if asset is None else asset.size for asset in assets],
        "has_spec": replaced.has_spec,
        "is_complete": replaced.is_complete,
        "next_changed": encode_differences(replaced.differences),
    }
    [row] = await _fetch(connection, "keep_version", {**ids, **columns})
    last_pruned = row["version_no"] - max_versions
    if last_pruned < 1:
        return []
    pruned = await _fetch(connection, "prune_versions", {**ids, "version": last_pruned})
    return [row["blob_key"] for row in pruned]


async def find_unused_blobs(connection: "Connection", blob_keys: Sequence[str]) -> list[str]:
    """Return those of these blobs that neither a canvas nor a version has."""
    if not blob_keys:
        return []
    rows = await _fetch(connection, "find_unused_blobs", {"blob_keys": list(blob_keys)})
    return [row["blob_key"] for row in rows]


async def _fetch(connection: "Connection", name: str, arguments: dict[str, Any]) -> list[Any]:
    return await connection.fetch(SQL[name].sql, *SQL[name].arguments(arguments))
