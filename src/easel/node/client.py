"""The node's side of the gateway: connects outward, says what it offers, does what it is asked, and comes
back for ever.

Owns the connection and the words for people. It ends when it is told to stop, when the server will never take
it as it is, or when another node has taken its name. A frame that it does not understand is passed over.
"""

import asyncio
import contextlib
import platform
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

import msgspec
import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI, WebSocketException

from easel import __version__
from easel.core.tool.definition import ToolDefinition
from easel.errors import BadSettings
from easel.node.address import is_loopback
from easel.node.backoff import Backoff
from easel.node.calls import CallLimits, Calls, MachineTool

HEARTBEAT_SECONDS = (
    5.0  # more often than any proxy's idle limit; a connection without an answer for as long is dead
)
OPEN_SECONDS = 10.0
CLOSE_SECONDS = 2.0
MAX_BYTES = 16_777_216  # of one frame
NEVER = frozenset({102, 103, 400, 403, 404, 413})  # refusals of what we are, not of the moment
NOT_SIGNED_IN = 401
DONE, REPLACED = 1000, "Replaced"

Tell = Callable[[str], None]

log = structlog.get_logger("node")


class _Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _NoRedirects(connect):
    """The token goes to the address that was given, and to no other that this one names."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


@dataclass(frozen=True, slots=True)
class NodeClient:
    url: str
    node_id: str
    tools: Sequence[MachineTool]
    tell: Tell
    token: str = field(repr=False)
    heartbeat_seconds: float = HEARTBEAT_SECONDS

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. Raises `BadSettings` where trying again is of no use."""
        patience = Backoff()
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                why = await self._once(stopping, patience)
                if stop.is_set():
                    break
                seconds = patience.next_wait(random.random())  # noqa: S311 - it spreads nodes over time, and keeps no secret
                self.tell(f"{why} Trying again in {seconds:.1f} s, and so on for ever; Ctrl-C stops it.")
                await asyncio.wait([stopping], timeout=seconds)
        finally:
            stopping.cancel()

    async def _once(self, stopping: "asyncio.Task[Any]", patience: Backoff) -> str:
        """One connection from its beginning to its end; why it ended."""
        now = asyncio.get_running_loop().time
        began = now()
        try:
            async with self._connected() as socket:
                limits = await self._greeted(socket)
                names = ", ".join(tool.definition.name for tool in self.tools)
                self.tell(
                    f"Connected to {self.url} as {self.node_id}, with {len(self.tools)} tools: {names}."
                )
                return await _Connection(socket, self.tools, limits).serve(stopping)
        except _Refused as problem:
            if problem.code in NEVER:
                raise BadSettings(problem=f"The server does not take this node: {problem}") from None
            if problem.code == NOT_SIGNED_IN:
                patience.give_time()
                return "The server does not know this token; `easel token create --user owner --kind node` makes one."
            return f"The server refused: {problem}"
        except ConnectionClosed as problem:
            if (
                problem.rcvd is not None
                and problem.rcvd.code == DONE
                and problem.rcvd.reason.startswith(REPLACED)
            ):
                raise BadSettings(
                    problem=f"Another node has connected as {self.node_id} and has taken its place; this one ends."
                ) from None
            return f"The connection to {self.url} ended ({_reason(problem)})."
        except InvalidURI as problem:
            raise BadSettings(problem=str(problem)) from None
        except (OSError, TimeoutError, InvalidHandshake, WebSocketException) as problem:
            return f"No connection to {self.url} ({_short(problem)})."
        finally:
            patience.held(now() - began)

    def _connected(self) -> connect:
        return _NoRedirects(
            self.url,
            compression=None,
            open_timeout=OPEN_SECONDS,
            close_timeout=CLOSE_SECONDS,
            ping_interval=self.heartbeat_seconds,
            ping_timeout=self.heartbeat_seconds,
            max_size=MAX_BYTES,
            user_agent_header=f"easel-node/{__version__}",
            proxy=None if is_loopback(self.url) else True,
        )

    async def _greeted(self, socket: ClientConnection) -> CallLimits:
        params = {
            "minProtocol": 1,
            "maxProtocol": 1,
            "client": {
                "id": self.node_id,
                "version": __version__,
                "platform": platform.system().lower(),
                "mode": "node",
            },
            "tools": [_declared(tool.definition) for tool in self.tools],
            "auth": {"token": self.token},
        }
        await socket.send(_frame("connect", params, "0"))
        async with asyncio.timeout(OPEN_SECONDS):
            while True:
                said = _read(await socket.recv())
                if said.get("type") == "res" and said.get("id") == "0":
                    break
        if said.get("ok") is not True:
            error = _object(said.get("error"))
            code = error.get("code")
            raise _Refused(code if isinstance(code, int) else 500, str(error.get("message", ""))[:500])
        given = _object(_object(said.get("payload")).get("limits"))
        known = {"frameBytes": "frame_bytes", "resultBytes": "result_bytes"}
        sizes = {
            known[name]: value for name, value in given.items() if name in known and isinstance(value, int)
        }
        return CallLimits(**sizes)


