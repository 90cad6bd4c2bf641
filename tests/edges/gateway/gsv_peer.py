"""A client or node of GSV's shape, and the transcript of its session.

Owns the frames as GSV's own programs send them: UUIDs as request ids, `auth` from a token that may be absent,
no member that GSV does not know. The transcript has each frame in the order in which the script sends or
reads it, with ids and times replaced by names, so that it can be compared with a recorded one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect

from tests.support.gateway import FRAME_BYTES, WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_IDS = re.compile(r"\b(?:con|view|evt|call|ref)_[0-9a-z_]+\b")
_TIMES = re.compile(r"\b1[0-9]{12}\b")
MAX_SHOWN_LENGTH = 300  # characters of a text in a transcript


class Transcript:
    """The frames of a session, one line each: who, `→` for sent or `←` for received, and the frame."""

    def __init__(self, **words: str) -> None:
        self._lines: list[str] = []
        self._names: dict[str, str] = {}
        self._words = words  # texts that differ between runs, by the name that replaces them

    def add(self, who: str, arrow: str, frame: dict[str, Any]) -> None:
        shown = {name: value for name, value in frame.items() if name not in ("type", "id")}
        payload = shown.get("payload")
        if isinstance(payload, dict) and payload.get("type") == "hello-ok":
            shown["payload"] = {**payload, "features": "…", "server": "…"}
        text = json.dumps(_shorten(shown), ensure_ascii=False)
        for name, word in self._words.items():
            text = text.replace(word, f"<{name}>")
        text = _TIMES.sub('"<time>"', _IDS.sub(self._name, text))
        self._lines.append(f"{who} {arrow} {frame['type']} {text}")

    def _name(self, found: re.Match[str]) -> str:
        kind = found[0].partition("_")[0]
        count = sum(name.startswith(f"<{kind} ") for name in self._names.values())
        return self._names.setdefault(found[0], f"<{kind} {count + 1}>")

    def check(self, recorded: Path) -> None:
        """Compare with a recorded transcript; EASEL_RECORD=1 records it."""
        text = "\n".join(self._lines) + "\n"
        if os.environ.get("EASEL_RECORD") == "1":
            recorded.write_text(text, encoding="utf-8")
        assert text.splitlines() == recorded.read_text(encoding="utf-8").splitlines()


def _shorten(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shorten(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shorten(item) for item in value]
    if isinstance(value, str) and len(value) > MAX_SHOWN_LENGTH:
        return f"{value[:20]}… ({len(value)} characters)"
    return value


class GsvPeer:
    def __init__(self, socket: ClientConnection, who: str, transcript: Transcript) -> None:
        self.socket = socket
        self._who = who
        self._transcript = transcript
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, base_url: str, who: str, transcript: Transcript, query: str = ""
    ) -> AsyncIterator[GsvPeer]:
        address = f"ws://{urlsplit(base_url).netloc}/ws{query}"
        async with connect(address, proxy=None, max_size=FRAME_BYTES) as socket:
            peer = cls(socket, who, transcript)
            try:
                yield peer
            finally:
                peer._reading.cancel()
                await asyncio.gather(peer._reading, return_exceptions=True)

    async def connect(
        self, client: dict[str, Any], auth: dict[str, Any] | None, **more: Any
    ) -> dict[str, Any]:
        params = {"minProtocol": 1, "maxProtocol": 1, "client": client, **more}
        return await self.call("connect", {**params, **({} if auth is None else {"auth": auth})})

    async def call(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the complete response."""
        return await self.answer(await self.send(method, params))

    async def send(self, method: str, params: dict[str, Any] | None = None) -> str:
        request_id = str(uuid.uuid4())
        frame = {"type": "req", "id": request_id, "method": method}
        frame |= {} if params is None else {"params": params}
        self._answers[request_id] = asyncio.get_running_loop().create_future()
        self._transcript.add(self._who, "→", frame)
        await self.socket.send(json.dumps(frame))
        return request_id

    async def answer(self, request_id: str) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_SECONDS):
            response = await self._answers[request_id]
        self._transcript.add(self._who, "←", response)
        return response

    async def event(self) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_SECONDS):
            event = await self._events.get()
        self._transcript.add(self._who, "←", event)
        return event

    @property
    def unread_events(self) -> int:
        return self._events.qsize()

    async def _read(self) -> None:
        async for text in self.socket:
            frame = json.loads(text)
            if frame["type"] == "evt":
                self._events.put_nowait(frame)
            else:
                self._answers[frame["id"]].set_result(frame)
