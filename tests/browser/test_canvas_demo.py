"""The demo canvases in a browser."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from easel.demo import DEPLOY_COCKPIT, LOG_VIEWER, RELEASE_CHECKLIST, SERVER_HEALTH
from tests.browser.canvas import CanvasApi, open_canvas
from tests.requirements import rule
from tests.support.processes import EASEL, Launcher

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Page

    from tests.support.processes import EaselProcess

pytestmark = pytest.mark.asyncio(loop_scope="session")
IS_SEEN = """line => {
  const box = line.closest(".tail").getBoundingClientRect(), all = line.getBoundingClientRect();
  return all.height > box.height && Math.abs(all.bottom - box.bottom) < 2;
}"""


@rule("CV-19")
@pytest.mark.usefixtures("demo_canvases")
async def test_log_viewer_refreshes_while_open_and_shows_its_newest_line(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    frame = await open_canvas(page, server, LOG_VIEWER.canvas_id)
    log = frame.locator(".tail pre")
    for _ in range(4):  # more than the box holds
        api.rpc("canvas.action", canvasId=LOG_VIEWER.canvas_id, actionId="hello")
    await expect(log).to_contain_text("done")  # by the refresh job, without a click
    refreshed = api.rpc("canvas.action", canvasId=LOG_VIEWER.canvas_id, actionId="refreshLog")
    await expect(log).to_contain_text(refreshed["result"]["lines"][-1])
    assert await log.evaluate(IS_SEEN)


@rule("CV-30")
@pytest.mark.usefixtures("demo_canvases")
async def test_release_checklist_ticks_an_item_of_its_list(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    canvas_id = RELEASE_CHECKLIST.canvas_id
    frame = await open_canvas(page, server, canvas_id)
    box = frame.get_by_label("The changelog is written")
    await box.check()
    await api.until(lambda: [check["done"] for check in api.state(canvas_id)["checks"]][1], "the tick")
    await expect(frame.locator("label.done")).to_have_text(" The changelog is written")
    await expect(frame.get_by_text("Not frozen yet.")).to_be_visible()
    api.rpc("canvas.action", canvasId=canvas_id, actionId="freeze")
    await expect(frame.get_by_text("Frozen since")).to_be_visible()
    await expect(frame.get_by_text("Not frozen yet.")).to_be_hidden()
    api.rpc("canvas.action", canvasId=canvas_id, actionId="reset")
    await expect(box).not_to_be_checked()
    await expect(page.locator("#notes")).to_be_hidden()


@rule("RS-74")
@pytest.mark.usefixtures("demo_canvases")
async def test_server_health_shows_the_parsed_lines_of_a_fetched_page(
    page: Page, server: EaselProcess
) -> None:
    frame = await open_canvas(page, server, SERVER_HEALTH.canvas_id)
    await frame.get_by_role("button", name="Check now").click()
    await expect(frame.get_by_role("listitem")).to_have_text(["ok"])
    await expect(frame.get_by_text("Status 200")).to_be_visible()


@rule("RS-61")
async def test_demo_without_bubblewrap_explains_its_button_before_and_after_the_click(
    page: Page, tmp_path: Path
) -> None:
    with Launcher(tmp_path / "easel") as launcher:
        around = {"PATH": str(tmp_path)}
        server = launcher.start("up", (*EASEL, "up", "--demo", "--port", "0"), {}, around)
        await asyncio.to_thread(server.wait_ready)
        frame = await open_canvas(page, server, DEPLOY_COCKPIT.canvas_id)
        await expect(frame.locator(".off")).to_contain_text("install the package `bubblewrap`")
        await frame.get_by_role("button", name="Deploy…").click()
        await expect(page.locator("#notes")).to_contain_text(
            "Tool local__Bash is unavailable: commands are off"
        )
        await expect(page.locator("#notes")).to_contain_text("install the package `bubblewrap`")
        await frame.get_by_role("button", name="Check the server's clock").click()
        await expect(frame.locator("section strong").first).to_contain_text("T")


@pytest.mark.usefixtures("demo_canvases")
async def test_demo_with_commands_has_no_such_note(page: Page, server: EaselProcess) -> None:
    frame = await open_canvas(page, server, DEPLOY_COCKPIT.canvas_id)
    await expect(frame.get_by_text("Before this shell command runs")).to_be_visible()
    await expect(frame.locator(".off")).to_be_hidden()
