"""Helpers for the home page: open a session, send a message, and locate turns and answers."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any, Protocol

import httpx2
from playwright.async_api import Locator, Page, expect

from tests.support.strict_http import STRICT
from tests.support.waiting import wait_for_sync

# Longer than the longest reconnect wait of a page (about 19 s); most conditions hold within a tenth of a
# second.
TIMEOUT_SECONDS = 30


class Easel(Protocol):
    """A running Easel, in another process or in this one."""

    @property
    def base_url(self) -> str: ...
    @property
    def token(self) -> str: ...


# Longer than any test: it runs until it is stopped.
COUNT_FOREVER: dict[str, object] = {"ticks": 10_000, "every_ms": 100}


def script(*steps: dict[str, object]) -> str:
    return json.dumps({"script": list(steps)})


async def open_session(
    page: Page, server: Easel, session: str | None = None, *, base_url: str | None = None
) -> str:
    """Sign in and open a session: a new one unless one is named."""
    session = session or f"s-{secrets.token_hex(4)}"
    base_url = base_url or server.base_url
    await page.context.request.get(
        f"{base_url}/?token={server.token}"
    )  # sets the cookie of the browser context
    await page.goto(f"{base_url}/#session={session}")
    await expect(page.locator("#link")).to_have_text("connected")
    return session


async def send_message(page: Page, text: str) -> None:
    await page.get_by_label("Message", exact=True).fill(text)
    await page.keyboard.press("Enter")


async def click_example(page: Page, example: str) -> None:
    """Click one of the examples of an empty session."""
    await page.locator("#welcome").get_by_role("button", name=example, exact=True).click()


def turn(page: Page, number: int = -1) -> Locator:
    """Return the last turn, or the one with this number."""
    return page.locator("#turns .turn").nth(number)


def answer(page: Page, number: int = -1) -> Locator:
    """Return the text of an answer, without tool calls and notes."""
    return turn(page, number).locator(".answer > .parts > .text")


async def expect_more_ticks(page: Page, ticks: int = 3) -> None:
    """Wait until the model has counted further."""
    seen = (await answer(page).last.inner_text()).count("tick")
    await expect(answer(page).last).to_contain_text(f"tick {seen + ticks}\n")


def check_ticks(text: str | None) -> None:
    """Check that each number was counted once and in order."""
    assert text
    assert text == "".join(f"tick {number}\n" for number in range(1, text.count("\n") + 1))


async def expect_ended(page: Page, how: str = "completed", number: int = -1) -> None:
    await expect(turn(page, number)).to_have_attribute("data-state", how)


def status(page: Page) -> Locator:
    """Return the status of the run beside the chat."""
    return page.locator("#run-status")


class ApiClient:
    """A client of the HTTP API."""

    def __init__(self, server: Easel) -> None:
        self._http = httpx2.Client(
            base_url=server.base_url,
            headers={"authorization": f"Bearer {server.token}"},
            timeout=60,
            trust_env=False,
            event_hooks=STRICT,
        )

    def __enter__(self) -> ApiClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str) -> Any:
        answer = self._http.get(path)
        answer.raise_for_status()
        return answer.json()

    def post(self, path: str, body: Any = None, *, content: bytes | None = None) -> Any:
        answer = (
            self._http.post(path, json=body) if content is None else self._http.post(path, content=content)
        )
        answer.raise_for_status()
        return answer.json()

    def wait_until_idle(self, session: str) -> None:
        """Wait until the session has no active run."""
        wait_for_sync(
            lambda: not self.get(f"/api/runs?session_id={session}&statuses=queued,running")["runs"],
            within=90,
            what=f"{session} idle",
        )

    def delete(self, path: str) -> None:
        self._http.delete(path).raise_for_status()

    def watched(self) -> dict[str, int]:
        """Return the number of open streams by kind."""
        found = re.findall(
            r'^easel_subscribers\{log="(\w+)"\} ([\d.]+)$', self._http.get("/metrics").text, re.MULTILINE
        )
        return {kind: int(float(count)) for kind, count in found}
