"""Artifacts in both stores: conversion of rows to core values."""

from collections.abc import Sequence

from easel.core.artifact.artifact import ArtifactKey, OrphanPage
from easel.ids import ArtifactId, UserId
from easel.stores.rows.runs import Row


def to_orphan_page(rows: Sequence[Row], limit: int) -> OrphanPage:
    keys: list[ArtifactKey] = [(UserId(row["user_id"]), ArtifactId(row["artifact_id"])) for row in rows]
    orphans = [key for key, row in zip(keys, rows, strict=True) if row["is_orphan"]]
    return OrphanPage(orphans, keys[-1] if len(keys) == limit else None)
