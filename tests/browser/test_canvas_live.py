"""What an action says while it runs, and the button that stops it, as a person at a canvas has them: a real command, a real browser."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.canvas import Desk, holds, inside, is_free, promised, show, the_frame
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
        "quick": {
            "kind": "tool.call",
            "tool": "local__Bash",
            "args": {"command": "echo done"},
            "confirm": "never",
        },
        "ask": {"kind": "tool.call", "tool": "local__Bash", "args": {"command": "true"}, "confirm": "always"},
        "by": {
            "kind": "tool.call",
            "tool": "local__Bash",
            "args": {"command": "echo {{input.word}}; sleep {{input.seconds}}"},
            "confirm": "never",
            "title": "Say and wait",
        },
        "fail": {
            "kind": "tool.call",
            "tool": "local__Bash",
            "args": {"command": "echo so far; exit 3"},
            "confirm": "never",
            "saveAs": "failed",
        },
        "note": {"kind": "state.patch", "patch": [{"op": "add", "path": "/noted", "value": True}]},
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
    # A question lapses after three seconds, which is looked for every third part of a claim.
    settings = {"SANDBOX_MODE": "logical", "CONFIRM_SECONDS": "3", "CLAIM_SECONDS": "6"}
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
    stop, said = frame.locator("[data-stop=deploy]"), frame.locator("[data-output=deploy]")
    await expect(stop).to_be_hidden()
    await frame.get_by_role("button", name="Deploy it").click()
    await expect(said).to_have_text("one\n30%\n<b>three</b>\n")
    await expect(frame.locator("[data-outcome=deploy]")).to_have_text("running…")
    await expect(page.locator("#stops")).to_have_text("Stop Deploy it")
    await stop.click()
    await expect(frame.locator("[data-outcome=deploy]")).to_have_text("stopped")
    await expect(frame.locator("[data-outcome=deploy]")).to_have_attribute(
        "title", re.compile("owner stopped it")
    )
    await expect(page.locator("#notes")).to_be_hidden()  # whoever wanted it has no problem
    await expect(stop).to_be_hidden()
    await expect(said).to_contain_text("three")  # what a failed one said stays
    await expect(page.locator("#stops")).to_be_empty()
    assert how_it_went(desk, name) == ["CANCELLED"]
    assert desk.state(name) == {}
    await frame.get_by_role("button", name="Quick").click()
    await expect(frame.locator("[data-outcome=quick]")).to_have_text("done")
    await expect(frame.locator("[data-output=quick]")).to_be_hidden()


@rule("CV-37", "CV-30")
async def test_a_page_that_is_opened_in_the_middle_shows_what_was_said_so_far(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(None, SPEC)
    frame = await show(page, server, name)
    await frame.get_by_role("button", name="Deploy it").click()
    await expect(frame.locator("[data-output=deploy]")).to_have_text("one\n30%\n<b>three</b>\n")
    await frame.get_by_role("button", name="Quick").click()
    await expect(frame.locator("[data-outcome=quick]")).to_have_text("done")
    later = await page.context.new_page()
    frame = await show(later, server, name)
    await expect(frame.locator("[data-output=deploy]")).to_have_text("one\n30%\n<b>three</b>\n")
    await expect(frame.locator("[data-outcome=deploy]")).to_have_text("running…")
    await expect(frame.locator("[data-outcome=quick]")).to_have_text("done")
    await expect(frame.locator("[data-output=quick]")).to_be_hidden()
    await expect(later.locator("#notes")).to_be_hidden()
    await frame.locator("[data-stop=deploy]").click()
    await expect(frame.locator("[data-outcome=deploy]")).to_have_text("stopped")
    await expect(frame.locator("[data-output=deploy]")).to_have_text("one\n30%\n<b>three</b>\n")  # once
    await later.close()


@rule("CV-30")
async def test_the_generated_page_says_how_a_command_ended_and_asks_for_what_an_action_takes(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(
        None, {**SPEC, "state": {"failed": None, "text": "مرحبا", "long": "x" * 100, "on": True, "count": 1}}
    )
    frame = await show(page, server, name)
    await frame.get_by_role("button", name="Fail").click()
    outcome = frame.locator("[data-outcome=fail]")
    await expect(outcome).to_have_text("done, exit code 3")
    await expect(outcome).to_have_class("outcome failed")
    await expect(frame.locator("[data-member=failed]")).to_contain_text("exit code 3 · finished")
    await expect(frame.locator("[data-member=failed] pre")).to_have_text("so far\n")

    await frame.get_by_label("Word").fill("typed 'so'")
    await frame.get_by_label("Seconds").fill("0")
    await frame.get_by_label("Seconds").press("Enter")
    await expect(frame.locator("[data-outcome=by]")).to_have_text("done")
    assert desk.records(name)[0]["actionId"] == "by"
    await is_free(frame.locator("[data-gsv-action=by]"))
    await frame.get_by_label("Seconds").fill("60")
    await frame.get_by_role("button", name="Say and wait").click()
    await expect(frame.locator("[data-output=by]")).to_have_text("typed 'so'\n")
    await frame.locator("[data-stop=by]").click()
    await expect(frame.locator("[data-outcome=by]")).to_have_text("stopped")

    await expect(frame.get_by_label("Text")).to_have_css("direction", "rtl")
    [long, part] = [await frame.locator(one).bounding_box() for one in ("label.long", ".part.fields")]
    assert long
    assert part
    assert long["width"] > 0.9 * part["width"] - 40, "a long text has the row to itself"


@rule("CV-37", "CV-30")
async def test_of_two_executions_of_one_action_both_are_shown_and_each_can_be_stopped(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    """A press meets another press, or a job that runs by itself, all the time."""
    name = desk.make(OWN.replace("deploy", "by"), SPEC)
    await show(page, server, name)
    frame = await the_frame(page)
    press = "void gsvCanvas.runAction('by', {seconds: '%s', word: '%s'}).catch(() => {})"
    await frame.evaluate(press % (60, "first"))
    await holds(frame, "told.at(-1)?.output === 'first\\n'")
    await frame.evaluate(press % (0, "quick"))
    await desk.until(
        lambda: [one["status"] for one in desk.records(name)] == ["completed", "running"],
        "the second has ended",
    )
    await expect(page.locator("#running")).to_have_text("running: Say and wait")
    await expect(page.locator("#stops button")).to_have_text(["Stop Say and wait"])
    first = desk.records(name)[-1]["eventId"]
    await holds(
        frame,
        f"told.at(-1).status === 'running' && told.at(-1).eventId === {json.dumps(first)} && told.at(-1).output === 'first\\n'",
    )
    await expect(inside(page).locator("button")).to_have_attribute("aria-busy", "true")

    await frame.evaluate(press % (60, "third"))
    await expect(page.locator("#running")).to_have_text("running: Say and wait (2 times)")
    await expect(page.locator("#stops button")).to_have_count(2)
    await holds(frame, "told.at(-1).output === 'third\\n'")  # of two that run the later one is named
    await expect(page.locator("#stops button").first).to_contain_text("Stop Say and wait, since ")
    await page.locator("#stops button").first.click()
    await expect(page.locator("#stops button")).to_have_text(["Stop Say and wait"])
    assert [one["status"] for one in desk.records(name)] == ["running", "completed", "failed"], (
        "the older one was stopped"
    )
    await page.locator("#stops button").click()
    await expect(page.locator("#running")).to_be_empty()
    await holds(frame, "told.at(-1).status === 'failed'")


@rule("CV-37")
async def test_what_runs_is_shown_however_much_has_run_since(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(None, SPEC)
    await show(page, server, name)
    await inside(page).get_by_role("button", name="Deploy it").click()
    await expect(page.locator("#running")).to_have_text("running: Deploy it")
    for _ in range(60):
        desk.rpc("canvas.action", canvasId=name, actionId="note")
    later = await page.context.new_page()
    await show(later, server, name)
    await later.get_by_role("button", name="Stop Deploy it").click()
    await expect(page.locator("#running")).to_be_empty()
    await later.close()


@rule("CV-37")
async def test_a_page_of_its_own_hears_of_it_and_can_stop_it(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(OWN, SPEC)
    await show(page, server, name)
    frame = await the_frame(page)
    await frame.evaluate(
        "void (window.end = gsvCanvas.runAction('deploy').catch((problem) => [problem.name, problem.code]))"
    )
    await holds(frame, "told.some((one) => one.status === 'running' && one.output?.includes('three'))")
    answer = await frame.evaluate("gsvCanvas.cancelAction(told.at(-1).eventId)")
    assert answer["status"] == "cancelled"
    assert await frame.evaluate("end") == ["CANCELLED", 409]
    again = await frame.evaluate(
        "gsvCanvas.cancelAction(told.at(-1).eventId).catch((problem) => problem.name)"
    )
    assert again == "NOT_RUNNING"
    wrong = await frame.evaluate(
        "gsvCanvas.cancelAction({toString: () => 'x'.repeat(1000)}).catch((problem) => problem.code)"
    )
    assert wrong == 404
    assert how_it_went(desk, name) == ["CANCELLED"]


@rule("CV-05")
async def test_a_page_cannot_stop_what_another_canvas_runs(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    other, name = desk.make(OWN, SPEC), desk.make(OWN, SPEC)
    await show(page, server, other)
    frame = await the_frame(page)
    await frame.evaluate("void gsvCanvas.runAction('deploy').catch(() => {})")
    [running] = await desk.until(
        lambda: [one for one in desk.records(other) if one["status"] == "running"], "it runs"
    )
    await show(page, server, name)
    frame = await the_frame(page)
    refused = await frame.evaluate(
        f"gsvCanvas.cancelAction({json.dumps(running['eventId'])}).catch((problem) => problem.code)"
    )
    assert refused == 404
    assert how_it_went(desk, other) == ["running"]
    desk.rpc("canvas.cancel", canvasId=other, eventId=running["eventId"])


@rule("CV-22")
async def test_the_shell_stops_it_too_and_a_question_that_nobody_answers_goes_away(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(OWN, SPEC)
    await show(page, server, name)
    frame = await the_frame(page)
    await frame.evaluate("void (window.end = gsvCanvas.runAction('deploy').catch((problem) => problem.name))")
    await page.get_by_role("button", name="Stop Deploy it").click()
    assert await frame.evaluate("end") == "CANCELLED"
    # Noted by the page itself: whoever looks late finds the line gone already.
    await page.evaluate("""void (window.waited = new Promise((resolve) => new MutationObserver(() => {
        const { hidden, textContent } = document.getElementById("waiting");
        if (!hidden && textContent.includes("waits for your consent")) resolve(true);
      }).observe(document.getElementById("waiting"), {childList: true})))""")
    desk.rpc("canvas.action", canvasId=name, actionId="ask")
    assert await promised(page, "waited")
    await expect(page.locator("#waiting")).to_be_hidden()
    assert how_it_went(desk, name) == ["refused", "CANCELLED"]
