"""The server dies under an open page and comes back: the page says so, reconnects and finishes by itself."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import link_of
from tests.requirements import case, rule
from tests.support.processes import Launcher

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@case("J5")
@rule("RX-48", "RX-49")
async def test_a_page_outlives_a_killed_server_and_sees_its_run_finish(page: Page, tmp_path: Path) -> None:
    with Launcher(tmp_path, settings={"CLAIM_SECONDS": "1", "POLL_SECONDS": "0.2"}) as launcher:
        server = launcher.up()
        await asyncio.to_thread(server.wait_ready)
        await page.goto(link_of(server))
        steps = [{"say": "Before."}, {"call": "gsv__Clock", "args": {}}, {"ticks": 8, "every_ms": 150}, {"say": "After."}]
        await page.get_by_label("Message").fill(json.dumps({"script": steps}))
        await page.get_by_role("button", name="Run", exact=True).click()
        await expect(page.locator("#answer")).to_contain_text("tick 3")
        server.kill()
        await expect(page.locator("#stream")).to_have_text("reconnecting…")
        again = launcher.again(server)
        await asyncio.to_thread(again.wait_ready)
        await expect(page.locator("#run-status")).to_have_text("completed")
        ticks = "".join(f"tick {number}\n" for number in range(1, 9))
        await expect(page.locator("#answer")).to_have_text(f"Before.\n\n{ticks}After.")
        await expect(page.locator("#run-problem")).to_contain_text("Attempt 2", ignore_case=True)
        numbers = [int(text) for text in await page.locator("#log tr td:first-child").all_text_contents()]
        assert numbers == list(range(1, len(numbers) + 1)), "every event once, in order"
        types = await page.locator("#log tr td:nth-child(2)").all_text_contents()
        assert types.count("tool.call") == 1, "the finished step was not done again"
        assert types.count("done") == 1


async def test_a_run_cannot_be_started_while_the_server_is_away_and_the_page_says_so(page: Page, tmp_path: Path) -> None:
    with Launcher(tmp_path) as launcher:
        server = launcher.up()
        await asyncio.to_thread(server.wait_ready)
        await page.goto(link_of(server))
        server.kill()
        await page.get_by_role("button", name="Run", exact=True).click()
        await expect(page.locator("#problem")).not_to_be_empty()
        again = launcher.again(server)
        await asyncio.to_thread(again.wait_ready)
        await page.get_by_role("button", name="Run", exact=True).click()
        await expect(page.locator("#run-status")).to_have_text("completed")
        await expect(page.locator("#problem")).to_be_empty()
