"""The time that a list of 1,000 items takes in the browser, beside a bare update of the same rows.

Owns the promise of at most 16 ms of scripting and five times a bare update. The figures are in
docs/performance.md. Scripting is timed in the page, from the message with the new state to the last written
element, without layout and painting.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.canvas import CanvasApi, loaded_frame, open_canvas, wait_in_frame
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

ITEM_COUNT = 1_000
MAX_MS = 16
MAX_RATIO = 5
PAGE = """<!doctype html><table><tbody id="ours"><tr data-gsv-each="state.orders" data-gsv-key="id"
  data-gsv-class-late="item.late"><td data-gsv-text="index"></td><td data-gsv-text="item.name"></td>
  <td data-gsv-text="item.count"></td><td data-gsv-text="item.state"></td></tr></tbody>
  <tbody id="bare"></tbody></table>"""
# Remembers the nonce of the bridge, so that the test can send states to the page as the shell does.
REMEMBER = "addEventListener('message', ({ data }) => { if (data?.nonce) window.nonce = data.nonce })"
MEASURE = """({ count, rounds }) => {
  const make = () => Array.from({ length: count }, (_, at) => (
    { id: `order-${at}`, name: `Order ${at}`, count: at, state: "open", late: at % 7 === 0 }));
  const bare = document.getElementById("bare");
  // The least code that shows the same rows: each value is compared with the cell's text node and written if
  // it differs, and only rows that are not in their place are moved.
  const byId = new Map();
  function newRow(item) {
    const row = document.createElement("tr");
    const texts = [];
    for (let at = 0; at < 4; at += 1) {
      texts.push(document.createTextNode(""));
      row.insertCell().append(texts[at]);
    }
    byId.set(item.id, { row, texts });
    return byId.get(item.id);
  }
  const write = (node, text) => { if (node.data !== text) node.data = text; };
  function updateBare(items) {
    let next = bare.firstChild;
    for (let at = 0; at < items.length; at += 1) {
      const item = items[at];
      const { row, texts } = byId.get(item.id) ?? newRow(item);
      row.classList.toggle("late", item.late);
      write(texts[0], String(at));
      write(texts[1], item.name);
      write(texts[2], String(item.count));
      write(texts[3], item.state);
      if (next && next !== row && next.nextSibling === row) { // the row before it comes later
        bare.append(next);
        next = row;
      }
      if (next === row) next = row.nextSibling;
      else bare.insertBefore(row, next);
    }
    while (next) [next] = [next.nextSibling, next.remove()];
  }

  let revision = 1_000_000;
  function updateOurs(items) {
    revision += 1;
    const data = { gsv: 1, nonce, kind: "state", state: { orders: items }, revision };
    dispatchEvent(new MessageEvent("message", { data, source: parent }));
  }
  const timed = (work, items) => {
    const start = performance.now();
    work(items);
    return performance.now() - start;
  };

  /** Return the median and the best time of both, taken in turn. `change` makes the next items of a list. */
  function compare(change) {
    const times = { ours: [], bare: [] };
    let items = make();
    updateOurs(structuredClone(items));
    updateBare(items);
    for (let round = 0; round < rounds; round += 1) {
      items = change(items, round);
      times.ours.push(timed(updateOurs, structuredClone(items)));
      times.bare.push(timed(updateBare, structuredClone(items)));
    }
    const sorted = (list) => list.toSorted((a, b) => a - b);
    const median = (list) => sorted(list)[list.length >> 1];
    const summary = (list) => ({ median: median(list), best: sorted(list)[0] });
    return { ours: summary(times.ours), bare: summary(times.bare) };
  }

  const one = compare((items, round) => items.map((item, at) => (
    at === (round * 37) % count ? { ...item, name: `Changed ${round}`, count: -round } : item)));
  const reversed = compare((items) => items.toReversed());
  const moved = compare((items) => [...items.slice(1), items[0]]);
  const first = compare((_, round) => make().map((item) => ({ ...item, id: `${item.id}-${round}` })));
  const textOf = (row) => row.textContent.replace(/\\s/g, "");
  const texts = (body) => [...document.querySelectorAll(`#${body} tr`)].map(textOf);
  return { one, reversed, moved, first, isSame: texts("ours").join() === texts("bare").join() };
}"""


async def measure(page: Page, server: EaselProcess, api: CanvasApi, rounds: int) -> dict[str, Any]:
    await page.add_init_script(REMEMBER)
    await open_canvas(page, server, api.make(PAGE, {"state": {"orders": []}}))
    frame = await loaded_frame(page)
    await wait_in_frame(frame, "window.nonce !== undefined")
    return await frame.evaluate(MEASURE, {"count": ITEM_COUNT, "rounds": rounds})


async def test_one_changed_item_of_a_thousand_is_shown_in_time(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    """Other processes of the machine only add to a time, so the best of all rounds counts, of both sides."""
    bests: dict[str, dict[str, float]] = {}

    async def is_fast() -> bool:
        figures = await measure(page, server, api, rounds=25)
        print(figures)  # for docs/performance.md: pytest -s
        assert figures.pop("isSame"), "both must show the same rows"
        for name, figure in figures.items():
            known = bests.setdefault(name, {"ours": inf, "bare": inf})
            for side in known:
                known[side] = min(known[side], figure[side]["best"])
        is_in_ratio = all(best["ours"] <= MAX_RATIO * best["bare"] for best in bests.values())
        return is_in_ratio and figures["one"]["ours"]["median"] < MAX_MS

    await wait_for(is_fast, what=f"under {MAX_MS} ms and {MAX_RATIO} times a bare update")
