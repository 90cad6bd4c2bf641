"""The page of a canvas: the shell for a signed-in person, and in its frame the view, which has no sign-in.

The shell is our own page and connects to the gateway. The view consists of the HTML and the files of the
canvas, at an unguessable address that expires. Does not own the headers that isolate a view: see
`canvas_policy`.
"""

import asyncio
import time
from dataclasses import replace
from urllib.parse import quote

from starlette.responses import HTMLResponse, Response

from easel.core.canvas.assets import ENTRY, FOLDER, Asset
from easel.core.canvas.canvas import Canvas
from easel.core.tool.definition import ToolDefinition
from easel.edges.http.calls import Call, authenticate_visitor
from easel.edges.http.canvas_generated import generated_page
from easel.edges.http.canvas_html import prepare_page
from easel.edges.http.canvas_policy import (
    VIEWS,
    SiteOrigins,
    file_headers,
    may_have_unaccepted_html,
    page_headers,
    probe_headers,
    shell_policy,
)
from easel.edges.http.pages import error_page, fill_page, read_ui_file, sign_in_page
from easel.errors import Forbidden, NotFound, Unavailable
from easel.host.canvases.pages import PageView

# Files of the SDK, built from web/sdk: every view has them in addition to its assets.
SDK_FILES = {
    "gsv.js": "text/javascript",
    "generated.js": "text/javascript",
    "generated.css": "text/css",
}
PROBE = "probe.html"  # finds out whether the browser enforces the connection policy of a view. RS-63
LONG_PAGE_BYTES = 100_000  # longer HTML is prepared in a thread


# --- the shell ----------------------------------------------------------------------------------------------


def _path_of(call: Call) -> str:
    """Return the path of the page, with the account that it names."""
    query = call.request.url.query
    return f"{call.request.url.path}?{query}" if query else call.request.url.path


async def canvas_page(call: Call) -> Response:
    principal = await authenticate_visitor(call)
    if principal is None:
        return sign_in_page(call, target=_path_of(call))
    try:
        canvas = (await call.host.canvases.get(principal, call.path["canvas_id"])).canvas
        if canvas.agent_id != call.path["agent_id"]:
            raise NotFound(what="canvas", id=canvas.canvas_id)
    except NotFound as problem:
        return error_page(problem, "No such canvas")
    now, folder = time.time(), f"{_origins(call).views(call.request)}{VIEWS}"
    token, until = call.host.pages.new_token(principal, canvas.canvas_id, now)
    isolated, _ = call.host.pages.new_token(principal, canvas.canvas_id, now, is_isolated=True)
    view, isolated_view = f"{folder}{token}/", f"{folder}{isolated}/"
    page = fill_page(
        "canvas_shell.html",
        view=view,
        isolated=isolated_view,
        until=str(until),
        canvas=canvas.canvas_id,
        agent=canvas.agent_id,
        title=canvas.title,
    )
    headers = {
        "content-security-policy": shell_policy([view, isolated_view]),
        "cross-origin-opener-policy": "same-origin",
        "cache-control": "no-store",
    }
    return HTMLResponse(page, headers=headers)


def _origins(call: Call) -> SiteOrigins:
    return call.request.state.origins


# --- the view -----------------------------------------------------------------------------------------------


async def view_file(call: Call) -> Response:
    """Return a file of a view. The token in the address is the only credential; cookies are ignored."""
    view = await call.host.pages.verify_token(call.path["token"], time.time())
    name = call.path["file"]
    if name in SDK_FILES:
        return Response(
            read_ui_file(f"sdk/{name}"),
            headers={**file_headers(call.request), "content-type": f"{SDK_FILES[name]}; charset=utf-8"},
        )
    if name == PROBE:
        address, shell = _view_address(call), _origins(call).shell(call.request)
        return HTMLResponse(read_ui_file("canvas_probe.html"), headers=probe_headers(address, shell))
    if not name.startswith(FOLDER):
        raise NotFound(what="file", id=name[:200])
    try:
        asset, content, _ = await call.host.assets.read(view.principal, view.canvas_id, name)
    except NotFound:
        if name != ENTRY:
            raise
        canvas = await _canvas(call, view)
        return await _html(call, canvas, await _generated(call, canvas))
    # Read after the asset: a write that replaces an asset ends the acceptance in the same transaction.
    canvas = await _canvas(call, view)
    is_html = asset.media_type == "text/html"
    may_show = view.is_isolated and (not is_html or may_have_unaccepted_html(call.request))
    if not canvas.is_accepted and not may_show:
        if name == ENTRY:
            return await _html(call, canvas, await _generated(call, canvas))
        raise Forbidden(problem="no person has accepted this canvas, so only its generated page is shown.")
    if is_html:
        return await _html(call, canvas, content)
    return Response(content, headers={**file_headers(call.request), "content-type": _type(asset)})


async def _generated(call: Call, canvas: Canvas) -> bytes:
    """Return the generated page; without the tools, which may be unavailable, its fields take text."""
    try:
        definitions = await call.host.tools.definitions(canvas.account_id)
    except Unavailable:
        definitions = dict[str, ToolDefinition]()
    return generated_page(canvas, call.host.canvases.parse_stored(canvas), definitions)


async def _canvas(call: Call, view: PageView) -> Canvas:
    snapshot = await call.host.canvases.get(view.principal, view.canvas_id)
    return replace(snapshot.canvas, is_accepted=snapshot.is_accepted)


async def _html(call: Call, canvas: Canvas, content: bytes) -> Response:
    path = _view_path(call)
    page, hashes = (
        await asyncio.to_thread(prepare_page, content, f"{path}gsv.js")
        if len(content) > LONG_PAGE_BYTES
        else prepare_page(content, f"{path}gsv.js")
    )
    connect: list[str] = canvas.spec.get("toolPolicy", {}).get("connect", []) if canvas.is_accepted else []
    shell = _origins(call).shell(call.request)
    headers = page_headers(_view_address(call), shell, connect, hashes)
    return HTMLResponse(page, headers=headers)


def _view_path(call: Call) -> str:
    return f"{VIEWS}{quote(call.path['token'])}/"


def _view_address(call: Call) -> str:
    return f"{_origins(call).views(call.request)}{_view_path(call)}"


def _type(asset: Asset) -> str:
    """Return the content type of an asset; text is UTF-8."""
    is_text = asset.media_type.startswith("text/") or asset.media_type in (
        "application/json",
        "image/svg+xml",
    )
    return f"{asset.media_type}; charset=utf-8" if is_text else asset.media_type
