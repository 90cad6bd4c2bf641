"""A real Chromium in front of a real `easel up`, both of the test's own.

One browser per file; every test has a fresh profile in it (its own cookies, storage and window). The server is on SQLite,
started as its users start it, so that a test may kill it.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Dialog, Page, async_playwright, expect

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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert program, "Chromium is not installed; `apt-get install chromium`"
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield started
        await started.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EaselProcess]:
    """Shared by the tests of one file; a test that kills a server starts its own."""
    with Launcher(tmp_path_factory.mktemp("easel")) as launcher:
        (started,) = launcher.ready(launcher.up())
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A fresh window. Whatever its scripts complain about fails the test."""
    context = await browser.new_context(viewport={"width": 1200, "height": 900})
    opened = await context.new_page()
    opened.set_default_timeout(TIMEOUT_MS)
    complaints: list[str] = []
    opened.on("pageerror", lambda problem: complaints.append(str(problem)))
    opened.on(
        "console",
        lambda message: (
            complaints.append(message.text) if "Content Security Policy" in message.text else None
        ),
    )

    async def complain(dialog: Dialog) -> None:
        complaints.append(f"a dialog: {dialog.type} {dialog.message}")
        await dialog.accept()  # else its page stands still, and nobody would read this

    opened.on("dialog", complain)
    yield opened
    await context.close()
    assert complaints == []


def link_of(server: EaselProcess) -> str:
    """The link that `easel up` printed."""
    found = re.search(r"^Open (http\S+)$", server.output(), re.MULTILINE)
    assert found, server.output()
    return found[1]
