"""A Chromium and an `easel up` on SQLite, one of each per test process.

Every test has its own browser context (cookies, storage and window), and creates its own sessions and
canvases on the shared server. A test that stops a server starts its own.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Dialog, Page, async_playwright, expect

from easel.demo import CANVASES
from tests.browser.canvas import CanvasApi
from tests.browser.console import TIMEOUT_SECONDS
from tests.support.processes import EaselProcess, Launcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
TIMEOUT_MS = TIMEOUT_SECONDS * 1000

expect.set_options(timeout=TIMEOUT_MS)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert program, "Chromium is not installed; `apt-get install chromium`"
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield launched
        await launched.close()


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