class _Connection:
    """Frames in, frames out, and the calls between them."""

    def __init__(self, socket: ClientConnection, tools: Sequence[MachineTool], limits: CallLimits) -> None:
        self._socket = socket
        self._numbers = count(1)
        self._calls = Calls(tools, self._say, limits)

    async def serve(self, stopping: "asyncio.Task[Any]") -> str:
        hearing = asyncio.create_task(self._on_notification())
        try:
            await asyncio.wait([hearing, stopping], return_when=asyncio.FIRST_COMPLETED)
            if hearing.done():
                await hearing  # raises how the connection ended
            return "Stopped."
        finally:
            hearing.cancel()
            await self._calls.close()
            await asyncio.gather(hearing, return_exceptions=True)

    async def _on_notification(self) -> None:
        while True:
            said = _read(await self._socket.recv())
            try:
                self._take(said)
            except Exception:
                log.exception("node.frame_error")

    def _take(self, said: Mapping[str, Any]) -> None:
        payload = _object(said.get("payload"))
        match said.get("type"), said.get("event"), payload.get("callId"):
            case "evt", "tool.invoke", str(call_id) if isinstance(payload.get("tool"), str):
                self._calls.begin(call_id, payload["tool"], _object(payload.get("args")))
            case "evt", "tool.cancel", str(call_id):
                self._calls.cancel(call_id)
            case "res", _, _:
                if said.get("ok") is not True:
                    log.warning("node.refused", error=_object(said.get("error")))
            case kind, event, _:
                log.warning("node.not_understood", type=str(kind)[:50], event_name=str(event)[:50])

    async def _say(self, method: str, params: Mapping[str, Any]) -> None:
        with contextlib.suppress(ConnectionClosed):  # whoever asked has gone with it
            await self._socket.send(_frame(method, params, str(next(self._numbers))))


def _declared(tool: ToolDefinition) -> dict[str, Any]:
    notes = {
        "readOnlyHint": tool.read_only,
        "idempotentHint": tool.idempotent,
        "destructiveHint": tool.destructive,
    }
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": dict(tool.schema),
        "annotations": notes,
    }


def _frame(method: str, params: Mapping[str, Any], id_: str) -> str:
    return msgspec.json.encode({"type": "req", "id": id_, "method": method, "params": params}).decode()


def _read(frame: str | bytes) -> Mapping[str, Any]:
    """What is no frame of the gateway is an empty one."""
    try:
        return _object(msgspec.json.decode(frame)) if isinstance(frame, str) else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _reason(problem: ConnectionClosed) -> str:
    if problem.rcvd is None:
        return (
            "without a word" if problem.sent is None else problem.sent.reason or f"code {problem.sent.code}"
        )
    return problem.rcvd.reason or f"code {problem.rcvd.code}"


def _short(problem: BaseException) -> str:
    return (str(problem) or type(problem).__name__)[:200]
