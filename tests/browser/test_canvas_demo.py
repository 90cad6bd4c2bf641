"""The canvases for newcomers, as they meet them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from easel.demo import LOG_VIEWER
from tests.browser.canvas import Desk, show
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.async_api import Page

    from tests.support.processes import EaselProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")
IS_SEEN = """line => {
  const box = line.closest(".tail").getBoundingClientRect(), all = line.getBoundingClientRect();
  return all.height > box.height && Math.abs(all.bottom - box.bottom) < 2;
}"""


@pytest.fixture(scope="module")
def desk(server: EaselProcess) -> Iterator[Desk]:
    with Desk(server) as desk:
        yield desk


@rule("CV-19")
async def test_live_logs_are_there_by_themselves_when_somebody_looks_and_their_newest_line_is_in_sight(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    desk.rpc("canvas.create", **LOG_VIEWER.params)
    frame = await show(page, server, LOG_VIEWER.canvas_id)
    log = frame.locator(".tail pre")
    for _ in range(4):  # more than the box holds
        desk.rpc("canvas.action", canvasId=LOG_VIEWER.canvas_id, actionId="hello")
    await expect(log).to_contain_text(
        "done", timeout=30_000
    )  # nobody has pressed "Look now"; it looks every few seconds
    newest = desk.rpc("canvas.action", canvasId=LOG_VIEWER.canvas_id, actionId="look")["result"]["lines"][-1]
    await expect(log).to_contain_text(newest)
    assert await log.evaluate(IS_SEEN)
