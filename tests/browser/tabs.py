"""A tab of any browser, in a few verbs, so that the same drill runs on Chromium and on Firefox.

`EASEL_TEST_BROWSER` is the program; without it the installed Chromium is used. Playwright drives Chromium,
`tests.browser.firefox` drives Debian's Firefox. Does not know Easel's pages, except that the page of a canvas
is in the frame of `#stage`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from playwright.async_api import Error

from tests.browser.console import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Frame, Page

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
# Chromium 156 and newer then ignore the header `Connection-Allowlist`, as older ones and Firefox do.
WITHOUT_ALLOWLIST = "--disable-features=ConnectionAllowlists"
FRAME = "#stage iframe"


def browser_program() -> Path:
    """Return the program that the tests drive."""
    installed = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    program = os.environ.get("EASEL_TEST_BROWSER") or installed
    assert program, "Chromium is not installed; `apt-get install chromium`"
    return Path(program)


def is_firefox() -> bool:
    return "firefox" in Path(os.environ.get("EASEL_TEST_BROWSER", "")).name


class EvaluationFailed(Exception):
    """The expression could not be evaluated: it threw, or its document is gone."""


class TabCrashed(Exception):
    """The browser has ended the tab."""


class Tab(Protocol):
    """A tab. `frame`: in the page of the canvas and not in the shell around it."""

    async def goto(self, address: str) -> None: ...

    async def evaluate(self, expression: str, *, frame: bool = False) -> Any:
        """Return the value of an expression, or of its promise. Raises EvaluationFailed."""
        ...

    async def click(self, selector: str, *, frame: bool = False) -> None: ...

    async def fill(self, selector: str, text: str, *, frame: bool = False) -> None: ...

    async def close(self) -> None: ...


class Window(Protocol):
    """A set of tabs with their own cookies and storage."""

    async def new_tab(self) -> Tab: ...

    async def count_tabs(self) -> int: ...

    async def close(self) -> None: ...


class DrivenBrowser(Protocol):
    """A started browser."""

    async def new_window(self) -> Window: ...


async def wait_in(tab: Tab, expression: str, *, frame: bool = False) -> Any:
    """Poll until the expression is true, and return its value."""
    end = asyncio.get_running_loop().time() + TIMEOUT_SECONDS
    problem = None
    while True:
        try:
            if found := await tab.evaluate(expression, frame=frame):
                return found
        except EvaluationFailed as error:  # the document is being replaced
            problem = error
        now = asyncio.get_running_loop().time()
        assert now < end, f"not within {TIMEOUT_SECONDS} s: {expression} ({problem})"
        await asyncio.sleep(0.05)


async def expect_text(tab: Tab, selector: str, text: str, *, frame: bool = False) -> None:
    """Wait until the element contains the text and is visible."""
    element = f"document.querySelector({json.dumps(selector)})"
    is_shown = f"{element}?.checkVisibility() && {element}.textContent.includes({json.dumps(text)})"
    await wait_in(tab, is_shown, frame=frame)


async def is_visible(tab: Tab, selector: str) -> bool:
    return await tab.evaluate(f"!!document.querySelector({json.dumps(selector)})?.checkVisibility()")


# --- Chromium -----------------------------------------------------------------------------------------------


def _to_failure(problem: Error) -> Exception:
    return TabCrashed() if "crashed" in str(problem) else EvaluationFailed(str(problem))


class ChromiumTab:
    def __init__(self, page: Page) -> None:
        self.page = page

    async def goto(self, address: str) -> None:
        try:
            await self.page.goto(address)
        except Error as problem:
            raise _to_failure(problem) from problem

    async def evaluate(self, expression: str, *, frame: bool = False) -> Any:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await (await self._frame() if frame else self.page).evaluate(expression)
        except Error as problem:
            raise _to_failure(problem) from problem

    async def click(self, selector: str, *, frame: bool = False) -> None:
        await (self.page.frame_locator(FRAME) if frame else self.page).locator(selector).first.click()

    async def fill(self, selector: str, text: str, *, frame: bool = False) -> None:
        await (self.page.frame_locator(FRAME) if frame else self.page).locator(selector).first.fill(text)

    async def close(self) -> None:
        await self.page.close()

    async def _frame(self) -> Frame:
        element = await self.page.query_selector(FRAME)
        found = await element.content_frame() if element else None
        if found is None:
            raise EvaluationFailed("there is no frame yet")
        return found


class ChromiumWindow:
    def __init__(self, context: BrowserContext) -> None:
        self._context = context

    async def new_tab(self) -> ChromiumTab:
        page = await self._context.new_page()
        page.set_default_timeout(TIMEOUT_SECONDS * 1000)
        return ChromiumTab(page)

    async def count_tabs(self) -> int:
        return len(self._context.pages)

    async def close(self) -> None:
        await self._context.close()


class Chromium:
    """A Chromium that a fixture launches and closes."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    async def new_window(self) -> ChromiumWindow:
        return ChromiumWindow(await self._browser.new_context(viewport={"width": 1000, "height": 700}))
