"""References in both stores: conversion of rows to core values."""

from collections.abc import Iterable, Sequence

from easel.core.stream.references import PrunedRuns, RunContent
from easel.ids import ArtifactId, RunId, UserId
from easel.stores.rows.runs import Row


def to_pruned_runs(rows: Sequence[Row], limit: int) -> PrunedRuns:
    is_last = sum(row["refs"] for row in rows) < limit
    return PrunedRuns(
        [RunId(row["run_id"]) for row in rows if row["is_unchecked"]],
        None if is_last else RunId(rows[-1]["run_id"]),
    )


def to_run_content(run: Row, artifact_ids: Iterable[str], texts: Iterable[Row]) -> RunContent:
    return RunContent(
        UserId(run["user_id"]),
        frozenset(map(ArtifactId, artifact_ids)),
        [row["text"] for row in texts],
    )


def to_positions(rows: Iterable[Row]) -> dict[ArtifactId, int | None]:
    return {ArtifactId(row["artifact_id"]): row["mentioned_seq"] for row in rows}
