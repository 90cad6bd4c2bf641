"""The home page lists canvases, the latest runs and tool nodes; unknown addresses link to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.canvas import MINIMAL_PAGE, CanvasApi, canvas_frame
from tests.browser.console import expect_ended, open_session, script, send_message
from tests.support.processes import Launcher

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_home_page_lists_canvases_runs_and_nodes(page: Page, server: EaselProcess) -> None:
    with CanvasApi(server) as api:
        name = api.make(MINIMAL_PAGE)
        api.rpc("canvas.patch", canvasId=name, title="Cockpit <b>of</b> mine")
        session = await open_session(page, server)
        await send_message(page, script({"say": "A run to be listed."}))
        await expect_ended(page)
        run = page.locator("#run-list li", has_text="A run to be listed").first
        await expect(run).to_contain_text("completed")
        assert f"session={session}" in (await run.locator("a").get_attribute("href") or "")
        [local] = api.rpc("nodes.list")["nodes"]
        await expect(page.locator("#node-list strong")).to_have_text(["local"])
        await expect(page.locator("#node-list li")).to_contain_text(
            f"{len(local['tools'])} tools Bash: {local['bash']}"
        )
        await page.get_by_role("link", name="Cockpit <b>of</b> mine").click()
        await expect(canvas_frame(page).locator("h1")).to_have_text("api")
        await page.get_by_role("link", name="Easel").click()
        await expect(page.locator("#canvas-list")).to_contain_text("Cockpit <b>of</b> mine")


@pytest.mark.parametrize("size", [(1200, 900), (375, 700)], ids=["desk", "phone"])
async def test_empty_session_suggests_canvases(
    page: Page, server: EaselProcess, size: tuple[int, int]
) -> None:
    await page.set_viewport_size({"width": size[0], "height": size[1]})
    with CanvasApi(server) as api:
        name = api.make(MINIMAL_PAGE)
        await open_session(page, server)
        await expect(page.locator("#first-canvases a").first).to_have_text(f"Canvas {name}")  # the newest
        await expect(page.locator("#first-canvases a").first).to_be_in_viewport(ratio=1)
        if size[0] < 700:
            await page.get_by_role("button", name="Canvases and run").click()
        await expect(page.locator("#canvas-list a").first).to_be_in_viewport(ratio=1)
        await page.locator("#canvas-list a").first.click()
        await expect(canvas_frame(page).locator("h1")).to_have_text("api")


async def test_canvases_are_listed_newest_first_searched_and_created(
    page: Page, server: EaselProcess
) -> None:
    with CanvasApi(server) as api:
        names = [api.make(MINIMAL_PAGE) for _ in range(9)]
        api.rpc("canvas.patch", canvasId=names[4], title="لوحة القيادة")
        await open_session(page, server)
        rows = page.locator("#canvas-list li")
        await expect(rows).to_have_count(8)
        await expect(rows.first).to_contain_text("لوحة القيادة")
        [title, when] = [await rows.first.locator(one).bounding_box() for one in ("a", "time")]
        assert title
        assert when
        assert title["x"] + title["width"] <= when["x"], (
            "a title in another direction does not tear its time apart"
        )
        await page.locator("#more-canvases").click()
        await expect(rows).to_have_count(len(api.rpc("canvas.list")["canvases"]))
        await page.get_by_label("Search canvases").fill(names[0])
        await expect(rows).to_have_count(1)
        await page.get_by_label("Search canvases").fill("no canvas is called so")
        await expect(page.locator("#no-canvases")).to_have_text("No canvas has this in its title or id.")
        await page.get_by_role("button", name="New canvas").click()
        await page.get_by_label("Title of the new canvas").fill(f"Höhe & Breite {names[0]}")
        await page.keyboard.press("Enter")
        await expect(page.locator("#title")).to_have_text(f"Höhe & Breite {names[0]}")
        await expect(canvas_frame(page).locator("#nothing")).to_be_visible()


async def test_first_visit_requests_nothing_that_is_missing(browser: Browser, tmp_path: Path) -> None:
    with Launcher(tmp_path) as launcher:
        (server,) = launcher.ready(launcher.up())
        context = await browser.new_context()
        page = await context.new_page()
        refused: list[str] = []
        page.on("response", lambda answer: refused.append(answer.url) if answer.status >= 400 else None)
        page.on("console", lambda message: refused.append(message.text) if message.type == "error" else None)
        await page.goto(f"{server.base_url}/?token={server.token}")
        await expect(page.locator("#link")).to_have_text("connected")
        await expect(page.locator("#no-canvases")).to_contain_text("None yet.")
        assert refused == []
        await send_message(page, "Hello!")
        await expect_ended(page)
        assert refused == []
        await context.close()


async def test_unknown_address_links_to_the_home_page(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    for path in ("/nowhere", "/canvas/main", "/api/nothing", "/canvas/main/nope", "/ui/nothing.css"):
        answer = await page.goto(f"{server.base_url}{path}")
        assert answer
        assert answer.status == 404
        await expect(page.get_by_role("link", name="All canvases")).to_have_attribute("href", "/")
    for accept in ("*/*", "application/json", "application/json, text/html;q=0.9", ""):
        told = await page.context.request.get(f"{server.base_url}/nowhere", headers={"accept": accept})
        assert (told.status, (await told.json())["error"]["name"]) == (404, "NOT_FOUND")
    await page.context.clear_cookies()
    await page.goto(f"{server.base_url}/api/docs")
    await page.get_by_role("link", name="Sign in").click()
    await expect(page.get_by_label("Token")).to_be_visible()
