"""Serves one vendor's API on loopback: real HTTP and SSE, with scripted answers and strict checks.

with serve(AnthropicVendor(), [Answer(text="Hello")]) as server:
    ... server.base_url, server.requests, server.disconnected ...
"""

import asyncio
import concurrent.futures
import json
import socket
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse

from tests.llm.vendors.answers import Answer
from tests.llm.vendors.checks import Rejected

KEY = "sk-test-0123456789abcdef"
WAIT_SECONDS = 60


class Vendor(Protocol):
    path: str  # of the API below the server's address

    def is_for(self, path: str) -> bool: ...

    def has_key(self, headers: Any, key: str) -> bool: ...

    def knows_model(self, path: str, body: dict[str, Any]) -> bool: ...

    def check(self, body: dict[str, Any]) -> None:
        """Raise `Rejected` for a request that the vendor refuses."""
        ...

    def events(self, body: dict[str, Any], answer: Answer) -> list[bytes]:
        """Return the answer as server-sent events, and remember it."""
        ...

    def error(self, status: int, message: str) -> dict[str, Any]: ...

    def overload(self) -> bytes:
        """Return the event by which the vendor says in the middle of an answer that it is overloaded."""
        ...


class _Server(uvicorn.Server):
    """Ends at once. uvicorn looks every tenth of a second whether it should, and waits as long again."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._running = concurrent.futures.Future[asyncio.AbstractEventLoop]()
        self._ended = asyncio.Event()

    def end(self) -> None:
        self._running.result(WAIT_SECONDS).call_soon_threadsafe(self._ended.set)

    async def main_loop(self) -> None:
        self._running.set_result(asyncio.get_running_loop())
        await self._ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in [*self.server_state.connections]:
            connection.shutdown()


class VendorServer:
    def __init__(
        self, vendor: Vendor, answers: Sequence[Answer] = (), *, key: str = KEY, port: int = 0
    ) -> None:
        self.vendor = vendor
        self.answers = deque(answers)
        self.requests: list[dict[str, Any]] = []  # the bodies of all requests, also refused ones
        self.headers: list[dict[str, str]] = []
        self.rejections: list[str] = []
        self.times: list[float] = []
        self.faults: list[str] = []  # of this server, not of the client
        self.disconnected = threading.Event()  # a client left while it was being answered
        self.hanging = threading.Event()  # the server waits in the middle of an answer
        self._key = key
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self._server = _Server(
            uvicorn.Config(self._app, interface="asgi3", log_level="critical", lifespan="off")
        )
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.vendor.path}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.end()
        self._thread.join(WAIT_SECONDS)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._serve(scope, receive, send)
        except ConnectionError:
            raise
        except Exception:
            self.faults.append(traceback.format_exc())
            raise

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        self.times.append(asyncio.get_running_loop().time())
        body: dict[str, Any] = json.loads(await request.body() or b"{}")
        vendor = self.vendor
        if not vendor.is_for(request.url.path) or not vendor.knows_model(request.url.path, body):
            error = vendor.error(404, "model: not found")
            await JSONResponse(error, 404)(scope, receive, send)
            return
        if not vendor.has_key(request.headers, self._key):
            error = vendor.error(401, f"Incorrect API key provided: {self._key[:9]}")
            await JSONResponse(error, 401)(scope, receive, send)
            return
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        try:
            vendor.check(body)
        except Rejected as problem:
            self.rejections.append(problem.message)
            error = vendor.error(problem.status, problem.message)
            await JSONResponse(error, problem.status)(scope, receive, send)
            return
        answer = self.answers.popleft() if self.answers else Answer(text="Done.")
        if answer.status != 200:
            headers = {"retry-after": answer.retry_after} if answer.retry_after else {}
            error = vendor.error(answer.status, answer.message)
            await JSONResponse(error, answer.status, headers)(scope, receive, send)
            return
        await self._stream(vendor.events(body, answer), answer, receive, send)

    async def _stream(self, events: list[bytes], answer: Answer, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"set-cookie", b"user=first")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number, event in enumerate(events):
            if number == answer.cut_after:
                raise ConnectionError("cut as the script says")  # uvicorn closes without the end of the body
            if number == answer.fails_after:
                await send({"type": "http.response.body", "body": self.vendor.overload()})
                return
            if number == answer.hangs_after:
                self.hanging.set()
                while (await receive())["type"] != "http.disconnect":
                    pass
                self.disconnected.set()
                return
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@contextmanager
def serve(vendor: Vendor, answers: Sequence[Answer] = (), *, key: str = KEY) -> Iterator[VendorServer]:
    server = VendorServer(vendor, answers, key=key)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        assert not server.faults, "\n".join(server.faults)


def to_event(data: str, event: str | None = None) -> bytes:
    return (f"event: {event}\n" if event else "").encode() + f"data: {data}\n\n".encode()
