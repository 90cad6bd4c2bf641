"""The page of a canvas: its hooks, its SDK, two users at once, and the consent dialog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.canvas import (
    MINIMAL_PAGE,
    CanvasApi,
    expect_idle,
    loaded_frame,
    open_canvas,
    pause_timers,
    read_to_the_end,
    wait_in_frame,
)
from tests.edges.http.live import LiveEasel
from tests.requirements import case, rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

HOOKS = """<!doctype html><title>hooks</title>
<p id="service" data-gsv-text="state.service"></p>
<pre id="said" data-gsv-text="state.said.result"></pre>
<button data-gsv-control="buttons.refreshLogs">Logs</button>
<form data-gsv-action="say" data-gsv-input-other="attribute">
  <input name="word" value="typed"><button>Say it</button>
</form>
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


@pytest_asyncio.fixture(loop_scope="session")
async def second_page(browser: Browser) -> AsyncIterator[Page]:
    """Open a page in the browser of another user."""
    context = await browser.new_context(viewport={"width": 390, "height": 800})
    yield await context.new_page()
    await context.close()


# --- the hooks ----------------------------------------------------------------------------------------------


@rule("CV-30", "CV-50")
async def test_minimal_example_of_the_specification_works(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(MINIMAL_PAGE)
    frame = await open_canvas(page, server, name)
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
    await api.until(
        lambda: (api.state(name)["lastDeploy"] or {}).get("result") == "./deploy api 1.3.0", "the deploy"
    )
    api.patch(name, "/service", "web")
    await expect(frame.locator("h1")).to_have_text("web")
    assert await (await loaded_frame(page)).evaluate("document.compatMode") == "CSS1Compat", (
        "the doctype still comes first"
    )
    await expect(page.locator("#notes")).to_be_hidden()


@rule("CV-30", "CV-18", "RS-42")
async def test_action_input_comes_from_form_control_and_attributes(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(HOOKS)
    api.put(name, "assets/index.js", SCRIPT)
    frame = await open_canvas(page, server, name)
    said = frame.locator("#said")
    await frame.get_by_text("Say it").click()
    await expect(said).to_have_text("typed/attribute")
    await expect_idle(frame.locator("form"))
    await frame.locator("form input").fill("entered")
    await frame.locator("form input").press("Enter")
    await expect(said).to_have_text("entered/attribute")
    await frame.locator("#alone").click()
    await expect(said).to_have_text("lonely/")
    await frame.locator("select").select_option("b")
    await expect(said).to_have_text("b/")
    await frame.locator("#not-a-button").focus()
    await page.keyboard.press("Enter")
    await api.until(lambda: api.state(name).get("status") == "deploying", "the patch")
    await frame.get_by_text("Logs", exact=True).click()
    await api.until(
        lambda: (api.state(name)["logsTail"] or {}).get("result") == "journal of api", "the control's action"
    )


@rule("CV-31")
async def test_page_script_gets_state_and_actions_only(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(HOOKS)
    api.put(name, "assets/index.js", SCRIPT)
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    assert await frame.evaluate("first") == "api", "the state is there when the first script runs"
    assert (
        await frame.evaluate("Object.keys(gsvCanvas).sort().join()")
        == "cancelAction,getState,runAction,subscribe"
    )
    api.patch(name, "/service", "web")
    await wait_in_frame(frame, "heard.at(-1) === 'web'")
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
    api.patch(name, "/service", "db")
    await wait_in_frame(frame, "gsvCanvas.getState().service === 'db'")
    assert await frame.evaluate("heard.length") == heard
    changed = await frame.evaluate(
        "(() => { 'use strict'; try { gsvCanvas.getState().service = 'x'; return 'written' } catch (e) { "
        "return e.name } })()"
    )
    assert changed == "TypeError"


@case("X5")
@pytest.mark.parametrize(
    "action", ["__proto__", "constructor", "hasOwnProperty", "tool.call", "../deploy", ""]
)
async def test_undeclared_action_is_refused_and_audited(
    page: Page, server: EaselProcess, api: CanvasApi, action: str
) -> None:
    name = api.make(HOOKS)
    await open_canvas(page, server, name)
    refused = await (await loaded_frame(page)).evaluate(
        "(id) => gsvCanvas.runAction(id).catch((problem) => problem.code)", action
    )
    assert refused == 404
    await api.until(
        lambda: any(one.get("actionId") == action for one in api.audit("guardrail.refused", name)),
        "the record",
    )
    assert api.records(name) == []


async def test_element_added_later_is_bound(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    name = api.make("<!doctype html><div id=here></div>")
    frame = await open_canvas(page, server, name)
    await (await loaded_frame(page)).evaluate(
        "here.innerHTML = '<b data-gsv-text=state.service></b><input data-gsv-model=state.version><button "
        "data-gsv-action=setDeploying>Go</button>'"
    )
    await expect(frame.locator("b")).to_have_text("api")
    await expect(frame.locator("input")).to_have_value("1.2.7")
    await frame.get_by_text("Go").click()
    await api.until(lambda: api.state(name).get("status") == "deploying", "the patch")
    await (await loaded_frame(page)).evaluate("document.querySelector('b').dataset.gsvText = 'state.status'")
    await expect(frame.locator("b")).to_have_text("deploying")


async def test_link_to_another_site_is_not_followed_and_noted(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(
        "<!doctype html><a href='https://evil.example/'>Plain</a>"
        "<svg><a href='https://evil.example/svg'><text y=20>Drawn</text></a></svg>"
        "<svg><a xmlns:xlink='http://www.w3.org/1999/xlink' xlink:href='//evil.example/old'>"
        "<text y=20>Old</text></a></svg><button data-gsv-action=setDeploying>Go</button>"
    )
    frame = await open_canvas(page, server, name)
    for text, address in (("Plain", "/"), ("Drawn", "/svg"), ("Old", "/old")):
        await frame.get_by_text(text).click()
        await expect(page.locator("#notes-latest")).to_contain_text(f"evil.example{address}")
    await frame.get_by_text("Go").click()
    await api.until(lambda: api.state(name).get("status") == "deploying", "the page is still there")


async def test_second_page_of_a_canvas_is_bound(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    name = api.make("<!doctype html><a href='more/second.html'>On</a>")
    api.put(
        name,
        "assets/more/second.html",
        "<!doctype html><i data-gsv-text='state.service'></i><button "
        "data-gsv-action=setDeploying>Go</button><script type=module src='../m.js'></script>",
    )
    api.put(name, "assets/m.js", "document.title = (await (await fetch('../a.json')).json()).name")
    api.put(name, "assets/a.json", '{"name": "fetched"}')
    frame = await open_canvas(page, server, name)
    await frame.get_by_text("On").click()
    await expect(frame.locator("i")).to_have_text("api")
    await wait_in_frame(await loaded_frame(page), "document.title === 'fetched'")
    await frame.get_by_text("Go").click()
    await api.until(lambda: api.state(name).get("status") == "deploying", "the patch")


# --- two people ---------------------------------------------------------------------------------------------


@rule("CV-50")
async def test_two_browsers_see_changes_without_a_reload(
    page: Page, second_page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(MINIMAL_PAGE)
    mine, theirs = await open_canvas(page, server, name), await open_canvas(second_page, server, name)
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
async def test_field_keeps_its_caret_during_changes_of_other_users(
    page: Page, second_page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(MINIMAL_PAGE)
    field = (await open_canvas(page, server, name)).locator("input")
    await field.click()
    await field.evaluate("(field) => field.setSelectionRange(1, 1)")  # 1|.2.7
    await page.keyboard.type("00", delay=30)
    await api.until(lambda: api.state(name)["version"] == "100.2.7", "what was typed")
    await page.keyboard.type("5")
    await api.until(lambda: api.state(name)["version"] == "1005.2.7", "what was typed on")
    assert await field.evaluate("(field) => field.selectionStart") == 4
    api.patch(name, "/version", "v1005.2.7-rc")  # somebody else, while nothing of ours is unsaved
    await expect(field).to_have_value("v1005.2.7-rc")
    assert await field.evaluate("(field) => [field.selectionStart, document.activeElement === field]") == [
        5,
        True,
    ]
    await page.keyboard.type("x")
    await api.until(lambda: api.state(name)["version"] == "v1005x.2.7-rc", "typed where the caret was")


@rule("CV-30")
async def test_change_of_another_user_does_not_overwrite_an_unsaved_entry(
    page: Page, second_page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(MINIMAL_PAGE)
    field = (await open_canvas(page, server, name)).locator("input")
    theirs = (await open_canvas(second_page, server, name)).locator("input")
    await field.click()
    await page.keyboard.press("End")
    release = await pause_timers(page)
    await page.keyboard.type("-mine")
    api.patch(name, "/version", "theirs")
    await expect(theirs).to_have_value("theirs")
    await wait_in_frame(await loaded_frame(page), "gsvCanvas.getState().version === 'theirs'")
    await expect(field).to_have_value("1.2.7-mine")
    await release()
    await expect(page.locator("#conflicts")).to_contain_text(
        "was changed to theirs by another user while you entered 1.2.7-mine"
    )
    await expect(field).to_have_value("1.2.7-mine")
    assert api.state(name)["version"] == "theirs"
    await page.get_by_role("button", name="Keep mine").click()
    await expect(theirs).to_have_value("1.2.7-mine")
    await expect(page.locator("#conflicts")).to_be_hidden()


async def test_conflict_blocks_actions_until_it_is_resolved(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(MINIMAL_PAGE)
    frame = await open_canvas(page, server, name)
    await frame.locator("input").click()
    release = await pause_timers(page)
    await page.keyboard.type("mine-")
    api.patch(name, "/version", "theirs")
    await release()
    await expect(page.locator("#conflicts")).to_be_visible()
    await frame.get_by_text("Refresh Logs").click()
    await expect(page.locator("#notes-latest")).to_contain_text("It was not run: state.version is not saved")
    assert api.records(name) == []
    await page.get_by_role("button", name="Take theirs").click()
    await expect(frame.locator("input")).to_have_value("theirs")
    await frame.get_by_text("Refresh Logs").click()
    await expect(frame.locator("pre")).to_have_text("journal of api")


FIELDS = """<!doctype html>
<input id=n data-gsv-model="state.n">
<input id=n2 type=number data-gsv-model="state.n">
<input id=on type=checkbox data-gsv-model="state.on">
<input type=checkbox value=a data-gsv-model="state.many">
<input type=checkbox value=b data-gsv-model="state.many">
<input type=radio name=r value=x data-gsv-model="state.one">
<input type=radio name=r value=y data-gsv-model="state.one">
<select multiple data-gsv-model="state.some"><option>p<option>q</select>
<textarea data-gsv-model="state.deep.text"></textarea>
<input id=else data-gsv-model="state.hidden">"""


@rule("RS-41")
async def test_every_field_type_keeps_the_type_of_its_value(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    state = {"n": 3, "on": False, "many": ["a"], "one": "y", "some": ["q"], "deep": {}, "hidden": 1}
    name = api.make(FIELDS, {"state": state, "writable": ["n", "on", "many", "one", "some", "deep.text"]})
    frame = await open_canvas(page, server, name)
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
    await api.until(lambda: api.state(name) == expected, f"{api.state(name)}")
    await expect(page.locator("#notes-list")).to_contain_text("state.hidden")
    # A script that sends the entry all the same is refused by the server.
    await (await loaded_frame(page)).evaluate("""() => {
        addEventListener('message', ({data}) => {
          if (data.kind === 'answer' && data.id === 'x') window.answer = data;
          if (data.kind !== 'welcome') return;
          const input = {kind: 'input', id: 'x', pointer: '/hidden', value: 2, was: 1};
          parent.postMessage({gsv: 1, nonce: data.nonce, ...input}, '*');
        });
        parent.postMessage({gsv: 1, kind: 'hello'}, '*');
      }""")
    await wait_in_frame(await loaded_frame(page), "window.answer?.error?.code === 403")
    await api.until(lambda: api.audit("canvas.page.refused", name), "the refused write on record")
    assert api.state(name) == expected


# --- consent ------------------------------------------------------------------------------------------------


@rule("CV-22")
async def test_dialog_shows_the_exact_call(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    name = api.make(MINIMAL_PAGE)
    api.patch(name, "/version", "1\u202e2 <b>bold</b>\x07\n; rm -rf /")
    frame = await open_canvas(page, server, name)
    await frame.get_by_text("Deploy", exact=True).click()
    call = page.locator("#consent-call")
    await expect(call).to_contain_text("gsv__Echo")
    await expect(call).to_contain_text("./deploy api 1⟨U+202E⟩2 <b>bold</b>⟨U+0007⟩")
    assert await call.locator("b").count() == 0
    await expect(page.locator("#consent-refuse")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#consent")).to_be_hidden()
    await api.until(lambda: [one["status"] for one in api.records(name)] == ["refused"], "the refusal")
    assert api.state(name)["lastDeploy"] is None


@rule("CV-05")
async def test_click_during_the_pause_does_not_approve(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(MINIMAL_PAGE)
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    await page.evaluate("""void (window.shown = new Promise((resolve) => {
        const approve = document.getElementById("consent-approve");
        new MutationObserver(() => resolve(approve.disabled))
          .observe(document.getElementById("consent"), {attributeFilter: ["open"]});
      }))""")
    await frame.evaluate("void (window.asked = gsvCanvas.runAction('deploy'))")
    approve = page.locator("#consent-approve")
    assert await page.evaluate("shown") is True, "it can be pressed only after a while"
    await expect(approve).to_be_enabled()
    assert api.records(name)[0]["status"] == "asked"
    await page.keyboard.press("Escape")
    assert (await frame.evaluate("asked"))["status"] == "needs_confirmation"
    await expect(page.locator("#waiting")).to_contain_text("deploy waits for your consent")
    await page.reload()
    await page.get_by_role("button", name="Review").click()
    await expect(page.locator("#consent-call")).to_contain_text("./deploy api 1.2.7")
    await page.get_by_role("button", name="Approve").click()
    await api.until(lambda: api.state(name)["lastDeploy"], "the deploy")
    await expect(page.locator("#waiting")).to_be_hidden()


@rule("RS-59")
async def test_spec_of_an_agent_is_accepted_by_a_person(page: Page, tmp_path: Path) -> None:
    with LiveEasel(tmp_path, with_worker=False) as easel, CanvasApi(easel) as api:
        name = api.make(MINIMAL_PAGE)
        easel.sql(f"update canvases set is_accepted = 0 where canvas_id = '{name}'")
        await open_canvas(page, easel, name)
        await expect(page.locator("#accept")).to_be_visible()
        await expect(page.locator("#accept-details")).to_contain_text("gsv__Echo")
        await read_to_the_end(page)
        await page.get_by_role("button", name="Accept it").click()
        await expect(page.locator("#accept")).to_be_hidden()
        assert api.rpc("canvas.get", canvasId=name)["accepted"] is True


FORM = """<!doctype html>
<form data-gsv-action="send" id="deploy">
  <input type="number" name="replicas">
  <input type="range" name="load" min="0" max="10" step="0.5" value="2.5">
  <input type="checkbox" name="dryRun"><input type="checkbox" name="elements" checked>
  <input type="checkbox" name="tags" value="a" checked><input type="checkbox" name="tags" value="b" checked>
  <input type="checkbox" name="one" value="yes" checked><input type="checkbox" name="none" value="yes">
  <input type="checkbox" name="off" disabled>
  <input type="radio" name="size" value="1" checked><input name="text" value="8">
  <button>Send</button>
</form>
<input type="checkbox" name="outside" form="deploy">
<pre data-gsv-text="state.sent"></pre>
"""


@rule("CV-30")
async def test_form_sends_numbers_as_numbers_and_boxes_as_booleans(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    """Replicas became the text "8", and an unticked box failed with "has no value"."""
    patch = [
        {"op": "add", "path": f"/{name}", "value": {"$value": f"input.{name}"}}
        for name in ("replicas", "load", "dryRun", "elements", "outside", "tags", "one", "size", "text")
    ]
    spec = {
        "version": 1,
        "state": {"replicas": 1},
        "actions": {"send": {"kind": "state.patch", "patch": patch}},
    }
    name = api.make(FORM, spec)
    frame = await open_canvas(page, server, name)
    await frame.get_by_role("button", name="Send").click()
    await expect(page.locator("#notes")).to_contain_text("input.replicas")
    await expect(page.locator("#notes")).to_contain_text("has no value")
    await frame.locator("[name=replicas]").fill("8")
    await frame.get_by_role("button", name="Send").click()
    await api.until(lambda: "text" in api.state(name), "the form")
    expected = {"replicas": 8, "load": 2.5, "dryRun": False, "elements": True, "outside": False}
    assert api.state(name) == expected | {"tags": ["a", "b"], "one": "yes", "size": "1", "text": "8"}
    await frame.locator("[name=dryRun]").check()
    await frame.get_by_role("button", name="Send").click()
    await api.until(lambda: api.state(name)["dryRun"] is True, "the ticked box")
