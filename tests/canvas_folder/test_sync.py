"""The calls that change a canvas on the server into that of a folder."""

from __future__ import annotations

from typing import Any

import pytest

from easel.canvas_folder.sync import plan_steps
from easel.core.canvas.folder import FolderCanvas
from easel.ids import CanvasId


def folder_canvas(**parts: Any) -> FolderCanvas:
    return FolderCanvas(**{"canvas_id": CanvasId("c"), "agent_id": "main", **parts})


OLD = folder_canvas(
    title="T",
    spec={"version": 1},
    state={"n": 1},
    assets={"assets/index.html": b"1", "assets/b.png": b"\xff"},
)
CALLS = [
    # name, new, calls
    ("nothing", OLD, []),
    ("one file", folder_canvas(assets={**OLD.assets, "assets/index.html": b"2"}), ["canvas.asset.put"]),
    ("one file less", folder_canvas(assets={"assets/index.html": b"1"}), ["canvas.asset.delete"]),
    ("a spec", folder_canvas(spec={"version": 1, "title": "x"}, assets=OLD.assets), ["canvas.upsert"]),
    ("a spec and texts", folder_canvas(spec={}, assets={"assets/index.html": b"2"}), ["canvas.upsert"]),
    (
        "a spec and binary assets",
        folder_canvas(spec={}, assets={**OLD.assets, "assets/index.html": b"2"}),
        ["canvas.upsert"],
    ),
    (
        "changed, new and removed assets",
        folder_canvas(assets={"assets/index.html": b"2", "assets/c.png": b"\xff"}),
        ["canvas.upsert"],
    ),
]


@pytest.mark.parametrize("new, calls", [row[1:] for row in CALLS], ids=[row[0] for row in CALLS])
def test_change_takes_as_few_calls_as_possible(new: FolderCanvas, calls: list[str]) -> None:
    steps = plan_steps(OLD, new, max_bytes=100_000)
    assert [step.method for step in steps] == calls


def test_page_is_put_last_and_assets_are_deleted_after_it() -> None:
    new = folder_canvas(assets={"assets/index.html": b"2", "assets/c.png": b"\xff"})
    steps = plan_steps(OLD, new, max_bytes=0)
    assert [step.method for step in steps] == [
        "canvas.asset.put",
        "canvas.asset.put",
        "canvas.asset.delete",
    ]
    assert steps[1].files == ["assets/index.html"]
    assert all(step.undo for step in steps)


def test_assets_of_others_are_not_replaced() -> None:
    new = folder_canvas(assets={"assets/index.html": b"2", "assets/more": b"2"})
    old = folder_canvas(assets={"assets/index.html": b"1"})
    assert [step.method for step in plan_steps(old, new, max_bytes=100_000)] == ["canvas.upsert"]
    assert [step.method for step in plan_steps(old, new, max_bytes=100_000, others=["assets/x"])] == [
        "canvas.asset.put",
        "canvas.asset.put",
    ]
