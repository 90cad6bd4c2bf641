"""What can be read: each text that is in sight, in the colour that it has, against what is painted behind it.

Behind a text is what the picture of the page shows there most of all. What styles say is not enough: a frame whose page paints nothing shows
what lies under it, and two colours that are right each by itself can be the same.
"""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

from tests.browser.console import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page

LEAST = 4.5  # of plain text, WCAG 2.2 AA

# Every text in sight: what it says, where it is, and its colour with all that makes it fainter. What is disabled, or busy, may be faint.
_TEXTS = """(within) => {
  const brush = Object.assign(document.createElement("canvas"), {width: 1, height: 1}).getContext("2d", {willReadFrequently: true});
  const painted = (colour) => {
    brush.clearRect(0, 0, 1, 1); brush.fillStyle = colour; brush.fillRect(0, 0, 1, 1);
    return [...brush.getImageData(0, 0, 1, 1).data];
  };
  const opacity = (element) => (element ? Number(getComputedStyle(element).opacity) * opacity(element.parentElement) : 1);
  const inSight = (element, box) => {
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    const there = document.elementFromPoint(x, y);
    return box.width > 3 && box.height > 3 && x > 0 && y > 0 && there !== null && (there === element || element.contains(there) || there.contains(element));
  };
  const found = [];
  const take = (element, box, says, colour) => {
    if (!says.trim() || !element.checkVisibility({opacityProperty: true, visibilityProperty: true}) || element.closest(":disabled, [aria-busy=true]") || !inSight(element, box)) return;
    const [r, g, b, a] = painted(colour);
    found.push({says: says.trim().slice(0, 60), box: [box.x, box.y, box.width, box.height], colour: [r, g, b, (a / 255) * opacity(element)]});
  };
  const walker = document.createTreeWalker(document.querySelector(within), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, range = document.createRange(), element = text.parentElement;
    if (element.closest("script, style, option, textarea, select")) continue;
    range.selectNodeContents(text);
    for (const box of range.getClientRects()) take(element, box, text.data, getComputedStyle(element).color);
  }
  for (const field of document.querySelectorAll(`${within} :is(input:not([type=checkbox], [type=file]), textarea)`)) {
    const isEmpty = field.value === "";
    take(field, field.getBoundingClientRect(), isEmpty ? field.placeholder : field.value, getComputedStyle(field, isEmpty ? "::placeholder" : null).color);
  }
  for (const element of document.querySelectorAll(`${within} [data-empty]:empty`)) {
    take(element, element.getBoundingClientRect(), element.dataset.empty, getComputedStyle(element, "::before").color);
  }
  return found;
}"""

_MEASURED = """async ([picture, texts]) => {
  const image = await createImageBitmap(await (await fetch(picture)).blob());
  const canvas = new OffscreenCanvas(image.width, image.height), pen = canvas.getContext("2d", {willReadFrequently: true});
  pen.drawImage(image, 0, 0);
  const lit = (part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * lit(r) + 0.7152 * lit(g) + 0.0722 * lit(b);
  const behind = ([x, y, width, height]) => {
    const left = Math.max(0, Math.floor(x)), top = Math.max(0, Math.floor(y));
    const wide = Math.min(image.width - left, Math.ceil(width)), high = Math.min(image.height - top, Math.ceil(height));
    if (wide < 1 || high < 1) return null;
    const {data} = pen.getImageData(left, top, wide, high), counts = new Map();
    for (let at = 0; at < data.length; at += 4) {
      const key = (data[at] << 16) | (data[at + 1] << 8) | data[at + 2];
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
    const [most] = [...counts].reduce((one, other) => (other[1] > one[1] ? other : one));
    return [most >> 16, (most >> 8) & 255, most & 255];
  };
  return texts.flatMap(({says, box, colour: [r, g, b, a]}) => {
    const paper = behind(box);
    if (paper === null) return [];
    const ink = [r, g, b].map((part, place) => part * a + paper[place] * (1 - a));
    const [one, other] = [light(ink), light(paper)];
    return [[says, Math.round(((Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)) * 100) / 100, ink.map(Math.round), paper]];
  });
}"""


async def contrasts(page: Page, within: str = "body", frame: Frame | None = None) -> list[Any]:
    """Of each text in sight: what it says, its contrast, its colour and what is behind it."""
    where = frame or page
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:  # until the page stands still: a line that comes in between moves everything away from where it was
            texts = await where.evaluate(_TEXTS, within)
            picture = base64.b64encode(await page.screenshot(animations="disabled")).decode()
            if texts == await where.evaluate(_TEXTS, within):
                break
    if frame is not None:
        place = await page.locator("#stage iframe").bounding_box()
        assert place
        for one in texts:
            one["box"][0] += place["x"]
            one["box"][1] += place["y"]
    desk = await page.context.browser.new_page()  # pyright: ignore[reportOptionalMemberAccess]
    try:
        return await desk.evaluate(_MEASURED, [f"data:image/png;base64,{picture}", texts])
    finally:
        await desk.close()


async def expect_readable(
    page: Page, within: str = "body", frame: Frame | None = None, *, at_least: int = 3
) -> None:
    """And that there is something to read: nothing at all is not readable."""
    found = await contrasts(page, within, frame)
    assert len(found) >= at_least, found
    faint = [one for one in found if one[1] < LEAST]
    assert not faint, f"{within} of {page.url}: {faint}"
