"""The node's side of the gateway: connects, declares its tools, runs calls, and reconnects.

Owns the connection and the messages to the user of the command. Ends when it is stopped, when the server
refuses the node for good, or when another node connects with its id. Unknown frames are logged and ignored.
"""

import asyncio
import contextlib
import platform
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI, WebSocketException

from easel import __version__
from easel.core.tool.definition import ToolDefinition
from easel.core.web.hosts import is_loopback
from easel.errors import BadSettings
from easel.node.backoff import Backoff
from easel.node.calls import CallLimits, Calls, UsableTool

# Interval of pings, below the idle timeout of common proxies; also the time in which a pong must arrive.
HEARTBEAT_SECONDS = 5.0
OPEN_SECONDS = 10.0
CLOSE_SECONDS = 2.0
MAX_FRAME_BYTES = 16_777_216
PERMANENT = frozenset({102, 103, 400, 403, 404, 413})  # codes of refusals that a retry cannot change
NOT_SIGNED_IN = 401
DONE, REPLACED = 1000, "Replaced"

Report = Callable[[str], None]

log = structlog.get_logger("node")


class _Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _NoRedirects(connect):
    """Follows no redirect: the token is sent to the given address only."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


@dataclass(frozen=True, slots=True)
class NodeClient:
    url: str
    node_id: str
    tools: Sequence[UsableTool]
    report: Report
    token: str = field(repr=False)
    heartbeat_seconds: float = HEARTBEAT_SECONDS

    async def run(self, stop: asyncio.Event) -> None:
        """Stay connected until `stop` is set. Raises `BadSettings` if a retry cannot succeed."""
        backoff = Backoff()
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                reason = await self._connect_once(stopping, backoff)
                if stop.is_set():
                    break
                seconds = backoff.next_delay(random.random())  # noqa: S311 - jitter needs no secure random
                self.report(f"{reason} Retrying in {seconds:.1f} s until it succeeds; press Ctrl-C to stop.")
                await asyncio.wait([stopping], timeout=seconds)
        finally:
            stopping.cancel()

    async def _connect_once(self, stopping: "asyncio.Task[Any]", backoff: Backoff) -> str:
        """Connect and serve until the connection ends. Returns why it ended."""
        now = asyncio.get_running_loop().time
        started_at = now()
        try:
            async with self._open() as socket:
                limits = await self._handshake(socket)
                names = ", ".join(tool.definition.name for tool in self.tools)
                self.report(
                    f"Connected to {self.url} as {self.node_id}, with {len(self.tools)} tools: {names}."
                )
                return await _Connection(socket, self.tools, limits).serve(stopping)
        except _Refused as problem:
            if problem.code in PERMANENT:
                raise BadSettings(problem=f"The server refused this node: {problem}") from None
            if problem.code == NOT_SIGNED_IN:
                backoff.use_max_delay()
                command = "easel token create --user owner --kind node"
                return f"The server does not know this token; create one with `{command}`."
            return f"The server refused: {problem}"
        except ConnectionClosed as problem:
            closed = problem.rcvd
            if closed is not None and closed.code == DONE and closed.reason.startswith(REPLACED):
                raise BadSettings(
                    problem=f"Another node has connected as {self.node_id} and replaced this one."
                ) from None
            return f"The connection to {self.url} ended ({_close_reason(problem)})."
        except InvalidURI as problem:
            raise BadSettings(problem=str(problem)) from None
        except (OSError, TimeoutError, InvalidHandshake, WebSocketException) as problem:
            return f"No connection to {self.url} ({_short_message(problem)})."
        finally:
            backoff.note_connection(now() - started_at)

    def _open(self) -> connect:
        return _NoRedirects(
            self.url,
            # Without a token in the upgrade request, a server takes only a short list of tools.
            additional_headers={"Authorization": f"Bearer {self.token}"},
            compression=None,
            open_timeout=OPEN_SECONDS,
            close_timeout=CLOSE_SECONDS,
            ping_interval=self.heartbeat_seconds,
            ping_timeout=self.heartbeat_seconds,
            max_size=MAX_FRAME_BYTES,
            user_agent_header=f"easel-node/{__version__}",
            proxy=None if is_loopback(urlsplit(self.url).hostname or "") else True,
        )

    async def _handshake(self, socket: ClientConnection) -> CallLimits:
        """Send `connect` and return the limits of the server. Raises `_Refused`."""
        params = {
            "minProtocol": 1,
            "maxProtocol": 1,
            "client": {
                "id": self.node_id,
                "version": __version__,
                "platform": platform.system().lower(),
                "mode": "node",
            },
            "tools": [_declare(tool.definition) for tool in self.tools],
            "auth": {"token": self.token},
        }
        await socket.send(_encode("connect", params, "0"))
        async with asyncio.timeout(OPEN_SECONDS):
            while True:
                frame = _decode(await socket.recv())
                if frame.get("type") == "res" and frame.get("id") == "0":
                    break
        if frame.get("ok") is not True:
            error = _to_object(frame.get("error"))
            code = error.get("code")
            raise _Refused(code if isinstance(code, int) else 500, str(error.get("message", ""))[:500])
        limits = _to_object(_to_object(frame.get("payload")).get("limits"))
        fields = {"frameBytes": "frame_bytes", "resultBytes": "result_bytes"}
        return CallLimits(
            **{
                fields[name]: size
                for name, size in limits.items()
                if name in fields and isinstance(size, int)
            }
        )


class _Connection:
    """An open connection: receives frames, and runs the calls that they request."""

    def __init__(self, socket: ClientConnection, tools: Sequence[UsableTool], limits: CallLimits) -> None:
        self._socket = socket
        self._numbers = count(1)
        self._calls = Calls(tools, self._send, limits)

    async def serve(self, stopping: "asyncio.Task[Any]") -> str:
        receiving = asyncio.create_task(self._receive())
        try:
            await asyncio.wait([receiving, stopping], return_when=asyncio.FIRST_COMPLETED)
            if receiving.done():
                await receiving  # raises the exception that ended the connection
            return "Stopped."
        finally:
            receiving.cancel()
            await self._calls.close()
            await asyncio.gather(receiving, return_exceptions=True)

    async def _receive(self) -> None:
        while True:
            frame = _decode(await self._socket.recv())
            try:
                self._handle(frame)
            except Exception:
                log.exception("node.frame_error")

    def _handle(self, frame: Mapping[str, Any]) -> None:
        payload = _to_object(frame.get("payload"))
        match frame.get("type"), frame.get("event"), payload.get("callId"):
            case "evt", "tool.invoke", str(call_id) if isinstance(payload.get("tool"), str):
                self._calls.start(
                    call_id, payload["tool"], _to_object(payload.get("args")), _to_object(payload.get("env"))
                )
            case "evt", "tool.cancel", str(call_id):
                self._calls.cancel(call_id)
            case "res", _, _:
                if frame.get("ok") is not True:
                    log.warning("node.request_refused", error=_to_object(frame.get("error")))
            case kind, event, _:
                log.warning("node.unknown_frame", type=str(kind)[:50], event_name=str(event)[:50])

    async def _send(self, method: str, params: Mapping[str, Any]) -> None:
        with contextlib.suppress(ConnectionClosed):  # the server has ended the call already
            await self._socket.send(_encode(method, params, str(next(self._numbers))))


def _declare(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": dict(tool.schema),
        "annotations": {
            "readOnlyHint": tool.read_only,
            "idempotentHint": tool.idempotent,
            "destructiveHint": tool.destructive,
        },
    }


def _encode(method: str, params: Mapping[str, Any], id_: str) -> str:
    return msgspec.json.encode({"type": "req", "id": id_, "method": method, "params": params}).decode()


def _decode(frame: str | bytes) -> Mapping[str, Any]:
    """Return the frame, or an empty one if it is not a JSON object."""
    try:
        return _to_object(msgspec.json.decode(frame)) if isinstance(frame, str) else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def _to_object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _close_reason(problem: ConnectionClosed) -> str:
    closed = problem.rcvd or problem.sent
    if closed is None:
        return "no close frame"
    return closed.reason or f"code {closed.code}"


def _short_message(problem: BaseException) -> str:
    return (str(problem) or type(problem).__name__)[:200]
