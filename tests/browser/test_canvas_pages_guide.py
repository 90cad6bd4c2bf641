"""The examples of docs/guide/canvas-pages.md in a browser: each page shows what the document says."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.canvas import CanvasApi, loaded_frame, open_canvas
from tests.docs_tables import PROJECT
from tests.requirements import rule
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

GUIDE = (PROJECT / "docs/guide/canvas-pages.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(
    r"```html\n(?P<html>.*?)```\n\n(?:After (?P<deed>clicking|entering) “(?P<word>[^”]+)”:\n\n)?"
    r"```text\n(?P<shown>.*?)```\n",
    re.DOTALL,
)


@dataclass(frozen=True)
class Example:
    html: str
    deed: str | None
    word: str
    shown: str


def examples() -> Iterator[Example]:
    for found in EXAMPLE.finditer(GUIDE):
        yield Example(found["html"], found["deed"], found["word"] or "", found["shown"])


def spec() -> dict[str, Any]:
    found = re.search(r"```json\n(.*?)```", GUIDE, re.DOTALL)
    assert found
    return json.loads(found[1])


def words_of(text: str) -> list[str]:
    """Return the lines as a reader sees them, without the indentation of the source."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


async def test_every_example_of_the_guide_is_tested() -> None:
    assert len(list(examples())) == GUIDE.count("```html") > 10


@pytest_asyncio.fixture(loop_scope="session")
async def american_page(browser: Browser) -> AsyncIterator[Page]:
    context = await browser.new_context(locale="en-US", timezone_id="UTC")
    yield await context.new_page()
    await context.close()


@rule("CV-30")
@pytest.mark.parametrize(
    "example", list(examples()), ids=lambda example: " ".join(words_of(example.html))[:40]
)
async def test_example_shows_what_the_guide_says(
    american_page: Page, server: EaselProcess, api: CanvasApi, example: Example
) -> None:
    page = american_page
    shown = await open_canvas(page, server, api.make(f"<!doctype html>{example.html}", spec()))
    frame = await loaded_frame(page)
    if example.deed == "clicking":
        await shown.get_by_role("button", name=example.word).click()
    elif example.deed == "entering":
        await shown.locator("input").first.fill(example.word)
    expected = words_of(example.shown)

    async def is_shown() -> bool:
        return words_of(await frame.evaluate("document.body.innerText")) == expected

    try:
        await wait_for(is_shown, what="the page shows the text of the guide")
    finally:
        assert words_of(await frame.evaluate("document.body.innerText")) == expected
    await expect(page.locator("#notes")).to_be_hidden()
