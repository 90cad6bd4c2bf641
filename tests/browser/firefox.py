"""Debian's Firefox, driven by WebDriver BiDi: Playwright drives only its own build.

Owns the process, its profile, the WebSocket of `--remote-debugging-port`, and the verbs of
`tests.browser.tabs`. BiDi: https://w3c.github.io/webdriver-bidi/.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.browser.console import TIMEOUT_SECONDS
from tests.browser.tabs import FRAME, EvaluationFailed

START_SECONDS = 60
MAX_MESSAGE_BYTES = 50_000_000
_LISTENING = re.compile(rb"WebDriver BiDi listening on (ws://\S+)")
# A browser that contacts nothing but the tests' own servers, and in which WebRTC reaches loopback.
PREFERENCES: dict[str, bool | int | str] = {
    "app.normandy.enabled": False,
    "app.update.disabledForTesting": True,
    "browser.region.network.url": "",
    "browser.safebrowsing.update.enabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.systemAddon.update.enabled": False,
    "media.peerconnection.ice.loopback": True,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,",
    "toolkit.telemetry.enabled": False,
}
_ENTER_TEXT = """(field) => {
  field.focus();
  if (field.select) field.select();
}"""


class BidiConnection:
    """Sends commands and resolves their answers. Events are ignored."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader = asyncio.create_task(self._read())

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a command. Raises EvaluationFailed if the browser refuses it."""
        number = next(self._ids)
        answer = self._pending[number] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        async with asyncio.timeout(TIMEOUT_SECONDS):
            found = await answer
        if found["type"] == "error":
            raise EvaluationFailed(f"{method}: {found['error']}: {found['message']}")
        return found["result"]

    async def close(self) -> None:
        self._reader.cancel()
        await self._socket.close()

    async def _read(self) -> None:
        async for text in self._socket:
            message = json.loads(text)
            if (answer := self._pending.pop(message.get("id"), None)) is not None and not answer.done():
                answer.set_result(message)


class FirefoxTab:
    def __init__(self, bidi: BidiConnection, context: str) -> None:
        self._bidi = bidi
        self._context = context

    async def goto(self, address: str) -> None:
        await self._bidi.call("browsingContext.navigate", context=self._context, url=address, wait="complete")

    async def evaluate(self, expression: str, *, frame: bool = False) -> Any:
        # As JSON text: BiDi encodes values in its own way.
        text = f"(async () => JSON.stringify(await ({expression}) ?? null))()"
        found = await self._evaluate(await self._target(frame=frame), text)
        return json.loads(found["value"])

    async def click(self, selector: str, *, frame: bool = False) -> None:
        target = await self._target(frame=frame)
        element = await self._find(target, selector)
        pointer = [
            {"type": "pointerMove", "x": 0, "y": 0, "origin": {"type": "element", "element": element}},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        await self._act(target, {"type": "pointer", "id": "mouse", "actions": pointer})

    async def fill(self, selector: str, text: str, *, frame: bool = False) -> None:
        target = await self._target(frame=frame)
        element = await self._find(target, selector)
        await self._bidi.call(
            "script.callFunction",
            functionDeclaration=_ENTER_TEXT,
            arguments=[element],
            target={"context": target},
            awaitPromise=False,
        )
        keys = [{"type": kind, "value": letter} for letter in text for kind in ("keyDown", "keyUp")]
        await self._act(target, {"type": "key", "id": "keyboard", "actions": keys})

    async def close(self) -> None:
        await self._bidi.call("browsingContext.close", context=self._context, promptUnload=False)

    async def _target(self, *, frame: bool) -> str:
        """Return the browsing context of the tab, or of the frame of the canvas's page."""
        if not frame:
            return self._context
        text = f"document.querySelector({json.dumps(FRAME)})?.contentWindow"
        found = await self._evaluate(self._context, text)
        if found["type"] != "window":
            raise EvaluationFailed("there is no frame yet")
        return found["value"]["context"]

    async def _evaluate(self, target: str, expression: str) -> dict[str, Any]:
        found = await self._bidi.call(
            "script.evaluate", expression=expression, target={"context": target}, awaitPromise=True
        )
        if found["type"] == "exception":
            raise EvaluationFailed(found["exceptionDetails"]["text"])
        return found["result"]

    async def _find(self, target: str, selector: str) -> dict[str, Any]:
        """Wait until the element exists, and return a reference to it."""
        end = asyncio.get_running_loop().time() + TIMEOUT_SECONDS
        text = f"document.querySelector({json.dumps(selector)})"
        while (found := await self._evaluate(target, text))["type"] != "node":
            assert asyncio.get_running_loop().time() < end, f"no {selector} within {TIMEOUT_SECONDS} s"
            await asyncio.sleep(0.05)
        await self._evaluate(target, f"{text}.scrollIntoView({{ block: 'nearest' }})")
        return {"sharedId": found["sharedId"]}

    async def _act(self, target: str, source: dict[str, Any]) -> None:
        await self._bidi.call("input.performActions", context=target, actions=[source])


