"""Rows of artifacts in SQLite. The rules are in the statements of `sql/sqlite/artifacts.sql`."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from easel.core.artifact.artifact import Artifact, ArtifactKey, NewArtifact, OrphanPage
from easel.ids import ArtifactId, CanvasId, RunId, UserId
from easel.stores import named_sql
from easel.stores.rows.artifacts import to_orphan_page
from easel.stores.sqlite.times import from_datetime, microseconds

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase

SQL = named_sql.load("sqlite", "artifacts")


class SqliteArtifacts:
    def __init__(self, database: "SqliteDatabase") -> None:
        self._database = database

    async def claim(self, user_id: UserId, new: Sequence[NewArtifact]) -> list[Artifact]:
        def work(connection: sqlite3.Connection) -> list[Artifact]:
            common = {"user_id": user_id, "now": self._database.clock()}
            claimed = (_rows(connection, "claim_artifact", **common, **asdict(artifact)) for artifact in new)
            return [_to_artifact(row) for rows in claimed for row in rows]

        return await self._database.write(work)

    async def withdraw(self, user_id: UserId, upload_id: ArtifactId) -> None:
        await self._database.write(
            lambda connection: _rows(connection, "withdraw_artifact", user_id=user_id, artifact_id=upload_id)
        )

    async def complete_upload(
        self, user_id: UserId, upload_id: ArtifactId, new: NewArtifact, missing_key: str | None
    ) -> Artifact | None:
        def work(connection: sqlite3.Connection) -> Artifact | None:
            if not _rows(connection, "withdraw_artifact", user_id=user_id, artifact_id=upload_id):
                return None
            arguments = {"user_id": user_id, "missing_key": missing_key, "now": self._database.clock()}
            return _to_artifact(_rows(connection, "complete_upload", **arguments, **asdict(new))[0])

        return await self._database.write(work)

    async def mark_stored(self, user_id: UserId, artifacts: Sequence[Artifact]) -> set[ArtifactId]:
        def work(connection: sqlite3.Connection) -> set[ArtifactId]:
            now = self._database.clock()
            keys = [
                {"user_id": user_id, "artifact_id": artifact.artifact_id, "blob_key": artifact.blob_key}
                for artifact in artifacts
            ]
            marked = (_rows(connection, "mark_stored", now=now, **key) for key in keys)
            return {ArtifactId(row["artifact_id"]) for rows in marked for row in rows}

        return await self._database.write(work)

    async def get(self, user_id: UserId, artifact_id: ArtifactId) -> Artifact | None:
        found = await self._database.read(
            lambda connection: _rows(connection, "get_artifact", user_id=user_id, artifact_id=artifact_id)
        )
        return _to_artifact(found[0]) if found else None

    async def add_references(
        self,
        user_id: UserId,
        artifact_ids: Sequence[ArtifactId],
        *,
        run_id: RunId | None = None,
        canvas_id: CanvasId | None = None,
    ) -> None:
        arguments = {
            "user_id": user_id,
            "artifact_ids": _json(artifact_ids),
            "run_id": run_id,
            "canvas_id": canvas_id,
        }
        await self._database.write(lambda connection: _rows(connection, "add_references", **arguments))

    async def find_orphans(self, after: ArtifactKey, older_than_seconds: float, limit: int) -> OrphanPage:
        arguments = {
            "after_user": after[0],
            "after_artifact": after[1],
            "before": self._database.clock() - microseconds(older_than_seconds),
            "limit": limit,
        }
        rows = await self._database.read(lambda connection: _rows(connection, "find_orphans", **arguments))
        return to_orphan_page(rows, limit)

    async def delete_orphans(self, keys: Sequence[ArtifactKey], older_than_seconds: float) -> list[str]:
        before = self._database.clock() - microseconds(older_than_seconds)

        def work(connection: sqlite3.Connection) -> list[str]:
            swept = (
                _rows(connection, "sweep_artifact", before=before, user_id=user_id, artifact_id=artifact_id)
                for user_id, artifact_id in keys
            )
            return [row["blob_key"] for rows in swept for row in rows]

        return await self._database.write(work)

    async def find_unknown_blobs(self, keys: Mapping[str, datetime], older_than_seconds: float) -> list[str]:
        arguments = {
            "keys": _json([(key, from_datetime(created_at)) for key, created_at in keys.items()]),
            "before": self._database.clock() - microseconds(older_than_seconds),
        }
        rows = await self._database.read(
            lambda connection: _rows(connection, "find_unknown_blobs", **arguments)
        )
        return [row["blob_key"] for row in rows]


def _rows(connection: sqlite3.Connection, name: str, **arguments: Any) -> list[Any]:
    return connection.execute(SQL[name].sql, arguments).fetchall()


def _to_artifact(row: Any) -> Artifact:
    columns: dict[str, Any] = dict(row)
    columns["is_stored"] = bool(columns["is_stored"])
    return Artifact(**columns)


def _json(values: Sequence[Any]) -> str:
    return msgspec.json.encode(values).decode()
