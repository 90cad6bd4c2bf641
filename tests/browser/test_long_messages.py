"""Messages and values that are too large: refused with their text kept, and later ones are sent."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.browser.console import answer, open_session, script, send_message
from tests.support.processes import Launcher

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Page

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

MESSAGE = "#turns .turn"
LIMIT = 262_144


async def test_message_over_the_limit_is_refused_before_it_is_sent_and_keeps_its_text(
    page: Page, server: EaselProcess
) -> None:
    """1.2 MB closed the socket again and again, later messages waited, and a reload lost all of them."""
    await open_session(page, server)
    message, note = page.get_by_label("Message", exact=True), page.locator("#too-long")
    text = "é" * 600_000
    await message.fill(text)
    await expect(note).to_have_text(
        "This message has 1,200,000 bytes; a message may have 262,144. Shorten or split it."
    )
    await page.keyboard.press("Enter")
    await expect(page.locator(MESSAGE)).to_have_count(0)
    await expect(page.locator("#link")).to_have_text("connected")
    await page.reload()
    await expect(page.locator("#link")).to_have_text("connected")
    assert await message.input_value() == text
    await expect(note).to_be_visible()
    await message.fill("x" * LIMIT)
    await expect(note).to_have_text("")
    await send_message(page, script({"say": "Short enough."}))
    await expect(answer(page)).to_have_text("Short enough.")


async def test_frame_over_the_limit_of_the_server_does_not_block_later_ones(
    page: Page, tmp_path: Path
) -> None:
    """The page knows the limit of a message, but a setting may allow less for a frame."""
    settings = {"MAX_FRAME_BYTES": "65536"}
    with Launcher(tmp_path, settings=settings) as launcher:
        server = launcher.up()
        await asyncio.to_thread(server.wait_ready)
        await open_session(page, server)
        refused = page.locator("#turns .turn[data-state='unsent refused']")
        long = "x" * 100_000
        await send_message(page, long)
        await send_message(page, script({"say": "It goes on."}))
        await expect(refused).to_contain_text(
            re.compile("A frame must be at most 65536|too long for the server")
        )
        await expect(page.locator("#turns .answer > .parts > .text")).to_have_text("It goes on.")
        message = page.get_by_label("Message", exact=True)
        await message.fill("before")
        await refused.get_by_role("button", name="edit").click()
        await expect(refused).to_have_count(0)
        await expect(message).to_be_focused()
        assert await message.input_value() == f"before\n\n{long}"
        await message.press("Enter")
        await expect(refused).to_be_visible()
        await page.reload()
        await expect(page.locator("#link")).to_have_text("connected")
        assert await message.input_value() == f"before\n\n{long}", "kept as a draft is"
