"""The page of a canvas: its hooks, its SDK, what two people see of each other, and what a person is asked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.canvas import (
    COCKPIT,
    MINIMAL,
    Desk,
    all_saved,
    held,
    holds,
    inside,
    is_free,
    show,
    the_frame,
)
from tests.edges.http.live import LiveEasel
from tests.requirements import case, rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

HOOKS = """<!doctype html><title>hooks</title>
<p id="service" data-gsv-text="state.service"></p>
<pre id="said" data-gsv-text="state.said.result"></pre>
<button data-gsv-control="buttons.refreshLogs">Logs</button>
<form data-gsv-action="say" data-gsv-input-other="attribute"><input name="word" value="typed"><button>Say it</button></form>
<button id="alone" data-gsv-action="say" data-gsv-input-word="lonely">Alone</button>
<span id="not-a-button" data-gsv-action="setDeploying">Deploying</span>
<select data-gsv-action="say" name="word"><option>a</option><option>b</option></select>
<div id="log"></div>
<script src="index.js"></script>
"""
SCRIPT = """
const first = gsvCanvas.getState().service;  // at once, while the page is being loaded
window.heard = [];
window.stop = gsvCanvas.subscribe((state) => heard.push(state.service));
window.first = first;
"""


@pytest.fixture
def desk(server: EaselProcess) -> Iterator[Desk]:
    with Desk(server) as at:
        yield at


@pytest_asyncio.fixture(loop_scope="module")
async def second_page(browser: Browser) -> AsyncIterator[Page]:
    """Somebody else's browser."""
    context = await browser.new_context(viewport={"width": 390, "height": 800})
    yield await context.new_page()
    await context.close()


# --- the hooks ----------------------------------------------------------------------------------------------------------


@rule("CV-30", "CV-50")
async def test_the_minimal_example_works_as_it_stands(page: Page, server: EaselProcess, desk: Desk) -> None:
    name = desk.make(MINIMAL)
    frame = await show(page, server, name)
    await expect(frame.locator("h1")).to_have_text("api")
    await expect(frame.locator("input")).to_have_value("1.2.7")
    await frame.get_by_text("Refresh Logs").click()
    await expect(frame.locator("pre")).to_have_text("journal of api")
    await frame.locator("input").fill("1.3.0")
    await frame.get_by_text(
        "Deploy", exact=True
    ).click()  # at once: what was typed is stored before the action runs
    await expect(page.locator("#consent-call")).to_contain_text("./deploy api 1.3.0")
    await page.get_by_role("button", name="Approve").click()
    await desk.until(
        lambda: (desk.state(name)["lastDeploy"] or {}).get("result") == "./deploy api 1.3.0", "the deploy"
    )
    desk.patch(name, "/service", "web")
    await expect(frame.locator("h1")).to_have_text("web")
    assert await (await the_frame(page)).evaluate("document.compatMode") == "CSS1Compat", (
        "the doctype still comes first"
    )
    await expect(page.locator("#notes")).to_be_hidden()


