"""Versions of canvases in SQLite. The rules are in the statements of `sql/sqlite/canvas_versions.sql`."""

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from easel.core.canvas.canvas import CanvasSnapshot, Change
from easel.core.canvas.versions import Version, VersionContent, find_replaced
from easel.core.stream.json_text import to_json
from easel.core.stream.log import LAST_CURSOR
from easel.ids import AccountId, CanvasId
from easel.stores import named_sql
from easel.stores.rows.canvas_versions import encode_differences, to_content, to_version
from easel.stores.sqlite.times import to_datetime

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase

SQL = named_sql.load("sqlite", "canvas_versions")


class SqliteCanvasVersions:
    def __init__(self, database: "SqliteDatabase") -> None:
        self._database = database

    async def current(self, account_id: AccountId, canvas_id: CanvasId) -> Version | None:
        rows = await self._read("current_version", account_id=account_id, canvas_id=canvas_id)
        return to_version(rows[0], to_datetime) if rows else None

    async def list_versions(
        self,
        account_id: AccountId,
        canvas_id: CanvasId,
        *,
        before: int | None,
        limit: int,
        only_accepted: bool,
    ) -> list[Version]:
        rows = await self._read(
            "list_versions",
            account_id=account_id,
            canvas_id=canvas_id,
            before=LAST_CURSOR if before is None else before,
            limit=limit,
            only_accepted=only_accepted,
        )
        return [to_version(row, to_datetime) for row in rows]

    async def get(self, account_id: AccountId, canvas_id: CanvasId, number: int) -> VersionContent | None:
        rows = await self._read("get_version", account_id=account_id, canvas_id=canvas_id, version=number)
        return to_content(rows[0], to_datetime) if rows else None

    async def _read(self, name: str, **arguments: Any) -> list[Any]:
        return await self._database.read(lambda connection: _rows(connection, name, **arguments))


def keep_version(
    connection: sqlite3.Connection, before: CanvasSnapshot, change: Change, max_versions: int
) -> list[str]:
    """Store what the change replaces, if it makes a version, and prune the oldest versions.

    The newest version by a person and the newest accepted one are not pruned. Returns the keys of the blobs
    of the others. Must run before the change is stored. RS-72
    """
    replaced = find_replaced(before, change)
    if replaced is None:
        return []
    ids = {"account_id": before.canvas.account_id, "canvas_id": before.canvas.canvas_id}
    [row] = _rows(
        connection,
        "keep_version",
        has_spec=replaced.has_spec,
        is_complete=replaced.is_complete,
        next_changed=encode_differences(replaced.differences),
        **ids,
    )
    version = row["version_no"]
    for path, asset in replaced.assets.items():
        blob_key, size = (asset.blob_key, asset.size) if asset else (None, None)
        columns = {"path": path, "blob_key": blob_key, "size": size}
        _rows(connection, "keep_version_asset", version=version, **columns, **ids)
    last_pruned = version - max_versions
    if last_pruned < 1:
        return []
    pruned = _rows(connection, "prune_version_assets", version=last_pruned, **ids)
    _rows(connection, "prune_versions", version=last_pruned, **ids)
    return [row["blob_key"] for row in pruned if row["blob_key"] is not None]


def find_unused_blobs(connection: sqlite3.Connection, blob_keys: Sequence[str]) -> list[str]:
    """Return those of these blobs that neither a canvas nor a version has."""
    if not blob_keys:
        return []
    rows = _rows(connection, "find_unused_blobs", blob_keys=to_json(list(blob_keys)))
    return [row["blob_key"] for row in rows]


def _rows(connection: sqlite3.Connection, name: str, **arguments: Any) -> list[Any]:
    return connection.execute(SQL[name].sql, arguments).fetchall()
