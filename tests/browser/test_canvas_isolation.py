"""Canvases that no person has accepted: their pages run only in a browser that isolates them. RS-63

Runs on the installed Chromium as it is and without `Connection-Allowlist`, and in `make browsers` on others.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.browser.canvas import EMPTY_PAGE, CanvasApi, open_tab
from tests.browser.canvas_ways_out import PASSIVE_WAYS, RTC_WAYS, listen, script
from tests.browser.tabs import (
    DrivenBrowser,
    Tab,
    TabCrashed,
    Window,
    expect_text,
    is_visible,
    wait_in,
)
from tests.requirements import case, rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

LEAK_SECONDS = 1.5  # a request of a page arrives within a few milliseconds
SPEC: dict[str, Any] = {
    "version": 1,
    "toolPolicy": {"allow": ["gsv__Echo"]},
    "state": {"secret": "customer-list-42", "said": None},
    "actions": {
        "say": {"kind": "tool.call", "tool": "gsv__Echo", "args": {"value": "hello"}, "saveAs": "said"}
    },
}
WITHHELD = "this browser cannot fully isolate the canvas’s own page, so it is shown only after you accept it"
OWN_PAGE = f"{EMPTY_PAGE}<h1>Own page</h1><script src=index.js></script>"
NESTED = """
const inner = document.createElement('iframe');
const folder = location.href.slice(0, location.href.lastIndexOf('/') + 1);
inner.srcdoc = `<body><script src="${folder}inner.js"></script>`;
document.body.append(inner);
"""


@pytest_asyncio.fixture(loop_scope="session")
async def unisolated_window(unisolating_browser: DrivenBrowser) -> AsyncIterator[Window]:
    opened = await unisolating_browser.new_window()
    yield opened
    await opened.close()


def make_unaccepted(api: CanvasApi, **scripts: str) -> str:
    """Create a canvas that no person has accepted. Its own page runs `index.js`."""
    name = f"c-{secrets.token_hex(4)}"
    files = {f"assets/{file}.js": text for file, text in {"index": "", **scripts}.items()}
    assets = {"assets/index.html": OWN_PAGE, **files}
    api.rpc("canvas.create", canvasId=name, spec=SPEC, assets=assets, accepted=False)
    return name


# --- U2: nothing gets out -----------------------------------------------------------------------------------


@rule("RS-63", "RS-58", "CV-05")
@case("U2")
async def test_nothing_gets_out_of_an_unaccepted_canvas(
    window: Window, unisolated_window: Window, server: EaselProcess, api: CanvasApi, enforces_allowlist: bool
) -> None:
    """As the review did: one page sends what it reads by WebRTC of a frame inside of it."""
    async with listen() as listener:
        others = script({way: text for way, text in PASSIVE_WAYS.items() if way not in RTC_WAYS}, listener)
        rtc = script({way: PASSIVE_WAYS[way] for way in RTC_WAYS}, listener)
        leave = f"location.href = 'http://{listener.address}/way-location'"
        by_webrtc = make_unaccepted(api, index=NESTED, inner=rtc)
        in_other_ways = [
            make_unaccepted(api, index=others),
            make_unaccepted(api, index=NESTED, inner=others),
            make_unaccepted(api, index=leave),
        ]
        for opened, is_run in ((unisolated_window, False), (window, enforces_allowlist)):

            async def attempt(name: str, opened: Window = opened, is_run: bool = is_run) -> None:
                tab = await opened.new_tab()
                await open_tab(tab, server, name)
                await wait_for_probe(tab)
                assert await is_visible(tab, "#withheld") is not is_run

            with contextlib.suppress(TabCrashed):  # Chromium 156 ends a tab that tries WebRTC
                await attempt(by_webrtc)
            await asyncio.gather(*map(attempt, in_other_ways))
            await asyncio.sleep(LEAK_SECONDS)
            assert listener.received == []


# --- what a person sees -------------------------------------------------------------------------------------


@rule("RS-63")
async def test_unaccepted_page_is_replaced_by_the_generated_one_where_nothing_isolates_it(
    unisolated_window: Window, server: EaselProcess, api: CanvasApi
) -> None:
    name = make_unaccepted(api, index="window.isOwn = true; document.body.id = 'own'")
    tab = await unisolated_window.new_tab()
    await open_tab(tab, server, name)
    await expect_text(tab, "#withheld", WITHHELD)
    assert not await is_visible(tab, "#partial")
    await expect_text(tab, "#state", "Secret", frame=True)
    assert not await tab.evaluate("'isOwn' in window", frame=True)
    await tab.click("[data-gsv-action=say]", frame=True)  # a person's gesture starts a tool
    await api.until(lambda: api.state(name)["said"], "the action's result")
    accept(api, name)
    await expect_text(tab, "h1", "Own page", frame=True)
    await wait_in(tab, "window.isOwn", frame=True)
    assert not await is_visible(tab, "#withheld")
    await expect_text(tab, "#partial", "it could send what it reads to other sites")
    await tab.click("#partial button")
    assert not await is_visible(tab, "#partial")
    await open_tab(tab, server, name)
    await wait_in(tab, "window.isOwn", frame=True)
    await wait_for_probe(tab)
    assert not await is_visible(tab, "#partial"), "said once"


@rule("RS-63")
async def test_page_follows_the_end_of_its_acceptance(
    unisolated_window: Window, server: EaselProcess, api: CanvasApi
) -> None:
    name = make_unaccepted(api, index="window.isOwn = true")
    accept(api, name)
    tab = await unisolated_window.new_tab()
    await open_tab(tab, server, name)
    await wait_in(tab, "window.isOwn", frame=True)
    changed = {"assets/index.html": OWN_PAGE, "assets/index.js": "window.isOther = true"}
    await api.as_agent(operation="upsert", canvasId=name, assets=changed)
    await expect_text(tab, "#withheld", WITHHELD)
    await expect_text(tab, "#state", "Secret", frame=True)
    assert not await tab.evaluate("'isOther' in window", frame=True)


@rule("RS-63")
async def test_unaccepted_page_runs_in_a_browser_that_isolates_it(
    tab: Tab, server: EaselProcess, api: CanvasApi, enforces_allowlist: bool
) -> None:
    name = make_unaccepted(api, index="window.isOwn = true")
    await open_tab(tab, server, name)
    await wait_for_probe(tab)
    assert await tab.evaluate("'isOwn' in window", frame=True) is enforces_allowlist
    assert await is_visible(tab, "#withheld") is not enforces_allowlist
    assert not await is_visible(tab, "#partial")


@rule("RS-63")
@case("U2")
async def test_unaccepted_page_does_not_run_outside_of_the_shell(
    window: Window, unisolated_window: Window, server: EaselProcess, api: CanvasApi
) -> None:
    """A page can put its own address into the state, and an agent can send it to a person as a link."""
    name = make_unaccepted(api, index="window.isOwn = true")
    for opened in (window, unisolated_window):
        tab = await opened.new_tab()
        await open_tab(tab, server, name)
        for view in await tab.evaluate("[document.body.dataset.view, document.body.dataset.isolated]"):
            await tab.goto(f"{view}assets/index.html")
            await wait_in(tab, "document.readyState === 'complete'")
            assert not await tab.evaluate("'isOwn' in window || !!document.querySelector('h1')")
            await open_tab(tab, server, name)


# --- gestures -----------------------------------------------------------------------------------------------


@rule("RS-63", "CV-05")
async def test_unaccepted_page_starts_no_tool_without_a_gesture(
    tab: Tab, server: EaselProcess, api: CanvasApi, enforces_allowlist: bool
) -> None:
    run = "const run = () => gsvCanvas.runAction('say').catch(() => {}); "
    name = make_unaccepted(api, index=f"{run} document.querySelector('h1').onclick = run; run()")
    await open_tab(tab, server, make_unaccepted(api))  # signs in
    # A driver's script counts as a gesture, so nothing is evaluated until the server has refused.
    await tab.goto(f"{server.base_url}/canvas/main/{name}")
    if not enforces_allowlist:
        await expect_text(tab, "#withheld", WITHHELD)
        return
    refusals = await api.until(lambda: api.audit("guardrail.refused", name), "the refusal")
    assert "without a click or key press" in json.dumps(refusals)
    assert api.records(name) == []
    await expect_text(tab, "#notes-latest", "without a click or key press of yours")
    await tab.click("h1", frame=True)
    await api.until(lambda: api.state(name)["said"], "the action's result")


def accept(api: CanvasApi, name: str) -> None:
    api.rpc("canvas.accept", canvasId=name, revision=api.rpc("canvas.get", canvasId=name)["revision"])


async def wait_for_probe(tab: Tab) -> None:
    """Wait until the frame of the probe is gone: the result is known."""
    await wait_in(tab, "document.querySelectorAll('iframe').length === 1")
