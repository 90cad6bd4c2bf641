"""Failing refresh jobs on the page of a canvas."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.canvas import CanvasApi, loaded_frame, open_canvas, wait_in_frame
from tests.requirements import rule

if TYPE_CHECKING:
    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

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


@rule("RS-45", "CV-51")
async def test_failing_refresh_job_is_shown_now_and_after_a_reload(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    """Its node is offline: without the line the page would show the last result as current."""
    name = api.make(OWN, polling("laptop__Read"))
    api.put(name, "assets/index.js", HEARS)
    await open_canvas(page, server, name)
    line = page.locator("#failing")
    await expect(line).to_contain_text("“Look” fails to refresh: ")
    await expect(line).to_contain_text("laptop__Read")
    await expect(line).to_contain_text("Next attempt in ")
    frame = await loaded_frame(page)
    await wait_in_frame(
        frame, "told.at(-1)?.poll?.actionId === 'look' && told.at(-1).poll.error.includes('laptop__Read')"
    )
    await wait_in_frame(
        frame, "told.at(-1).poll.failures >= 1 && told.at(-1).poll.nextAt > Date.now() - 10_000"
    )
    await expect(line).to_contain_text(
        re.compile(r"\b([2-9]|\d\d+) times in a row")
    )  # whoever looks late finds more
    await page.reload()
    await expect(line).to_contain_text("“Look” fails to refresh: ")
    await wait_in_frame(await loaded_frame(page), "told.at(-1)?.poll?.failures >= 2")

    spec = polling("laptop__Read")
    api.rpc("canvas.patch", canvasId=name, spec={**spec, "refresh": []})
    await expect(line).to_be_hidden()
    await wait_in_frame(await loaded_frame(page), "JSON.stringify(told.at(-1)) === '{}'")


@rule("CV-51")
async def test_failure_line_disappears_when_the_job_succeeds(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(None, polling("local__Read"))
    frame = await open_canvas(page, server, name)
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
async def test_failure_line_shows_text_only(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    spec = polling("local__Read")
    spec["actions"]["look"] |= {"args": {"path": "<img src=x onerror=window.bad=1>"}, "title": "<b>Look</b>"}
    name = api.make(None, spec)
    await open_canvas(page, server, name)
    await expect(page.locator("#failing")).to_contain_text("“<b>Look</b>” fails to refresh: ")
    assert await page.locator("#failing img, #failing b").count() == 0