class FirefoxWindow:
    def __init__(self, bidi: BidiConnection, user_context: str) -> None:
        self._bidi = bidi
        self._user_context = user_context

    async def new_tab(self) -> FirefoxTab:
        made = await self._bidi.call("browsingContext.create", type="tab", userContext=self._user_context)
        return FirefoxTab(self._bidi, made["context"])

    async def count_tabs(self) -> int:
        tree = await self._bidi.call("browsingContext.getTree", maxDepth=0)
        return sum(one["userContext"] == self._user_context for one in tree["contexts"])

    async def close(self) -> None:
        await self._bidi.call("browser.removeUserContext", userContext=self._user_context)


class Firefox:
    def __init__(self, process: asyncio.subprocess.Process, bidi: BidiConnection, profile: Path) -> None:
        self._process = process
        self._bidi = bidi
        self._profile = profile

    @classmethod
    async def launch(cls, program: Path) -> Firefox:
        profile = Path(tempfile.mkdtemp(prefix="easel-firefox-"))
        lines = (
            f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in PREFERENCES.items()
        )
        (profile / "user.js").write_text("".join(lines))
        arguments = ["--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port", "0"]
        # An unpacked package has its libraries beside it.
        libraries = os.pathsep.join(map(str, [program.parent, *program.parent.parent.glob("*-linux-gnu")]))
        process = await asyncio.create_subprocess_exec(
            program,
            *arguments,
            env={**os.environ, "HOME": str(profile), "LD_LIBRARY_PATH": libraries},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        address = await _read_address(process)
        socket = await connect(f"{address}/session", max_size=MAX_MESSAGE_BYTES, proxy=None)
        bidi = BidiConnection(socket)
        await bidi.call("session.new", capabilities={})
        return cls(process, bidi, profile)

    async def new_window(self) -> FirefoxWindow:
        made = await self._bidi.call("browser.createUserContext")
        return FirefoxWindow(self._bidi, made["userContext"])

    async def close(self) -> None:
        with contextlib.suppress(EvaluationFailed, TimeoutError):
            await self._bidi.call("browser.close")
        await self._bidi.close()
        try:
            await asyncio.wait_for(self._process.wait(), TIMEOUT_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)


async def _read_address(process: asyncio.subprocess.Process) -> str:
    """Return the address that Firefox prints. Its later output is read and dropped."""
    assert process.stderr
    printed = b""
    async with asyncio.timeout(START_SECONDS):
        while line := await process.stderr.readline():
            printed += line
            if found := _LISTENING.search(line):
                drain = asyncio.create_task(_drain(process.stderr))
                drain.add_done_callback(lambda task: task.cancelled() or task.exception())
                return found[1].decode()
    raise AssertionError(f"Firefox did not start: {printed.decode(errors='replace')}")


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(65536):
        pass
