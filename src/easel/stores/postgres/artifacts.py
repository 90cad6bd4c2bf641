"""Rows of artifacts in Postgres. The rules are in the statements of `sql/postgres/artifacts.sql`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from easel.core.artifact.artifact import Artifact, ArtifactKey, NewArtifact, OrphanPage
from easel.ids import ArtifactId, CanvasId, RunId, UserId
from easel.stores import named_sql
from easel.stores.rows.artifacts import to_orphan_page

if TYPE_CHECKING:
    from easel.stores.postgres.database import PostgresDatabase

SQL = named_sql.load("postgres", "artifacts")


class PostgresArtifacts:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    async def claim(self, user_id: UserId, new: Sequence[NewArtifact]) -> list[Artifact]:
        rows = await self._database.rows(
            SQL["claim_artifacts"],
            user_id=user_id,
            artifact_ids=[artifact.artifact_id for artifact in new],
            sizes=[artifact.size for artifact in new],
            media_types=[artifact.media_type for artifact in new],
            blob_keys=[artifact.blob_key for artifact in new],
        )
        return [Artifact(**row) for row in rows]

    async def withdraw(self, user_id: UserId, upload_id: ArtifactId) -> None:
        await self._database.row(SQL["withdraw_artifact"], user_id=user_id, artifact_id=upload_id)

    async def complete_upload(
        self, user_id: UserId, upload_id: ArtifactId, new: NewArtifact, missing_key: str | None
    ) -> Artifact | None:
        withdraw, settle = SQL["withdraw_artifact"], SQL["complete_upload"]
        arguments = {"user_id": user_id, "missing_key": missing_key, **asdict(new)}
        async with self._database.connection() as connection, connection.transaction():
            if (
                await connection.fetchrow(
                    withdraw.sql, *withdraw.arguments({"user_id": user_id, "artifact_id": upload_id})
                )
                is None
            ):
                return None
            row = await connection.fetchrow(settle.sql, *settle.arguments(arguments))
        return Artifact(**row) if row else None

    async def mark_stored(self, user_id: UserId, artifacts: Sequence[Artifact]) -> set[ArtifactId]:
        marked = await self._database.rows(
            SQL["mark_stored"],
            user_id=user_id,
            artifact_ids=[artifact.artifact_id for artifact in artifacts],
            blob_keys=[artifact.blob_key for artifact in artifacts],
        )
        return {ArtifactId(row["artifact_id"]) for row in marked}

    async def get(self, user_id: UserId, artifact_id: ArtifactId) -> Artifact | None:
        row = await self._database.row(SQL["get_artifact"], user_id=user_id, artifact_id=artifact_id)
        return Artifact(**row) if row else None

    async def add_references(
        self,
        user_id: UserId,
        artifact_ids: Sequence[ArtifactId],
        *,
        run_id: RunId | None = None,
        canvas_id: CanvasId | None = None,
    ) -> None:
        await self._database.rows(
            SQL["add_references"],
            user_id=user_id,
            artifact_ids=list(artifact_ids),
            run_id=run_id,
            canvas_id=canvas_id,
        )

    async def find_orphans(self, after: ArtifactKey, older_than_seconds: float, limit: int) -> OrphanPage:
        rows = await self._database.rows(
            SQL["find_orphans"],
            after_user=after[0],
            after_artifact=after[1],
            seconds=older_than_seconds,
            limit=limit,
        )
        return to_orphan_page(rows, limit)

    async def delete_orphans(self, keys: Sequence[ArtifactKey], older_than_seconds: float) -> list[str]:
        lock, sweep = SQL["lock_artifacts"], SQL["sweep_artifacts"]
        # Two statements: the second sees all references that were committed before the first had its locks.
        async with self._database.connection() as connection, connection.transaction():
            locked = await connection.fetch(lock.sql, *lock.arguments(_columns(keys)))
            arguments = {**_columns(list(map(tuple, locked))), "seconds": older_than_seconds}
            swept = await connection.fetch(sweep.sql, *sweep.arguments(arguments))
        return [row["blob_key"] for row in swept]

    async def find_unknown_blobs(self, keys: Mapping[str, datetime], older_than_seconds: float) -> list[str]:
        rows = await self._database.rows(
            SQL["find_unknown_blobs"],
            blob_keys=list(keys),
            made_at=list(keys.values()),
            seconds=older_than_seconds,
        )
        return [row["blob_key"] for row in rows]


def _columns(keys: Sequence[ArtifactKey]) -> dict[str, list[str]]:
    return {
        "user_ids": [user_id for user_id, _ in keys],
        "artifact_ids": [artifact_id for _, artifact_id in keys],
    }