@rule("CV-30", "CV-18", "RS-42")
async def test_forms_controls_and_attributes_say_what_goes_with_an_action(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(HOOKS)
    desk.put(name, "assets/index.js", SCRIPT)
    frame = await show(page, server, name)
    said = frame.locator("#said")
    await frame.get_by_text("Say it").click()
    await expect(said).to_have_text("typed/attribute")
    await is_free(frame.locator("form"))
    await frame.locator("form input").fill("entered")
    await frame.locator("form input").press("Enter")
    await expect(said).to_have_text("entered/attribute")
    await frame.locator("#alone").click()
    await expect(said).to_have_text("lonely/")
    await frame.locator("select").select_option("b")
    await expect(said).to_have_text("b/")
    await frame.locator("#not-a-button").focus()
    await page.keyboard.press("Enter")
    await desk.until(lambda: desk.state(name).get("status") == "deploying", "the patch")
    await frame.get_by_text("Logs", exact=True).click()
    await desk.until(
        lambda: (desk.state(name)["logsTail"] or {}).get("result") == "journal of api", "the control's action"
    )


@rule("CV-31")
async def test_a_script_finds_state_changes_and_actions_and_nothing_else(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(HOOKS)
    desk.put(name, "assets/index.js", SCRIPT)
    await show(page, server, name)
    frame = await the_frame(page)
    assert await frame.evaluate("first") == "api", "the state is there when the first script runs"
    assert (
        await frame.evaluate("Object.keys(gsvCanvas).sort().join()")
        == "cancelAction,getState,runAction,subscribe"
    )
    desk.patch(name, "/service", "web")
    await holds(frame, "heard.at(-1) === 'web'")
    assert await frame.evaluate("heard") == ["api", "web"] or await frame.evaluate("heard[0]") == "api"
    answer = await frame.evaluate("gsvCanvas.runAction('say', {word: 'from', other: 'script'})")
    assert (answer["status"], answer["result"]) == ("completed", "from/script")
    assert await frame.evaluate("gsvCanvas.getState().said.result") == "from/script", (
        "stored when the promise is kept"
    )
    refused = await frame.evaluate(
        "gsvCanvas.runAction('toString').catch((problem) => [problem.name, problem.code, problem.message])"
    )
    assert refused[:2] == ["NOT_FOUND", 404]
    await frame.evaluate("stop()")
    heard = await frame.evaluate("heard.length")
    desk.patch(name, "/service", "db")
    await holds(frame, "gsvCanvas.getState().service === 'db'")
    assert await frame.evaluate("heard.length") == heard
    changed = await frame.evaluate(
        "(() => { 'use strict'; try { gsvCanvas.getState().service = 'x'; return 'written' } catch (e) { return e.name } })()"
    )
    assert changed == "TypeError"


@case("X5")
@pytest.mark.parametrize(
    "action", ["__proto__", "constructor", "hasOwnProperty", "tool.call", "../deploy", ""]
)
async def test_an_action_that_is_not_declared_is_refused_and_on_record(
    page: Page, server: EaselProcess, desk: Desk, action: str
) -> None:
    name = desk.make(HOOKS)
    await show(page, server, name)
    refused = await (await the_frame(page)).evaluate(
        "(id) => gsvCanvas.runAction(id).catch((problem) => problem.code)", action
    )
    assert refused == 404
    await desk.until(
        lambda: any(one.get("actionId") == action for one in desk.audit("guardrail.refused", name)),
        "the record",
    )
    assert desk.records(name) == []


async def test_what_is_added_to_the_page_later_is_bound_like_the_rest(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make("<!doctype html><div id=here></div>")
    frame = await show(page, server, name)
    await (await the_frame(page)).evaluate(
        "here.innerHTML = '<b data-gsv-text=state.service></b><input data-gsv-model=state.version><button data-gsv-action=setDeploying>Go</button>'"
    )
    await expect(frame.locator("b")).to_have_text("api")
    await expect(frame.locator("input")).to_have_value("1.2.7")
    await frame.get_by_text("Go").click()
    await desk.until(lambda: desk.state(name).get("status") == "deploying", "the patch")
    await (await the_frame(page)).evaluate("document.querySelector('b').dataset.gsvText = 'state.status'")
    await expect(frame.locator("b")).to_have_text("deploying")


async def test_a_second_page_of_the_same_canvas_is_bound_too(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make("<!doctype html><a href='more/second.html'>On</a>")
    desk.put(
        name,
        "assets/more/second.html",
        "<!doctype html><i data-gsv-text='state.service'></i><button data-gsv-action=setDeploying>Go</button><script type=module src='../m.js'></script>",
    )
    desk.put(name, "assets/m.js", "document.title = (await (await fetch('../a.json')).json()).name")
    desk.put(name, "assets/a.json", '{"name": "fetched"}')
    frame = await show(page, server, name)
    await frame.get_by_text("On").click()
    await expect(frame.locator("i")).to_have_text("api")
    await holds(await the_frame(page), "document.title === 'fetched'")
    await frame.get_by_text("Go").click()
    await desk.until(lambda: desk.state(name).get("status") == "deploying", "the patch")


# --- two people ---------------------------------------------------------------------------------------------------------


@rule("CV-50")
async def test_two_browsers_see_each_other_s_changes_without_a_reload(
    page: Page, second_page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(MINIMAL)
    mine, theirs = await show(page, server, name), await show(second_page, server, name)
    await expect(page.locator("#views")).to_have_text("2 viewers")
    for one in (page, second_page):
        await one.evaluate("window.stays = true")
    await mine.get_by_text("Refresh Logs").click()
    await expect(theirs.locator("pre")).to_have_text("journal of api")
    await theirs.locator("input").fill("9.9")
    await expect(mine.locator("input")).to_have_value("9.9")
    assert [await one.evaluate("window.stays") for one in (page, second_page)] == [True, True]
    await second_page.close()
    await expect(page.locator("#views")).to_have_text("1 viewer")


@rule("CV-30")
async def test_a_field_keeps_its_caret_while_others_change_what_is_around_it(
    page: Page, second_page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(MINIMAL)
    field = (await show(page, server, name)).locator("input")
    await field.click()
    await field.evaluate("(field) => field.setSelectionRange(1, 1)")  # 1|.2.7
    await page.keyboard.type("00", delay=30)
    await desk.until(lambda: desk.state(name)["version"] == "100.2.7", "what was typed")
    await page.keyboard.type("5")
    await desk.until(lambda: desk.state(name)["version"] == "1005.2.7", "what was typed on")
    assert await field.evaluate("(field) => field.selectionStart") == 4
    desk.patch(name, "/version", "v1005.2.7-rc")  # somebody else, while nothing of ours is unsaved
    await expect(field).to_have_value("v1005.2.7-rc")
    assert await field.evaluate("(field) => [field.selectionStart, document.activeElement === field]") == [
        5,
        True,
    ]
    await page.keyboard.type("x")
    await desk.until(lambda: desk.state(name)["version"] == "v1005x.2.7-rc", "typed where the caret was")


@rule("CV-30")
async def test_a_change_from_elsewhere_does_not_write_over_what_is_being_typed(
    page: Page, second_page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(MINIMAL)
    field = (await show(page, server, name)).locator("input")
    theirs = (await show(second_page, server, name)).locator("input")
    await field.click()
    await page.keyboard.press("End")
    release = await held(page)
    await page.keyboard.type("-mine")
    desk.patch(name, "/version", "theirs")
    await expect(theirs).to_have_value("theirs")
    await holds(await the_frame(page), "gsvCanvas.getState().version === 'theirs'")
    await expect(field).to_have_value("1.2.7-mine")
    await release()
    await expect(page.locator("#conflicts")).to_contain_text(
        "was changed to theirs by another user while you entered 1.2.7-mine"
    )
    await expect(field).to_have_value("1.2.7-mine")
    assert desk.state(name)["version"] == "theirs"
    await page.get_by_role("button", name="Keep mine").click()
    await expect(theirs).to_have_value("1.2.7-mine")
    await expect(page.locator("#conflicts")).to_be_hidden()


async def test_a_conflict_can_be_settled_for_the_other_and_holds_up_actions_until_then(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(MINIMAL)
    frame = await show(page, server, name)
    await frame.locator("input").click()
    release = await held(page)
    await page.keyboard.type("mine-")
    desk.patch(name, "/version", "theirs")
    await release()
    await expect(page.locator("#conflicts")).to_be_visible()
    await frame.get_by_text("Refresh Logs").click()
    await expect(page.locator("#notes-latest")).to_contain_text(
        "It was not run: state.version is not saved"
    )
    assert desk.records(name) == []
    await page.get_by_role("button", name="Take theirs").click()
    await expect(frame.locator("input")).to_have_value("theirs")
    await frame.get_by_text("Refresh Logs").click()
    await expect(frame.locator("pre")).to_have_text("journal of api")


FIELDS = """<!doctype html>
<input id=n data-gsv-model="state.n"><input id=n2 type=number data-gsv-model="state.n"><input id=on type=checkbox data-gsv-model="state.on">
<input type=checkbox value=a data-gsv-model="state.many"><input type=checkbox value=b data-gsv-model="state.many">
<input type=radio name=r value=x data-gsv-model="state.one"><input type=radio name=r value=y data-gsv-model="state.one">
<select multiple data-gsv-model="state.some"><option>p<option>q</select><textarea data-gsv-model="state.deep.text"></textarea>
<input id=else data-gsv-model="state.hidden">"""


@rule("RS-41")
async def test_every_kind_of_field_keeps_the_kind_of_its_value(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    state = {"n": 3, "on": False, "many": ["a"], "one": "y", "some": ["q"], "deep": {}, "hidden": 1}
    name = desk.make(FIELDS, {"state": state, "writable": ["n", "on", "many", "one", "some", "deep.text"]})
    frame = await show(page, server, name)
    await expect(frame.locator("#n")).to_have_value("3")
    await expect(frame.locator("[value=y]")).to_be_checked()
    await frame.locator("#n").fill("4.50")
    await expect(frame.locator("#n2")).to_have_value("4.5")
    await expect(frame.locator("#n")).to_have_value("4.50")
    await frame.locator("#n").fill("4.")  # half a number is none yet
    await frame.locator("#on").check()
    await frame.locator("[value=b]").check()
    await frame.locator("[value=x]").check()
    await frame.locator("select").select_option(["p", "q"])
    await frame.locator("textarea").fill("two\nlines")
    await expect(frame.locator("#else")).not_to_be_editable()
    await frame.locator("textarea").blur()
    expected = {
        "n": 4,
        "on": True,
        "many": ["a", "b"],
        "one": "x",
        "some": ["p", "q"],
        "deep": {"text": "two\nlines"},
        "hidden": 1,
    }
    await desk.until(lambda: desk.state(name) == expected, f"{desk.state(name)}")
    await expect(page.locator("#notes-list")).to_contain_text("state.hidden")
    # A script that sends the entry all the same is refused by the server.
    await (await the_frame(page)).evaluate("""() => {
        addEventListener('message', ({data}) => {
          if (data.kind === 'answer' && data.id === 'x') window.answer = data;
          if (data.kind !== 'welcome') return;
          parent.postMessage({gsv: 1, nonce: data.nonce, kind: 'input', id: 'x', pointer: '/hidden', value: 2, was: 1}, '*');
        });
        parent.postMessage({gsv: 1, kind: 'hello'}, '*');
      }""")
    await holds(await the_frame(page), "window.answer?.error?.code === 403")
    await desk.until(lambda: desk.audit("canvas.page.refused", name), "the refused write on record")
    assert desk.state(name) == expected


# --- consent --------------------------------------------------------------------------------------------------------------


@rule("CV-22")
async def test_what_a_person_confirms_is_the_exact_call_and_nothing_dresses_it_up(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(MINIMAL)
    desk.patch(name, "/version", "1\u202e2 <b>bold</b>\x07\n; rm -rf /")
    frame = await show(page, server, name)
    await frame.get_by_text("Deploy", exact=True).click()
    call = page.locator("#consent-call")
    await expect(call).to_contain_text("gsv__Echo")
    await expect(call).to_contain_text("./deploy api 1⟨U+202E⟩2 <b>bold</b>⟨U+0007⟩")
    assert await call.locator("b").count() == 0
    await expect(page.locator("#consent-refuse")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#consent")).to_be_hidden()
    await desk.until(lambda: [one["status"] for one in desk.records(name)] == ["refused"], "the refusal")
    assert desk.state(name)["lastDeploy"] is None


@rule("CV-05")
async def test_a_press_that_was_meant_for_something_else_approves_nothing(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(MINIMAL)
    await show(page, server, name)
    frame = await the_frame(page)
    await page.evaluate("""void (window.shown = new Promise((resolve) => new MutationObserver(
        () => resolve(document.getElementById("consent-approve").disabled)).observe(document.getElementById("consent"), {attributeFilter: ["open"]})))""")
    await frame.evaluate("void (window.asked = gsvCanvas.runAction('deploy'))")
    approve = page.locator("#consent-approve")
    assert await page.evaluate("shown") is True, "it can be pressed only after a while"
    await expect(approve).to_be_enabled()
    assert desk.records(name)[0]["status"] == "asked"
    await page.keyboard.press("Escape")
    assert (await frame.evaluate("asked"))["status"] == "needs_confirmation"
    await expect(page.locator("#waiting")).to_contain_text("deploy waits for your consent")
    await page.reload()
    await page.get_by_role("button", name="Review").click()
    await expect(page.locator("#consent-call")).to_contain_text("./deploy api 1.2.7")
    await page.get_by_role("button", name="Approve").click()
    await desk.until(lambda: desk.state(name)["lastDeploy"], "the deploy")
    await expect(page.locator("#waiting")).to_be_hidden()


@rule("RS-59")
async def test_a_spec_that_an_agent_wrote_is_accepted_by_a_person(page: Page, tmp_path: Path) -> None:
    with LiveEasel(tmp_path, with_worker=False) as easel, Desk(easel) as desk:
        name = desk.make(MINIMAL)
        easel.sql(f"update canvases set is_accepted = 0 where canvas_id = '{name}'")
        await show(page, easel, name)
        await expect(page.locator("#accept")).to_be_visible()
        await page.get_by_text("What it would allow").click()
        await expect(page.locator("#accept-details")).to_contain_text("gsv__Echo")
        await page.get_by_role("button", name="Accept it").click()
        await expect(page.locator("#accept")).to_be_hidden()
        assert desk.rpc("canvas.get", canvasId=name)["accepted"] is True


# --- a canvas without a page of its own -------------------------------------------------------------------------------------


async def test_a_canvas_without_a_page_is_a_form_with_buttons_and_tables(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    state = {
        **COCKPIT["state"],
        "count": 3,
        "on": True,
        "hosts": [{"name": "a", "up": True}, {"name": "<i>b</i>", "cpu": 7}],
        "nested": {"region": "eu"},
    }
    name = desk.make(None, {**COCKPIT, "state": state, "writable": ["version", "count", "on", "nested"]})
    frame = await show(page, server, name)
    await expect(frame.get_by_role("button", name="Refresh logs")).to_be_visible()
    await expect(frame.get_by_label("Version")).to_have_value("1.2.7")
    await expect(frame.get_by_label("Service")).to_have_count(0)
    await expect(frame.locator("table tbody tr")).to_have_text(
        [re.compile("atrue"), re.compile("<i>b</i>.*7")]
    )
    await frame.get_by_label("Count").fill("5")
    await frame.get_by_label("Region").fill("us")
    await frame.get_by_role("button", name="Refresh logs").click()
    await expect(frame.locator("[data-outcome=refreshLogs]")).to_have_text("done")
    await expect(frame.locator("[data-member=logsTail] pre")).to_have_text("journal of api")
    await desk.until(
        lambda: (desk.state(name)["count"], desk.state(name)["nested"]) == (5, {"region": "us"}),
        "what was entered",
    )
    await frame.get_by_role("button", name="Fail").click()
    await expect(frame.locator("[data-outcome=fail]")).to_contain_text("failed: ")
    await frame.get_by_role("button", name="Wait").click()
    await expect(frame.locator("[data-outcome=wait]")).to_have_text("running…")
    await expect(page.locator("#running")).to_have_text("running: wait")
    desk.patch(name, "/hosts", [{"name": "only"}])
    await expect(frame.locator("table tbody tr")).to_have_text(["only"])
    await expect(frame.locator("[data-outcome=fail]")).to_contain_text("failed: ")


@rule("CV-30")
async def test_a_generated_field_stays_under_the_fingers_whatever_changes_around_it(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    state = {
        "name": "Ada",
        "n": 3,
        "note": "short",
        "rows": [{"a": 1}],
        "deep": {"region": "eu", "list": [1]},
    }
    name = desk.make(None, {"state": state})
    frame = await show(page, server, name)
    field = frame.get_by_label("Name")
    await field.click()
    await page.keyboard.press("End")
    await page.keyboard.type(" Love")
    desk.patch(name, "/rows/-", {"a": 2})  # a list, a member that comes, one that goes
    desk.patch(name, "/more", {"text": "new"})
    desk.rpc("canvas.patch", canvasId=name, statePatch=[{"op": "remove", "path": "/note"}])
    await expect(frame.locator("[data-member=rows] tbody tr")).to_have_count(2)
    await expect(frame.locator("[data-member=more]")).to_contain_text("new")
    await expect(frame.get_by_label("Note")).to_have_count(0)
    await expect(field).to_be_focused()
    await page.keyboard.type("lace" + "x" * 90 + "END")  # longer than what is drawn in one line
    await desk.until(lambda: desk.state(name)["name"] == "Ada Lovelace" + "x" * 90 + "END", "all of it")
    await expect(field).to_be_focused()

    number = frame.get_by_label("N", exact=True)
    await number.fill("")
    await expect(frame.locator(".wrong")).to_have_text("This must be a number; it is not saved.")
    await expect(number).to_be_focused()
    await number.press_sequentially("5")
    await desk.until(lambda: desk.state(name)["n"] == 5, "a number as before")
    await all_saved(frame)
    desk.patch(name, "/n", None)
    await page.reload()
    await expect(inside(page).get_by_label("N", exact=True)).to_have_attribute("type", "number")

    region = inside(page).get_by_label("Region")
    await region.click()
    release = await held(page)
    await page.keyboard.type("west-")
    desk.rpc("canvas.patch", canvasId=name, statePatch=[{"op": "remove", "path": "/deep"}])
    await holds(await the_frame(page), "!('deep' in gsvCanvas.getState())")
    await expect(region).to_be_focused()  # what was typed is the person's, also when its place is gone
    await release()
    desk.patch(name, "/name", "two\nlines")
    await expect(inside(page).locator("textarea")).to_have_value("two\nlines")


async def test_an_empty_canvas_says_what_it_lacks(page: Page, server: EaselProcess, desk: Desk) -> None:
    name = desk.make(None, {})
    frame = await show(page, server, name)
    await expect(frame.locator("#nothing")).to_be_visible()
    desk.rpc(
        "canvas.patch",
        canvasId=name,
        spec={"state": {"a": 1}, "actions": {"go": {"kind": "state.patch", "patch": []}}},
        statePatch=[{"op": "add", "path": "/a", "value": 1}],
    )
    await expect(inside(page).get_by_role("button", name="Go")).to_be_visible()
    await expect(inside(page).get_by_label("A", exact=True)).to_have_value("1")
