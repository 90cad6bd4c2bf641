"""The page that is made for a canvas without one, under the fingers of somebody who types while others change things."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.canvas import Desk, all_saved, held, holds, is_free, show, the_frame
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

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


@pytest.fixture(scope="module")
def desk(server: EaselProcess) -> Iterator[Desk]:
    with Desk(server) as opened:
        yield opened


# --- what others do -------------------------------------------------------------------------------------------------------

CHANGES: list[tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = [
    # says                          what somebody else makes of the state meanwhile
    ("a list grows",                lambda state: {**state, "rows": [*state["rows"], {"a": 2}]}),
    ("a list beside it changes",    lambda state: {**state, "deep": {**state["deep"], "hosts": ["b", "c"]}}),
    ("a list becomes an object",    lambda state: {**state, "rows": {"only": {"a": 1}}}),
    ("a member comes before it",    lambda state: {"first": None, "new": [1], **state}),
    ("all members change places",   lambda state: dict(reversed(state.items()))),
    ("another field is another",    lambda state: {**state, "last": 7, "n": "text"}),
    ("another field goes",          lambda state: {name: value for name, value in state.items() if name not in {"last", "n"}}),
]  # fmt: skip


@rule("RS-41")
@pytest.mark.parametrize("label", ["Name", "Region"])
@pytest.mark.parametrize("change", [change for _, change in CHANGES], ids=[says for says, _ in CHANGES])
async def test_whoever_types_goes_on_typing_whatever_others_change(
    page: Page,
    server: EaselProcess,
    desk: Desk,
    change: Callable[[dict[str, Any]], dict[str, Any]],
    label: str,
) -> None:
    """The element, its caret and the next keys: nothing is taken from under the fingers, and what changed is shown around them."""
    name = desk.make(None, {"state": STATE})
    shown = await show(page, server, name)
    field, frame = shown.get_by_label(label), await the_frame(page)

    def stored() -> str:
        return desk.state(name)["name"] if label == "Name" else desk.state(name)["deep"]["region"]

    was = stored()
    await field.click()
    await page.keyboard.press("Home")
    await page.keyboard.type("Mme ")
    await frame.evaluate(MARK)
    await desk.until(lambda: stored() == f"Mme {was}", "so far")
    changed = change(desk.state(name))
    desk.rpc("canvas.patch", canvasId=name, statePatch=[{"op": "replace", "path": "", "value": changed}])
    await holds(frame, f"JSON.stringify(gsvCanvas.getState()) === JSON.stringify({json.dumps(changed)})")
    await page.keyboard.type("de ")
    assert await frame.evaluate(IS_MARKED)
    await expect(field).to_have_value(f"Mme de {was}")
    assert await frame.evaluate("document.activeElement.selectionStart") == len("Mme de ")
    await desk.until(lambda: stored() == f"Mme de {was}", "what was typed")
    await expect(page.locator("#conflicts")).to_be_hidden()
    names = await frame.evaluate(
        "[...document.querySelectorAll('.part.fields > *')].map((one) => one.textContent.toLowerCase())"
    )
    assert names == [one for one, value in changed.items() if not isinstance(value, dict | list)], (
        "in the order of the state"
    )


@rule("RS-41")
async def test_what_is_typed_and_not_stored_yet_outlives_that_its_place_goes(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(None, {"state": STATE})
    shown, frame = await show(page, server, name), await the_frame(page)
    field = shown.get_by_label("Region")
    await field.click()
    await page.keyboard.press("End")
    await held(page)
    await page.keyboard.type("-west")
    desk.rpc(
        "canvas.patch", canvasId=name, statePatch=[{"op": "replace", "path": "/deep", "value": ["nothing"]}]
    )
    await holds(frame, "Array.isArray(gsvCanvas.getState().deep)")
    await page.keyboard.type("-1")
    await expect(field).to_have_value("eu-west-1")
    await expect(field).to_be_focused()


@rule("RS-41")
async def test_a_field_that_others_make_something_else_changes_when_it_is_left(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(None, {"state": STATE})
    shown = await show(page, server, name)
    field, frame = shown.get_by_label("Name"), await the_frame(page)
    await field.click()
    await frame.evaluate(MARK)
    desk.patch(name, "/name", ["now", "a list"])
    desk.patch(name, "/last", "told")
    await expect(shown.get_by_label("Last")).to_have_value("told")
    assert await frame.evaluate(IS_MARKED)
    await shown.get_by_label("Last").click()
    await expect(shown.locator("[data-member=name]")).to_contain_text("a list")
    await expect(field).to_have_count(0)
    await expect(shown.get_by_label("Last")).to_be_focused()


@rule("RS-41")
async def test_a_line_break_of_somebody_else_s_is_not_dropped_by_the_next_key(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    """A field of one line cannot hold it: a larger one takes its place, with the caret, and without losing a key."""
    name = desk.make(None, {"state": {"name": "one two"}})
    shown = await show(page, server, name)
    field, frame = shown.get_by_label("Name"), await the_frame(page)
    await field.click()
    await page.keyboard.press("End")
    desk.patch(name, "/name", "zero\none two")
    await holds(frame, "document.activeElement.localName === 'textarea'")
    await page.keyboard.type("!")
    await desk.until(lambda: desk.state(name)["name"] == "zero\none two!", "both")


# --- the kind of a field --------------------------------------------------------------------------------------------------


@rule("RS-41")
async def test_a_text_that_grows_long_while_it_is_typed_stays_in_its_field(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(None, {"state": STATE})
    shown = await show(page, server, name)
    field, frame = shown.get_by_label("Name"), await the_frame(page)
    await field.click()
    await frame.evaluate(MARK)
    await page.keyboard.press("End")
    await page.keyboard.type("x" * 90)
    await desk.until(lambda: desk.state(name)["name"] == "Ada" + "x" * 90, "so far")
    await page.keyboard.type("END")
    await desk.until(lambda: desk.state(name)["name"] == "Ada" + "x" * 90 + "END", "all of it")
    assert await frame.evaluate(IS_MARKED)
    await all_saved(shown)
    await page.reload()
    await expect(shown.locator("textarea")).to_have_value("Ada" + "x" * 90 + "END")  # now it has the room


@rule("RS-41")
async def test_a_number_stays_a_number(page: Page, server: EaselProcess, desk: Desk) -> None:
    name = desk.make(None, {"state": STATE})
    shown = await show(page, server, name)
    field, wrong, frame = shown.get_by_label("N", exact=True), shown.locator(".wrong"), await the_frame(page)
    await field.click()
    await frame.evaluate(MARK)
    await page.keyboard.press("Backspace")
    await expect(wrong).to_have_text("This must be a number; it is not saved.")
    await expect(field).to_have_attribute("aria-invalid", "true")
    desk.patch(name, "/rows/-", {"a": 2})
    await expect(shown.locator("[data-member=rows] tbody tr")).to_have_count(2)
    assert desk.state(name)["n"] == 3
    await page.keyboard.type("5")
    await desk.until(lambda: desk.state(name)["n"] == 5, "a number")
    assert await frame.evaluate(IS_MARKED)
    await expect(wrong).to_be_hidden()
    await page.keyboard.press("Backspace")
    await shown.get_by_label("Last").click()
    await expect(field).to_have_value("5")  # what is kept is what is shown
    await expect(wrong).to_be_hidden()

    for broken in (None, "7"):  # somebody's program writes what it should not
        desk.patch(name, "/n", broken)
        await expect(field).to_have_value(broken or "")
        await field.fill("6")
        await desk.until(lambda: desk.state(name)["n"] == 6, "a number again")
        await shown.get_by_label("Last").click()


@rule("RS-41")
async def test_what_the_spec_leaves_empty_may_be_left_empty(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make(None, {"state": STATE})
    desk.patch(name, "/maybe", 4)
    shown = await show(page, server, name)
    field = shown.get_by_label("Maybe")
    await field.fill("")
    await desk.until(lambda: desk.state(name)["maybe"] is None, "nothing, as in the spec")
    await field.press_sequentially("12")
    await desk.until(lambda: desk.state(name)["maybe"] == 12, "and a number, as it was")


@rule("RS-41")
async def test_a_number_in_a_text_field_of_an_own_page_stays_one_too(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make("<!doctype html><input data-gsv-model=state.n>", {"state": STATE})
    field = (await show(page, server, name)).locator("input")
    await field.fill("")
    await desk.until(lambda: desk.state(name)["n"] is None, "nothing")
    await field.press_sequentially("5")
    await desk.until(lambda: desk.state(name)["n"] == 5, "a number")


@rule("RS-41")
async def test_where_a_number_was_and_nothing_is_any_more_text_may_come(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    name = desk.make("<!doctype html><label>V <input data-gsv-model=state.v></label>", {"state": {"v": 5}})
    shown = await show(page, server, name)
    field = shown.get_by_label("V")
    await expect(field).to_have_value("5")
    desk.patch(name, "/v", None)
    await expect(field).to_have_value("")
    await field.press_sequentially("-2.5", delay=30)
    await desk.until(lambda: desk.state(name)["v"] == -2.5, "a number, whatever its first signs looked like")
    desk.patch(name, "/v", None)
    await field.blur()
    await expect(field).to_have_value("")
    await field.press_sequentially("hello", delay=30)
    await desk.until(lambda: desk.state(name)["v"] == "hello", "the text")


# --- what is only looked at ---------------------------------------------------------------------------------------------------


async def test_what_somebody_reads_stays_where_it_is_when_it_grows(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    lines = "\n".join(map(str, range(200)))
    logs = {"ok": True, "result": {"output": lines}, "finishedAt": 1}
    name = desk.make(None, {"state": {"logs": logs, "odd name": "as it was"}, "writable": []})
    shown, frame = await show(page, server, name), await the_frame(page)
    await frame.evaluate("document.querySelector('pre.value').scrollTop = 500")
    desk.patch(name, "/logs/result/output", f"{lines}\nmore")
    desk.patch(name, "/odd name", "as it is")
    await expect(shown.locator("[data-member=logs] pre")).to_have_text(f"{lines}\nmore")
    await expect(shown.locator(".part.fields")).to_contain_text("as it is")
    assert await frame.evaluate("document.querySelector('pre.value').scrollTop") == 500


# --- what an action takes -------------------------------------------------------------------------------------------------------


@rule("CV-26")
async def test_an_action_has_a_field_for_each_value_it_takes_and_for_nothing_else(
    page: Page, server: EaselProcess, desk: Desk
) -> None:
    """Also where the name of one is the name of something that a form is asked for by whoever binds it."""
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
    name = desk.make(
        None, {"toolPolicy": {"allow": ["gsv__Echo"]}, "state": {"said": None}, "actions": {"say": action}}
    )
    shown = await show(page, server, name)
    await expect(shown.locator("form input")).to_have_count(3)
    for label in ("Word", "Dataset", "Attributes"):
        await shown.get_by_label(label).fill(f"<{label}>")
    await shown.get_by_label("Dataset").press("Enter")
    await desk.until(
        lambda: (
            (desk.state(name)["said"] or {}).get("result")
            == {"a": "<Word>", "b": ["<Dataset> <Word>"], "c": "<Attributes>"}
        ),
        "what was entered",
    )
    await expect(shown.locator("[data-outcome=say]")).to_have_text("done")
    await is_free(shown.locator("[data-gsv-action=say]"))
    assert len(desk.records(name)) == 1
    await shown.get_by_role("button", name="Say").click()
    await desk.until(lambda: len(desk.records(name)) == 2, "pressed")
