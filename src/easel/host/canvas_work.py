"""What an action does in the world: it calls a tool, or sends a message to a session and waits for the answer. CV-03, CV-43"""

import asyncio
from typing import Any

import msgspec

from easel.core.canvas.actions import CallTool, ResolvedCall, SendMessage
from easel.core.canvas.canvas import Canvas
from easel.core.canvas.pressing import Begun, Message
from easel.core.principal import Principal
from easel.core.session.session import session_of_key
from easel.core.stream.view import WHOLE_RUN
from easel.core.tool.context import ToolContext
from easel.errors import TookTooLong, ToolFailed, Unavailable
from easel.host.artifacts import Artifacts
from easel.host.run_history import whole
from easel.host.run_queue import RunQueue
from easel.host.tails import Tails
from easel.host.toolbox import Toolbox


class CanvasWork:
    def __init__(self, tools: Toolbox, queue: RunQueue, runs: Tails, artifacts: Artifacts, *, answer_seconds: float) -> None:
        self.tools = tools
        self._queue = queue
        self._runs = runs
        self._artifacts = artifacts
        self._seconds = answer_seconds

    async def done(self, who: Principal, begun: Begun, canvas: Canvas) -> Any:
        """What came of it. Raises an error of ours where nothing did; who is cancelled leaves no tool running."""
        match begun.action, begun.work:
            case CallTool(), ResolvedCall(tool, args):
                seconds = None if begun.action.timeout_ms is None else begun.action.timeout_ms / 1000
                return await self.tools.call(tool, args, ToolContext(who, canvas.session_key), timeout_seconds=seconds)
            case SendMessage(), Message():
                return await self._sent(who, begun.action, begun.work, begun.execution.event_id)
            case _:
                raise AssertionError("a patch of the state is done where it begins")

    async def _sent(self, who: Principal, action: SendMessage, message: Message, event_id: str) -> Any:
        """Through the ordinary queue of the session. It is waited for only where its answer is to be kept. CV-24"""
        run = await self._queue.start(who, session_of_key(message.session_key), message.text, event_id)
        if action.saving is None:
            return {"runId": run.run_id, "sessionKey": message.session_key}
        seconds = self._seconds if action.timeout_ms is None else action.timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                return await self._answer_of(who, run.run_id)
        except TimeoutError:
            raise TookTooLong(seconds=f"{seconds:g}") from None

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
