"""Every page is readable in its light and its dark colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from easel.demo import CANVASES
from tests.browser.canvas import COCKPIT_SPEC, CanvasApi, loaded_frame, open_canvas, read_to_the_end
from tests.browser.colours import contrasts, expect_readable
from tests.browser.console import click_example, expect_ended, open_session, script, send_message
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

ASKS: dict[str, Any] = {**COCKPIT_SPEC["actions"]["deploy"], "title": "Ask me"}
GENERATED: dict[str, Any] = {
    **COCKPIT_SPEC,
    "state": {
        **COCKPIT_SPEC["state"],
        "long": "words and words " * 20,
        "on": True,
        "count": 3,
        "hosts": [{"name": "a"}],
    },
    "actions": {**COCKPIT_SPEC["actions"], "ask": ASKS},
}
BARE = (
    "<!doctype html><style>{style}</style><h1>Nothing but text</h1><p>Of a page that paints "
    "nothing.</p><p>And more.</p>"
)


@pytest_asyncio.fixture(loop_scope="session", params=["light", "dark"])
async def page(request: pytest.FixtureRequest, browser: Browser) -> AsyncIterator[Page]:
    """Open a page with a light or dark colour scheme."""
    context = await browser.new_context(viewport={"width": 1200, "height": 1100}, color_scheme=request.param)
    yield await context.new_page()
    await context.close()


@rule("CV-30")
@pytest.mark.usefixtures("demo_canvases")
@pytest.mark.parametrize("demo", CANVASES, ids=lambda one: one.canvas_id)
async def test_demo_canvases_are_readable(
    page: Page, server: EaselProcess, api: CanvasApi, demo: Any
) -> None:
    first_button = next(iter(demo.spec["actions"]))
    api.rpc("canvas.action", canvasId=demo.canvas_id, actionId=first_button)  # so that there is a result too
    frame = await open_canvas(page, server, demo.canvas_id)
    await expect(frame.locator("h1")).to_be_visible()
    await expect_readable(page, "body", await loaded_frame(page), at_least=6)
    await expect_readable(page, "header")


@pytest.mark.parametrize(
    "style",
    [
        "",
        ":root { color-scheme: light dark }",
        ":root { color-scheme: dark }",
        ":root { color-scheme: light }",
    ],
)
async def test_custom_page_without_background_is_readable(
    page: Page, server: EaselProcess, api: CanvasApi, style: str
) -> None:
    """It gets a background from its frame, or from the browser if its colour scheme differs."""
    await open_canvas(page, server, api.make(BARE.replace("{style}", style)))
    await expect_readable(page, "body", await loaded_frame(page))


async def test_generated_page_and_its_shell_are_readable(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(None, GENERATED)
    frame = await open_canvas(page, server, name)
    await frame.get_by_role("button", name="Refresh logs").click()
    await expect(frame.locator("[data-outcome=refreshLogs]")).to_have_text("done")
    await frame.get_by_role("button", name="Fail").click()
    await expect(frame.locator("[data-outcome=fail]")).to_contain_text("failed")
    await frame.get_by_role("button", name="Ask me").click()
    await expect(page.locator("#consent-call")).to_contain_text("./deploy api")
    await expect(page.locator("#consent-approve")).to_be_enabled()
    await expect_readable(page, "#consent", at_least=8)
    await page.keyboard.press("Escape")
    await expect(page.locator("#waiting")).to_be_visible()
    await page.locator("#notes summary").click()
    await frame.get_by_role("button", name="Wait").click()
    await expect(page.locator("#running")).to_have_text("running: wait")
    await expect_readable(page, "body", at_least=8)
    await expect_readable(page, "body", await loaded_frame(page), at_least=15)
    await page.get_by_role("button", name="Stop wait").click()


@rule("RS-59")
async def test_accept_panel_is_readable(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    spec = {name: part for name, part in COCKPIT_SPEC.items() if name != "bindings"}
    name = f"by-agent-{len(api.rpc('canvas.list')['canvases'])}"
    await api.as_agent(operation="upsert", canvasId=name, title="By an agent", spec=spec)
    await open_canvas(page, server, name)
    await read_to_the_end(page)
    await expect_readable(page, "#accept", at_least=8)


async def test_home_page_is_readable(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    await open_session(page, server)
    await expect(page.locator("#first-canvases a").first).to_be_visible()
    await expect_readable(page, "body", at_least=20)
    await click_example(page, "Use some tools")
    await expect_ended(page)
    await send_message(page, script({"say": "Not well."}, {"fail": "as requested"}))
    await expect_ended(page, "failed")
    await page.locator("#turns details").first.click()
    await expect_readable(page, "body", at_least=20)


async def test_other_pages_are_readable(page: Page, server: EaselProcess) -> None:
    await page.goto(f"{server.base_url}/?token=wrong")
    await expect_readable(page)
    await open_session(page, server)
    await page.goto(f"{server.base_url}/nowhere")
    await expect_readable(page)
    await page.goto(f"{server.base_url}/api/docs")
    await expect(page.locator("section").first).to_be_visible()
    await expect_readable(page, at_least=10)


async def test_low_contrast_is_detected(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    """Check the measurement itself with a text in the colour of its background."""
    style = ":root { color-scheme: light dark } h1 { color: Canvas } p { color: light-dark(#999, #666) }"
    await open_canvas(page, server, api.make(BARE.replace("{style}", style)))
    found = {one[0]: one[1] for one in await contrasts(page, "body", await loaded_frame(page))}
    assert found["Nothing but text"] < 1.1
    assert found["And more."] < 4
