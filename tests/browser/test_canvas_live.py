"""What an action says while it runs, and the button that stops it, as a person at a canvas has them: a real command, a real browser."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.canvas import Desk, holds, show, the_frame
from tests.requirements import rule
from tests.support.processes import EaselProcess, Launcher

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

LONG = r"printf '\033[31mone\033[0m\n'; printf '10%%\r20%%\r30%%\n'; echo '<b>three</b>'; sleep 60"
SPEC: dict[str, Any] = {
    "version": 1,
    "toolPolicy": {"allow": ["local__Bash"]},
    "actions": {
        "deploy": {
            "kind": "tool.call",
            "tool": "local__Bash",
            "args": {"command": LONG},
            "confirm": "never",
            "title": "Deploy it",
            "saveAs": "x",
        },
        "quick": {"kind": "tool.call", "tool": "local__Bash", "args": {"command": "echo done"}, "confirm": "never"},
        "ask": {"kind": "tool.call", "tool": "local__Bash", "args": {"command": "true"}, "confirm": "always"},
    },
}
OWN = """<!doctype html><title>own</title><button data-gsv-action="deploy">Go</button>
<script>
  window.told = [];
  document.addEventListener("gsv:status", ({ detail }) => { if (detail.deploy) told.push(detail.deploy); });
</script>
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EaselProcess]:
    settings = {"SANDBOX_MODE": "logical", "CONFIRM_SECONDS": "1", "CLAIM_SECONDS": "1"}
    with Launcher(tmp_path_factory.mktemp("easel"), "", settings) as launcher:
        (started,) = launcher.ready(launcher.up())
        yield started


@pytest.fixture
def desk(server: EaselProcess) -> Iterator[Desk]:
    with Desk(server) as at:
        yield at


def how_it_went(desk: Desk, name: str) -> list[str]:
    return [one.get("error", {}).get("name", one["status"]) for one in desk.records(name)]


@rule("CV-37", "CV-30")
async def test_the_generated_page_shows_the_last_lines_and_a_stop_button_while_it_runs(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(None, SPEC)
    frame = await show(page, server, name)
    stop, said = frame.locator("[data-stop=deploy]"), frame.locator("[data-said=deploy]")
    await expect(stop).to_be_hidden()
    await frame.get_by_role("button", name="Deploy it").click()
    await expect(said).to_have_text("one\n30%\n<b>three</b>\n")
    await expect(frame.locator("[data-outcome=deploy]")).to_have_text("running…")
    await expect(page.locator("#stops")).to_have_text("Stop Deploy it")
    await stop.click()
    await expect(frame.locator("[data-outcome=deploy]")).to_contain_text("failed: owner stopped it")
    await expect(stop).to_be_hidden()
    await expect(said).to_contain_text("three")  # what a failed one said stays
    await expect(page.locator("#stops")).to_be_empty()
    assert how_it_went(desk, name) == ["CANCELLED"]
    assert desk.state(name) == {}
    await frame.get_by_role("button", name="Quick").click()
    await expect(frame.locator("[data-outcome=quick]")).to_have_text("done")
    await expect(frame.locator("[data-said=quick]")).to_be_hidden()


@rule("CV-37")
async def test_a_page_of_its_own_hears_of_it_and_can_stop_it(page: Page, server: EaselProcess, desk: Desk) -> None:
    name = desk.make(OWN, SPEC)
    await show(page, server, name)
    frame = await the_frame(page)
    await frame.evaluate("void (window.end = gsvCanvas.runAction('deploy').catch((problem) => [problem.name, problem.code]))")
    await holds(frame, "told.some((one) => one.status === 'running' && one.output?.includes('three'))")
    answer = await frame.evaluate("gsvCanvas.cancelAction(told.at(-1).eventId)")
    assert answer["status"] == "cancelled"
    assert await frame.evaluate("end") == ["CANCELLED", 409]
    again = await frame.evaluate("gsvCanvas.cancelAction(told.at(-1).eventId).catch((problem) => problem.name)")
    assert again == "NOT_RUNNING"
    wrong = await frame.evaluate("gsvCanvas.cancelAction({toString: () => 'x'.repeat(1000)}).catch((problem) => problem.code)")
    assert wrong == 404
    assert how_it_went(desk, name) == ["CANCELLED"]


@rule("CV-05")
async def test_a_page_cannot_stop_what_another_canvas_runs(page: Page, server: EaselProcess, desk: Desk) -> None:
    other, name = desk.make(OWN, SPEC), desk.make(OWN, SPEC)
    await show(page, server, other)
    frame = await the_frame(page)
    await frame.evaluate("void gsvCanvas.runAction('deploy').catch(() => {})")
    [running] = await desk.until(lambda: [one for one in desk.records(other) if one["status"] == "running"], "it runs")
    await show(page, server, name)
    frame = await the_frame(page)
    refused = await frame.evaluate(f"gsvCanvas.cancelAction({json.dumps(running['eventId'])}).catch((problem) => problem.code)")
    assert refused == 404
    assert how_it_went(desk, other) == ["running"]
    desk.rpc("canvas.cancel", canvasId=other, eventId=running["eventId"])


@rule("CV-22")
async def test_the_shell_stops_it_too_and_a_question_that_nobody_answers_goes_away(page: Page, server: EaselProcess, desk: Desk) -> None:
    name = desk.make(OWN, SPEC)
    await show(page, server, name)
    frame = await the_frame(page)
    await frame.evaluate("void (window.end = gsvCanvas.runAction('deploy').catch((problem) => problem.name))")
    await page.get_by_role("button", name="Stop Deploy it").click()
    assert await frame.evaluate("end") == "CANCELLED"
    desk.rpc("canvas.action", canvasId=name, actionId="ask")
    await expect(page.locator("#waiting")).to_contain_text("waits for your consent")
    await expect(page.locator("#waiting")).to_be_hidden()
    assert how_it_went(desk, name) == ["refused", "CANCELLED"]
