"""Lists under unusual pages and states: scripts that move rows, odd keys, conflicts, large lists, SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.canvas import CanvasApi, loaded_frame, open_canvas, pause_timers, wait_in_frame
from tests.requirements import rule

if TYPE_CHECKING:
    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

ORDERS: list[dict[str, Any]] = [{"id": "a", "name": "A"}, {"id": "b", "name": "B"}, {"id": "c", "name": "C"}]
ROWS = '<ul><li data-gsv-each="state.orders" data-gsv-key="id" data-gsv-text="item.name"></li></ul>'
FIELDS = """<p data-gsv-each="state.orders" data-gsv-key="id"><b data-gsv-text="item.id"></b>
  <input data-gsv-model="item.name"></p>"""


def make(api: CanvasApi, html: str, **state: Any) -> str:
    return api.make(f"<!doctype html>{html}", {"state": {"orders": ORDERS, **state}})


async def test_rows_that_a_script_moved_or_removed_follow_the_state_again(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = make(api, ROWS)
    shown = await open_canvas(page, server, name)
    await expect(shown.locator("li")).to_have_text(["A", "B", "C"])
    frame = await loaded_frame(page)
    await frame.evaluate(
        "const list = document.querySelector('ul'); list.prepend(...[...list.children].reverse())"
    )
    await expect(shown.locator("li")).to_have_text(["C", "B", "A"])
    api.patch(name, "/orders/-", {"id": "d", "name": "D"})
    await expect(shown.locator("li")).to_have_text(["A", "B", "C", "D"])
    await frame.evaluate("document.querySelectorAll('li')[1].remove()")
    api.patch(name, "/orders/-", {"id": "e", "name": "E"})
    await expect(shown.locator("li")).to_have_text(["A", "B", "C", "D", "E"])


async def test_items_keep_their_own_rows_whatever_their_keys_are(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    keys: list[Any] = ["1 ", None, "__proto__", "constructor", "", 0, "0", False, {"deep": 1}]
    items = [{"id": key, "name": f"item {at}"} for at, key in enumerate(keys)]
    name = make(api, ROWS, orders=items)
    shown = await open_canvas(page, server, name)
    await expect(shown.locator("li")).to_have_text([item["name"] for item in items])
    for order in (items[::-1], items):
        for round_number in range(2):  # the second one finds the rows of the first
            changed = [{**item, "name": f"{item['name']}, {round_number}"} for item in order]
            api.patch(name, "/orders", changed)
            await expect(shown.locator("li")).to_have_text([item["name"] for item in changed])


@rule("CV-30")
async def test_choice_in_a_conflict_is_that_of_the_row_with_the_conflict(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    """Another row that was saved at the same place before keeps its own entry."""
    name = make(api, FIELDS)
    shown = await open_canvas(page, server, name)
    row = lambda key: shown.locator("p", has_text=key).locator("input")  # noqa: E731
    await row("a").fill("saved")
    await row("a").blur()
    await api.until(lambda: api.state(name)["orders"][0]["name"] == "saved", "the first entry")
    moved = [ORDERS[1], {"id": "a", "name": "saved"}, ORDERS[2]]
    api.patch(name, "/orders", moved)
    await expect(shown.locator("b")).to_have_text(["b", "a", "c"])
    release = await pause_timers(page)
    await row("b").fill("mine")
    api.patch(name, "/orders/0/name", "theirs")
    await wait_in_frame(await loaded_frame(page), "gsvCanvas.getState().orders[0].name === 'theirs'")
    await release()
    await expect(page.locator("#conflicts")).to_contain_text("theirs")
    await page.get_by_role("button", name="Keep mine").click()
    await api.until(lambda: api.state(name)["orders"][0]["name"] == "mine", "the person's choice")
    await expect(row("b")).not_to_have_attribute("data-gsv-conflict", "")


@rule("CV-51")
async def test_field_that_edits_the_key_is_reported(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    html = '<p data-gsv-each="state.orders" data-gsv-key="id"><input data-gsv-model="item.id"></p>'
    await open_canvas(page, server, make(api, html))
    await expect(page.locator("#notes-list")).to_contain_text("is the key")


async def test_list_in_svg_is_drawn(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    html = """<svg viewBox="0 0 9 9"><g data-gsv-each="state.orders" data-gsv-key="id"><rect width="2"
      height="2" data-gsv-attr-x="index" data-gsv-class-on="item.name"></rect></g></svg>"""
    name = make(api, html)
    shown = await open_canvas(page, server, name)
    await expect(shown.locator("g rect.on")).to_have_count(3)
    frame = await loaded_frame(page)
    assert await frame.evaluate(
        "[...document.querySelectorAll('rect')].map((one) => one.x.baseVal.value)"
    ) == [
        0,
        1,
        2,
    ]
    await expect(page.locator("#notes")).to_be_hidden()


async def test_ten_thousand_items_are_shown_also_with_one_key(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = make(api, ROWS, orders=[{"id": at % 2, "name": at} for at in range(10_000)])
    shown = await open_canvas(page, server, name)
    await expect(shown.locator("li")).to_have_count(10_000)
    api.patch(name, "/orders/9999/name", "last")
    await expect(shown.locator("li").last).to_have_text("last")
    api.patch(name, "/orders", [])
    await expect(shown.locator("li")).to_have_count(0)


@pytest.mark.parametrize("field", ["matches", "querySelector", "closest", "dataset", "remove", "elements"])
async def test_form_in_a_row_sends_a_field_of_any_name(
    page: Page, server: EaselProcess, api: CanvasApi, field: str
) -> None:
    html = f"""<form data-gsv-each="state.orders" data-gsv-key="id" data-gsv-action="say"
      data-gsv-value-id="item.id"><input name="{field}" data-gsv-attr-value="item.name"><button>Send</button>
      </form><output data-gsv-text="state.said.result"></output>"""
    spec = {
        "toolPolicy": {"allow": ["gsv__Echo"]},
        "state": {"orders": ORDERS, "said": None},
        "actions": {
            "say": {
                "kind": "tool.call",
                "tool": "gsv__Echo",
                "args": {"value": f"{{{{input.id}}}}/{{{{input.{field}}}}}"},
                "saveAs": "said",
            }
        },
    }
    name = api.make(f"<!doctype html>{html}", spec)
    shown = await open_canvas(page, server, name)
    await shown.locator("button").nth(1).click()
    await expect(shown.locator("output")).to_have_text("b/B")
    await expect(shown.locator("form").nth(1)).not_to_have_attribute("aria-busy", "true")
    api.patch(name, "/orders", ORDERS[2:])
    await expect(shown.locator("form")).to_have_count(1)
