"""A strict client of Easel's gateway, `/ws`, over a real socket.

Owns the contract of one connection: text frames, each a `res` with the id of a request (or null) or an `evt`.
A broken contract raises `ContractBroken`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.support.sse import CONNECT_SECONDS
from tests.support.strict import ContractBroken, check_frame, check_result

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WAIT_SECONDS = 60.0
# A machine may pause for a few seconds; a longer wait is a hang.
FRAME_BYTES = 64 * 1024 * 1024


class Refused(Exception):
    """A `res` that is not ok."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error))
        self.error = error
        self.code: int = error["code"]
        self.details: dict[str, Any] = error.get("details", {})


@dataclass(frozen=True, slots=True)
class Heard:
    event: str
    payload: dict[str, Any]
    seq: int | None


class GatewayClient:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.hello: dict[str, Any] = {}
        self.strays: list[dict[str, Any]] = []  # answers with the id of no open request
        self._asked: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._events: asyncio.Queue[Heard] = asyncio.Queue()
        self._stray_came = asyncio.Event()
        self._numbers = itertools.count(1)
        self._reading = asyncio.create_task(self._read())

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, base_url: str, token: str | None, *, query: str = "", **headers: str
    ) -> AsyncIterator[GatewayClient]:
        """Open the socket without sending `connect`. The token goes by header; None sends none."""
        given = ({} if token is None else {"Authorization": f"Bearer {token}"}) | headers
        socket = await connect(
            f"ws://{urlsplit(base_url).netloc}/ws{query}",
            additional_headers=given,
            compression=None,
            open_timeout=CONNECT_SECONDS,
            ping_interval=None,
            max_size=FRAME_BYTES,
            max_queue=None,
            proxy=None,
        )
        client = cls(socket)
        try:
            yield client
        finally:
            socket.transport.abort()
            await socket.wait_closed()
            await client._reading

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(
        cls, base_url: str, token: str, client_id: str = "test"
    ) -> AsyncIterator[GatewayClient]:
        async with cls.open(base_url, token) as client:
            await client.connect(client_id)
            yield client

    async def connect(
        self, client_id: str = "test", *, token: str | None = None, **changed: Any
    ) -> dict[str, Any]:
        params: dict[str, Any] = {
            "minProtocol": 1,
            "maxProtocol": 1,
            "client": {
                "id": client_id,
                "version": "1",
                "platform": "test",
                "mode": changed.pop("mode", "client"),
            },
            **({} if token is None else {"auth": {"token": token}}),
            **changed,
        }
        self.hello = await self.ask("connect", params)
        return self.hello

    async def call(self, method: str, **params: Any) -> Any:
        return await self.ask(method, params)

    async def ask(self, method: str, params: Any = None) -> Any:
        id_ = str(next(self._numbers))
        answer = self._asked[id_] = asyncio.get_running_loop().create_future()
        await self.send({"type": "req", "id": id_, "method": method, "params": params})
        async with asyncio.timeout(WAIT_SECONDS):
            res = await answer
        if not res["ok"]:
            raise Refused(res["error"])
        check_result(method, res["payload"])
        return res["payload"]

    async def refusal(self, method: str, params: Any = None) -> Refused | None:
        """Return the error of a refused request."""
        try:
            await self.ask(method, params)
        except Refused as problem:
            return problem
        return None

    async def send(self, frame: Any) -> None:
        await self.socket.send(frame if isinstance(frame, (str, bytes)) else json.dumps(frame))

    async def stray(self) -> dict[str, Any]:
        """Return the next answer to a frame that was sent by hand."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not self.strays:
                self._stray_came.clear()
                await self._stray_came.wait()
        return self.strays.pop(0)

    async def event(self) -> Heard:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._events.get()

    async def events(self, count: int) -> list[Heard]:
        return [await self.event() for _ in range(count)]

    @property
    def unheard(self) -> int:
        return self._events.qsize()

    async def closed(self) -> tuple[int | None, str | None]:
        """Return how the server closed the connection."""
        async with asyncio.timeout(WAIT_SECONDS):
            await self.socket.wait_closed()
        return self.socket.close_code, self.socket.close_reason

    async def _read(self) -> None:
        try:
            with contextlib.suppress(ConnectionClosed):
                while True:
                    self._take(await self.socket.recv())
        finally:  # fail pending requests: their answers cannot arrive
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(EOFError("the connection ended"))
                    answer.exception()

    def _take(self, frame: str | bytes) -> None:
        if isinstance(frame, bytes):
            raise ContractBroken(f"a binary frame: {frame[:100]!r}")
        said = json.loads(frame)
        check_frame(said)
        match said["type"]:
            case "res":
                if (answer := self._asked.pop(said["id"], None)) is not None:
                    if not answer.done():  # otherwise the caller has timed out
                        answer.set_result(said)
                else:
                    self.strays.append(said)
                    self._stray_came.set()
            case _:
                self._events.put_nowait(Heard(said["event"], said["payload"], said.get("seq")))
