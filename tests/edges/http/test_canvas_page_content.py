"""The SDK in a page of a canvas, and the generated page."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from easel.edges.http.canvas_html import MAX_INLINE, csp_hash, prepare_page
from tests.edges.http.canvas_pages import (
    PAGE,
    call,
    create_canvas,
    stranger,
    view_of,
)
from tests.requirements import rule

if TYPE_CHECKING:
    import httpx2

    from tests.edges.http.live import LiveEasel

__all__ = ["stranger"]  # a fixture


FRONTS = [
    ("<!doctype html><html>", "<!doctype html>|<html>"),
    (
        "<!DOCTYPE HTML PUBLIC '-//W3C//DTD HTML 4.01//EN'>\n<p>",
        "<!DOCTYPE HTML PUBLIC '-//W3C//DTD HTML 4.01//EN'>|\n<p>",
    ),
    (
        "\ufeff<!-- a > b --> <?xml version='1.0'?>\r\n<!doctype html>x",
        "<!-- a > b --> <?xml version='1.0'?>\n<!doctype html>|x",
    ),
    ("<p>no doctype", "|<p>no doctype"),
    ("", "|"),
    ("<!-- never ends <!doctype html>", "|<!-- never ends <!doctype html>"),
    ("<!doctype html", "|<!doctype html"),
]


@pytest.mark.parametrize("html, expected", FRONTS)
def test_sdk_is_inserted_after_the_doctype(html: str, expected: str) -> None:
    assert prepare_page(html.encode(), "/gsv.js")[0] == expected.replace(
        "|", '<script src="/gsv.js" crossorigin></script>'
    )


# An inline script is at the place of `|`; the SDK has two scripts in front of it, or none, on its line.
SHIFTED = [
    "<p>a</p><script>|x</script>",
    "<!doctype html><p>\u00e4\U0001f600</p><script src=a.js></script><script>|x</script>",
    "<!doctype html>\n<script src=a.js></script><script src=b.js></script><script>|x</script>",
    "<!doctype html>\n<script src=a.js></script>\n<script>|x</script>",
    "<!doctype html><script src=a.js></script>\r\n<p><script>\n|x</script>",
]


@pytest.mark.parametrize("marked", SHIFTED)
def test_place_in_the_stored_page_is_found_from_the_place_in_the_served_page(marked: str) -> None:
    served, _ = prepare_page(marked.replace("|", "").encode(), "/gsv.js")
    line, column = place_of(served.index("x</script>"), served)
    found = re.search(r'data-shifts="([^"]+)"', served)
    inserted = 0
    for shift in found[1].split(",") if found else ():
        at_line, at_column, length = map(int, shift.split(":"))
        if at_line == line and column - inserted >= at_column + length:
            inserted += length
    stored = marked.replace("\r\n", "\n")
    assert (line, column - inserted) == place_of(stored.index("|"), stored)


def place_of(position: int, text: str) -> tuple[int, int]:
    """Return the line and the column, in UTF-16 units, as browsers count them."""
    before = text[:position]
    return before.count("\n") + 1, len(before[before.rfind("\n") + 1 :].encode("utf-16-le")) // 2 + 1


def test_inline_scripts_are_allowed_by_hash() -> None:
    html = (
        "<script>one\r\n&amp;&&</script><SCRIPT type=module>two</SCRIPT >"
        "<script type='application/json'>{}</script>"
        "<!-- <script>hidden</script> --><script src=x.js></script>"
        "<script src='y.js' CrossOrigin>ignored</script><script>never ends"
    )
    page, hashes = prepare_page(html.encode(), "/gsv.js")
    assert hashes == [csp_hash("one\n&amp;&&"), csp_hash("two")]
    assert "<script crossorigin=anonymous src=x.js>" in page
    assert "<script src='y.js' CrossOrigin>" in page
    assert len(prepare_page(b"<script>x</script>" * 500, "/gsv.js")[1]) == MAX_INLINE
    assert "<p>wide" in prepare_page("<p>wide".encode("utf-16"), "/gsv.js")[0]


HOSTILE = [
    b"<!-- -->",
    b"<!--",
    b"<script>",
    b"<script ",
    b'<script a="',
    b"<script a",
    b"<?",
    b"<!doctype ",
    b"</script",
    b"<script a=' = b",
    b"\xff\xfe<",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_page_is_prepared_in_linear_time(piece: bytes) -> None:
    def seconds(size: int) -> float:
        started = time.thread_time()
        prepare_page(piece * (size // len(piece)), "/gsv.js")
        return time.thread_time() - started

    small = min(seconds(50_000) for _ in range(3))
    assert min(seconds(800_000) for _ in range(2)) < 16 * small * 6 + 0.1


@rule("CV-06")
def test_stored_page_is_not_changed(small_easel: LiveEasel, stranger: httpx2.Client) -> None:
    name = create_canvas(small_easel)
    assert "gsv.js" in stranger.get(f"{view_of(small_easel, name)}assets/index.html").text
    assert call(small_easel, "canvas.asset.get", canvasId=name, path="assets/index.html")["text"] == PAGE


def test_generated_page_escapes_the_spec(small_easel: LiveEasel, stranger: httpx2.Client) -> None:
    spec = {
        "description": "</p><script>alert(1)</script>",
        "state": {"service": "api", "lastRun": None},
        "writable": ["service"],
        "actions": {
            "run.it": {"kind": "tool.call", "tool": "gsv__Echo", "title": "<img src=x>", "saveAs": "lastRun"},
            "refreshLogs": {"kind": "state.patch", "patch": []},
        },
    }
    name = create_canvas(small_easel, spec=spec, assets={}, title="</title><script>")
    answer = stranger.get(f"{view_of(small_easel, name)}assets/index.html")
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text
    assert "<img" not in answer.text
    assert answer.text.count("<title>") == 1
    assert 'data-gsv-action="run.it"' in answer.text
    assert ">Refresh logs</button>" in answer.text
    assert (
        '{"writable": [["service"]], "results": [["lastRun"]], '
        '"saves": {"run.it": ["lastRun"]}, "numbers": []}' in answer.text
    )


@rule("RS-66")
def test_generated_page_has_a_field_of_the_right_type_for_each_input(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    args = {"canvasId": "{{input.id}}", "limit": {"$value": "input.limit"}}
    patch = [{"op": "add", "path": "/on", "value": {"$value": "input.on"}}]
    spec = {
        "toolPolicy": {"allow": ["gsv__LogsGet"]},
        "state": {"on": False},
        "actions": {
            "logs": {"kind": "tool.call", "tool": "gsv__LogsGet", "args": args},
            "set": {"kind": "state.patch", "patch": patch},
        },
    }
    name = create_canvas(small_easel, spec=spec, assets={})
    text = stranger.get(f"{view_of(small_easel, name)}assets/index.html").text
    assert '<input name="id" dir="auto" autocomplete="off">' in text
    assert '<input name="limit" data-input-type="integer" type="number" step="1" required>' in text
    assert '<select name="on" data-input-type="boolean">' in text
