"""Live output of a running command and the stop button, in a browser."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.canvas import (
    CanvasApi,
    canvas_frame,
    evaluate_promise,
    expect_idle,
    loaded_frame,
    open_canvas,
    wait_in_frame,
)
from tests.requirements import rule
from tests.support.processes import EaselProcess, Launcher

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

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
            "text": ["input.word"],
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


def how_it_went(api: CanvasApi, name: str) -> list[str]:
    return [one.get("error", {}).get("name", one["status"]) for one in api.records(name)]


@rule("CV-37", "CV-30")
async def test_generated_page_shows_live_output_and_a_stop_button(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(None, SPEC)
    frame = await open_canvas(page, server, name)
    stop, said = frame.locator("[data-stop=deploy]"), frame.locator("[data-output=deploy]")
    await expect(stop).to_be_hidden()
    await frame.get_by_role("button", name="Deploy it").click()
    await expect(said).to_have_text("one\n30%\n<b>three</b>\n")
    await expect(frame.locator("[data-outcome=deploy]")).to_have_text("running…")
    await expect(page.locator("#stops")).to_have_text("Stop Deploy it")
    await stop.click()
    await expect(frame.locator("[data-outcome=deploy]")).to_have_text("stopped")
    await expect(frame.locator("[data-outcome=deploy]")).to_have_attribute(
        "title", re.compile("Cancelled by owner")
    )
    await expect(page.locator("#notes")).to_be_hidden()  # whoever wanted it has no problem
    await expect(stop).to_be_hidden()
    await expect(said).to_contain_text("three")  # what a failed one said stays
    await expect(page.locator("#stops")).to_be_empty()
    assert how_it_went(api, name) == ["CANCELLED"]
    assert api.state(name) == {}
    await frame.get_by_role("button", name="Quick").click()
    await expect(frame.locator("[data-outcome=quick]")).to_have_text("done")
    await expect(frame.locator("[data-output=quick]")).to_be_hidden()


@rule("CV-37", "CV-30")
async def test_page_opened_during_an_execution_shows_its_output_so_far(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(None, SPEC)
    frame = await open_canvas(page, server, name)
    await frame.get_by_role("button", name="Deploy it").click()
    await expect(frame.locator("[data-output=deploy]")).to_have_text("one\n30%\n<b>three</b>\n")
    await frame.get_by_role("button", name="Quick").click()
    await expect(frame.locator("[data-outcome=quick]")).to_have_text("done")
    later = await page.context.new_page()
    frame = await open_canvas(later, server, name)
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
async def test_generated_page_shows_exit_code_and_input_fields(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(
        None, {**SPEC, "state": {"failed": None, "text": "مرحبا", "long": "x" * 100, "on": True, "count": 1}}
    )
    frame = await open_canvas(page, server, name)
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
    assert api.records(name)[0]["actionId"] == "by"
    await expect_idle(frame.locator("[data-gsv-action=by]"))
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


@rule("RS-66")
async def test_field_of_the_generated_page_gives_a_value_of_its_type(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    names = ("count", "on", "tags", "text")
    patch = [{"op": "add", "path": f"/{name}", "value": {"$value": f"input.{name}"}} for name in names]
    state = {"count": 1, "on": False, "tags": [], "text": ""}
    actions = {"set": {"kind": "state.patch", "patch": patch}}
    name = api.make(None, {"version": 1, "state": state, "writable": [], "actions": actions})
    frame = await open_canvas(page, server, name)
    await frame.locator("[name=count]").fill("2.5")
    await frame.locator("[name=on]").select_option("true")
    await frame.locator("[name=tags]").fill('["a", 1]')
    await frame.locator("[name=text]").fill("7")
    await frame.get_by_role("button", name="Set").click()
    await expect(frame.locator("[data-outcome=set]")).to_have_text("done")
    changed = api.rpc("canvas.get", canvasId=name)["state"]
    assert changed == {"count": 2.5, "on": True, "tags": ["a", 1], "text": "7"}


@rule("CV-37", "CV-30")
async def test_two_executions_of_one_action_can_be_stopped_separately(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    """Two users, or a user and a refresh job, may run the same action at once."""
    name = api.make(OWN.replace("deploy", "by"), SPEC)
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    click_example = "void gsvCanvas.runAction('by', {seconds: '%s', word: '%s'}).catch(() => {})"
    await frame.evaluate(click_example % (60, "first"))
    await wait_in_frame(frame, "told.at(-1)?.output === 'first\\n'")
    await frame.evaluate(click_example % (0, "quick"))
    await api.until(
        lambda: [one["status"] for one in api.records(name)] == ["completed", "running"],
        "the second has ended",
    )
    await expect(page.locator("#running")).to_have_text("running: Say and wait")
    await expect(page.locator("#stops button")).to_have_text(["Stop Say and wait"])
    first = api.records(name)[-1]["eventId"]
    await wait_in_frame(
        frame,
        f"told.at(-1).status === 'running' && told.at(-1).eventId === {json.dumps(first)} && "
        f"told.at(-1).output === 'first\\n'",
    )
    await expect(canvas_frame(page).locator("button")).to_have_attribute("aria-busy", "true")

    await frame.evaluate(click_example % (60, "third"))
    await expect(page.locator("#running")).to_have_text("running: Say and wait (2 times)")
    await expect(page.locator("#stops button")).to_have_count(2)
    await wait_in_frame(frame, "told.at(-1).output === 'third\\n'")  # of two that run the later one is named
    await expect(page.locator("#stops button").first).to_contain_text("Stop Say and wait, since ")
    await page.locator("#stops button").first.click()
    await expect(page.locator("#stops button")).to_have_text(["Stop Say and wait"])
    assert [one["status"] for one in api.records(name)] == ["running", "completed", "failed"], (
        "the older one was stopped"
    )
    await page.locator("#stops button").click()
    await expect(page.locator("#running")).to_be_empty()
    await wait_in_frame(frame, "told.at(-1).status === 'failed'")


@rule("CV-37")
async def test_running_execution_is_shown_after_many_later_ones(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(None, SPEC)
    await open_canvas(page, server, name)
    await canvas_frame(page).get_by_role("button", name="Deploy it").click()
    await expect(page.locator("#running")).to_have_text("running: Deploy it")
    for _ in range(60):
        api.rpc("canvas.action", canvasId=name, actionId="note")
    later = await page.context.new_page()
    await open_canvas(later, server, name)
    await later.get_by_role("button", name="Stop Deploy it").click()
    await expect(page.locator("#running")).to_be_empty()
    await later.close()


@rule("CV-37")
async def test_custom_page_receives_status_events_and_can_cancel(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(OWN, SPEC)
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    await frame.evaluate(
        "void (window.end = gsvCanvas.runAction('deploy').catch((problem) => [problem.name, problem.code]))"
    )
    await wait_in_frame(
        frame, "told.some((one) => one.status === 'running' && one.output?.includes('three'))"
    )
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
    assert how_it_went(api, name) == ["CANCELLED"]


@rule("CV-05")
async def test_page_cannot_cancel_an_execution_of_another_canvas(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    other, name = api.make(OWN, SPEC), api.make(OWN, SPEC)
    await open_canvas(page, server, other)
    frame = await loaded_frame(page)
    await frame.evaluate("void gsvCanvas.runAction('deploy').catch(() => {})")
    [running] = await api.until(
        lambda: [one for one in api.records(other) if one["status"] == "running"], "it runs"
    )
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    refused = await frame.evaluate(
        f"gsvCanvas.cancelAction({json.dumps(running['eventId'])}).catch((problem) => problem.code)"
    )
    assert refused == 404
    assert how_it_went(api, other) == ["running"]
    api.rpc("canvas.cancel", canvasId=other, eventId=running["eventId"])


@rule("CV-22")
async def test_shell_cancels_executions_and_expired_confirmation_disappears(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(OWN, SPEC)
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    await frame.evaluate("void (window.end = gsvCanvas.runAction('deploy').catch((problem) => problem.name))")
    await page.get_by_role("button", name="Stop Deploy it").click()
    assert await frame.evaluate("end") == "CANCELLED"
    # Noted by the page itself: whoever looks late finds the line gone already.
    await page.evaluate("""void (window.waited = new Promise((resolve) => new MutationObserver(() => {
        const { hidden, textContent } = document.getElementById("waiting");
        if (!hidden && textContent.includes("waits for your consent")) resolve(true);
      }).observe(document.getElementById("waiting"), {childList: true})))""")
    api.rpc("canvas.action", canvasId=name, actionId="ask")
    assert await evaluate_promise(page, "waited")
    await expect(page.locator("#waiting")).to_be_hidden()
    assert how_it_went(api, name) == ["refused", "CANCELLED"]
