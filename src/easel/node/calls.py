"""The calls that a node has under way: several at once, each stopped when nobody wants it any more, none of
them able to end the node.

Knows no socket: what is to be said goes to `say`, as method and params. What a command prints is passed on
while it runs, gathered into few frames and within bounds.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jsonschema_rs
import msgspec
import structlog

from easel.core.tool.definition import ToolDefinition
from easel.core.validation import MAX_DEPTH, is_too_deep
from easel.errors import HostError, ToolFailed

RESULT, PROGRESS = "tool.result", "tool.progress"
AT_ONCE = 64
NO_ROOM = "this node does {} things at once, and no more."
GATHER_SECONDS = 0.1  # what a command prints within this time is one frame
MAX_GATHERED = 16_384  # characters of it; of more, the end
ROOM = 1_024  # what a frame has around its result

Say = Callable[[str, Mapping[str, Any]], Awaitable[None]]

log = structlog.get_logger("node")


class MachineTool(Protocol):
    @property
    def definition(self) -> ToolDefinition: ...

    async def use(
        self, args: Mapping[str, Any], context: None, on_output: Callable[[str], None] | None = None
    ) -> Any: ...


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What the server takes, as it said when it let us in."""

    frame_bytes: int = 1_048_576
    result_bytes: int = 262_144


class Calls:
    def __init__(self, tools: Sequence[MachineTool], say: Say, limits: CallLimits) -> None:
        self._tools = {tool.definition.name: tool for tool in tools}
        self._checks = {
            name: jsonschema_rs.validator_for(dict(tool.definition.schema))
            for name, tool in self._tools.items()
        }
        self._say = say
        self._limits = limits
        self._running: dict[str, asyncio.Task[None]] = {}

    def begin(self, call_id: str, tool: str, args: Mapping[str, Any]) -> None:
        if call_id in self._running:
            return  # it is under way, and once is enough
        has_room = len(self._running) < AT_ONCE  # now, and not when it comes to be done, together with others
        task = self._running[call_id] = asyncio.create_task(self._do(call_id, tool, args, has_room=has_room))
        task.add_done_callback(lambda _: self._running.pop(call_id, None))

    def cancel(self, call_id: str) -> None:
        if (task := self._running.get(call_id)) is not None:
            task.cancel()

    async def close(self) -> None:
        """All of them end now, with whatever they started."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _do(self, call_id: str, name: str, args: Mapping[str, Any], *, has_room: bool) -> None:
        printed = _Printed(call_id, self._say)
        try:
            answer = (
                await self._answer(name, args, printed.hear)
                if has_room
                else {"error": NO_ROOM.format(AT_ONCE)}
            )
            await printed.tell_rest()
        finally:
            await printed.close()
        await self._say(RESULT, {"callId": call_id, **answer})

    async def _answer(
        self, name: str, args: Mapping[str, Any], hear: Callable[[str], None]
    ) -> dict[str, Any]:
        try:
            return {"result": self._fitting(await self._used(name, args, hear))}
        except ToolFailed as problem:
            return {"error": str(problem.details["reason"])}
        except HostError as problem:
            return {"error": problem.message}
        except Exception as problem:
            log.exception("node.tool_error", tool=name)
            return {"error": f"broke on the node ({type(problem).__name__})."}

    async def _used(self, name: str, args: Mapping[str, Any], hear: Callable[[str], None]) -> Any:
        tool = self._tools.get(name)
        if tool is None:
            raise ToolFailed(
                tool=name, reason=f"this node has no such tool; it has {', '.join(sorted(self._tools))}."
            )
        if is_too_deep(args):
            raise ToolFailed(tool=name, reason=f"arguments are nested deeper than {MAX_DEPTH} levels.")
        if (wrong := next(self._checks[name].iter_errors(dict(args)), None)) is not None:
            raise ToolFailed(tool=name, reason=wrong.message)
        return await tool.use(args, None, on_output=hear)

    def _fitting(self, result: Any) -> Any:
        most = min(self._limits.result_bytes, self._limits.frame_bytes - ROOM)
        if (size := len(msgspec.json.encode(result))) > most:
            raise ToolFailed(
                tool="", reason=f"its result of {size} bytes is over the limit of {most}; ask for less."
            )
        return result


class _Printed:
    """What a call prints, gathered."""

    def __init__(self, call_id: str, say: Say) -> None:
        self._call_id = call_id
        self._say = say
        self._text = ""
        self._telling: asyncio.Task[None] | None = None
        self._is_last = asyncio.Event()

    def hear(self, text: str) -> None:
        self._text = (self._text + text)[-MAX_GATHERED:]
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell())

    async def tell_rest(self) -> None:
        """Before the answer, and without gathering more."""
        self._is_last.set()
        if self._telling is not None:
            await asyncio.gather(self._telling, return_exceptions=True)

    async def close(self) -> None:
        """Nothing is said of a call after its answer, or after it was stopped."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)

    async def _tell(self) -> None:
        while self._text:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GATHER_SECONDS):
                    await self._is_last.wait()
            text, self._text = self._text, ""
            await self._say(PROGRESS, {"callId": self._call_id, "text": text})
