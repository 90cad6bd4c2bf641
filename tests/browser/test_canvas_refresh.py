"""What runs by itself and fails, as a person at the canvas sees it: at once, and whenever they come."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.canvas import Desk, holds, show, the_frame
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

OWN = """<!doctype html><title>own</title><script src="index.js"></script>"""
HEARS = "window.told = []; document.addEventListener('gsv:refresh', ({ detail }) => told.push(detail));"


def polling(tool: str, **more: Any) -> dict[str, Any]:
    look = {
        "kind": "tool.call",
        "tool": tool,
        "args": {"path": "seen.txt"},
        "saveAs": "seen",
        "title": "Look",
    }
    write = {
        "kind": "tool.call",
        "tool": "local__Write",
        "args": {"path": "seen.txt", "content": "here"},
        "confirm": "never",
    }
    return {
        "version": 1,
        "toolPolicy": {"allow": [tool, "local__Write"]},
        "actions": {"look": look, "write": write},
        "refresh": [{"id": "poll", "everyMs": 1_000, "action": "look", "enabled": True}],
        **more,
    }


@pytest.fixture
def desk(server: EaselProcess) -> Iterator[Desk]:
    with Desk(server) as at:
        yield at


@rule("RS-45", "CV-51")
async def test_a_job_that_cannot_begin_is_shown_now_and_to_whoever_comes_later(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    """Its node is away. The page would go on to show what it brought last, as if that were so now."""
    name = desk.make(OWN, polling("laptop__Read"))
    desk.put(name, "assets/index.js", HEARS)
    await show(page, server, name)
    line = page.locator("#failing")
    await expect(line).to_contain_text("“Look” fails to refresh: ")
    await expect(line).to_contain_text("laptop__Read")
    await expect(line).to_contain_text("Next attempt in ")
    frame = await the_frame(page)
    await holds(
        frame, "told.at(-1)?.poll?.actionId === 'look' && told.at(-1).poll.error.includes('laptop__Read')"
    )
    await holds(frame, "told.at(-1).poll.failures >= 1 && told.at(-1).poll.nextAt > Date.now() - 10_000")
    await expect(line).to_contain_text(
        re.compile(r"\b([2-9]|\d\d+) times in a row")
    )  # whoever looks late finds more
    await page.reload()
    await expect(line).to_contain_text("“Look” fails to refresh: ")
    await holds(await the_frame(page), "told.at(-1)?.poll?.failures >= 2")

    spec = polling("laptop__Read")
    desk.rpc("canvas.patch", canvasId=name, spec={**spec, "refresh": []})
    await expect(line).to_be_hidden()
    await holds(await the_frame(page), "JSON.stringify(told.at(-1)) === '{}'")


@rule("CV-51")
async def test_the_line_goes_when_the_job_works_again(page: Page, server: EaselProcess, desk: Desk) -> None:
    name = desk.make(None, polling("local__Read"))
    frame = await show(page, server, name)
    line = page.locator("#failing")
    await expect(line).to_contain_text("“Look” fails to refresh: ")
    await expect(line).to_contain_text("seen.txt")
    await frame.get_by_role("button", name="Write").click()
    await expect(line).to_be_hidden()
    await expect(frame.locator("[data-member=seen]")).to_contain_text("here")
    await page.reload()
    await expect(page.locator("#link")).to_have_text("connected")
    await expect(line).to_be_hidden()


@rule("CV-51")
async def test_what_it_says_is_text(page: Page, server: EaselProcess, desk: Desk) -> None:
    spec = polling("local__Read")
    spec["actions"]["look"] |= {"args": {"path": "<img src=x onerror=window.bad=1>"}, "title": "<b>Look</b>"}
    name = desk.make(None, spec)
    await show(page, server, name)
    await expect(page.locator("#failing")).to_contain_text("“<b>Look</b>” fails to refresh: ")
    assert await page.locator("#failing img, #failing b").count() == 0
