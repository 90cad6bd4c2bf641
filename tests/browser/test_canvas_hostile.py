"""Hostile canvas pages: they cannot read the host page, connect elsewhere, navigate, or be framed.

The canvases here are accepted: a person made them. `test_canvas_isolation.py` has those that no person has
accepted. Both run on the installed Chromium, and in `make browsers` on others.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from tests.browser.canvas import (
    COCKPIT_SPEC,
    EMPTY_PAGE,
    MINIMAL_PAGE,
    CanvasApi,
    make_hostile_canvas,
    open_tab,
)
from tests.browser.canvas_ways_out import (
    NAVIGATION_WAYS,
    PASSIVE_WAYS,
    RTC_WAYS,
    Listener,
    listen,
    remaining_ways,
    script,
    serve_unprotected,
    silent_ways,
)
from tests.browser.tabs import Tab, Window, expect_text, is_firefox, wait_in
from tests.browser.wire import Wire
from tests.requirements import case, rule

if TYPE_CHECKING:
    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

LEAK_SECONDS = 1.5  # a request of a page arrives within a few milliseconds
# Where the shell's policy blocks a navigation, Firefox keeps the page; Chromium shows an error in its place.
FIREFOX_STAYS = is_firefox()


# --- U1, U9: the host ---------------------------------------------------------------------------------------

READS = {
    "parent.document": "parent.document.body",
    "top.document": "top.document.cookie",
    "parent.fetch": "parent.fetch('/api/runs')",
    "frameElement": "frameElement.ownerDocument.body",
    "cookie": "document.cookie",
    "cookie=": "document.cookie = 'easel=x'",
    "localStorage": "localStorage.getItem('x')",
    "sessionStorage": "sessionStorage.getItem('x')",
    "indexedDB": (
        "new Promise((resolve, reject) => { const asked = indexedDB.open('x'); asked.onsuccess = resolve; "
        "asked.onerror = () => reject(asked.error) })"
    ),
    "caches": "caches.open('x')",
    "serviceWorker": "navigator.serviceWorker.register('index.js')",
    "SharedWorker": "new SharedWorker('index.js')",
    "open": "window.open('about:blank').document",
    "top.location": "top.location.href",
    "opener": "opener.document",
    "eval": "eval('1')",
    "Function": "new Function('return 1')()",
    "timer with text": "setTimeout('1') || null.x",
    "RTCPeerConnection": "new RTCPeerConnection()",
    "clipboard": "navigator.clipboard.readText()",
    "camera": "navigator.mediaDevices.getUserMedia({video: true})",
    "geolocation": (
        "new Promise((resolve, reject) => navigator.geolocation.getCurrentPosition(resolve, reject))"
    ),
    "bridge of another": "Object.getPrototypeOf(gsvCanvas).constructor('return parent.document')()",
}


@case("U1")
@rule("RS-58", "CV-05")
async def test_canvas_page_cannot_read_the_host_page(
    window: Window, tab: Tab, server: EaselProcess, api: CanvasApi
) -> None:
    tries = ", ".join(f"{json.dumps(name)}: async () => {{ return {way} }}" for name, way in READS.items())
    name = make_hostile_canvas(
        api,
        f"""
        const tries = {{ {tries} }}; window.got = {{}};
        (async () => {{
          for (const [name, way] of Object.entries(tries)) {{
            try {{ got[name] = String(await way()) }} catch (problem) {{ got[name] = null }}
          }}
          window.isDone = true;
        }})();""",
    )
    await open_tab(tab, server, name)
    await wait_in(tab, "window.isDone", frame=True)
    assert await tab.evaluate("self.origin", frame=True) == "null"
    assert {way: got for way, got in (await tab.evaluate("got", frame=True)).items() if got is not None} == {}
    assert await window.count_tabs() == 1


@case("U9")
@rule("CV-05")
async def test_canvas_page_cannot_call_the_api_with_the_sign_in(
    tab: Tab, server: EaselProcess, api: CanvasApi
) -> None:
    forged = json.dumps({"method": "canvas.delete", "params": {"canvasId": "x"}})
    name = make_hostile_canvas(api, f"""
        window.tried = 0; const ways = [
          () => fetch('/api/rpc', {{method: 'POST', credentials: 'include', body: {json.dumps(forged)}}}),
          () => fetch('/api/runs', {{credentials: 'include'}}),
          () => navigator.sendBeacon('/api/rpc', {json.dumps(forged)}),
          () => {{ new Image().src = '/api/artifacts/x' }},
          () => new WebSocket('ws://' + location.host + '/ws'),
          () => new EventSource('/sse/canvas/x', {{withCredentials: true}}),
          () => import('/ui/home.js'),
          () => {{
            const form = document.createElement('form');
            Object.assign(form, {{method: 'POST', action: '/sign-out'}});
            document.body.append(form); form.submit();
          }},
          () => {{
            const frame = document.createElement('iframe');
            frame.src = '/'; document.body.append(frame);
          }},
          () => {{ location.href = '/api/runs' }} ];
        for (const way of ways) {{
          try {{ Promise.resolve(way()).catch(() => {{}}) }} catch {{ }}
          tried += 1;
        }}""")  # fmt: skip
    harmless = api.make()
    async with Wire(server.base_url) as wire:
        await open_tab(tab, server, harmless, base_url=wire.base_url)  # signs in
        await tab.goto("about:blank")
        wire.answers.clear()
        await tab.goto(f"{wire.base_url}/canvas/main/{name}")
        if FIREFOX_STAYS:
            await wait_in(tab, "window.tried === 10", frame=True)
        else:
            await expect_text(tab, "#stage .left", "went somewhere else")
        await asyncio.sleep(LEAK_SECONDS)
        asked = [one.target for one in wire.answers]
    ours = ("/ui/", "/canvas/main/", "/canvas-view/", "/ws", "/healthz", "/favicon.ico")
    assert [target for target in asked if not target.startswith(ours)] == []
    assert [target for target in asked if target.startswith("/ws")] == ["/ws"], "the shell's one connection"
    assert [target for target in asked if target.startswith("/ui/home.js")] == []


# --- U2: the way out ----------------------------------------------------------------------------------------


async def check_ways(api: CanvasApi, listener: Listener, remaining: frozenset[str]) -> None:
    """Check that exactly the ways arrive that the guide names for this browser."""
    await api.until(lambda: listener.ways() >= remaining, f"{remaining}, else the guide must be corrected")
    await asyncio.sleep(LEAK_SECONDS)
    # A connection counts as `preconnect` until its first bytes arrive.
    assert listener.ways() <= (remaining | {"preconnect"} if remaining else remaining)


@case("U2")
@rule("RS-58")
async def test_canvas_page_reaches_no_other_port(
    window: Window, tab: Tab, server: EaselProcess, api: CanvasApi, enforces_allowlist: bool
) -> None:
    # An unprotected page gets out by nearly all ways: the listener notices them.
    async with (
        listen() as listener,
        serve_unprotected(f"{EMPTY_PAGE}<script>{script(PASSIVE_WAYS, listener)}</script>") as address,
    ):
        unprotected = await window.new_tab()
        await unprotected.goto(address)
        await wait_in(unprotected, "window.hasTried")
        await api.until(
            lambda: set(PASSIVE_WAYS) - listener.ways() <= silent_ways(),
            "requests by all ways",
        )
        await unprotected.close()
    async with listen() as listener:
        name = make_hostile_canvas(api, script(PASSIVE_WAYS, listener))
        await open_tab(tab, server, name)
        await wait_in(tab, "window.hasTried", frame=True)
        await check_ways(api, listener, remaining_ways("page", enforces_allowlist=enforces_allowlist))
        await expect_text(tab, "#notes", "problems")


OTHERS = tuple(way for way in PASSIVE_WAYS if way not in RTC_WAYS)


@case("U2")
@pytest.mark.parametrize("ways", [RTC_WAYS, OTHERS], ids=["WebRTC", "all others"])
async def test_frame_inside_a_canvas_page_reaches_no_other_port(
    tab: Tab, server: EaselProcess, api: CanvasApi, ways: tuple[str, ...], enforces_allowlist: bool
) -> None:
    """The SDK removes WebRTC from the page only. Chromium 156 ends a tab that tries it."""
    async with listen() as listener:
        name = make_hostile_canvas(api, "")
        tries = script({way: PASSIVE_WAYS[way] for way in ways}, listener)
        api.put(
            name,
            "assets/inner.js",
            "const report = (inner) => parent.postMessage({inner}, '*'); "
            f"addEventListener('message', () => {{ {tries}; report('tried') }}); report(typeof "
            f"RTCPeerConnection)",
        )
        await open_tab(tab, server, name)
        await tab.evaluate(
            """(() => {
              window.reports = [];
              addEventListener('message', ({data}) => { if (data.inner) reports.push(data.inner) });
              const inner = document.createElement('iframe');
              const folder = location.href.slice(0, location.href.lastIndexOf('/') + 1);
              inner.srcdoc = `<body><script src="${folder}inner.js"></script>`;
              document.body.append(inner);
            })()""",
            frame=True,
        )
        await wait_in(tab, "reports.length", frame=True)
        assert await tab.evaluate("reports", frame=True) == ["function"], "the inner frame has WebRTC"
        send = "document.querySelector('iframe').contentWindow.postMessage('now', '*')"
        await tab.evaluate(send, frame=True)
        if ways is OTHERS:  # of WebRTC the listener knows when it was tried
            await wait_in(tab, "reports.includes('tried')", frame=True)
        place = "WebRTC of an inner frame" if ways is RTC_WAYS else "inner frame"
        await check_ways(api, listener, remaining_ways(place, enforces_allowlist=enforces_allowlist))
        if ways is OTHERS:
            await expect_text(tab, "#link", "connected")


@case("U2")
async def test_canvas_page_cannot_navigate_to_another_site(
    window: Window, server: EaselProcess, api: CanvasApi, enforces_allowlist: bool
) -> None:
    """All ways at the same time, each in a page of its own."""
    await open_tab(first := await window.new_tab(), server, api.make())  # signs in
    await first.close()
    async with listen() as listener:

        async def try_way(way: str) -> None:
            # A message of an unknown kind announces the attempt; the shell shows it a second later.
            announce = "parent.postMessage({kind: 'leaving'}, '*');"
            name = make_hostile_canvas(api, announce + script({way: NAVIGATION_WAYS[way]}, listener))
            tab, address = await window.new_tab(), f"{server.base_url}/canvas/main/{name}"
            await tab.goto(address)
            noted = "document.querySelector('#notes-list')?.textContent.includes('no page may: leaving')"
            await wait_in(tab, noted)
            assert await tab.evaluate("location.href") == address, way

        await asyncio.gather(*map(try_way, NAVIGATION_WAYS))
        await check_ways(api, listener, remaining_ways("navigation", enforces_allowlist=enforces_allowlist))
        assert await window.count_tabs() == len(NAVIGATION_WAYS), "no window was opened"


@case("R7")
async def test_canvas_page_may_connect_to_the_origins_of_its_spec(
    tab: Tab, server: EaselProcess, api: CanvasApi
) -> None:
    """Each origin is in two headers, and an invalid one would block every connection."""
    policy = {
        **COCKPIT_SPEC["toolPolicy"],
        "connect": ["https://api.example.com:8443", "wss://xn--bcher-kva.example"],
    }
    name = api.make(MINIMAL_PAGE, {**COCKPIT_SPEC, "toolPolicy": policy})
    await open_tab(tab, server, name)
    tries = "for (const port of [8443, 8444]) fetch(`https://api.example.com:${port}/x`).catch(() => {})"
    await tab.evaluate(f"(() => {{ {tries} }})()", frame=True)
    await wait_in(tab, f"{NOTES}.includes('https://api.example.com:8444/x')")
    assert not await tab.evaluate(f"{NOTES}.includes('8443')")
    await tab.click("[data-gsv-action=refreshLogs]", frame=True)
    await expect_text(tab, "pre", "journal of api", frame=True)


NOTES = "document.querySelector('#notes-list').textContent"


async def test_page_that_navigated_away_can_be_shown_again(
    tab: Tab, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(f"{EMPTY_PAGE}<p data-gsv-text=state.service></p><script src=index.js></script>")
    api.put(
        name,
        "assets/index.js",
        "addEventListener('click', () => { location.href = 'https://example.com/' }); document.body.id = "
        "'ready'",
    )
    await open_tab(tab, server, name)
    await tab.click("#ready p", frame=True)
    if not FIREFOX_STAYS:
        await expect_text(tab, "#stage .left", "went somewhere else")
        await tab.click("#stage .left button")
        await wait_in(tab, f"{NOTES}.includes('It left the canvas')")
    await expect_text(tab, "p", "api", frame=True)


SCHEMES = [
    "javascript:parent.document.body.remove()",
    "JaVaScRiPt:top.x=1",
    " javascript:alert(1)",
    "\\x01javascript:alert(1)",
    "java\\nscript:alert(1)",
    "file:///etc/passwd",
    "data:text/html,<script>parent.postMessage({gsv:1},'*')</script>",
    "vbscript:x",
    "http://169.254.169.254/latest",
    "http://localhost@evil.example/",
    "//evil.example/",
    "blob:null/x",
    "about:srcdoc",
    "view-source:http://localhost/",
    "filesystem:http://x/",
]


@case("U6")
@rule("RS-58")
async def test_link_with_any_scheme_does_not_leave_the_canvas(
    window: Window, tab: Tab, server: EaselProcess, api: CanvasApi
) -> None:
    links = "".join(f'<a id="l{number}"></a>' for number in range(len(SCHEMES)))
    addresses = ", ".join(f'"{one}"' for one in (scheme.replace('"', "'") for scheme in SCHEMES))
    name = api.make(f"{EMPTY_PAGE}{links}<script src=index.js></script>")
    api.put(
        name,
        "assets/index.js",
        f"[{addresses}].forEach((href, n) => {{ const link = document.getElementById('l' + n); link.href = "
        f"href; link.textContent = 'link ' + n + ' ' }})",
    )
    await open_tab(tab, server, name)
    for number in range(len(SCHEMES)):
        await tab.click(f"#l{number}", frame=True)
        await expect_text(tab, f"#l{number}", f"link {number}", frame=True)
    loaded = "performance.getEntriesByType('resource').map(({name}) => name)"
    assert all(url.startswith(server.base_url) for url in await tab.evaluate(loaded))
    assert await tab.evaluate("location.href") == f"{server.base_url}/canvas/main/{name}"
    assert await window.count_tabs() == 1
    assert await tab.evaluate("document.body.isConnected && window.x === undefined")


# --- U8: the shell itself -----------------------------------------------------------------------------------


@case("U8")
async def test_other_site_cannot_frame_the_shell_or_a_view(
    tab: Tab, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(MINIMAL_PAGE)
    async with Wire(server.base_url) as wire:
        await open_tab(tab, server, name, base_url=wire.base_url)
        view = await tab.evaluate("location.href", frame=True)
        await tab.goto("about:blank")
        wire.answers.clear()
        addresses = [f"{wire.base_url}/canvas/main/{name}", f"{wire.base_url}/", view]
        frames = "".join(f"<iframe src='{one}'></iframe>" for one in addresses)
        async with serve_unprotected(f"<!doctype html>{frames}") as address:
            # Not `goto`: Firefox reports the refused frames as a failure of the page.
            await tab.evaluate(f"void (location.href = {json.dumps(address)})")
            await api.until(lambda: len(wire.answers) == len(addresses), "the frames are requested")
            await asyncio.sleep(LEAK_SECONDS)
            asked = {one.target for one in wire.answers}
    assert asked == {one.removeprefix(wire.base_url) for one in addresses}, (
        "a shown page would load its files"
    )


async def test_view_outside_of_the_frame_has_an_opaque_origin(
    window: Window, tab: Tab, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(f"{EMPTY_PAGE}<p data-gsv-text=state.service>nothing</p>")
    await open_tab(tab, server, name)
    view = await tab.evaluate("location.href", frame=True)
    alone = await window.new_tab()
    await alone.goto(view)
    assert await alone.evaluate("self.origin") == "null"
    cookie = "(() => { try { return document.cookie } catch (problem) { return problem.name } })()"
    assert await alone.evaluate(cookie) == "SecurityError"
    await wait_in(alone, "document.querySelector('p').textContent === ''")
