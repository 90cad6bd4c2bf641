"""The page of a canvas: the shell that a signed-in person opens, and in its frame the view, which needs no sign-in and has none.

The shell is ours and talks to the gateway. The view is the canvas's own HTML and files, behind an address that nobody can guess and that ends.
What keeps a view in is `canvas_policy`'s business.
"""

import asyncio
import html
import time
from functools import cache
from importlib import resources
from urllib.parse import quote

from starlette.responses import HTMLResponse, Response

from easel.core.canvas.assets import ENTRY, FOLDER, Asset
from easel.core.canvas.canvas import Canvas
from easel.edges.http.calls import Call, visitor
from easel.edges.http.canvas_generated import generated
from easel.edges.http.canvas_html import ready
from easel.edges.http.canvas_policy import VIEWS, Places, file_headers, page_headers, shell_policy
from easel.edges.http.pages import refusal_page, sign_in_page
from easel.errors import NotFound
from easel.host.canvases.pages import PageView

SDK_PARTS = ("gsv_paths.js", "gsv_bridge.js", "gsv_models.js", "gsv_bindings.js", "gsv_start.js")
OURS = {
    "gsv.js": "text/javascript",
    "generated.js": "text/javascript",
    "generated.css": "text/css",
}  # of a view, beside its assets
LONG_PAGE = 100_000  # bytes of HTML that are read through beside everything else


@cache
def _file(name: str) -> str:
    return resources.files("easel").joinpath("ui", name).read_text("utf-8")


@cache
def _our_file(name: str) -> str:
    if name == "gsv.js":
        return '"use strict";\n(() => {\n' + "\n".join(map(_file, SDK_PARTS)) + "\n})();\n"
    return _file(f"gsv_{name}")


# --- the shell ----------------------------------------------------------------------------------------------------------


async def canvas_page(call: Call) -> Response:
    principal = await visitor(call.request, call.host.sign_in, time.time())
    if principal is None:
        return sign_in_page("", call.request.url.path)
    try:
        canvas = (await call.host.canvases.get(principal, call.path["canvas_id"])).canvas
        if canvas.agent_id != call.path["agent_id"]:
            raise NotFound(what="canvas", id=canvas.canvas_id)
    except NotFound as problem:
        return refusal_page(problem, "No such canvas")
    token, until = call.host.pages.new_token(principal, canvas.canvas_id, time.time())
    view = f"{_places(call).views(call.request)}{VIEWS}{token}/"
    filled = {
        "view": view,
        "until": str(until),
        "canvas": canvas.canvas_id,
        "agent": canvas.agent_id,
        "title": canvas.title,
    }
    page = _file("canvas_shell.html")
    for name, value in filled.items():
        page = page.replace(f"{{{{{name}}}}}", html.escape(value))
    headers = {
        "content-security-policy": shell_policy(view),
        "cross-origin-opener-policy": "same-origin",
        "cache-control": "no-store",
    }
    return HTMLResponse(page, headers=headers)


def _places(call: Call) -> Places:
    return call.request.state.places


# --- the view -----------------------------------------------------------------------------------------------------------


async def view_file(call: Call) -> Response:
    """No cookie is looked at here: the address alone opens it."""
    view = await call.host.pages.opened_by(call.path["token"], time.time())
    name = call.path["file"]
    if name in OURS:
        return Response(
            _our_file(name),
            headers={**file_headers(call.request), "content-type": f"{OURS[name]}; charset=utf-8"},
        )
    if not name.startswith(FOLDER):
        raise NotFound(what="file", id=name[:200])
    try:
        asset, content, _ = await call.host.assets.read(view.principal, view.canvas_id, name)
    except NotFound:
        if name != ENTRY:
            raise
        canvas = await _canvas(call, view)
        return await _html(call, canvas, generated(canvas))
    if asset.media_type != "text/html":
        return Response(content, headers={**file_headers(call.request), "content-type": _type(asset)})
    return await _html(call, await _canvas(call, view), content)


async def _canvas(call: Call, view: PageView) -> Canvas:
    return (await call.host.canvases.get(view.principal, view.canvas_id)).canvas


async def _html(call: Call, canvas: Canvas, content: bytes) -> Response:
    places, request = _places(call), call.request
    at = f"{VIEWS}{quote(call.path['token'])}/"
    page = (
        await asyncio.to_thread(ready, content, f"{at}gsv.js")
        if len(content) > LONG_PAGE
        else ready(content, f"{at}gsv.js")
    )
    connect: list[str] = canvas.spec.get("toolPolicy", {}).get("connect", []) if canvas.is_accepted else []
    headers = page_headers(f"{places.views(request)}{at}", places.shell(request), connect, page.hashes)
    return HTMLResponse(page.html, headers=headers)


def _type(asset: Asset) -> str:
    """Text is UTF-8 here; what a browser cannot show it may not guess."""
    is_text = asset.media_type.startswith("text/") or asset.media_type in (
        "application/json",
        "image/svg+xml",
    )
    return f"{asset.media_type}; charset=utf-8" if is_text else asset.media_type
