"""Helpers for tests of the pages of canvases."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.http.live import LiveEasel, new_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx2


PAGE = "<!doctype html><title>t</title><script>let inline = 1;</script><script src='index.js'></script>"
SVG = "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
ASSETS = {
    "assets/index.html": PAGE,
    "assets/index.js": "let a = 1;",
    "assets/more/page.html": "<p>more",
    "assets/a.svg": SVG,
    "assets/a.xml": "<a/>",
    "assets/a.xhtml": "<html xmlns='http://www.w3.org/1999/xhtml'><script>alert(1)</script></html>",
    "assets/a.json": "{}",
    "assets/a.css": "p {}",
    "assets/plain": "x",
    "assets/with space.txt": "spaced",
}


def call(easel: LiveEasel, method: str, **params: Any) -> Any:
    """Return the result of a gateway method over HTTP."""
    answer = easel.post("/api/rpc", {"method": method, "params": params})
    assert answer.status_code == 200, answer.text
    return answer.json()


def create_canvas(easel: LiveEasel, **params: Any) -> str:
    """Create a canvas with a page and return its id."""
    name = new_session()
    call(
        easel,
        "canvas.create",
        canvasId=name,
        **{"spec": {"state": {"service": "api"}}, "assets": ASSETS, **params},
    )
    return name


def view_of(easel: LiveEasel, name: str) -> str:
    """Return the path of the view in the shell page of a canvas."""
    match = re.search(r'data-view="([^"]+)"', easel.get(f"/canvas/main/{name}").text)
    assert match
    assert match[1].startswith(f"{easel.base_url}/canvas-view/")
    return match[1].removeprefix(easel.base_url)


@pytest.fixture
def stranger(small_easel: LiveEasel) -> Iterator[httpx2.Client]:
    with small_easel.stranger() as http:
        yield http


def policy(answer: httpx2.Response) -> dict[str, str]:
    """Return the directives of the Content-Security-Policy header."""
    assert len(answer.headers.get_list("content-security-policy")) == 1
    parts = [
        directive.strip().partition(" ") for directive in answer.headers["content-security-policy"].split(";")
    ]
    return {name: value for name, _, value in parts}
