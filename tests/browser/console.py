"""The console as a person meets it: where things stand on the page, and the few words that every test needs."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any, Protocol

import httpx2
from playwright.async_api import Locator, Page, expect

from tests.support.waiting import wait_for_sync

# For anything that a page shows or a server comes to be; most of it is so within a tenth of a second. It is longer than the longest pause
# (some 19 s) that a page makes before it tries once more to reach a server that was away for a while.
TIMEOUT_SECONDS = 30


class Easel(Protocol):
    """One that listens: a process, or one in this process."""

    @property
    def base_url(self) -> str: ...
    @property
    def token(self) -> str: ...


COUNTING: dict[str, object] = {
    "ticks": 10_000,
    "every_ms": 100,
}  # for longer than any test: it goes on until it is stopped


def script(*steps: dict[str, object]) -> str:
    return json.dumps({"script": list(steps)})


async def enter(page: Page, server: Easel, session: str | None = None, *, base_url: str | None = None) -> str:
    """Signed in, and in a session of its own unless one is named: no test waits behind what another left."""
    session = session or f"s-{secrets.token_hex(4)}"
    base_url = base_url or server.base_url
    await page.context.request.get(f"{base_url}/?token={server.token}")  # its cookie is the browser's too
    await page.goto(f"{base_url}/#session={session}")
    await expect(page.locator("#link")).to_have_text("connected")
    return session


async def say(page: Page, text: str) -> None:
    await page.get_by_label("Message", exact=True).fill(text)
    await page.keyboard.press("Enter")


async def press(page: Page, example: str) -> None:
    """One of the examples of an empty session."""
    await page.locator("#welcome").get_by_role("button", name=example, exact=True).click()


def turn(page: Page, number: int = -1) -> Locator:
    """A question with its answer, the last one unless another is asked for."""
    return page.locator("#turns .turn").nth(number)


def answer(page: Page, number: int = -1) -> Locator:
    """What was answered, without tools and notes."""
    return turn(page, number).locator(".answer > .parts > .text")


async def expect_more(page: Page, ticks: int = 3) -> None:
    """That the model goes on counting while one looks."""
    seen = (await answer(page).last.inner_text()).count("tick")
    await expect(answer(page).last).to_contain_text(f"tick {seen + ticks}\n")


def expect_counted(text: str | None) -> None:
    """That each number was said once, in its order, however far it came."""
    assert text
    assert text == "".join(f"tick {number}\n" for number in range(1, text.count("\n") + 1))


async def expect_ended(page: Page, how: str = "completed", number: int = -1) -> None:
    await expect(turn(page, number)).to_have_attribute("data-state", how)


def status(page: Page) -> Locator:
    """Of the run beside the chat."""
    return page.locator("#run-status")


class Outside:
    """The same Easel, asked from outside the browser."""

    def __init__(self, server: Easel) -> None:
        self._http = httpx2.Client(
            base_url=server.base_url,
            headers={"authorization": f"Bearer {server.token}"},
            timeout=60,
            trust_env=False,
        )

    def __enter__(self) -> Outside:
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
        """Until no run of the session is left to do. There may be many, and a slow disk."""
        wait_for_sync(
            lambda: not self.get(f"/api/runs?session_id={session}&statuses=queued,running")["runs"],
            within=90,
            what=f"{session} idle",
        )

    def delete(self, path: str) -> None:
        self._http.delete(path).raise_for_status()

    def watched(self) -> dict[str, int]:
        """How many streams the server has open, by kind."""
        found = re.findall(
            r'^easel_subscribers\{log="(\w+)"\} ([\d.]+)$', self._http.get("/metrics").text, re.MULTILINE
        )
        return {kind: int(float(count)) for kind, count in found}
