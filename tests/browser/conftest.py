"""A browser and an `easel up` on SQLite, one of each per test process.

Every test has its own browser context (cookies, storage and window), and creates its own sessions and
canvases on the shared server. A test that stops a server starts its own.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Dialog, Page, async_playwright, expect

from easel.demo import CANVASES
from tests.browser.canvas import EMPTY_PAGE, CanvasApi
from tests.browser.canvas_ways_out import listen, serve_unprotected
from tests.browser.console import TIMEOUT_SECONDS
from tests.browser.firefox import Firefox
from tests.browser.tabs import (
    CHROMIUM_FLAGS,
    WITHOUT_ALLOWLIST,
    Chromium,
    DrivenBrowser,
    Tab,
    Window,
    browser_program,
    is_firefox,
    wait_in,
)
from tests.support.processes import EaselProcess, Launcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

TIMEOUT_MS = TIMEOUT_SECONDS * 1000

expect.set_options(timeout=TIMEOUT_MS)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with launch_chromium() as launched:
        yield launched


@contextlib.asynccontextmanager
async def launch_chromium(*flags: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(
            executable_path=browser_program(), args=[*CHROMIUM_FLAGS, *flags]
        )
        yield launched
        await launched.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def any_browser() -> AsyncIterator[DrivenBrowser]:
    """The browser of `EASEL_TEST_BROWSER`, or the installed Chromium."""
    if is_firefox():
        firefox = await Firefox.launch(browser_program())
        yield firefox
        await firefox.close()
    else:
        async with launch_chromium() as launched:
            yield Chromium(launched)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def unisolating_browser(any_browser: DrivenBrowser) -> AsyncIterator[DrivenBrowser]:
    """The same browser, without support for `Connection-Allowlist`."""
    if is_firefox():
        yield any_browser
    else:
        async with launch_chromium(WITHOUT_ALLOWLIST) as launched:
            yield Chromium(launched)


@pytest_asyncio.fixture(loop_scope="session")
async def window(any_browser: DrivenBrowser) -> AsyncIterator[Window]:
    opened = await any_browser.new_window()
    yield opened
    await opened.close()


@pytest_asyncio.fixture(loop_scope="session")
async def tab(window: Window) -> Tab:
    return await window.new_tab()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def enforces_allowlist(any_browser: DrivenBrowser) -> bool:
    """Whether this browser enforces `Connection-Allowlist`. Chromium 156 does; 150 and Firefox do not."""
    probe = (
        "fetch('http://LISTENER/way-fetch', {mode: 'no-cors'}).catch(() => {}).finally(() => { "
        "window.hasTried = true })"
    )
    async with listen() as listener:
        html = f"{EMPTY_PAGE}<script>{probe.replace('LISTENER', listener.address)}</script>"
        async with serve_unprotected(html, "connection-allowlist: ()\r\n") as address:
            opened = await any_browser.new_window()
            tab = await opened.new_tab()
            await tab.goto(address)
            await wait_in(tab, "window.hasTried")
            await opened.close()
        return listener.received == []


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EaselProcess]:
    with Launcher(tmp_path_factory.mktemp("easel")) as launcher:
        (process,) = launcher.ready(launcher.up())
        yield process


@pytest.fixture
def api(server: EaselProcess) -> Iterator[CanvasApi]:
    """A client of the server's API for creating canvases and reading their state."""
    with CanvasApi(server) as client:
        yield client


@pytest.fixture(scope="session")
def demo_canvases(server: EaselProcess) -> None:
    """Create the demo canvases on the shared server."""
    with CanvasApi(server) as client:
        for canvas in CANVASES:
            client.rpc("canvas.create", **canvas.params)


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """Open a page in a new context. Errors of its scripts and browser dialogs fail the test."""
    context = await browser.new_context(viewport={"width": 1200, "height": 900})
    opened = await context.new_page()
    opened.set_default_timeout(TIMEOUT_MS)
    problems: list[str] = []
    opened.on("pageerror", lambda problem: problems.append(str(problem)))
    opened.on(
        "console",
        lambda message: problems.append(message.text) if "Content Security Policy" in message.text else None,
    )

    async def accept_dialog(dialog: Dialog) -> None:
        problems.append(f"dialog: {dialog.type} {dialog.message}")
        await dialog.accept()  # an open dialog would block the page

    opened.on("dialog", accept_dialog)
    yield opened
    await context.close()
    assert problems == []


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A context whose script errors do not fail the test."""
    opened = await browser.new_context(viewport={"width": 1000, "height": 700})
    opened.set_default_timeout(TIMEOUT_MS)
    yield opened
    await opened.close()


def link_of(server: EaselProcess) -> str:
    """Return the link that signs in, as `easel up` prints it to a terminal."""
    return f"{server.base_url}/?token={quote(server.token, safe='')}"
