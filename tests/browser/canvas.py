"""Helpers for canvases in a browser: create a canvas, open its page, and access its frame."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import TYPE_CHECKING, Any

import httpx2
from playwright.async_api import BrowserContext, Frame, FrameLocator, Locator, Page, expect

from tests.browser.console import TIMEOUT_SECONDS
from tests.browser.tabs import Tab, wait_in
from tests.support.strict_http import STRICT
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.browser.console import Easel

# The minimal page of the specification, unchanged.
MINIMAL_PAGE = """<!doctype html>
<html>
  <body>
    <h1 data-gsv-text="state.service"></h1>
    <input data-gsv-model="state.version" />
    <button data-gsv-action="deploy">Deploy</button>
    <button data-gsv-action="refreshLogs">Refresh Logs</button>
    <pre data-gsv-text="state.logsTail.result"></pre>
  </body>
</html>
"""
EMPTY_PAGE = "<!doctype html><body>"
COCKPIT_SPEC: dict[str, Any] = {
    "version": 1,
    "mode": "html",
    "toolPolicy": {"allow": ["gsv__Echo", "gsv__Sleep", "gsv__Clock"]},
    "state": {"service": "api", "version": "1.2.7", "logsTail": None, "lastDeploy": None},
    "actions": {
        "deploy": {
            "kind": "tool.call",
            "tool": "gsv__Echo",
            "args": {"value": "./deploy {{state.service}} {{state.version}}"},
            "saveAs": "lastDeploy",
            "confirm": "always",
        },
        "refreshLogs": {
            "kind": "tool.call",
            "tool": "gsv__Echo",
            "args": {"value": "journal of {{state.service}}"},
            "saveAs": "logsTail",
        },
        "wait": {"kind": "tool.call", "tool": "gsv__Sleep", "args": {"ms": 60_000}},
        "fail": {"kind": "tool.call", "tool": "gsv__Sleep", "args": {"ms": "{{input.no}}"}},
        "setDeploying": {
            "kind": "state.patch",
            "patch": [{"op": "add", "path": "/status", "value": "deploying"}],
        },
        "say": {
            "kind": "tool.call",
            "tool": "gsv__Echo",
            "args": {"value": "{{input.word}}/{{input.other}}"},
            "saveAs": "said",
        },
    },
    "bindings": {"buttons.deployNow": "deploy", "buttons.refreshLogs": "refreshLogs"},
}


# A new frame first shows about:blank.
LOADED = "location.href !== 'about:blank' && document.readyState === 'complete'"


class CanvasApi:
    """A client of the HTTP API, for creating canvases and reading their state."""

    def __init__(self, server: Easel) -> None:
        self.server = server
        self._http = httpx2.Client(
            base_url=server.base_url,
            headers={"authorization": f"Bearer {server.token}"},
            timeout=60,
            trust_env=False,
            event_hooks=STRICT,
        )

    def __enter__(self) -> CanvasApi:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def rpc(self, method: str, **params: Any) -> Any:
        answer = self._http.post("/api/rpc", json={"method": method, "params": params})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def rpc_any(self, method: str, **params: Any) -> Any:
        """Return the payload, or the error of a refused call."""
        return self._http.post("/api/rpc", json={"method": method, "params": params}).json()

    def get(self, path: str) -> Any:
        return self._http.get(path).raise_for_status().json()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self._http.post(path, json=body).raise_for_status().json()

    def put_json(self, path: str, body: dict[str, Any]) -> Any:
        return self._http.put(path, json=body).raise_for_status().json()

    def delete(self, path: str) -> None:
        self._http.delete(path).raise_for_status()

    def make(
        self, html: str | None = MINIMAL_PAGE, spec: dict[str, Any] = COCKPIT_SPEC, **assets: str
    ) -> str:
        name = f"c-{secrets.token_hex(4)}"
        files = {
            **({} if html is None else {"assets/index.html": html}),
            **{path.replace("__", "/"): text for path, text in assets.items()},
        }
        self.rpc("canvas.create", canvasId=name, title=f"Canvas {name}", spec=spec, assets=files)
        return name

    def put(self, name: str, path: str, text: str) -> None:
        self.rpc("canvas.asset.put", canvasId=name, path=path, text=text)

    def patch(self, name: str, path: str, value: Any) -> None:
        self.rpc("canvas.patch", canvasId=name, statePatch=[{"op": "add", "path": path, "value": value}])

    async def as_agent(self, **args: Any) -> None:
        """Call the tool gsv__Canvas in a run of the scripted model."""
        script = {"script": [{"call": "gsv__Canvas", "args": args}, {"say": "made"}]}
        run_id = self.post("/api/runs", {"session_id": "author", "message": json.dumps(script)})["run_id"]
        await self.until(lambda: self.get(f"/api/runs/{run_id}")["status"] == "completed", "the agent's run")

    def state(self, name: str) -> dict[str, Any]:
        return self.rpc("canvas.get", canvasId=name)["state"]

    def records(self, name: str) -> list[dict[str, Any]]:
        return self.rpc("canvas.records", canvasId=name)["records"]

    def audit(self, action: str, subject: str) -> list[dict[str, Any]]:
        found = self._http.get("/api/audit", params={"action": action, "limit": 200}).json()["records"]
        return [record["details"] for record in found if record.get("subject") == subject]

    async def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Poll until the condition returns a true value, and return it."""
        end = asyncio.get_running_loop().time() + TIMEOUT_SECONDS
        while not (found := condition()):
            assert asyncio.get_running_loop().time() < end, f"not within {TIMEOUT_SECONDS} s: {what}"
            await asyncio.sleep(0.05)
        return found


