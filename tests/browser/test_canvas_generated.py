"""The generated page of a canvas while its user types and other users change the state."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.canvas import (
    COCKPIT_SPEC,
    CanvasApi,
    canvas_frame,
    expect_idle,
    expect_saved,
    loaded_frame,
    open_canvas,
    pause_timers,
    wait_in_frame,
)
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

STATE: dict[str, Any] = {
    "name": "Ada",
    "n": 3,
    "maybe": None,
    "rows": [{"a": 1}],
    "deep": {"region": "eu", "hosts": ["a"]},
    "last": "z",
}
MARK = "document.activeElement.mark = 'this one'"
IS_MARKED = "document.activeElement.mark === 'this one'"


# --- what others do -----------------------------------------------------------------------------------------

CHANGES: list[tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = [
    # id                            the change of another user
    ("a list grows", lambda state: {**state, "rows": [*state["rows"], {"a": 2}]}),
    ("a list beside it changes", lambda state: {**state, "deep": {**state["deep"], "hosts": ["b", "c"]}}),
    ("a list becomes an object", lambda state: {**state, "rows": {"only": {"a": 1}}}),
    ("a member comes before it", lambda state: {"first": None, "new": [1], **state}),
    ("all members change places", lambda state: dict(reversed(state.items()))),
    ("another field is another", lambda state: {**state, "last": 7, "n": "text"}),
    (
        "another field goes",
        lambda state: {name: value for name, value in state.items() if name not in {"last", "n"}},
    ),
]


@rule("RS-41")
@pytest.mark.parametrize("label", ["Name", "Region"])
@pytest.mark.parametrize("change", [change for _, change in CHANGES], ids=[says for says, _ in CHANGES])
async def test_typing_continues_while_other_users_change_the_state(
    page: Page,
    server: EaselProcess,
    api: CanvasApi,
    change: Callable[[dict[str, Any]], dict[str, Any]],
    label: str,
) -> None:
    """The field keeps its element, its caret and the next keys; changes are shown around it."""
    name = api.make(None, {"state": STATE})
    shown = await open_canvas(page, server, name)
    field, frame = shown.get_by_label(label), await loaded_frame(page)

    def stored() -> str:
        return api.state(name)["name"] if label == "Name" else api.state(name)["deep"]["region"]

    was = stored()
    await field.click()
    await page.keyboard.press("Home")
    await page.keyboard.type("Mme ")
    await frame.evaluate(MARK)
    await api.until(lambda: stored() == f"Mme {was}", "so far")
    changed = change(api.state(name))
    api.rpc("canvas.patch", canvasId=name, statePatch=[{"op": "replace", "path": "", "value": changed}])
    await wait_in_frame(
        frame, f"JSON.stringify(gsvCanvas.getState()) === JSON.stringify({json.dumps(changed)})"
    )
    await page.keyboard.type("de ")
    assert await frame.evaluate(IS_MARKED)
    await expect(field).to_have_value(f"Mme de {was}")
    assert await frame.evaluate("document.activeElement.selectionStart") == len("Mme de ")
    await api.until(lambda: stored() == f"Mme de {was}", "what was typed")
    await expect(page.locator("#conflicts")).to_be_hidden()
    names = await frame.evaluate(
        "[...document.querySelectorAll('.part.fields > *')].map((one) => one.textContent.toLowerCase())"
    )
    assert names == [one for one, value in changed.items() if not isinstance(value, dict | list)], (
        "in the order of the state"
    )


@rule("RS-41")
async def test_unsaved_entry_survives_removal_of_its_value(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(None, {"state": STATE})
    shown, frame = await open_canvas(page, server, name), await loaded_frame(page)
    field = shown.get_by_label("Region")
    await field.click()
    await page.keyboard.press("End")
    await pause_timers(page)
    await page.keyboard.type("-west")
    api.rpc(
        "canvas.patch", canvasId=name, statePatch=[{"op": "replace", "path": "/deep", "value": ["nothing"]}]
    )
    await wait_in_frame(frame, "Array.isArray(gsvCanvas.getState().deep)")
    await page.keyboard.type("-1")
    await expect(field).to_have_value("eu-west-1")
    await expect(field).to_be_focused()


@rule("RS-41")
async def test_field_of_a_changed_type_is_replaced_after_it_loses_focus(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(None, {"state": STATE})
    shown = await open_canvas(page, server, name)
    field, frame = shown.get_by_label("Name"), await loaded_frame(page)
    await field.click()
    await frame.evaluate(MARK)
    api.patch(name, "/name", ["now", "a list"])
    api.patch(name, "/last", "told")
    await expect(shown.get_by_label("Last")).to_have_value("told")
    assert await frame.evaluate(IS_MARKED)
    await shown.get_by_label("Last").click()
    await expect(shown.locator("[data-member=name]")).to_contain_text("a list")
    await expect(field).to_have_count(0)
    await expect(shown.get_by_label("Last")).to_be_focused()


@rule("RS-41")
async def test_line_break_of_another_user_survives_the_next_key(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    """A one-line field cannot show it: a larger field replaces it and keeps the caret and every key."""
    name = api.make(None, {"state": {"name": "one two"}})
    shown = await open_canvas(page, server, name)
    field, frame = shown.get_by_label("Name"), await loaded_frame(page)
    await field.click()
    await page.keyboard.press("End")
    api.patch(name, "/name", "zero\none two")
    await wait_in_frame(frame, "document.activeElement.localName === 'textarea'")
    await page.keyboard.type("!")
    await api.until(lambda: api.state(name)["name"] == "zero\none two!", "both")


# --- the kind of a field ------------------------------------------------------------------------------------


@rule("RS-41")
async def test_field_stays_while_its_text_grows_long(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(None, {"state": STATE})
    shown = await open_canvas(page, server, name)
    field, frame = shown.get_by_label("Name"), await loaded_frame(page)
    await field.click()
    await frame.evaluate(MARK)
    await page.keyboard.press("End")
    await page.keyboard.type("x" * 90)
    await api.until(lambda: api.state(name)["name"] == "Ada" + "x" * 90, "so far")
    await page.keyboard.type("END")
    await api.until(lambda: api.state(name)["name"] == "Ada" + "x" * 90 + "END", "all of it")
    assert await frame.evaluate(IS_MARKED)
    await expect_saved(shown)
    await page.reload()
    await expect(shown.locator("textarea")).to_have_value("Ada" + "x" * 90 + "END")  # now it has the room


@rule("RS-41")
async def test_number_field_stores_numbers(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    name = api.make(None, {"state": STATE})
    shown = await open_canvas(page, server, name)
    field, wrong, frame = (
        shown.get_by_label("N", exact=True),
        shown.locator(".wrong"),
        await loaded_frame(page),
    )
    await field.click()
    await frame.evaluate(MARK)
    await page.keyboard.press("Backspace")
    await expect(wrong).to_have_text("This must be a number; it is not saved.")
    await expect(field).to_have_attribute("aria-invalid", "true")
    api.patch(name, "/rows/-", {"a": 2})
    await expect(shown.locator("[data-member=rows] tbody tr")).to_have_count(2)
    assert api.state(name)["n"] == 3
    await page.keyboard.type("5")
    await api.until(lambda: api.state(name)["n"] == 5, "a number")
    assert await frame.evaluate(IS_MARKED)
    await expect(wrong).to_be_hidden()
    await page.keyboard.press("Backspace")
    await shown.get_by_label("Last").click()
    await expect(field).to_have_value("5")  # what is kept is what is shown
    await expect(wrong).to_be_hidden()

    for broken in (None, "7"):  # somebody's program writes what it should not
        api.patch(name, "/n", broken)
        await expect(field).to_have_value(broken or "")
        await field.fill("6")
        await api.until(lambda: api.state(name)["n"] == 6, "a number again")
        await shown.get_by_label("Last").click()


@rule("RS-41")
async def test_empty_value_of_the_spec_may_stay_empty(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(None, {"state": STATE})
    api.patch(name, "/maybe", 4)
    shown = await open_canvas(page, server, name)
    field = shown.get_by_label("Maybe")
    await field.fill("")
    await api.until(lambda: api.state(name)["maybe"] is None, "nothing, as in the spec")
    await field.press_sequentially("12")
    await api.until(lambda: api.state(name)["maybe"] == 12, "and a number, as it was")


@rule("RS-41")
async def test_text_field_of_a_custom_page_stores_a_number_as_number(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make("<!doctype html><input data-gsv-model=state.n>", {"state": STATE})
    field = (await open_canvas(page, server, name)).locator("input")
    await field.fill("")
    await api.until(lambda: api.state(name)["n"] is None, "nothing")
    await field.press_sequentially("5")
    await api.until(lambda: api.state(name)["n"] == 5, "a number")


@rule("RS-41")
async def test_text_may_replace_a_removed_number(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    name = api.make("<!doctype html><label>V <input data-gsv-model=state.v></label>", {"state": {"v": 5}})
    shown = await open_canvas(page, server, name)
    field = shown.get_by_label("V")
    await expect(field).to_have_value("5")
    api.patch(name, "/v", None)
    await expect(field).to_have_value("")
    await field.press_sequentially("-2.5", delay=30)
    await api.until(lambda: api.state(name)["v"] == -2.5, "a number, whatever its first signs looked like")
    api.patch(name, "/v", None)
    await field.blur()
    await expect(field).to_have_value("")
    await field.press_sequentially("hello", delay=30)
    await api.until(lambda: api.state(name)["v"] == "hello", "the text")


# --- what is only looked at ---------------------------------------------------------------------------------


async def test_growing_result_keeps_selection_and_scroll_position(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    lines = "\n".join(map(str, range(200)))
    logs = {"ok": True, "result": {"output": lines}, "finishedAt": 1}
    name = api.make(None, {"state": {"logs": logs, "odd name": "as it was"}, "writable": []})
    shown, frame = await open_canvas(page, server, name), await loaded_frame(page)
    await frame.evaluate("document.querySelector('pre.value').scrollTop = 500")
    api.patch(name, "/logs/result/output", f"{lines}\nmore")
    api.patch(name, "/odd name", "as it is")
    await expect(shown.locator("[data-member=logs] pre")).to_have_text(f"{lines}\nmore")
    await expect(shown.locator(".part.fields")).to_contain_text("as it is")
    assert await frame.evaluate("document.querySelector('pre.value').scrollTop") == 500


async def test_lists_of_a_generated_page_follow_their_items_and_keep_their_elements(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    state = {
        "hosts": [{"name": "a"}, {"name": "b"}],
        "words": ["x", None, 2],
        "odd": [{"disk use": 5, "x": 1}],
        "odd name": [{"a": 1}],
    }
    name = api.make(None, {"state": state, "writable": []})
    shown, frame = await open_canvas(page, server, name), await loaded_frame(page)
    rows = shown.locator("[data-member=hosts] tbody tr")
    await expect(rows).to_have_text(["a", "b"])
    await expect(shown.locator("[data-member=words] li")).to_have_text(["x", "", "2"])
    await expect(shown.locator("[data-member=odd] tbody tr")).to_have_text(["51"])
    await expect(shown.locator("[data-member='odd name'] tbody tr")).to_have_text(["1"])
    await frame.evaluate("document.querySelector('[data-member=hosts] tbody tr').mark = 'this one'")
    api.patch(name, "/hosts/0/name", "changed")
    api.patch(name, "/hosts/-", {"name": "c"})
    await expect(rows).to_have_text(["changed", "b", "c"])
    assert await frame.evaluate("document.querySelector('[data-member=hosts] tbody tr').mark === 'this one'")
    api.patch(name, "/hosts", [{"name": str(at), "up": True} for at in range(300)])
    await expect(rows).to_have_count(200)
    await expect(rows.first).to_have_text("0true")
    await expect(shown.locator("[data-member=hosts]")).to_contain_text("The first 200 of 300.")
    api.patch(name, "/hosts", [])
    await expect(shown.locator("[data-member=hosts]")).to_contain_text("Nothing yet.")
    await expect(page.locator("#notes")).to_be_hidden()


# --- what an action takes -----------------------------------------------------------------------------------


@rule("CV-26")
async def test_action_has_a_field_for_each_of_its_inputs(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    """Also if the name of a field is a property of the form element."""
    says = {
        "value": {
            "a": "{{input.word}}",
            "b": ["{{input.dataset}} {{input.word}}"],
            "c": "{{input.attributes}}",
        }
    }
    action = {
        "kind": "tool.call",
        "tool": "gsv__Echo",
        "args": says,
        "saveAs": "said",
        "title": "Say {{input.title}}",
        "description": "{{input.__proto__}}",
    }
    name = api.make(
        None, {"toolPolicy": {"allow": ["gsv__Echo"]}, "state": {"said": None}, "actions": {"say": action}}
    )
    shown = await open_canvas(page, server, name)
    await expect(shown.locator("form input")).to_have_count(3)
    for label in ("Word", "Dataset", "Attributes"):
        await shown.get_by_label(label).fill(f"<{label}>")
    await shown.get_by_label("Dataset").press("Enter")
    await api.until(
        lambda: (
            (api.state(name)["said"] or {}).get("result")
            == {"a": "<Word>", "b": ["<Dataset> <Word>"], "c": "<Attributes>"}
        ),
        "what was entered",
    )
    await expect(shown.locator("[data-outcome=say]")).to_have_text("done")
    await expect_idle(shown.locator("[data-gsv-action=say]"))
    assert len(api.records(name)) == 1
    await shown.get_by_role("button", name="Say").click()
    await api.until(lambda: len(api.records(name)) == 2, "pressed")


# --- layout ------------------------------------------------------------------------------------------


async def test_canvas_without_page_shows_fields_buttons_and_tables(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    state = {
        **COCKPIT_SPEC["state"],
        "count": 3,
        "on": True,
        "hosts": [{"name": "a", "up": True}, {"name": "<i>b</i>", "cpu": 7}],
        "nested": {"region": "eu"},
    }
    name = api.make(None, {**COCKPIT_SPEC, "state": state, "writable": ["version", "count", "on", "nested"]})
    frame = await open_canvas(page, server, name)
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
    await api.until(
        lambda: (api.state(name)["count"], api.state(name)["nested"]) == (5, {"region": "us"}),
        "what was entered",
    )
    await frame.get_by_role("button", name="Fail").click()
    await expect(frame.locator("[data-outcome=fail]")).to_contain_text("failed: ")
    await frame.get_by_role("button", name="Wait").click()
    await expect(frame.locator("[data-outcome=wait]")).to_have_text("running…")
    await expect(page.locator("#running")).to_have_text("running: wait")
    api.patch(name, "/hosts", [{"name": "only"}])
    await expect(frame.locator("table tbody tr")).to_have_text(["only"])
    await expect(frame.locator("[data-outcome=fail]")).to_contain_text("failed: ")


@rule("CV-30")
async def test_generated_field_keeps_focus_during_changes(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    state = {
        "name": "Ada",
        "n": 3,
        "note": "short",
        "rows": [{"a": 1}],
        "deep": {"region": "eu", "list": [1]},
    }
    name = api.make(None, {"state": state})
    frame = await open_canvas(page, server, name)
    field = frame.get_by_label("Name")
    await field.click()
    await page.keyboard.press("End")
    await page.keyboard.type(" Love")
    api.patch(name, "/rows/-", {"a": 2})  # a list, a member that comes, one that goes
    api.patch(name, "/more", {"text": "new"})
    api.rpc("canvas.patch", canvasId=name, statePatch=[{"op": "remove", "path": "/note"}])
    await expect(frame.locator("[data-member=rows] tbody tr")).to_have_count(2)
    await expect(frame.locator("[data-member=more]")).to_contain_text("new")
    await expect(frame.get_by_label("Note")).to_have_count(0)
    await expect(field).to_be_focused()
    await page.keyboard.type("lace" + "x" * 90 + "END")  # longer than what is drawn in one line
    await api.until(lambda: api.state(name)["name"] == "Ada Lovelace" + "x" * 90 + "END", "all of it")
    await expect(field).to_be_focused()

    number = frame.get_by_label("N", exact=True)
    await number.fill("")
    await expect(frame.locator(".wrong")).to_have_text("This must be a number; it is not saved.")
    await expect(number).to_be_focused()
    await number.press_sequentially("5")
    await api.until(lambda: api.state(name)["n"] == 5, "a number as before")
    await expect_saved(frame)
    api.patch(name, "/n", None)
    await page.reload()
    await expect(canvas_frame(page).get_by_label("N", exact=True)).to_have_attribute("type", "number")

    region = canvas_frame(page).get_by_label("Region")
    await region.click()
    release = await pause_timers(page)
    await page.keyboard.type("west-")
    api.rpc("canvas.patch", canvasId=name, statePatch=[{"op": "remove", "path": "/deep"}])
    await wait_in_frame(await loaded_frame(page), "!('deep' in gsvCanvas.getState())")
    await expect(region).to_be_focused()  # what was typed is the person's, also when its place is gone
    await release()
    api.patch(name, "/name", "two\nlines")
    await expect(canvas_frame(page).locator("textarea")).to_have_value("two\nlines")


async def test_empty_canvas_explains_what_is_missing(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(None, {})
    frame = await open_canvas(page, server, name)
    await expect(frame.locator("#nothing")).to_be_visible()
    api.rpc(
        "canvas.patch",
        canvasId=name,
        spec={"state": {"a": 1}, "actions": {"go": {"kind": "state.patch", "patch": []}}},
        statePatch=[{"op": "add", "path": "/a", "value": 1}],
    )
    await expect(canvas_frame(page).get_by_role("button", name="Go")).to_be_visible()
    await expect(canvas_frame(page).get_by_label("A", exact=True)).to_have_value("1")
