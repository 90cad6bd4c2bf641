"""The concurrent calls that run on a node. Each can be cancelled, and a failed call does not stop the node.

Owns the answers and the output of calls. Has no socket: method and params of each frame go to `send`.
Output is sent in bounded batches while a command runs.
"""

import asyncio
import contextlib
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jsonschema_rs
import msgspec
import structlog

from easel.core.secret.mask import CUT
from easel.core.tool.definition import ToolDefinition
from easel.core.validation import MAX_DEPTH, is_too_deep
from easel.errors import HostError, ToolFailed

RESULT, PROGRESS = "tool.result", "tool.progress"
MAX_CONCURRENT_CALLS = 64
BATCH_SECONDS = 0.1  # output within this time is sent in one frame
MAX_BATCH_LENGTH = 16_384  # characters; of more output only the end is sent
FRAME_OVERHEAD_BYTES = 1_024  # bytes of a frame in addition to its result

Send = Callable[[str, Mapping[str, Any]], Awaitable[None]]
OnOutput = Callable[[str], None]

log = structlog.get_logger("node")


class UsableTool(Protocol):
    @property
    def definition(self) -> ToolDefinition: ...

    async def use(
        self,
        args: Mapping[str, Any],
        context: None,
        on_output: OnOutput | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Any: ...


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limits that the server sent in its `hello-ok` response."""

    frame_bytes: int = 1_048_576
    result_bytes: int = 262_144


class Calls:
    def __init__(self, tools: Sequence[UsableTool], send: Send, limits: CallLimits) -> None:
        self._tools = {tool.definition.name: tool for tool in tools}
        self._validators = {
            name: jsonschema_rs.validator_for(dict(tool.definition.schema), mask="the value")
            for name, tool in self._tools.items()
        }
        self._send = send
        self._limits = limits
        self._running: dict[str, asyncio.Task[None]] = {}

    def start(
        self, call_id: str, tool: str, args: Mapping[str, Any], env: Mapping[str, str] | None = None
    ) -> None:
        """Run a call in the background and send its answer. A call that is running already is ignored.

        `env` are variables of the tool's command, with the values of secrets. RS-66
        """
        if call_id in self._running:
            return
        has_capacity = len(self._running) < MAX_CONCURRENT_CALLS
        task = self._running[call_id] = asyncio.create_task(
            self._run(call_id, tool, args, env, has_capacity=has_capacity)
        )
        task.add_done_callback(lambda _: self._running.pop(call_id, None))

    def cancel(self, call_id: str) -> None:
        if (task := self._running.get(call_id)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel all calls and wait until their commands have ended."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(
        self,
        call_id: str,
        name: str,
        args: Mapping[str, Any],
        env: Mapping[str, str] | None,
        *,
        has_capacity: bool,
    ) -> None:
        output = _OutputBatcher(call_id, self._send)
        try:
            if has_capacity:
                answer = await self._answer(name, args, output.add, env)
            else:
                answer = {"error": f"this node runs {MAX_CONCURRENT_CALLS} calls, which is its limit."}
            await output.flush()
        finally:
            await output.close()
        await self._send(RESULT, {"callId": call_id, **answer})

    async def _answer(
        self, name: str, args: Mapping[str, Any], on_output: OnOutput, env: Mapping[str, str] | None
    ) -> dict[str, Any]:
        try:
            result = await self._use(name, args, on_output, env)
            self._check_size(result)
        except ToolFailed as problem:
            return {"error": str(problem.details["reason"])}
        except HostError as problem:
            return {"error": problem.message}
        except Exception as problem:  # noqa: BLE001 - logged without its message
            # The message may quote an argument, and an argument may be a secret: only the place is logged.
            place = "".join(traceback.format_tb(problem.__traceback__))
            log.error("node.tool_error", tool=name, error=type(problem).__name__, place=place)  # noqa: TRY400
            return {"error": f"raised {type(problem).__name__} on the node."}
        return {"result": result}

    async def _use(
        self, name: str, args: Mapping[str, Any], on_output: OnOutput, env: Mapping[str, str] | None
    ) -> Any:
        tool = self._tools.get(name)
        if tool is None:
            raise ToolFailed(
                tool=name, reason=f"this node has no such tool; it has {', '.join(sorted(self._tools))}."
            )
        if is_too_deep(args):
            raise ToolFailed(tool=name, reason=f"arguments are nested deeper than {MAX_DEPTH} levels.")
        if (error := next(self._validators[name].iter_errors(dict(args)), None)) is not None:
            raise ToolFailed(tool=name, reason=error.message)
        if env and not tool.definition.takes_secrets:
            raise ToolFailed(tool=name, reason="takes no variables.")
        return await tool.use(args, None, on_output=on_output, env=env)

    def _check_size(self, result: Any) -> None:
        limit = min(self._limits.result_bytes, self._limits.frame_bytes - FRAME_OVERHEAD_BYTES)
        if (size := len(msgspec.json.encode(result))) > limit:
            raise ToolFailed(
                tool="", reason=f"its result of {size} bytes is over the limit of {limit}; ask for less."
            )


class _OutputBatcher:
    """Sends the output of one call in batches."""

    def __init__(self, call_id: str, send: Send) -> None:
        self._call_id = call_id
        self._send = send
        self._text = ""
        self._left_out = 0  # characters before `_text` that were dropped
        self._sending: asyncio.Task[None] | None = None
        self._is_flushing = asyncio.Event()

    def add(self, text: str) -> None:
        text = self._text + text
        self._text = text[-MAX_BATCH_LENGTH:]
        self._left_out += len(text) - len(self._text)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_batches())

    async def flush(self) -> None:
        """Send the buffered output at once, so that it arrives before the answer."""
        self._is_flushing.set()
        if self._sending is not None:
            await asyncio.gather(self._sending, return_exceptions=True)

    async def close(self) -> None:
        """Drop the buffered output: no output is sent after the answer, or after the call was cancelled."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send_batches(self) -> None:
        while self._text:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BATCH_SECONDS):
                    await self._is_flushing.wait()
            text, self._text = self._text, ""
            if self._left_out:
                # The server looks at this note for the end of a secret whose beginning was dropped. RS-66
                text, self._left_out = f"\n… [{self._left_out} characters {CUT}{text}", 0
            await self._send(PROGRESS, {"callId": self._call_id, "text": text})