async def sign_in(context: BrowserContext, server: Easel, base_url: str | None = None) -> None:
    """Sign in: the cookies of this request are those of the browser context."""
    await context.request.get(f"{base_url or server.base_url}/?token={server.token}")


async def open_canvas(page: Page, server: Easel, name: str, *, base_url: str | None = None) -> FrameLocator:
    """Sign in, open the canvas's page, wait until it is connected, and return its frame."""
    await sign_in(page.context, server, base_url)
    await page.goto(f"{base_url or server.base_url}/canvas/main/{name}")
    await expect(page.locator("#link")).to_have_text("connected")
    return canvas_frame(page)


async def open_tab(tab: Tab, server: Easel, name: str, *, base_url: str | None = None) -> None:
    """Open a canvas in a tab of any browser, sign in if necessary, and wait until its page is loaded."""
    base_url = base_url or server.base_url
    await tab.goto(f"{base_url}/canvas/main/{name}")
    if await tab.evaluate("!document.body.classList.contains('shell')"):
        await tab.fill("input[name=token]", server.token)
        await tab.click("form button")
    await wait_in(tab, "document.querySelector('#link')?.textContent === 'connected'")
    await wait_in(tab, LOADED, frame=True)


def canvas_frame(page: Page) -> FrameLocator:
    return page.frame_locator("#stage iframe")


async def wait_in_frame(frame: Frame, expression: str) -> None:
    """Poll until the expression is true in the frame. (The policy forbids the eval of Playwright.)"""
    end = asyncio.get_running_loop().time() + TIMEOUT_SECONDS
    while not await frame.evaluate(expression):
        assert asyncio.get_running_loop().time() < end, f"not within {TIMEOUT_SECONDS} s: {expression}"
        await asyncio.sleep(0.02)


async def evaluate_promise(target: Page | Frame, expression: str) -> Any:
    """Return the value of a promise, within the timeout."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return await target.evaluate(expression)


async def loaded_frame(page: Page) -> Frame:
    element = await page.locator("#stage iframe").element_handle()
    assert element
    frame = await element.content_frame()
    assert frame
    await frame.wait_for_load_state("load")
    await wait_in_frame(frame, LOADED)
    return frame


async def expect_idle(trigger: Locator) -> None:
    """Wait until the element can be clicked again: its result may be shown before the answer arrives."""
    await expect(trigger).not_to_have_attribute("aria-busy", "true")


async def expect_saved(frame: FrameLocator) -> None:
    """Wait until the page knows that all entries are saved. Leaving earlier opens a browser dialog."""
    await expect(frame.locator("[data-gsv-unsaved]")).to_have_count(0)


async def pause_timers(page: Page) -> Callable[[], Awaitable[None]]:
    """Hold all timers of the frame, so that entries are not sent. Returns a function that runs them."""
    frame = await loaded_frame(page)
    await frame.evaluate(
        "() => { window.later = []; window.realTimeout = setTimeout; window.setTimeout = (work) => "
        "later.push(work) }"
    )

    async def release() -> None:
        await frame.evaluate("() => { window.setTimeout = realTimeout; for (const work of later) work() }")

    return release


def make_hostile_canvas(api: CanvasApi, text: str, **more: Any) -> str:
    """Create a canvas whose page runs this script."""
    name = api.make(f"{EMPTY_PAGE}<script src='index.js'></script>", **more)
    api.put(name, "assets/index.js", text)
    return name


SCROLL_TO_THE_END = """async (name) => {
  const panel = document.getElementById(name);
  for (let y = 0; y <= panel.scrollHeight; y += Math.max(40, panel.clientHeight / 3)) {
    panel.scrollTo(0, y);
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  }
}"""


async def read_to_the_end(page: Page, scrolled: str = "accept", button: str = "accept-now") -> None:
    """Scroll a panel or dialog down step by step, as a person who reads it, until its button is enabled.

    A panel that is drawn again in between is read again.
    """

    async def is_enabled() -> bool:
        await page.evaluate(SCROLL_TO_THE_END, scrolled)
        return (
            await page.locator(f"#{scrolled} dd").count() > 0
            and await page.locator(f"#{button}").is_enabled()
        )

    await wait_for(is_enabled, what=f"#{button} is enabled")
