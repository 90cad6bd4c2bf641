"""Rows of artifacts. The rules are in the statements of `artifacts.sql`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from easel.core.artifact.artifact import Artifact, ArtifactKey, NewArtifact, OrphanPage
from easel.core.stream.json_text import to_json
from easel.ids import AccountId, ArtifactId, CanvasId, RunId
from easel.stores.nouns.statements import Row, Statements, Steps


class SqlArtifacts:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def claim(self, account_id: AccountId, new: Sequence[NewArtifact]) -> list[Artifact]:
        rows = await self._sql.rows(
            "claim_artifacts",
            account_id=account_id,
            artifact_ids=[artifact.artifact_id for artifact in new],
            sizes=[artifact.size for artifact in new],
            media_types=[artifact.media_type for artifact in new],
            blob_keys=[artifact.blob_key for artifact in new],
        )
        return [_to_artifact(row) for row in rows]

    async def withdraw(self, account_id: AccountId, upload_id: ArtifactId) -> None:
        await self._sql.rows("withdraw_artifact", account_id=account_id, artifact_id=upload_id)

    async def complete_upload(
        self, account_id: AccountId, upload_id: ArtifactId, new: NewArtifact, missing_key: str | None
    ) -> Artifact | None:
        columns = {"account_id": account_id, "missing_key": missing_key, **asdict(new)}
        return await self._sql.transaction(_complete_upload(columns, upload_id))

    async def mark_stored(self, account_id: AccountId, artifacts: Sequence[Artifact]) -> set[ArtifactId]:
        marked = await self._sql.rows(
            "mark_stored",
            account_id=account_id,
            artifact_ids=[artifact.artifact_id for artifact in artifacts],
            blob_keys=[artifact.blob_key for artifact in artifacts],
        )
        return {ArtifactId(row["artifact_id"]) for row in marked}

    async def get(self, account_id: AccountId, artifact_id: ArtifactId) -> Artifact | None:
        row = await self._sql.row("get_artifact", account_id=account_id, artifact_id=artifact_id)
        return _to_artifact(row) if row else None

    async def add_references(
        self,
        account_id: AccountId,
        artifact_ids: Sequence[ArtifactId],
        *,
        run_id: RunId | None = None,
        canvas_id: CanvasId | None = None,
    ) -> None:
        holder = {"run_id": run_id, "canvas_id": canvas_id}
        await self._sql.rows(
            "add_references", account_id=account_id, artifact_ids=list(artifact_ids), **holder
        )

    async def find_orphans(self, after: ArtifactKey, older_than_seconds: float, limit: int) -> OrphanPage:
        page = {"after_account": after[0], "after_artifact": after[1], "limit": limit}
        rows = await self._sql.rows("find_orphans", **page, seconds=older_than_seconds)
        keys: list[ArtifactKey] = [
            (AccountId(row["account_id"]), ArtifactId(row["artifact_id"])) for row in rows
        ]
        orphans = [key for key, row in zip(keys, rows, strict=True) if row["is_orphan"]]
        return OrphanPage(orphans, keys[-1] if len(keys) == limit else None)

    async def delete_orphans(self, keys: Sequence[ArtifactKey], older_than_seconds: float) -> list[str]:
        return await self._sql.transaction(_delete_orphans(keys, older_than_seconds))

    async def find_unknown_blobs(self, keys: Mapping[str, datetime], older_than_seconds: float) -> list[str]:
        made_at = to_json([[key, created_at.timestamp()] for key, created_at in keys.items()])
        rows = await self._sql.rows("find_unknown_blobs", keys=made_at, seconds=older_than_seconds)
        return [row["blob_key"] for row in rows]


def _complete_upload(columns: dict[str, Any], upload_id: ArtifactId) -> Steps[Artifact | None]:
    if not (yield "withdraw_artifact", {**columns, "artifact_id": upload_id}):
        return None
    [row] = yield "complete_upload", columns
    return _to_artifact(row)


def _delete_orphans(keys: Sequence[ArtifactKey], seconds: float) -> Steps[list[str]]:
    # Two statements: the second sees all references that were committed before the first had its locks.
    locked = yield "lock_artifacts", {"keys": to_json(keys)}
    keys = [(row["account_id"], row["artifact_id"]) for row in locked]
    swept = yield "sweep_artifacts", {"keys": to_json(keys), "seconds": seconds}
    return [row["blob_key"] for row in swept]


def _to_artifact(row: Row) -> Artifact:
    columns: dict[str, Any] = {**row, "is_stored": bool(row["is_stored"])}
    return Artifact(**columns)
