"""A network that holds all bytes back without an error: each page notices it, says so, and continues."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.browser.canvas import CanvasApi, evaluate_promise, open_canvas
from tests.browser.console import answer, expect_ended, open_session, script, send_message
from tests.support.proxy import Proxy

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

STALLED = "No answer from the server yet…"
LOST = "The server cannot be reached. Reconnecting…"
NOTICED_SECONDS = 15
SLACK_SECONDS = 5  # of a browser on a busy machine


async def expect_noticed(page: Page, since: float) -> None:
    await expect(page.locator("#link")).to_have_text(STALLED)
    assert time.monotonic() - since < NOTICED_SECONDS + SLACK_SECONDS
    await expect(page.locator("#link")).to_have_text(LOST)


async def try_now(page: Page) -> None:
    """Click "Try now" unless the page has tried of itself and the button is gone."""
    buttons = page.get_by_role("button", name="Try now")
    await buttons.evaluate_all("buttons => buttons.forEach((button) => button.click())")


async def test_stall_of_the_chat_is_shown_and_its_message_arrives_once(
    page: Page, server: EaselProcess
) -> None:
    """It was green and "sending…" for 51 s."""
    with Proxy.before(server.base_url) as proxy:
        await open_session(page, server, base_url=proxy.url(server.base_url))
        began = time.monotonic()
        proxy.black_hole()
        await send_message(page, script({"say": "Here again."}))
        await expect_noticed(page, began)
        await expect(page.locator("#turns .turn[data-state='unsent waiting']")).to_be_visible()
        proxy.heal(deliver_held=False)
        await try_now(page)
        await expect(page.locator("#link")).to_have_text("connected")
        await expect(answer(page)).to_have_text("Here again.")
        await expect_ended(page)
        await expect(page.locator("#turns .turn")).to_have_count(1)


async def test_stall_of_a_canvas_is_shown_until_an_answer_arrives(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    """It was green for 110 s, with a button that stayed pale."""
    with Proxy.before(server.base_url) as proxy:
        frame = await open_canvas(page, server, api.make(), base_url=proxy.url(server.base_url))
        button = frame.get_by_role("button", name="Refresh Logs")
        await expect(button).to_be_visible()
        proxy.black_hole()
        await button.click()
        await expect(page.locator("#link")).to_have_text(STALLED)
        proxy.heal()
        await expect(page.locator("#link")).to_have_text(re.compile("connected"))
        await expect(frame.locator("pre")).to_have_text("journal of api")
        began = time.monotonic()
        proxy.black_hole()
        await expect_noticed(page, began)
        proxy.heal(deliver_held=False)
        await try_now(page)
        await expect(page.locator("#link")).to_have_text("connected")


async def test_silence_is_counted_in_ticks_of_one_clock(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    states = await evaluate_promise(
        page,
        """async () => {
          const { Reconnecting } = await import("/ui/reconnect.js");
          const { EventLink } = await import("/ui/links.js");
          const seen = [];
          class Line extends Reconnecting {
            connect() {}
            disconnect() {}
            ask() { seen.push(`ask at ${tick}`); }
            onState(is) { seen.push(`${is} at ${tick}`); }
          }
          let tick = 0;
          const line = new Line();
          line.open();
          line.markLive();
          for (tick = 1; tick <= 11; tick += 1) line.tick();
          line.noteActivity();
          for (tick = 21; tick <= 34; tick += 1) line.tick();
          line.close();
          const stream = new EventLink("/nowhere", ({ state }) => seen.push(`${state.is} at ${tick}`));
          stream.connect = () => {};
          stream.open();
          stream.markLive();
          stream.probe();
          for (tick = 1; tick <= 35; tick += 1) stream.tick();
          stream.close();
          return seen;
        }""",
    )
    assert states == [
        "connecting at 0",
        "live at 0",
        "ask at 5",
        "slow at 10",
        "live at 12",
        "ask at 25",
        "slow at 30",
        "waiting at 34",
        "connecting at 35",
        "live at 35",
        "waiting at 35",
    ]
