"""Versions of canvases in both stores: conversion of rows to core values."""

import msgspec

from easel.core.canvas.assets import Asset
from easel.core.canvas.versions import Differences, Part, Version, VersionContent
from easel.core.stream.json_text import to_json
from easel.stores.rows.runs import Row


def encode_differences(differences: Differences) -> str:
    return to_json([differences.parts, differences.more, differences.restored])


def to_version(row: Row) -> Version:
    return Version(
        number=row["version_no"],
        revision=row["revision"],
        title=row["title"],
        titled_by=row["titled_by"],
        session_key=row["session_key"],
        is_accepted=bool(row["is_accepted"]),
        written_by=row["written_by"],
        written_at=row["written_at"],
        differences=None if row["changed"] is None else _decode_differences(row["changed"]),
    )


def to_content(row: Row) -> VersionContent:
    assets = [Asset(*values) for values in msgspec.json.decode(row["assets"])]
    hints = msgspec.json.decode(row["tool_hints"] or "{}")
    spec = msgspec.json.decode(row["spec"])
    revision, written_at = row["canvas_revision"], row["canvas_written_at"]
    return VersionContent(to_version(row), spec, assets, hints, revision, written_at)


def _decode_differences(text: str) -> Differences:
    parts, more, restored = msgspec.json.decode(text)
    return Differences([Part(*part) for part in parts], more, restored)
