"""Lists, conditions, attributes and formats on the page of a canvas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.browser.canvas import (
    CanvasApi,
    expect_idle,
    expect_saved,
    loaded_frame,
    open_canvas,
    pause_timers,
    wait_in_frame,
)
from tests.browser.conftest import launch_chromium
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Frame, FrameLocator

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

ORDERS: list[dict[str, Any]] = [
    {"id": "a", "name": "Apples", "count": 3, "lines": [{"n": 1}, {"n": 2}]},
    {"id": "b", "name": "Bread", "count": 1, "lines": []},
    {"id": "c", "name": "<i>Cake</i>", "count": 0, "lines": [{"n": 3}]},
]
SPEC: dict[str, Any] = {
    "toolPolicy": {"allow": ["gsv__Echo"]},
    "state": {"orders": ORDERS, "words": ["x", "y"], "chosen": "b", "none": None, "said": None},
    "actions": {
        "say": {
            "kind": "tool.call",
            "tool": "gsv__Echo",
            "args": {"value": "{{input.id}}/{{input.count}}/{{input.form}}"},
            "saveAs": "said",
        }
    },
}
ROWS = '<ul><li data-gsv-each="state.orders" data-gsv-key="id" data-gsv-text="item.name"></li></ul>'
# Marks the elements of the rows, to find out later whether they are the same ones.
MARK = "document.querySelectorAll('li').forEach((one) => { one.mark = one.textContent })"
MARKS = "[...document.querySelectorAll('li')].map((one) => one.mark ?? null)"


def make(api: CanvasApi, html: str, **state: Any) -> str:
    return api.make(f"<!doctype html>{html}", {**SPEC, "state": {**SPEC["state"], **state}})


async def set_state(api: CanvasApi, frame: Frame, name: str, member: str, value: Any) -> None:
    """Change one member of the state and wait until the page has it."""
    api.patch(name, f"/{member}", value)
    revision = api.rpc("canvas.get", canvasId=name)["revision"]
    await wait_in_frame(frame, f"window.revision >= {revision}")


async def open_counted(page: Page, server: EaselProcess, name: str) -> tuple[FrameLocator, Frame]:
    """Open a canvas; `window.revision` of its page is the newest revision that it has drawn."""
    await page.add_init_script(
        "addEventListener('message', ({ data }) => { if (data?.revision) window.revision = data.revision })"
    )
    shown = await open_canvas(page, server, name)
    return shown, await loaded_frame(page)


# --- what is shown ------------------------------------------------------------------------------------------


@rule("CV-30")
@pytest.mark.parametrize(
    "html, selector",
    [
        ('<ul><li data-gsv-each="state.orders"><b data-gsv-text="item.name"></b></ul>', "li"),
        ('<table><tr data-gsv-each="state.orders"><td data-gsv-text="item.name"></table>', "tr"),
        ('<table><tbody data-gsv-each="state.orders"><tr><td data-gsv-text="item.name"></table>', "tbody"),
        ('<select><option data-gsv-each="state.orders" data-gsv-text="item.name"></select>', "option"),
        ('<dl><div data-gsv-each="state.orders"><dt data-gsv-text="item.name"></div></dl>', "div"),
    ],
    ids=["ul", "table", "tbody", "select", "dl"],
)
async def test_element_is_repeated_for_each_item(
    page: Page, server: EaselProcess, api: CanvasApi, html: str, selector: str
) -> None:
    name = make(api, html)
    frame = await open_canvas(page, server, name)
    await expect(frame.locator(selector)).to_have_text(["Apples", "Bread", "<i>Cake</i>"])
    api.patch(name, "/orders/-", {"id": "d", "name": "Dates"})
    await expect(frame.locator(selector)).to_have_text(["Apples", "Bread", "<i>Cake</i>", "Dates"])
    api.patch(name, "/orders", [])
    await expect(frame.locator(selector)).to_have_count(0)
    await expect(page.locator("#notes")).to_be_hidden()


async def test_nested_lists_have_the_innermost_item_and_index(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    html = """<section data-gsv-each="state.orders" data-gsv-key="id"><h2 data-gsv-text="item.name"></h2>
      <p data-gsv-each="item.lines"><i data-gsv-text="index"></i>:<b data-gsv-text="item.n"></b></p>
      <u data-gsv-text="index"></u></section>"""
    name = make(api, html)
    frame = await open_canvas(page, server, name)
    await expect(frame.locator("section").first.locator("p")).to_have_text(["0:1", "1:2"])
    await expect(frame.locator("section u")).to_have_text(["0", "1", "2"])
    api.patch(name, "/orders/1/lines/-", {"n": 9})
    await expect(frame.locator("section").nth(1).locator("p")).to_have_text(["0:9"])
    api.patch(name, "/orders", list(reversed(ORDERS)))
    await expect(frame.locator("p")).to_have_text(["0:3", "0:1", "1:2"])
    await expect(page.locator("#notes")).to_be_hidden()


async def test_plain_values_are_items_and_a_limit_ends_the_list(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = make(api, '<p data-gsv-each="state.words" data-gsv-limit="3" data-gsv-text="item"></p>')
    frame = await open_canvas(page, server, name)
    await expect(frame.locator("p")).to_have_text(["x", "y"])
    api.patch(name, "/words", [1, True, None, "not shown"])
    await expect(frame.locator("p")).to_have_text(["1", "true", ""])


async def test_select_shows_its_value_among_repeated_options(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    html = """<select data-gsv-model="state.chosen"><option data-gsv-each="state.orders" data-gsv-key="id"
      data-gsv-attr-value="item.id" data-gsv-text="item.name"></option></select>"""
    name = make(api, html)
    frame = await open_canvas(page, server, name)
    await expect(frame.locator("select")).to_have_value("b")
    api.patch(name, "/orders", ORDERS[1:])
    await expect(frame.locator("option")).to_have_count(2)
    await expect(frame.locator("select")).to_have_value("b")
    await frame.locator("select").select_option("c")
    await api.until(lambda: api.state(name)["chosen"] == "c", "the choice")


async def test_lists_that_scripts_add_are_shown(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    name = make(api, f"<main></main>{ROWS}")
    shown = await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    await frame.evaluate(
        """() => {
          const html = '<p data-gsv-each="state.words" data-gsv-text="item"></p>';
          document.querySelector('main').innerHTML = html;
          const more = document.createElement('b');
          more.dataset.gsvText = 'item.count';
          document.querySelector('li').append(more);
          document.body.append(document.querySelector('ul'));
        }"""
    )
    await expect(shown.locator("p")).to_have_text(["x", "y"])
    api.patch(name, "/words/-", "z")
    await expect(shown.locator("p")).to_have_text(["x", "y", "z"])
    api.patch(name, "/orders/-", {"id": "d", "name": "Dates"})
    await expect(shown.locator("li")).to_have_count(4)


# --- what stays ---------------------------------------------------------------------------------------------


async def test_rows_are_moved_and_kept_by_their_key(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    name = make(api, ROWS)
    _, frame = await open_counted(page, server, name)
    await wait_in_frame(frame, "document.querySelectorAll('li').length === 3")
    await frame.evaluate(MARK)
    await set_state(api, frame, name, "orders", [ORDERS[2], {"id": "new", "name": "N"}, ORDERS[0]])
    assert await frame.evaluate(MARKS) == ["<i>Cake</i>", None, "Apples"]
    await set_state(api, frame, name, "orders", [{**ORDERS[0], "name": "Pears"}, ORDERS[2]])
    assert await frame.evaluate(MARKS) == ["Apples", "<i>Cake</i>"]
    assert await frame.evaluate("document.querySelector('li').textContent") == "Pears"


IN_USE = """<style>pre { height: 3em; overflow: auto }</style>
<section data-gsv-each="state.orders" data-gsv-key="id" data-gsv-attr-id="item.id">
  <h2 data-gsv-text="item.name"></h2><input><details><summary>more</summary>text</details>
  <pre>1\n2\n3\n4\n5\n6\n7\n8\n9</pre></section>"""
USE = """() => {
  const row = document.getElementById('b');
  row.querySelector('pre').scrollTop = 20;
  row.querySelector('details').open = true;
  document.querySelector('#a input').value = 'half';
  document.querySelector('#a details').open = true;
  const field = row.querySelector('input');
  field.value = 'typed text';
  field.focus();
  field.setSelectionRange(2, 4);
}"""
USED = """(() => {
  const row = document.getElementById('b'), field = document.activeElement;
  return [field === row.querySelector('input'), field.value, field.selectionStart, field.selectionEnd,
    row.querySelector('pre').scrollTop, row.querySelector('details').open,
    document.querySelector('#a input').value, document.querySelector('#a details').open];
})()"""


@pytest.mark.parametrize("order", ["bac", "cba", "acb", "cab"])
@pytest.mark.parametrize("has_move_before", [True, False], ids=["moveBefore", "insertBefore"])
async def test_row_in_use_keeps_focus_selection_scroll_position_and_entries(
    page: Page, server: EaselProcess, api: CanvasApi, order: str, has_move_before: bool
) -> None:
    if not has_move_before:
        await page.add_init_script("delete Element.prototype.moveBefore")
    name = make(api, IN_USE)
    _, frame = await open_counted(page, server, name)
    await wait_in_frame(frame, "document.querySelectorAll('section').length === 3")
    await frame.evaluate(USE)
    by_id = {item["id"]: {**item, "name": item["name"] + "!"} for item in ORDERS}
    new = [by_id[letter] for letter in order]
    await set_state(api, frame, name, "orders", [{"id": "first", "name": "F"}, *new])
    ids = "[...document.querySelectorAll('section')].map((row) => row.id).join(' ')"
    assert await frame.evaluate(ids) == f"first {' '.join(order)}"
    assert await frame.evaluate(USED) == [True, "typed text", 2, 4, 20, True, "half", True]
    assert await frame.evaluate("document.querySelector('#b h2').textContent") == "Bread!"


async def test_only_changed_elements_are_written(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    html = """<p data-gsv-each="state.orders" data-gsv-key="id" data-gsv-class-many="item.count">
      <b data-gsv-text="item.name"></b></p>"""
    name = make(api, html)
    _, frame = await open_counted(page, server, name)
    await wait_in_frame(frame, "document.querySelectorAll('p').length === 3")
    await frame.evaluate(
        """() => {
          window.writes = [];
          new MutationObserver((records) => writes.push(...records.map(({ target }) => target.textContent)))
            .observe(document.body,
              { childList: true, subtree: true, attributes: true, characterData: true });
        }"""
    )
    await set_state(api, frame, name, "orders", [ORDERS[0], {**ORDERS[1], "name": "Buns"}, ORDERS[2]])
    assert await frame.evaluate("writes") == ["Buns"]


# --- fields and buttons in rows -----------------------------------------------------------------------------

FIELDS = """<p data-gsv-each="state.orders" data-gsv-key="id"><b data-gsv-text="item.id"></b>
  <input data-gsv-model="item.count"></p>"""


@rule("RS-41", "CV-30")
async def test_field_in_a_row_writes_to_its_item_after_the_item_has_moved(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    same = [{"id": letter, "count": 1} for letter in "abc"]
    name = make(api, FIELDS, orders=same)
    shown, frame = await open_counted(page, server, name)
    field = shown.locator("p", has_text="b").locator("input")
    await field.click()
    release = await pause_timers(page)
    await page.keyboard.press("End")
    await page.keyboard.type("2")
    await set_state(api, frame, name, "orders", [same[1], {"id": "z", "count": 1}, same[2], same[0]])
    await expect(field).to_be_focused()
    await page.keyboard.type("3")
    await release()
    await api.until(
        lambda: (
            {item["id"]: item["count"] for item in api.state(name)["orders"]}
            == {"a": 1, "b": 123, "c": 1, "z": 1}
        ),
        "the entry in its item",
    )
    await expect_saved(shown)


@rule("RS-41")
async def test_entry_is_sent_again_if_the_list_changed_before_it_arrived(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    """New states are held back until the first answer, so the entry is sent to the old place of the item."""
    same = [{"id": letter, "count": 1} for letter in "ab"]
    name = make(api, FIELDS, orders=same)
    await page.add_init_script(
        """(() => {
          if (self === top) return;
          window.held = null;
          addEventListener('message', (event) => {
            if (window.held === null) return;
            if (event.data?.kind === 'state') {
              event.stopImmediatePropagation();
              held.push(event.data);
            } else if (event.data?.kind === 'answer') {
              window.refusal = event.data.error?.name;
              const all = held;
              window.held = null;
              for (const data of all) dispatchEvent(new MessageEvent('message', { data, source: parent }));
            }
          });
        })()"""
    )
    shown = await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    field = shown.locator("p", has_text="b").locator("input")
    await expect(field).to_have_value("1")
    await frame.evaluate("() => { window.held = [] }")
    api.patch(name, "/orders", [same[1], same[0]])
    await wait_in_frame(frame, "held.length > 0")
    await field.fill("7")  # the page still knows the item at index 1, where “a” is now
    await wait_in_frame(frame, "window.refusal === 'REVISION_CONFLICT'")
    await api.until(
        lambda: api.state(name)["orders"] == [{"id": "b", "count": 7}, {"id": "a", "count": 1}], "the entry"
    )


@rule("RS-41")
async def test_unsaved_entry_of_a_removed_item_is_reported(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = make(api, f"{FIELDS}<button data-gsv-action='say'>Say</button>")
    shown = await open_canvas(page, server, name)
    await shown.locator("p", has_text="b").locator("input").click()
    release = await pause_timers(page)
    await page.keyboard.type("55")
    api.patch(name, "/orders", [ORDERS[0], ORDERS[2]])
    await expect(page.locator("#notes-list")).to_contain_text("another user removed the item")
    await release()
    await shown.get_by_text("Say").click()  # it does not wait for the lost entry
    await api.until(lambda: api.state(name)["said"], "the action")
    assert [item["count"] for item in api.state(name)["orders"]] == [3, 0]


@rule("CV-30")
async def test_button_in_a_row_sends_the_values_of_its_item(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    html = """<form data-gsv-each="state.orders" data-gsv-key="id">
      <input type="hidden" name="form" data-gsv-attr-value="item.name">
      <button type="button" data-gsv-action="say" data-gsv-value-id="item.id"
        data-gsv-value-count="item.count" data-gsv-text="item.id"></button></form>"""
    name = make(api, html)
    frame = await open_canvas(page, server, name)
    await frame.get_by_role("button", name="b").click()
    await api.until(lambda: (api.state(name)["said"] or {}).get("result") == "b/1/Bread", "the row's values")
    await expect_idle(frame.get_by_role("button", name="b"))
    api.patch(name, "/orders", list(reversed(ORDERS)))
    await expect(frame.locator("button").first).to_have_text("c")
    await frame.get_by_role("button", name="a").click()
    await api.until(lambda: api.state(name)["said"]["result"] == "a/3/Apples", "the values of the moved row")


# --- conditions, attributes and classes ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, is_true",
    [(True, True), (1, True), ("x", True), ([0], True), ({"a": None}, True)]
    + [(value, False) for value in (False, 0, "", None, [], {})],
)
async def test_show_hide_and_class_follow_a_value(
    page: Page, server: EaselProcess, api: CanvasApi, value: Any, is_true: bool
) -> None:
    html = """<style>p { display: flex !important }</style><p id=s data-gsv-show="state.v">s</p>
      <p id=h data-gsv-hide="state.v">h</p><p id=c class="kept" data-gsv-class-is-on="state.v">c</p>"""
    name = make(api, html, v=not is_true)
    frame = await open_canvas(page, server, name)
    shown, hidden = ("#h", "#s") if is_true else ("#s", "#h")
    await expect(frame.locator(shown)).to_be_visible()
    api.patch(name, "/v", value)
    await expect(frame.locator(hidden)).to_be_visible()
    await expect(frame.locator(shown)).to_be_hidden()
    await expect(frame.locator("#c")).to_have_class("kept is-on" if is_true else "kept")


ATTRIBUTES = [
    # value, the attribute afterwards
    ("text", "text"),
    (5, "5"),
    (True, ""),
    (False, None),
    (None, None),
]


@pytest.mark.parametrize("value, written", ATTRIBUTES)
async def test_attribute_follows_a_value(
    page: Page, server: EaselProcess, api: CanvasApi, value: Any, written: str | None
) -> None:
    name = make(api, '<p title="first" data-gsv-attr-title="state.v"></p>', v=value)
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    assert await frame.evaluate("document.querySelector('p').getAttribute('title')") == written


async def test_person_keeps_a_details_element_open_that_the_state_closed(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    html = '<details data-gsv-attr-open="state.open"><summary>s</summary>in</details>'
    name = make(api, html, open=False)
    shown, frame = await open_counted(page, server, name)
    await shown.locator("summary").click()
    await set_state(api, frame, name, "chosen", "c")
    await expect(shown.locator("details")).to_have_attribute("open", "")


@rule("CV-05", "CV-51")
@pytest.mark.parametrize(
    "html, told",
    [
        ('<p data-gsv-attr-onclick="state.v">', "The attribute “onclick” cannot be bound"),
        ('<p data-gsv-attr-style="state.v">', "use data-gsv-class-NAME"),
        ('<p data-gsv-attr-@click="state.v">', "“@click” cannot be bound"),
        ('<p data-gsv-attr-data-gsv-action="state.v">', "“data-gsv-action” cannot be bound"),
        ('<iframe data-gsv-attr-src="state.v"></iframe>', "The attributes of <iframe> cannot be bound"),
        ('<iframe data-gsv-attr-srcdoc="state.v"></iframe>', "<iframe> cannot be bound"),
        ('<script data-gsv-attr-src="state.v"></script>', "<script> cannot be bound"),
        ('<a data-gsv-attr-href="state.v">', "“javascript:” is not allowed"),
        ('<a href="#" data-gsv-each="state.list" data-gsv-attr-href="item">', "“javascript:” is not allowed"),
        ('<svg><a data-gsv-attr-xlink:href="state.v"></a></svg>', "“javascript:” is not allowed"),
        ('<button data-gsv-attr-formaction="state.v">', "“javascript:” is not allowed"),
    ],
)
async def test_value_cannot_become_code(
    page: Page, server: EaselProcess, api: CanvasApi, html: str, told: str
) -> None:
    value = " java\tscript:parent.postMessage('ran','*')"
    name = make(api, html, v=value, list=[value])
    await open_canvas(page, server, name)
    await expect(page.locator("#notes-list")).to_contain_text(told)
    frame = await loaded_frame(page)
    assert "script:" not in await frame.evaluate("document.body.outerHTML.replaceAll('\\t', '')")


@pytest.mark.parametrize(
    "value",
    ["https://example.com/", "picture.png", "mailto:a@example.com", "data:image/gif;base64,R0lGOD", "#x"],
)
async def test_address_with_an_allowed_scheme_is_written(
    page: Page, server: EaselProcess, api: CanvasApi, value: str
) -> None:
    name = make(api, '<a data-gsv-attr-href="state.v">x</a>', v=value)
    shown = await open_canvas(page, server, name)
    await expect(shown.locator("a")).to_have_attribute("href", value)
    await expect(page.locator("#notes")).to_be_hidden()


# --- formats ------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="session", params=["en-US", "de-DE"])
async def localized_page(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Page, str]]:
    # A frame in a process of its own gets the emulated language and time zone of its page late, or never.
    async with launch_chromium("--disable-features=IsolateSandboxedIframes") as browser:
        context = await browser.new_context(locale=request.param, timezone_id="America/New_York")
        yield await context.new_page(), request.param


# format, value, text in American English, text in German. The time zone is New York's.
FORMATTED: list[tuple[str, Any, str, str]] = [
    ("date", "2026-03-01", "Mar 1, 2026", "01.03.2026"),
    ("date", "2026-03-01T02:00:00Z", "Feb 28, 2026", "28.02.2026"),
    ("time", "2026-03-01T02:00:00Z", "9:00 PM", "21:00"),
    ("datetime", 1772330400000, "Feb 28, 2026, 9:00 PM", "28.02.2026, 21:00"),
    ("number", 1234567.891, "1,234,567.891", "1.234.567,891"),
    ("number", "1234.5", "1,234.5", "1.234,5"),
    ("integer", 1234.5, "1,235", "1.235"),
    ("decimal", 1234.5, "1,234.50", "1.234,50"),
    ("percent", 0.125, "12.5%", "12,5 %"),
    ("bytes", 999, "999 bytes", "999 Byte"),
    ("bytes", 1536, "1.5 kB", "1,5 kB"),
    ("bytes", 999_960, "1 MB", "1 MB"),
    ("bytes", 5_000_000_000, "5 GB", "5 GB"),
    ("list", ["a", 2], "a 2", "a, 2"),
    ("json", "a\n", '"a\\n"', '"a\\n"'),
    ("json", None, "null", "null"),
    ("date", "soon", "soon", "soon"),
    ("date", "Order 7", "Order 7", "Order 7"),
    ("date", "1.5", "1.5", "1.5"),
    ("date", "2026-03", "Mar 1, 2026", "01.03.2026"),
    ("date", "Sun, 01 Mar 2026 02:00:00 GMT", "Feb 28, 2026", "28.02.2026"),
    ("number", "many", "many", "many"),
    ("bytes", None, "", ""),
]


async def test_formats_follow_the_language_and_time_zone_of_the_reader(
    localized_page: tuple[Page, str], server: EaselProcess, api: CanvasApi
) -> None:
    page, locale = localized_page
    rows = "".join(
        f'<p data-gsv-text="state.values.{at}" data-gsv-format="{name}"></p>'
        for at, (name, *_) in enumerate(FORMATTED)
    )
    name = make(api, rows, values=[value for _, value, *_ in FORMATTED])

    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    texts = await frame.evaluate("[...document.querySelectorAll('p')].map((one) => one.textContent)")
    expected = [row[2 if locale == "en-US" else 3] for row in FORMATTED]
    assert [text.replace("\u202f", " ").replace("\xa0", " ") for text in texts] == expected
    await expect(page.locator("#notes")).to_be_hidden()


# --- what the author is told --------------------------------------------------------------------------------

TOLD: list[tuple[str, str, list[str]]] = [
    # id, page, words of the problems; each is told once
    (
        "an unknown attribute",
        '<b data-gsv-txt="state.words"></b><b data-gsv-clas-x="state.words"></b>',
        ["“data-gsv-txt”. Did you mean “data-gsv-text”", "Did you mean “data-gsv-class-NAME”"],
    ),
    (
        "an attribute without its name",
        '<b data-gsv-attr="state.words"></b>',
        ["“data-gsv-attr”. Did you mean “data-gsv-attr-NAME”"],
    ),
    (
        "a path that is misspelt",
        '<b data-gsv-show="state.wrods"></b>',
        ["The state has no “wrods”, and no action saves there. Did you mean “state.words”"],
    ),
    (
        "a path that no item has",
        '<p data-gsv-each="state.orders"><b data-gsv-text="item.nmae"></b></p>',
        ['<b data-gsv-text="item.nmae"> No item of the list has “nmae”. Did you mean “item.name”'],
    ),
    (
        "an unknown attribute in a nested list",
        '<p data-gsv-each="state.orders"><b data-gsv-each="item.lines" data-gsv-hidden="item.n"></b></p>',
        ["“data-gsv-hidden”"],
    ),
    ("an item outside of a list", '<b data-gsv-text="item.id"></b>', ["known only inside"]),
    (
        "a list that is an object",
        '<b data-gsv-each="state.map"></b>',
        ['<b data-gsv-each="state.map"> It is an object, and only a list can be repeated'],
    ),
    (
        "a list that is not there",
        '<b data-gsv-each="state.order"></b>',
        ["The state has no “order”, and no action saves there. Did you mean “state.orders”"],
    ),
    (
        "two items with one key",
        '<b data-gsv-each="state.double" data-gsv-key="id"></b>',
        ["Two items have the key (“id”) “1”. The later one is matched by its position."],
    ),
    (
        "an item without its key",
        '<b data-gsv-each="state.orders" data-gsv-key="nr"></b>',
        ["The item at index 0 has no key (“nr”)"],
    ),
    (
        "an unknown format",
        '<b data-gsv-text="state.chosen" data-gsv-format="dat"></b>',
        ["There is no format “dat”. The formats are date, time"],
    ),
    ("a format alone", '<b data-gsv-format="date"></b>', ["only beside data-gsv-text"]),
    ("a key alone", '<b data-gsv-key="id"></b>', ["only beside data-gsv-each"]),
    ("a limit that is no number", '<b data-gsv-each="state.words" data-gsv-limit="few"></b>', ["a number"]),
    (
        "a path sent as a text",
        '<button data-gsv-each="state.orders" data-gsv-action="say" data-gsv-input-id="item.id"></button>',
        ["It sends the text “item.id”. To send the value of a path, use data-gsv-value-id."],
    ),
    (
        "an action that there is not, in a list",
        '<button data-gsv-each="state.orders" data-gsv-action="sya"></button>',
        ["There is no action “sya”"],
    ),
    (
        "a field in a list that may not write",
        '<p data-gsv-each="state.closed"><input data-gsv-model="item.n"></p>',
        ["A page must not write here"],
    ),
    ("a template element", '<template data-gsv-each="state.words"></template>', ["cannot be repeated"]),
]


@rule("CV-51")
@pytest.mark.parametrize("html, told", [row[1:] for row in TOLD], ids=[row[0] for row in TOLD])
async def test_broken_binding_is_reported_once(
    page: Page, server: EaselProcess, api: CanvasApi, html: str, told: list[str]
) -> None:
    name = make(api, html, map={"a": 1}, double=[{"id": 1}, {"id": 1}, {"id": 2}])
    api.patch(name, "/closed", [{"n": 1}])
    await open_canvas(page, server, name)
    await expect(page.locator("#notes-list li")).to_have_count(len(told))
    for words in told:
        await expect(page.locator("#notes-list")).to_contain_text(words)


async def test_items_with_a_repeated_or_missing_key_are_all_shown(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    items: list[Any] = [{"id": 1, "n": "a"}, {"id": 1, "n": "b"}, {"n": "c"}, {"id": "1", "n": "d"}, 5]
    html = '<p data-gsv-each="state.double" data-gsv-key="id"><b data-gsv-text="item.n"></b></p>'
    name = make(api, html, double=items)
    frame = await open_canvas(page, server, name)
    await expect(frame.locator("p")).to_have_text(["a", "b", "c", "d", ""])
    api.patch(name, "/double", list(reversed(items)))
    await expect(frame.locator("p")).to_have_text(["", "d", "c", "b", "a"])


async def test_pending_results_and_members_of_some_items_are_not_reported(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    html = """<p data-gsv-each="state.none"><b data-gsv-text="item.any"></b></p>
      <p data-gsv-each="state.said.result.rows" data-gsv-text="item.any"></p>
      <p data-gsv-each="state.some"><b data-gsv-text="item.late"></b></p><i>seen</i>"""
    name = make(api, html, some=[{"n": 1}, {"n": 2, "late": True}])
    frame = await open_canvas(page, server, name)
    await expect(frame.locator("i")).to_have_text("seen")
    await expect(frame.locator("p")).to_have_count(2)
    await expect(page.locator("#notes")).to_be_hidden()
