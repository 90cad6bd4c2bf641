"""Problems of a canvas are reported to its author with their place, and never as a blank page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.canvas import (
    COCKPIT_SPEC,
    MINIMAL_PAGE,
    CanvasApi,
    canvas_frame,
    open_canvas,
    pause_timers,
)
from tests.browser.console import TIMEOUT_SECONDS
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """Open a page whose script errors do not fail the test."""
    context = await browser.new_context(viewport={"width": 1000, "height": 700})
    opened = await context.new_page()
    opened.set_default_timeout(TIMEOUT_SECONDS * 1000)
    yield opened
    await context.close()


BROKEN = [
    # says                                   page
    # where and what
    ("a script that breaks", "<script src=index.js></script>", ["assets/index.js:2:8", "no is not defined"]),
    ("a script that cannot be read", "<script>let = = 3;</script>", ["SyntaxError"]),
    (
        "a script in the page that breaks",
        "<p>x</p>\n<script>null.x</script>",
        ["assets/index.html:2", "Cannot read properties of null"],
    ),
    (
        "a script in a line with others",
        "<p>ä😀</p><script src=data.js></script><script>no.such</script>",
        ["assets/index.html:1:63", "no is not defined"],
    ),
    (
        "a promise that nobody keeps",
        "<script>Promise.reject(new Error('kept by nobody'))</script>",
        ["promise", "kept by nobody"],
    ),
    (
        "a listener that breaks",
        "<script>gsvCanvas.subscribe(() => { throw new Error('deaf') })</script>",
        ["deaf"],
    ),
    (
        "a file that is not there",
        "<script src=gone.js></script>",
        ["<script>", "assets/gone.js could not be loaded"],
    ),
    ("a picture that is not there", "<img src=gone.png>", ["<img>", "assets/gone.png could not be loaded"]),
    (
        "a handler in an attribute",
        "<button onclick='alert(1)'>x</button><script>document.querySelector('button').click()</script>",
        ["Blocked by the page's policy (script-src-attr)", "data-gsv-action"],
    ),
    (
        "another site",
        "<script>fetch('https://api.example.com/')</script>",
        ["Blocked by the page's policy (connect-src): https://api.example.com", "toolPolicy.connect"],
    ),
    ("eval", "<script>eval('1')</script>", ["Blocked by the page's policy (script-src): eval"]),
    (
        "an action that there is not",
        '<button data-gsv-action="deplyo">x</button>',
        [
            '<button data-gsv-action="deplyo">',
            "There is no action “deplyo”. The spec has deploy, refreshLogs",
        ],
    ),
    (
        "a control that nothing binds",
        '<button data-gsv-control="buttons.nope">x</button>',
        ['<button data-gsv-control="buttons.nope">', "There is no binding “buttons.nope”"],
    ),
    (
        "a place that the state has not",
        '<b data-gsv-text="state.servce"></b>',
        ['<b data-gsv-text="state.servce">', "The state has no “servce”"],
    ),
    (
        "a place inside of a text",
        '<b data-gsv-text="state.service.name"></b>',
        ["The state has no “service.name”"],
    ),
    ("what is no place", '<b data-gsv-text="service"></b>', ["A path must begin with"]),
    (
        "a field that may not write",
        '<input data-gsv-model="state.lastDeploy2">',
        ["A page must not write here"],
    ),
    (
        "a model that is no field",
        '<p data-gsv-model="state.version"></p>',
        ["Only input, select and textarea"],
    ),
]


@rule("CV-51")
@pytest.mark.parametrize("html, told", [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
async def test_broken_page_reports_place_and_problem(
    page: Page, server: EaselProcess, api: CanvasApi, html: str, told: list[str]
) -> None:
    name = api.make(f"<!doctype html>{html}")
    api.put(name, "assets/index.js", "let a = 1;\nif (a) no.such;\n") if "src=index.js" in html else None
    await open_canvas(page, server, name)
    await expect(page.locator("#notes")).to_be_visible()
    for words in told:
        await expect(page.locator("#notes-list")).to_contain_text(words)
    await page.locator("#notes summary").click()
    await expect(page.locator("#notes-list li").first).to_be_visible()


async def test_binding_to_a_pending_result_is_not_reported(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(
        "<!doctype html><b data-gsv-text='state.logsTail.result'></b><i "
        "data-gsv-text='state.said.result.deep'></i><u data-gsv-text='state.lastDeploy.any'></u><p>seen</p>"
    )
    frame = await open_canvas(page, server, name)
    await expect(frame.locator("p")).to_have_text("seen")
    await expect(page.locator("#notes")).to_be_hidden()


@rule("CV-51")
async def test_failed_action_is_shown_with_its_reason(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(
        "<!doctype html><button data-gsv-action=fail>Fail</button><p data-gsv-text=state.service></p>"
    )
    frame = await open_canvas(page, server, name)
    await frame.get_by_text("Fail").click()
    await expect(page.locator("#notes-list")).to_contain_text("action fail")
    await expect(page.locator("#notes-list")).to_contain_text("gsv__Sleep")
    await expect(page.locator("#notes-count")).to_have_text("1 problem")
    await expect(frame.locator("button")).to_have_attribute("data-gsv-status", "failed")
    await page.locator("#notes summary").click()
    await page.get_by_role("button", name="Clear").click()
    await expect(page.locator("#notes")).to_be_hidden()


@rule("CV-51")
async def test_fixed_page_is_shown_without_its_problems(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make("<!doctype html><b data-gsv-text='state.servce'></b><script src=index.js></script>")
    api.put(name, "assets/index.js", "broken(")
    await open_canvas(page, server, name)
    await expect(page.locator("#notes-count")).to_have_text("2 problems")
    api.put(name, "assets/index.js", "document.title = 'mended'")
    await expect(page.locator("#notes-count")).to_have_text("1 problem")
    api.put(name, "assets/index.html", MINIMAL_PAGE)
    await expect(canvas_frame(page).locator("h1")).to_have_text("api")
    await expect(page.locator("#notes")).to_be_hidden()


@rule("CV-51", "CV-18")
async def test_fixed_spec_resolves_broken_bindings(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    name = api.make(
        "<!doctype html><button data-gsv-control=go>Go</button><p data-gsv-text=state.status></p>"
    )
    frame = await open_canvas(page, server, name)
    await expect(page.locator("#notes-count")).to_have_text("2 problems")
    api.rpc("canvas.patch", canvasId=name, spec={**COCKPIT_SPEC, "bindings": {"go": "setDeploying"}})
    await expect(page.locator("#notes-count")).to_have_text("1 problem")
    await frame.get_by_text("Go").click()
    await expect(frame.locator("p")).to_have_text("deploying")
    await expect(page.locator("#notes")).to_be_hidden()


async def test_entry_survives_reload_of_the_page(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    # A page has 1.5 s to hand over what was typed. Here it has as long as it takes: a busy machine may take
    # longer.
    await page.add_init_script(
        "(() => { const timer = setTimeout; window.setTimeout = (work, ms) => timer(work, ms === 1_500 ? "
        "60_000 : ms) })()"
    )
    name = api.make(MINIMAL_PAGE)
    frame = await open_canvas(page, server, name)
    await frame.locator("input").click()
    await page.keyboard.press("End")
    await pause_timers(page)
    await page.keyboard.type("-typed")
    api.put(name, "assets/index.html", MINIMAL_PAGE.replace("<h1", "<h2").replace("</h1", "</h2"))
    await expect(canvas_frame(page).locator("h2")).to_have_text("api")
    await api.until(lambda: api.state(name)["version"] == "1.2.7-typed", "what was typed")
    await expect(canvas_frame(page).locator("input")).to_have_value("1.2.7-typed")


# Holds back "pong" until the test releases it; the shell waits 50 ms for it instead of 2 s.
LATE = """(() => {
  if (self !== top) return;
  const timer = setTimeout, add = addEventListener.bind(window), late = [];
  window.comeAtLast = () => late.forEach((come) => come());
  window.setTimeout = (work, ms) => timer(work, ms === 2_000 ? 50 : ms);
  window.addEventListener = (kind, work, more) => add(kind, kind === "message" ? (event) => {
    if (event.data?.kind === "pong") late.push(() => work(event)); else work(event);
  } : work, more);
})()"""


async def test_slow_page_is_not_reported_as_left(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    await page.add_init_script(LATE)
    await open_canvas(page, server, api.make(MINIMAL_PAGE))
    await expect(page.locator("#stage .left")).to_be_visible()
    await expect(page.locator("#notes-list")).to_contain_text("It left the canvas")
    await page.evaluate("comeAtLast()")
    await expect(page.locator("#stage .left")).to_have_count(0)
    await expect(page.locator("#notes")).to_be_hidden()
