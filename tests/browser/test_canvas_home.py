"""The home page lists what there is: canvases with links to their pages, the latest runs, and the machines that offer tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import Page, expect

from tests.browser.canvas import MINIMAL, Desk, inside
from tests.browser.console import enter, expect_ended, say, script

if TYPE_CHECKING:
    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def test_the_home_page_leads_to_canvases_and_runs_and_names_nodes(page: Page, server: EaselProcess) -> None:
    with Desk(server) as desk:
        name = desk.make(MINIMAL)
        desk.rpc("canvas.patch", canvasId=name, title="Cockpit <b>of</b> mine")
        session = await enter(page, server)
        await say(page, script({"say": "A run to be listed."}))
        await expect_ended(page)
        run = page.locator("#run-list li", has_text="A run to be listed").first
        await expect(run).to_contain_text("completed")
        assert f"session={session}" in (await run.locator("a").get_attribute("href") or "")
        [local] = desk.rpc("nodes.list")["nodes"]
        await expect(page.locator("#node-list strong")).to_have_text(["local"])
        await expect(page.locator("#node-list li")).to_contain_text(f"{len(local['tools'])} tools Bash: {local['bash']}")
        await page.get_by_role("link", name="Cockpit <b>of</b> mine").click()
        await expect(inside(page).locator("h1")).to_have_text("api")
        await page.get_by_role("link", name="Easel").click()
        await expect(page.locator("#canvas-list")).to_contain_text("Cockpit <b>of</b> mine")
