"""Which part of a canvas each file of its folder speaks of, and a canvas with one of them, or without."""

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
    """What one file says of the canvas."""
    return (
        [getattr(canvas, name) for name in JSON_PARTS[file]]
        if file in JSON_PARTS
        else canvas.assets.get(file)
    )


def speaks(canvas: FolderCanvas, file: str) -> bool:
    """Whether it says anything of what is in this file, which is none of its assets."""
    return any(getattr(canvas, name) is not None for name in JSON_PARTS[file])


def with_part(canvas: FolderCanvas, file: str, of: FolderCanvas) -> FolderCanvas:
    """The canvas with this one file of the other's."""
    if file in JSON_PARTS:
        return replace(canvas, **{name: getattr(of, name) for name in JSON_PARTS[file]})
    rest = {path: content for path, content in canvas.assets.items() if path != file}
    return replace(canvas, assets={**rest, file: of.assets[file]} if file in of.assets else rest)


def without(canvas: FolderCanvas, paths: Sequence[str]) -> FolderCanvas:
    return replace(
        canvas, assets={path: content for path, content in canvas.assets.items() if path not in paths}
    )


def with_all(canvas: FolderCanvas, news: FolderCanvas) -> FolderCanvas:
    """The canvas with all that the other speaks of."""
    said = {name: getattr(news, name) for names in JSON_PARTS.values() for name in names}
    return replace(
        canvas, **{name: value for name, value in said.items() if value is not None}, assets=news.assets
    )
