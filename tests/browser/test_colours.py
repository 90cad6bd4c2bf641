"""Every page can be read in the light and in the dark: what is written stands out from what is painted behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from easel.demo import CANVASES
from tests.browser.canvas import COCKPIT, Desk, show, the_frame
from tests.browser.colours import contrasts, expect_readable
from tests.browser.console import enter, expect_ended, press, say, script
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

ASKS: dict[str, Any] = {**COCKPIT["actions"]["deploy"], "title": "Ask me"}
GENERATED: dict[str, Any] = {
    **COCKPIT,
    "state": {
        **COCKPIT["state"],
        "long": "words and words " * 20,
        "on": True,
        "count": 3,
        "hosts": [{"name": "a"}],
    },
    "actions": {**COCKPIT["actions"], "ask": ASKS},
}
BARE = "<!doctype html><style>{style}</style><h1>Nothing but text</h1><p>Of a page that paints nothing.</p><p>And more.</p>"


@pytest.fixture(scope="module")
def desk(server: EaselProcess) -> Iterator[Desk]:
    with Desk(server) as desk:
        for one in CANVASES:
            desk.rpc("canvas.create", **one.params)
        yield desk


@pytest_asyncio.fixture(loop_scope="module", params=["light", "dark"])
async def seen(request: pytest.FixtureRequest, browser: Browser) -> AsyncIterator[Page]:
    """A window of somebody whose system is set so."""
    context = await browser.new_context(viewport={"width": 1200, "height": 1100}, color_scheme=request.param)
    yield await context.new_page()
    await context.close()


@rule("CV-30")
@pytest.mark.parametrize("demo", CANVASES, ids=lambda one: one.canvas_id)
async def test_the_canvases_for_newcomers(seen: Page, server: EaselProcess, desk: Desk, demo: Any) -> None:
    first_button = next(iter(demo.spec["actions"]))
    desk.rpc("canvas.action", canvasId=demo.canvas_id, actionId=first_button)  # so that there is a result too
    frame = await show(seen, server, demo.canvas_id)
    await expect(frame.locator("h1")).to_be_visible()
    await expect_readable(seen, "body", await the_frame(seen), at_least=6)
    await expect_readable(seen, "header")


@pytest.mark.parametrize(
    "style",
    [
        "",
        ":root { color-scheme: light dark }",
        ":root { color-scheme: dark }",
        ":root { color-scheme: light }",
    ],
)
async def test_a_page_of_its_own_that_paints_no_background(
    seen: Page, server: EaselProcess, desk: Desk, style: str
) -> None:
    """Which it has from its frame, or from the browser where its colours are others than the frame's."""
    await show(seen, server, desk.make(BARE.replace("{style}", style)))
    await expect_readable(seen, "body", await the_frame(seen))


async def test_a_generated_page_and_what_its_shell_says(seen: Page, server: EaselProcess, desk: Desk) -> None:
    name = desk.make(None, GENERATED)
    frame = await show(seen, server, name)
    await frame.get_by_role("button", name="Refresh logs").click()
    await expect(frame.locator("[data-outcome=refreshLogs]")).to_have_text("done")
    await frame.get_by_role("button", name="Fail").click()
    await expect(frame.locator("[data-outcome=fail]")).to_contain_text("failed")
    await frame.get_by_role("button", name="Ask me").click()
    await expect(seen.locator("#consent-call")).to_contain_text("./deploy api")
    await expect(seen.locator("#consent-approve")).to_be_enabled()
    await expect_readable(seen, "#consent", at_least=8)
    await seen.keyboard.press("Escape")
    await expect(seen.locator("#waiting")).to_be_visible()
    await seen.locator("#notes summary").click()
    await frame.get_by_role("button", name="Wait").click()
    await expect(seen.locator("#running")).to_have_text("running: wait")
    await expect_readable(seen, "body", at_least=8)
    await expect_readable(seen, "body", await the_frame(seen), at_least=15)
    await seen.get_by_role("button", name="Stop wait").click()


@rule("RS-59")
async def test_what_an_agent_wrote_and_nobody_has_accepted(
    seen: Page, server: EaselProcess, desk: Desk
) -> None:
    spec = {name: part for name, part in COCKPIT.items() if name != "bindings"}
    name = f"by-agent-{len(desk.rpc('canvas.list')['canvases'])}"
    await desk.as_agent(operation="upsert", canvasId=name, title="By an agent", spec=spec)
    await show(seen, server, name)
    await expect(seen.locator("#accept-now")).to_be_enabled()
    await expect_readable(seen, "#accept", at_least=8)


async def test_the_home_page_empty_and_with_a_run(seen: Page, server: EaselProcess, desk: Desk) -> None:
    await enter(seen, server)
    await expect(seen.locator("#first-canvases a").first).to_be_visible()
    await expect_readable(seen, "body", at_least=20)
    await press(seen, "Use some tools")
    await expect_ended(seen)
    await say(seen, script({"say": "Not well."}, {"fail": "as requested"}))
    await expect_ended(seen, "failed")
    await seen.locator("#turns details").first.click()
    await expect_readable(seen, "body", at_least=20)


async def test_the_other_pages(seen: Page, server: EaselProcess) -> None:
    await seen.goto(f"{server.base_url}/?token=wrong")
    await expect_readable(seen)
    await enter(seen, server)
    await seen.goto(f"{server.base_url}/nowhere")
    await expect_readable(seen)
    await seen.goto(f"{server.base_url}/api/docs")
    await expect(seen.locator("section").first).to_be_visible()
    await expect_readable(seen, at_least=10)


async def test_what_cannot_be_read_is_found(seen: Page, server: EaselProcess, desk: Desk) -> None:
    """The measure itself: text in the colour of what is behind it, by a style or by what lies under the frame."""
    style = ":root { color-scheme: light dark } h1 { color: Canvas } p { color: light-dark(#999, #666) }"
    await show(seen, server, desk.make(BARE.replace("{style}", style)))
    found = {one[0]: one[1] for one in await contrasts(seen, "body", await the_frame(seen))}
    assert found["Nothing but text"] < 1.1
    assert found["And more."] < 4
