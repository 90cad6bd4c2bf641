"""Hostile canvas pages: they cannot read the host page, connect elsewhere, navigate, or be framed."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.browser.canvas import (
    COCKPIT_SPEC,
    EMPTY_PAGE,
    MINIMAL_PAGE,
    CanvasApi,
    canvas_frame,
    loaded_frame,
    make_hostile_canvas,
    open_canvas,
    sign_in,
    wait_in_frame,
)
from tests.browser.canvas_ways_out import (
    ALLOWLIST_ONLY_WAYS,
    NAVIGATION_WAYS,
    PASSIVE_WAYS,
    listen,
    script,
    serve_unprotected,
)
from tests.browser.wire import Wire
from tests.edges.http.live import cookie_name
from tests.requirements import case, rule

if TYPE_CHECKING:
    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

LEAK_SECONDS = 1.5  # a request of a page arrives within a few milliseconds


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext) -> Page:
    """Open a page whose script errors do not fail the test."""
    return await context.new_page()


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
    page: Page, server: EaselProcess, api: CanvasApi
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
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    await wait_in_frame(frame, "window.isDone")
    assert await frame.evaluate("self.origin") == "null"
    assert {way: got for way, got in (await frame.evaluate("got")).items() if got is not None} == {}
    assert len(page.context.pages) == 1
    cookies = {one.get("name"): one.get("httpOnly") for one in await page.context.cookies()}
    assert cookies == {cookie_name(server.base_url): True}, "there was something to read"


@case("U9")
@rule("CV-05")
async def test_canvas_page_cannot_call_the_api_with_the_sign_in(
    page: Page, server: EaselProcess, api: CanvasApi
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
    async with Wire(server.base_url) as wire:
        await sign_in(page.context, server, wire.base_url)
        wire.answers.clear()
        await page.goto(f"{wire.base_url}/canvas/main/{name}")
        await expect(page.locator("#link")).to_have_text("connected")
        await expect(
            page.locator("#stage .left")
        ).to_be_visible()  # it tried to go away, and its place is taken
        await asyncio.sleep(LEAK_SECONDS)
        asked = [one.target for one in wire.answers]
    ours = ("/ui/", "/canvas/main/", "/canvas-view/", "/ws", "/healthz")
    assert [target for target in asked if not target.startswith(ours)] == []
    assert [target for target in asked if target.startswith("/ws")] == ["/ws"], "the shell's one connection"
    assert [target for target in asked if target.startswith("/ui/home.js")] == []


# --- U2: the way out ----------------------------------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def enforces_allowlist(browser: Browser) -> bool:
    """Whether this browser enforces `Connection-Allowlist`: a page with an empty list fetches from a
    listener.

    Chromium 150 ignores the header, Chromium 156 enforces it.
    """
    probe = (
        "fetch('http://LISTENER/way-fetch', {mode: 'no-cors'}).catch(() => {}).finally(() => { "
        "window.hasTried = true })"
    )
    async with listen() as listener:
        html = f"{EMPTY_PAGE}<script>{probe.replace('LISTENER', listener.address)}</script>"
        async with serve_unprotected(html, "connection-allowlist: ()\r\n") as address:
            context = await browser.new_context()
            page = await context.new_page()
            await page.goto(address)
            await wait_in_frame(page.main_frame, "window.hasTried")
            await context.close()
        return listener.received == []


def open_ways(enforces_allowlist: bool) -> frozenset[str]:
    """Return the known ways out of a page in this browser."""
    return frozenset() if enforces_allowlist else ALLOWLIST_ONLY_WAYS


@case("U2")
@rule("RS-58")
async def test_canvas_page_reaches_no_other_port(
    page: Page, server: EaselProcess, api: CanvasApi, enforces_allowlist: bool
) -> None:
    # An unprotected page gets out by nearly all ways: the listener notices them.
    async with (
        listen() as listener,
        serve_unprotected(f"{EMPTY_PAGE}<script>{script(PASSIVE_WAYS, listener)}</script>") as address,
    ):
        unprotected = await page.context.new_page()
        await unprotected.goto(address)
        await wait_in_frame(unprotected.main_frame, "window.hasTried")
        # Chromium does not prefetch in a test, and a headless window has no icon.
        idle = {
            "preconnect",
            "dns-prefetch",
            "icon",
            "ping",
            "speculation",
            "fetch-keepalive",
            "modulepreload",
        }
        await api.until(lambda: set(PASSIVE_WAYS) - listener.ways() <= idle, "requests by all ways")
        await unprotected.close()
    async with listen() as listener:
        name = make_hostile_canvas(api, script(PASSIVE_WAYS, listener))
        await open_canvas(page, server, name)
        await wait_in_frame(await loaded_frame(page), "window.hasTried")
        await asyncio.sleep(LEAK_SECONDS)
        assert listener.ways() <= open_ways(enforces_allowlist)
        await expect(page.locator("#notes")).to_contain_text("problems")


RTC = ("stun", "turn")
OTHERS = tuple(way for way in PASSIVE_WAYS if way not in RTC)


@case("U2")
@pytest.mark.parametrize("ways", [RTC, OTHERS], ids=["WebRTC", "all others"])
async def test_frame_inside_a_canvas_page_reaches_no_other_port(
    page: Page, server: EaselProcess, api: CanvasApi, ways: tuple[str, ...], enforces_allowlist: bool
) -> None:
    """The SDK removes WebRTC from the page only. Chromium 156 ends a frame that tries it."""
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
        await open_canvas(page, server, name)
        frame = await loaded_frame(page)
        reports: list[str] = []
        await page.context.expose_binding("reportInner", lambda _, report: reports.append(report))
        await frame.evaluate(
            """(folder) => {
              addEventListener('message', ({data}) => { if (data.inner) reportInner(data.inner) });
              const inner = document.createElement('iframe');
              inner.srcdoc = `<body><script src="${folder}inner.js"></script>`;
              document.body.append(inner);
            }""",
            frame.url.rpartition("/")[0] + "/",
        )
        await api.until(lambda: reports, "the inner frame")
        assert reports == ["function"], "WebRTC is available in the inner frame"
        await frame.evaluate("document.querySelector('iframe').contentWindow.postMessage('now', '*')")
        if ways is not RTC:  # the frame reports it, because one of the ways navigates it
            await api.until(lambda: "tried" in reports, "all ways tried")
        await asyncio.sleep(LEAK_SECONDS)
        assert listener.ways() <= open_ways(enforces_allowlist)
        if ways is RTC:
            assert enforces_allowlist or listener.ways() >= set(RTC), (
                "then ALLOWLIST_ONLY_WAYS must be corrected"
            )
        else:
            await expect(page.locator("#link")).to_have_text("connected")


@case("U2")
async def test_canvas_page_cannot_navigate_to_another_site(
    context: BrowserContext, server: EaselProcess, api: CanvasApi, enforces_allowlist: bool
) -> None:
    """All ways at the same time, each in a page of its own."""
    async with listen() as listener:
        await sign_in(context, server)

        async def try_way(way: str) -> None:
            # A message of an unknown kind announces the attempt; the shell shows it a second later.
            announce = "parent.postMessage({kind: 'leaving'}, '*');"
            name = make_hostile_canvas(api, announce + script({way: NAVIGATION_WAYS[way]}, listener))
            page = await context.new_page()
            await page.goto(f"{server.base_url}/canvas/main/{name}")
            await expect(page.locator("#link")).to_have_text("connected")
            await expect(page.locator("#notes-list"), way).to_contain_text("no page may: leaving")
            assert page.url == f"{server.base_url}/canvas/main/{name}", way

        await asyncio.gather(*map(try_way, NAVIGATION_WAYS))
        assert listener.ways() <= open_ways(enforces_allowlist)
        assert len(context.pages) == len(NAVIGATION_WAYS), "no window was opened"


@case("R7")
async def test_canvas_page_may_connect_to_the_origins_of_its_spec(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    """Each origin is in two headers, and an invalid one would block every connection."""
    policy = {
        **COCKPIT_SPEC["toolPolicy"],
        "connect": ["https://api.example.com:8443", "wss://xn--bcher-kva.example"],
    }
    name = api.make(MINIMAL_PAGE, {**COCKPIT_SPEC, "toolPolicy": policy})
    frame = await open_canvas(page, server, name)
    await (await loaded_frame(page)).evaluate(
        "for (const port of [8443, 8444]) fetch(`https://api.example.com:${port}/x`).catch(() => {})"
    )
    await expect(page.locator("#notes-list")).to_contain_text("https://api.example.com:8444/x")
    await expect(page.locator("#notes-list")).not_to_contain_text("8443")
    await frame.get_by_text("Refresh Logs").click()
    await expect(frame.locator("pre")).to_have_text("journal of api")


async def test_page_that_navigated_away_can_be_shown_again(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(f"{EMPTY_PAGE}<p data-gsv-text=state.service></p><script src=index.js></script>")
    api.put(
        name,
        "assets/index.js",
        "addEventListener('click', () => { location.href = 'https://example.com/' }); document.body.id = "
        "'ready'",
    )
    frame = await open_canvas(page, server, name)
    await frame.locator("#ready").click()
    await expect(page.locator("#stage .left")).to_contain_text("went somewhere else")
    await page.get_by_role("button", name="Show the canvas again").click()
    await expect(canvas_frame(page).locator("p")).to_have_text("api")
    await expect(page.locator("#notes-list")).to_contain_text("It left the canvas")


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
    page: Page, server: EaselProcess, api: CanvasApi
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
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    frame = await open_canvas(page, server, name)
    for number in range(len(SCHEMES)):
        await frame.locator(f"#l{number}").click()
        await expect(frame.locator(f"#l{number}"), f"after {SCHEMES[number]}").to_be_visible()
    assert all(url.startswith(server.base_url) for url in asked), asked
    assert (len(page.context.pages), page.url) == (1, f"{server.base_url}/canvas/main/{name}")
    assert await page.evaluate("document.body.isConnected && window.x === undefined")


# --- U8: the shell itself -----------------------------------------------------------------------------------


@case("U8")
async def test_other_site_cannot_frame_the_shell_or_a_view(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(MINIMAL_PAGE)
    await open_canvas(page, server, name)
    view = (await loaded_frame(page)).url
    addresses = [f"{server.base_url}/canvas/main/{name}", f"{server.base_url}/", view]
    frames = "".join(f"<iframe src='{one}'></iframe>" for one in addresses)
    async with serve_unprotected(f"<!doctype html>{frames}") as address:
        other = await page.context.new_page()
        await other.goto(address)
        assert len(other.frames) == 1 + len(addresses)
        await api.until(
            lambda: all(one.url.startswith("chrome-error:") for one in other.frames[1:]),
            "none of them is shown",
        )


async def test_view_outside_of_the_frame_has_an_opaque_origin(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(f"{EMPTY_PAGE}<p data-gsv-text=state.service>nothing</p>")
    await open_canvas(page, server, name)
    view = (await loaded_frame(page)).url
    alone = await page.context.new_page()
    await alone.goto(view)
    assert await alone.evaluate("self.origin") == "null"
    assert (
        await alone.evaluate(
            "(() => { try { return document.cookie } catch (problem) { return problem.name } })()"
        )
        == "SecurityError"
    )
    await expect(alone.locator("p")).to_have_text("")
