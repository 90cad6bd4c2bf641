"""The contrast of every visible text of a page.

The background of a text is the most frequent colour of the screenshot there. Computed styles are not enough:
a frame whose page has no background shows the one below it.
"""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

from tests.browser.console import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page

MIN_CONTRAST = 4.5  # of plain text, WCAG 2.2 AA

# Every visible text: its content, its box, and its colour with all opacities. Disabled and busy elements are
# left out.
_TEXTS = """(within) => {
  const canvas = Object.assign(document.createElement("canvas"), {width: 1, height: 1});
  const brush = canvas.getContext("2d", {willReadFrequently: true});
  const painted = (colour) => {
    brush.clearRect(0, 0, 1, 1); brush.fillStyle = colour; brush.fillRect(0, 0, 1, 1);
    return [...brush.getImageData(0, 0, 1, 1).data];
  };
  const opacity = (element) => (
    element ? Number(getComputedStyle(element).opacity) * opacity(element.parentElement) : 1
  );
  const inSight = (element, box) => {
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    const hit = document.elementFromPoint(x, y);
    return box.width > 3 && box.height > 3 && x > 0 && y > 0 && hit !== null
      && (hit === element || element.contains(hit) || hit.contains(element));
  };
  const found = [];
  const take = (element, box, content, colour) => {
    if (!content.trim()) return;
    if (!element.checkVisibility({opacityProperty: true, visibilityProperty: true})) return;
    if (element.closest(":disabled, [aria-busy=true]") || !inSight(element, box)) return;
    const [r, g, b, a] = painted(colour);
    found.push({
      content: content.trim().slice(0, 60),
      box: [box.x, box.y, box.width, box.height],
      colour: [r, g, b, (a / 255) * opacity(element)],
    });
  };
  const walker = document.createTreeWalker(document.querySelector(within), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, range = document.createRange(), element = text.parentElement;
    if (element.closest("script, style, option, textarea, select")) continue;
    range.selectNodeContents(text);
    for (const box of range.getClientRects()) take(element, box, text.data, getComputedStyle(element).color);
  }
  const fields = ":is(input:not([type=checkbox], [type=file]), textarea)";
  for (const field of document.querySelectorAll(`${within} ${fields}`)) {
    const isEmpty = field.value === "";
    const {color} = getComputedStyle(field, isEmpty ? "::placeholder" : null);
    take(field, field.getBoundingClientRect(), isEmpty ? field.placeholder : field.value, color);
  }
  for (const element of document.querySelectorAll(`${within} [data-empty]:empty`)) {
    const {color} = getComputedStyle(element, "::before");
    take(element, element.getBoundingClientRect(), element.dataset.empty, color);
  }
  return found;
}"""

# How often a control became busy or idle, or disabled: between two calls it may have been drawn faint.
_CHANGES = """() => {
  window.stateChanges ??= {count: 0, observer: new MutationObserver((records) => {
    window.stateChanges.count += records.length;
  })};
  window.stateChanges.observer.observe(
    document, {subtree: true, attributeFilter: ["aria-busy", "disabled", "class"]}
  );
  return window.stateChanges.count;
}"""

_MEASURED = """async ([picture, texts]) => {
  const image = await createImageBitmap(await (await fetch(picture)).blob());
  const canvas = new OffscreenCanvas(image.width, image.height);
  const pen = canvas.getContext("2d", {willReadFrequently: true});
  pen.drawImage(image, 0, 0);
  const lit = (part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * lit(r) + 0.7152 * lit(g) + 0.0722 * lit(b);
  const behind = ([x, y, width, height]) => {
    const left = Math.max(0, Math.floor(x)), top = Math.max(0, Math.floor(y));
    const wide = Math.min(image.width - left, Math.ceil(width));
    const high = Math.min(image.height - top, Math.ceil(height));
    if (wide < 1 || high < 1) return null;
    const {data} = pen.getImageData(left, top, wide, high), counts = new Map();
    for (let at = 0; at < data.length; at += 4) {
      const key = (data[at] << 16) | (data[at + 1] << 8) | data[at + 2];
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
    const [most] = [...counts].reduce((one, other) => (other[1] > one[1] ? other : one));
    return [most >> 16, (most >> 8) & 255, most & 255];
  };
  return texts.flatMap(({content, box, colour: [r, g, b, a]}) => {
    const paper = behind(box);
    if (paper === null) return [];
    const ink = [r, g, b].map((part, place) => part * a + paper[place] * (1 - a));
    const [one, other] = [light(ink), light(paper)];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    return [[content, Math.round(contrast * 100) / 100, ink.map(Math.round), paper]];
  });
}"""


async def contrasts(page: Page, within: str = "body", frame: Frame | None = None) -> list[Any]:
    """Return for each visible text: its content, contrast, colour and background."""
    where = frame or page
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:  # until nothing changed between the beginning and the end of the screenshot
            changes, texts = await where.evaluate(_CHANGES), await where.evaluate(_TEXTS, within)
            picture = base64.b64encode(await page.screenshot(animations="disabled")).decode()
            later = await where.evaluate(_TEXTS, within)
            if texts == later and changes == await where.evaluate(_CHANGES):
                break
    if frame is not None:
        frame_box = await page.locator("#stage iframe").bounding_box()
        assert frame_box
        for text in texts:
            text["box"][0] += frame_box["x"]
            text["box"][1] += frame_box["y"]
    measuring_page = await page.context.browser.new_page()  # pyright: ignore[reportOptionalMemberAccess]
    try:
        return await measuring_page.evaluate(_MEASURED, [f"data:image/png;base64,{picture}", texts])
    finally:
        await measuring_page.close()


async def expect_readable(
    page: Page, within: str = "body", frame: Frame | None = None, *, at_least: int = 3
) -> None:
    """Check the contrast of all visible texts, and that there are at least so many."""
    found = await contrasts(page, within, frame)
    assert len(found) >= at_least, found
    faint = [text for text in found if text[1] < MIN_CONTRAST]
    assert not faint, f"{within} of {page.url}: {faint}"
