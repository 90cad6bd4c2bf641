"""What an action does in the world: it calls a tool, or sends a message to a session and waits for the answer. CV-03, CV-43"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from easel.core.canvas.actions import CallTool, ResolvedCall, SendMessage
from easel.core.canvas.execution import Execution
from easel.core.canvas.pressing import Begun, Message
from easel.core.principal import Principal
from easel.core.session.session import session_of_key
from easel.core.stream.payload import to_json
from easel.core.stream.view import WHOLE_RUN
from easel.core.tool.context import ToolContext, Watched
from easel.errors import HostError, TimedOut, ToolFailed, Unavailable
from easel.host.artifacts import Artifacts
from easel.host.run_history import whole
from easel.host.run_queue import RunQueue
from easel.host.tails import Tails
from easel.host.toolbox import Toolbox


@dataclass(slots=True)
class UnderWay:
    """What is known of work while it is done: who hears what its tool says, and which run it waits for."""

    hear: Callable[[str], None] | None = None
    run_id: str | None = None


class CanvasWork:
    def __init__(self, tools: Toolbox, queue: RunQueue, runs: Tails, artifacts: Artifacts, *, answer_seconds: float) -> None:
        self.tools = tools
        self._queue = queue
        self._runs = runs
        self._artifacts = artifacts
        self._seconds = answer_seconds

    async def done(self, who: Principal, begun: Begun, under_way: UnderWay) -> Any:
        """What came of it. Raises an error of ours where nothing did; who is cancelled leaves no tool running."""
        match begun.action, begun.work:
            case CallTool(), ResolvedCall(tool, args, session_key):
                called = self.tools.call(tool, args, _context(who, session_key, begun.execution, under_way))
                # As plain JSON that every database and every client can carry: what is answered is what is kept.
                return msgspec.json.decode(to_json(await _within(begun.action.timeout_ms, tool, called)))
            case SendMessage(), Message():
                return await self._sent(who, begun.action, begun.work, begun.execution.event_id, under_way)
            case _:
                raise AssertionError("a patch of the state is done where it begins")

    async def stop(self, who: Principal, under_way: UnderWay) -> None:
        """Nobody waits any more for the run that was started for it, and whoever stopped the one meant the other."""
        if under_way.run_id is not None:
            with contextlib.suppress(HostError):  # it has just ended; or there is no store, and it goes on as any other
                await self._queue.cancel(who, under_way.run_id)

    async def _sent(self, who: Principal, action: SendMessage, message: Message, event_id: str, under_way: UnderWay) -> Any:
        """Through the ordinary queue of the session. It is waited for only where its answer is to be kept. CV-24"""
        # A task of its own: what is half started cannot be cancelled, and whoever stops it has to know which run it is.
        starting = asyncio.create_task(self._queue.start(who, session_of_key(message.session_key), message.text, event_id))
        try:
            run = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(HostError):
                under_way.run_id = (await starting).run_id
            raise
        if action.saving is None:
            return {"runId": run.run_id, "sessionKey": message.session_key}
        under_way.run_id = run.run_id
        return await _within(action.timeout_ms or self._seconds * 1000, f"Run {run.run_id}", self._answer_of(who, run.run_id))

    async def _answer_of(self, who: Principal, run_id: str) -> str:
        """What the session's agent says when its run has ended: the log says it, wherever the run is worked on."""
        viewer = await self._runs.open(who, run_id, None, WHOLE_RUN)
        said: dict[str, Any] = {}
        if viewer is not None:
            try:
                while (events := await viewer.next()) is not None:
                    said = next((msgspec.json.decode(one.data) for one in reversed(events) if one.type == "message.completed"), said)
            finally:
                viewer.close()
        if not said:
            raise Unavailable(what=f"The log of run {run_id}")
        if said["status"] != "completed":
            raise ToolFailed(tool="session.send", reason=f"its run {run_id} has {said['status']}: {said.get('error', 'it was stopped')}")
        return (await whole(self._artifacts, who.user_id, said))["text"]


def _context(who: Principal, session_key: str, execution: Execution, under_way: UnderWay) -> ToolContext:
    watched = Watched(execution.canvas_id, execution.event_id, execution.action_id, execution.owner_id or "")
    return ToolContext(who, session_key, on_output=under_way.hear, watched=watched)


async def _within(milliseconds: float | None, what: str, work: Awaitable[Any]) -> Any:
    """What takes longer is cancelled, and what it says all the same, when it comes to its end, is not heard. CV-23"""
    limit = asyncio.timeout(None if milliseconds is None else milliseconds / 1000)
    try:
        async with limit:
            result = await work
    except (TimeoutError, HostError):
        if not limit.expired():
            raise
    else:
        if not limit.expired():
            return result
    raise TimedOut(what=what, seconds=f"{(milliseconds or 0) / 1000:g}")
