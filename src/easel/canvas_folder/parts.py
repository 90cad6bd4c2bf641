"""The part of a canvas that each file of its folder defines: read it, or replace it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from easel.core.canvas.folder import DESCRIPTOR, SPEC, STATE, FolderCanvas

JSON_PARTS: Mapping[str, Sequence[str]] = {
    DESCRIPTOR: ("title", "owner_session_key"),
    SPEC: ("spec",),
    STATE: ("state",),
}


def part(canvas: FolderCanvas, file: str) -> Any:
    """Return the part of the canvas that a file defines."""
    return (
        [getattr(canvas, name) for name in JSON_PARTS[file]]
        if file in JSON_PARTS
        else canvas.assets.get(file)
    )


def defines(canvas: FolderCanvas, file: str) -> bool:
    """Return whether the canvas has the part that this JSON file defines."""
    return any(getattr(canvas, name) is not None for name in JSON_PARTS[file])


def with_part(canvas: FolderCanvas, file: str, source: FolderCanvas) -> FolderCanvas:
    """Return the canvas with the part of one file taken from another canvas."""
    if file in JSON_PARTS:
        return replace(canvas, **{name: getattr(source, name) for name in JSON_PARTS[file]})
    rest = {path: content for path, content in canvas.assets.items() if path != file}
    return replace(canvas, assets={**rest, file: source.assets[file]} if file in source.assets else rest)


def without_assets(canvas: FolderCanvas, paths: Sequence[str]) -> FolderCanvas:
    return replace(
        canvas, assets={path: content for path, content in canvas.assets.items() if path not in paths}
    )


def with_all(canvas: FolderCanvas, changes: FolderCanvas) -> FolderCanvas:
    """Return the canvas with the assets of `changes` and all parts that `changes` defines."""
    values = {name: getattr(changes, name) for names in JSON_PARTS.values() for name in names}
    return replace(
        canvas, **{name: value for name, value in values.items() if value is not None}, assets=changes.assets
    )
