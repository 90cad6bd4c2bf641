"""Asset paths, blob keys and the changed paths of events. CV-47"""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from urllib.parse import quote

import pytest

from easel.core.canvas.assets import (
    Asset,
    asset_created_at,
    asset_key,
    check_path_conflicts,
    require_asset_path,
)
from easel.core.canvas.canvas import View
from easel.core.canvas.events import MAX_PATH_BYTES, CanvasEvents, changed_members, limit_paths
from easel.core.stream.json_text import to_json
from easel.errors import BadInput
from easel.ids import OWNER, CanvasId, UserId, new_blob_name
from tests.requirements import case, rule

GOOD = [
    "assets/index.html",
    "assets/index.js",
    "assets/img/logo-2x.png",
    "assets/données.json",
    "assets/a b (1).txt",
    "assets/v1.2/app.min.js",
    "assets/" + "x" * 200,
]


def variants() -> list[str]:
    """Return spellings of a parent folder in all positions of a path, and other invalid paths."""
    ups = [
        "..", ".", "...", "%2e%2e", "%2E%2E", "%252e%252e", "..%00", "..;", "‥", "․․", "．．", "..\\",
        "..\u2215", "\u2024.", "..\u00a0", " ..", ".. ", "..\t", "..\x00", "%c0%ae%c0%ae", "..%5c", "\\..\\",
        "~", "~root", "..:x", ". .", "-rf",
    ]  # fmt: skip
    slashes = ["/", "\\", "%2f", "%5c", "//", "/./", "\u2215", "\uff0f", "\u29f8", "/%2e/"]
    shapes = ["assets{s}{u}{s}x", "assets/a{s}{u}{s}{u}{s}x", "{u}{s}assets/x", "assets{s}{u}"]
    generated = {shape.format(s=slash, u=up) for shape, slash, up in itertools.product(shapes, slashes, ups)}
    fixed = [
        "", "/", "assets", "assets/", "/assets/x", "//assets/x", "Assets/x", "ASSETS/x", "aſſets/x",
        "./assets/x", "C:\\x", "file:///etc/passwd", "/etc/passwd", "assets//x", "assets/x/", "assets/\x00",
        "assets/x\n", "assets/.env", "assets/.git/config", "assets/x.", "assets/x ", "assets/\u202egnp.js",
        "assets/con\u0000.js", "assets/x\u200b", "assets/ﬁle", "assets/" + "x" * 201,
        "assets/" + "a/" * 20 + "x", "assets/" + "é" * 101, "assets/a?b", "assets/a#b", "assets/a:b",
        "assets/\ud800", quote("assets/x", safe=""),
    ]  # fmt: skip
    return sorted({*generated, *fixed})


@pytest.mark.parametrize("path", [*GOOD, "assets/console.js", "assets/a.con", "assets/com10", "assets/auxx"])
def test_valid_path_is_accepted(path: str) -> None:
    assert require_asset_path(path) == path


@pytest.mark.parametrize(
    "path",
    ["assets/con", "assets/aux.txt", "assets/AUX.min.js", "assets/img/Com1/a.png", "assets/nul .css"],
)
def test_name_of_a_windows_device_is_refused(path: str) -> None:
    with pytest.raises(BadInput, match="is the name of a device on Windows"):
        require_asset_path(path)


@rule("CV-47")
@case("U4")
def test_ambiguous_paths_are_refused() -> None:
    assert len(variants()) >= 300
    accepted: list[str] = []
    for path in variants():
        try:
            accepted.append(require_asset_path(path))
        except BadInput:
            continue
    assert accepted == []


@case("U4")
@pytest.mark.parametrize(
    "paths",
    [
        ["assets/a", "assets/A"],
        ["assets/Straße", "assets/STRASSE"],
        ["assets/a", "assets/a/b"],
        ["assets/A/b", "assets/a"],
    ],
)
def test_conflicting_paths_are_refused(
    paths: list[str],
) -> None:
    with pytest.raises(BadInput):
        check_path_conflicts(paths)
    check_path_conflicts(["assets/a", "assets/b/a", "assets/b/c"])


@rule("RS-10")
def test_key_of_an_asset_has_its_canvas_and_creation_time() -> None:
    name = new_blob_name()
    key = asset_key(OWNER, "main", CanvasId("cockpit"), name, "assets/img/a.png")
    assert key == f"accounts/owner/agents/main/canvases/cockpit/assets/{name}/img/a.png"
    created = asset_created_at(key)
    assert created is not None
    assert abs((datetime.now(UTC) - created).total_seconds()) < 60
    for other in (
        "accounts/owner/artifacts/" + name,
        "accounts/owner/agents/main/canvases/c/assets/x/y",
        key.removesuffix("/img/a.png"),
    ):
        assert asset_created_at(other) is None


def test_media_type_depends_only_on_the_name() -> None:
    kinds = {
        "a.HTML": "text/html",
        "a.mjs": "text/javascript",
        "a.svg": "image/svg+xml",
        "a": "application/octet-stream",
        "html": "application/octet-stream",
    }
    for name, kind in kinds.items():
        assert Asset(f"assets/{name}", "key", 1).media_type == kind


# --- changed paths of events --------------------------------------------------------------------------------


@rule("CV-38")
def test_changed_paths_are_shortened_without_omitting_a_change() -> None:
    assert limit_paths(["/a/b", "$spec"]) == ["/a/b", "$spec"]
    deep = [f"/{top}/{n}/{'x' * 20}" for top in "ab" for n in range(100)]
    assert list(limit_paths([*deep, "$title"])) == ["/a", "/b", "$title"]
    wide = [f"/key{n}" for n in range(1_000)]
    assert list(limit_paths([*wide, "$assets/a", "$assets/b"])) == ["", "$assets"]
    for paths in (deep, wide, ["/" + "\x01" * 4_000], [f"$assets/{n}{'é' * 90}" for n in range(500)]):
        assert len(to_json(list(limit_paths(paths))).encode()) <= MAX_PATH_BYTES


@rule("CC-08")
def test_event_of_a_canvas_is_never_offloaded() -> None:
    events = CanvasEvents(CanvasId("c" * 128), agent_id="o" * 128, event_id="e" * 60)
    worst = ["/" + "\x01" * 2_000, *(f"/{n}{'é' * 60}" for n in range(500))]
    for event in (
        events.updated(2**62, worst),
        events.created(1, "é" * 200),
        events.view_opened(2**62, View("v" * 40, "c" * 128, "con", UserId("u" * 63)), 10**9),
    ):
        assert event.offloaded == ()
        assert len(event.json.encode()) <= 2_400


def test_new_state_is_reported_by_its_changed_members() -> None:
    assert changed_members({"a": 1, "b": 2, "c": 3}, {"b": 2, "c": 4, "d/e": 5}) == ["/a", "/c", "/d~1e"]
