"""The home page during an outage: it shows the outage, reconnects by its cursors, and misses no event."""

from __future__ import annotations

import asyncio
import re
import shutil
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import Page, expect

from tests.browser.console import (
    ApiClient,
    answer,
    expect_ended,
    open_session,
    script,
    send_message,
    status,
    turn,
)
from tests.edges.http.live import LiveEasel
from tests.requirements import case, rule
from tests.support.processes import Launcher

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

AWAY = "The server cannot be reached. Reconnecting…"


async def look(page: Page) -> None:
    """Focus the tab, so that it reconnects at once."""
    await page.evaluate("dispatchEvent(new Event('focus'))")


async def started(launcher: Launcher, dead: EaselProcess | None = None) -> EaselProcess:
    server = launcher.again(dead) if dead else launcher.up()
    await asyncio.to_thread(server.wait_ready)
    return server


@case("J5")
@rule("RX-48", "RX-49")
async def test_page_reconnects_after_a_crash_and_its_run_finishes(page: Page, tmp_path: Path) -> None:
    # It counts for so long that it is surely not at its end when its server is killed.
    with Launcher(tmp_path, settings={"CLAIM_SECONDS": "3", "POLL_SECONDS": "0.2"}) as launcher:
        server = await started(launcher)
        session = await open_session(page, server)
        steps = [
            {"say": "Before."},
            {"call": "gsv__Clock", "args": {}},
            {"ticks": 20, "every_ms": 400},
            {"say": "After."},
        ]
        await send_message(page, script(*steps))
        await expect(answer(page).last).to_contain_text("tick 3")
        server.kill()
        await expect(page.locator("#link")).to_have_text(AWAY)
        server = await started(launcher, server)
        await expect(page.locator("#run-note")).to_contain_text(
            re.compile("Attempt [23]")
        )  # a machine that stands still may cost one more
        await expect_ended(page)
        await expect(status(page)).to_have_text("completed")
        ticks = "".join(f"tick {number}\n" for number in range(1, 21))
        await expect(answer(page)).to_have_text(["Before.", f"{ticks}After."])
        await expect(page.locator("#turns .turn")).to_have_count(1)
        await expect(turn(page).locator(".tool")).to_have_count(1)
        await expect(page.locator("#link")).to_have_text("connected")
        with ApiClient(server) as outside:
            assert [one["role"] for one in outside.get(f"/api/sessions/{session}/messages")["messages"]] == [
                "user",
                "assistant",
            ]


async def test_messages_sent_during_an_outage_arrive_once_and_in_order(page: Page, tmp_path: Path) -> None:
    with Launcher(tmp_path) as launcher:
        server = await started(launcher)
        session = await open_session(page, server)
        await send_message(page, script({"say": "zero"}))
        await expect_ended(page)
        server.kill()
        await expect(page.locator("#link")).to_have_text(AWAY)
        for word in ("one", "two"):
            await send_message(page, script({"say": word}))
        await expect(page.locator("#turns .turn[data-state='unsent waiting'] .note")).to_have_text(
            ["waiting for the server…"] * 2
        )
        server = await started(launcher, server)
        await look(page)
        await expect(page.locator("#turns .answer > .parts > .text")).to_have_text(["zero", "one", "two"])
        await expect(page.locator("#turns [data-state^=unsent]")).to_have_count(0)
        with ApiClient(server) as outside:
            assert len(outside.get(f"/api/runs?session_id={session}")["runs"]) == 3


@rule("RS-34")
async def test_page_shows_the_state_of_a_restored_server(page: Page, tmp_path: Path) -> None:
    """The cursors of the page are after the end of the logs: it must load again."""
    with Launcher(tmp_path) as launcher:
        server = await started(launcher)
        await open_session(page, server)
        await send_message(page, script({"say": "kept"}))
        await expect_ended(page)
        server.kill()
        await expect(page.locator("#link")).to_have_text(AWAY)
        shutil.copytree(tmp_path / "data", tmp_path / "backup")
        server = await started(launcher, server)
        await look(page)
        await send_message(page, script({"say": "forgotten"}))
        await expect(answer(page)).to_have_text("forgotten")
        await expect_ended(page)
        server.kill()
        shutil.rmtree(tmp_path / "data")
        shutil.move(tmp_path / "backup", tmp_path / "data")
        await started(launcher, server)
        await look(page)
        await expect(page.locator("#link")).to_have_text("connected")
        await expect(page.locator("#turns .answer > .parts > .text")).to_have_text(["kept"])
        await send_message(page, script({"say": "and on it goes"}))
        await expect(page.locator("#turns .answer > .parts > .text")).to_have_text(["kept", "and on it goes"])


@rule("RS-34")
async def test_thread_with_a_shortened_log_is_shown_from_its_messages(page: Page, tmp_path: Path) -> None:
    with LiveEasel(tmp_path) as easel:
        run_id = easel.finish(
            script(
                {"say": "Long ago."},
                {"call": "gsv__WhiteboardWrite", "args": {"key": "old", "value": "kept"}},
            ),
            "s-old",
        )
        easel.prune()
        easel.finish(script({"say": "Lately."}, {"call": "gsv__Clock", "args": {}}), "s-old")
        await open_session(page, easel, "s-old")
        await expect(page.locator("#turns .answer > .parts > .text")).to_have_text(["Long ago.", "Lately."])
        await expect(turn(page, 0).locator(".tool")).to_have_count(0)
        await expect(turn(page, 1).locator(".tool")).to_have_count(1)
        await turn(page, 0).get_by_role("button", name="run", exact=True).click()
        await expect(page.locator("#run-id")).to_have_text(run_id)
        await expect(page.locator("#whiteboard td pre")).to_have_text("kept")


async def test_sign_in_that_expired_during_an_outage_is_reported(page: Page, tmp_path: Path) -> None:
    with Launcher(tmp_path) as launcher:
        server = await started(launcher)
        await open_session(page, server)
        server.kill()
        await expect(page.locator("#link")).to_have_text(AWAY)
        await page.context.clear_cookies()
        await page.get_by_role("button", name="Try now").click()
        await expect(page.locator("#link")).to_have_text(AWAY)
        await started(launcher, server)
        await look(page)
        await expect(page.locator("#link")).to_have_text("You are signed out.")
        await expect(page.locator("#signed-out").get_by_role("link", name="Sign in")).to_be_visible()
