"""Versions of a canvas over HTTP: pages of them, one with its content, and a restore."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.edges.http.canvas_calls import call
from tests.edges.http.live import new_session
from tests.requirements import rule

if TYPE_CHECKING:
    from httpx2 import Response

    from tests.edges.http.live import LiveEasel

OWNER = {"kind": "person", "name": "owner"}


@pytest.fixture
def canvas(easel: LiveEasel) -> str:
    """Return a canvas at revision 3 with two earlier versions."""
    name = new_session()
    page = {"assets/index.html": "first"}
    call(easel, "canvas.create", canvasId=name, title="Cockpit", spec={"version": 1}, assets=page)
    call(easel, "canvas.asset.put", canvasId=name, path="assets/index.html", text="second")
    patched = call(easel, "canvas.patch", canvasId=name, spec={"version": 1, "description": "third"})
    assert patched.json()["revision"] == 3
    return name


def test_versions_are_listed_newest_first_in_pages(easel: LiveEasel, canvas: str) -> None:
    page = call(easel, "canvas.versions", canvasId=canvas, limit=1).json()
    current = page["current"]
    assert (current["version"], current["revision"], current["writtenBy"]) == (3, 3, OWNER)
    assert current["changed"] == [{"path": "spec.description", "change": "added"}]
    [second] = page["versions"]
    assert (second["version"], second["revision"], second["title"]) == (2, 2, "Cockpit")
    assert second["changed"] == [{"path": "assets/index.html", "change": "changed"}]
    assert (second["writtenBy"], second["accepted"], "spec" in second) == (OWNER, True, False)
    [first] = call(easel, "canvas.versions", canvasId=canvas, before=page["next"]).json()["versions"]
    assert (first["version"], "changed" in first) == (1, False)
    assert first["at"] <= second["at"] <= current["at"]
    [first] = call(easel, "canvas.versions", canvasId=canvas, version=1).json()["versions"]
    assert first["spec"] == {"version": 1}
    assert first["assets"] == [{"path": "assets/index.html", "size": 5, "mediaType": "text/html"}]


@rule("CV-45")
def test_version_is_restored_at_the_expected_revision(easel: LiveEasel, canvas: str) -> None:
    conflict = call(easel, "canvas.restore", canvasId=canvas, version=1, expectedRevision=2)
    assert (conflict.status_code, conflict.json()["error"]["details"]["currentRevision"]) == (409, 3)
    restored = call(easel, "canvas.restore", canvasId=canvas, version=1, expectedRevision=3).json()
    assert (restored["spec"], restored["revision"], restored["accepted"]) == ({"version": 1}, 4, True)
    asset = call(easel, "canvas.asset.get", canvasId=canvas, path="assets/index.html").json()
    assert asset["text"] == "first"
    assert call(easel, "canvas.versions", canvasId=canvas).json()["current"]["restored"] == 1


def test_asset_of_a_version_is_read_before_it_is_restored(easel: LiveEasel, canvas: str) -> None:
    def read(**params: object) -> Response:
        return call(easel, "canvas.versions", canvasId=canvas, **params)

    path = "assets/index.html"
    assert [read(version=number, path=path).json()["text"] for number in (1, 2, 3)] == [
        "first",
        "second",
        "second",
    ]
    missing = read(version=1, path="assets/none.css")
    assert (missing.status_code, "in version 1" in missing.json()["error"]["message"]) == (404, True)
    assert read(version=9, path=path).status_code == 404
    assert read(path=path).status_code == 400
    assert read(version=1, path="../secret").status_code == 400


def test_present_version_is_read_and_not_restored(easel: LiveEasel, canvas: str) -> None:
    [present] = call(easel, "canvas.versions", canvasId=canvas, version=3).json()["versions"]
    assert (present["version"], present["spec"]["description"]) == (3, "third")
    refused = call(easel, "canvas.restore", canvasId=canvas, version=3)
    assert refused.status_code == 400
    assert "Version 3 is the present one" in refused.json()["error"]["message"]


def test_unknown_version_is_not_found(easel: LiveEasel, canvas: str) -> None:
    for method in ("canvas.versions", "canvas.restore"):
        assert call(easel, method, canvasId=canvas, version=9).status_code == 404
        assert call(easel, method, canvasId="unknown", version=1).status_code == 404
        assert call(easel, method, canvasId=canvas, version=0).status_code == 400
    assert call(easel, "canvas.versions", canvasId="unknown").status_code == 404
