"""Versions of canvases in both stores: conversion of rows to core values."""

from datetime import datetime
from typing import Any

import msgspec

from easel.core.canvas.assets import Asset
from easel.core.canvas.versions import Differences, Part, Version, VersionContent
from easel.core.stream.json_text import to_json
from easel.stores.rows.runs import Row, Time


def encode_differences(differences: Differences) -> str:
    return to_json([differences.parts, differences.more, differences.restored])


def to_version(row: Row, time: Time = None) -> Version:
    return Version(
        number=row["version_no"],
        revision=row["revision"],
        title=row["title"],
        titled_by=row["titled_by"],
        session_key=row["session_key"],
        is_accepted=bool(row["is_accepted"]),
        written_by=row["written_by"],
        written_at=_to_time(row["written_at"], time),
        differences=None if row["changed"] is None else _decode_differences(row["changed"]),
    )


def to_content(row: Row, time: Time = None) -> VersionContent:
    assets = [Asset(*values) for values in msgspec.json.decode(row["assets"])]
    hints = msgspec.json.decode(row["tool_hints"] or "{}")
    spec = msgspec.json.decode(row["spec"])
    written_at = _to_time(row["canvas_written_at"], time)
    return VersionContent(to_version(row, time), spec, assets, hints, row["canvas_revision"], written_at)


def _to_time(value: Any, time: Time) -> datetime | None:
    return value if time is None or value is None else time(value)


def _decode_differences(text: str) -> Differences:
    parts, more, restored = msgspec.json.decode(text)
    return Differences([Part(*part) for part in parts], more, restored)
