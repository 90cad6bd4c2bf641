"""What an action does in the world: it calls a tool, or sends a message to a session and waits for the answer. CV-03, CV-43"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from easel.core.action.transitions import Message, PendingReply, StartedExecution
from easel.core.canvas.actions import CallTool, ResolvedCall, SendMessage
from easel.core.canvas.execution import Execution, StartedRun
from easel.core.principal import Principal
from easel.core.session.session import session_of_key
from easel.core.stream.filter import WHOLE_RUN
from easel.core.stream.json_text import to_json
from easel.core.tool.context import ToolContext, Watched
from easel.errors import HostError, ToolFailed, Unavailable
from easel.host.actions.deadlines import Deadlines
from easel.host.actions.live_output import LiveOutput
from easel.host.artifacts import Artifacts, restore
from easel.host.runs.queue import RunQueue
from easel.host.streams import Tails
from easel.host.tools.registry import ToolRegistry


@dataclass(slots=True)
class ExecutionContext:
    """What is known of work while it is done: who hears what its tool says, and which run it waits for."""

    hear: Callable[[str], None] | None = None
    run_id: str | None = None


@dataclass(slots=True)
class RunningExecution:
    """An execution that runs here."""

    task: asyncio.Task[Any]
    under_way: ExecutionContext = field(default_factory=ExecutionContext)
    output: LiveOutput = field(init=False)
    is_ending: bool = False  # its end is being stored: whether that is its end is decided there
    is_over: bool = False  # somebody else has ended it

    def give_up(self) -> None:
        """Somebody else has ended it: its tool works for nobody any more."""
        if not self.is_over and not self.is_ending:
            self.task.cancel()
        self.is_over = True


class ActionExecutor:
    def __init__(
        self,
        tools: ToolRegistry,
        queue: RunQueue,
        runs: Tails,
        artifacts: Artifacts,
        *,
        answer_seconds: float,
    ) -> None:
        self.tools = tools
        self._queue = queue
        self._runs = runs
        self._artifacts = artifacts
        self._seconds = answer_seconds
        self.deadlines = Deadlines()

    async def done(self, principal: Principal, begun: StartedExecution, under_way: ExecutionContext) -> Any:
        """What came of it. Raises an error of ours where nothing did; who is cancelled leaves no tool running."""
        match begun.action, begun.work:
            case CallTool(), ResolvedCall(tool, args, session_key):
                called = self.tools.call(
                    tool, args, _context(principal, session_key, begun.execution, under_way)
                )
                # The toolbox ends it before, unless it takes no notice of that.
                limit_ms = (
                    begun.action.timeout_ms
                    or (self.tools.timeout_seconds + self.deadlines.grace_seconds) * 1000
                )
                # As plain JSON that every database and every client can carry: what is answered is what is kept.
                return msgspec.json.decode(to_json(await self.deadlines.within(limit_ms, tool, called)))
            case SendMessage(), Message():
                return await self._sent(
                    principal, begun.action, begun.work, begun.execution.event_id, under_way
                )
            case SendMessage(), PendingReply(session_key, awaited):
                return await self._answered(principal, begun.action, session_key, awaited, under_way)
            case _:
                raise AssertionError("a patch of the state is done where it begins")

    async def stop(self, principal: Principal, under_way: ExecutionContext) -> None:
        """Nobody waits any more for the run that was started for it, and whoever stopped the one meant the other."""
        if under_way.run_id is not None:
            with contextlib.suppress(
                HostError
            ):  # it has just ended; or there is no store, and it goes on as any other
                await self._queue.cancel(principal, under_way.run_id)

    async def _sent(
        self,
        principal: Principal,
        action: SendMessage,
        message: Message,
        event_id: str,
        under_way: ExecutionContext,
    ) -> Any:
        """Through the ordinary queue of the session. It is waited for only where its answer is to be kept. CV-24"""
        # A task of its own: what is half started cannot be cancelled, and whoever stops it has to know which run it is.
        starting = asyncio.create_task(
            self._queue.start(principal, session_of_key(message.session_key), message.text, event_id)
        )
        try:
            run = await asyncio.shield(starting)
        except Unavailable as problem:
            raise Unavailable.after_sending(problem.details["what"], is_repeatable=False) from problem
        except asyncio.CancelledError:
            with contextlib.suppress(HostError):
                under_way.run_id = (await starting).run_id
            raise
        return await self._answered(
            principal, action, message.session_key, StartedRun(run.run_id, 0), under_way
        )

    async def _answered(
        self,
        principal: Principal,
        action: SendMessage,
        session_key: str,
        awaited: StartedRun,
        under_way: ExecutionContext,
    ) -> Any:
        run_id = awaited.run_id
        if action.saving is None:
            return {"runId": run_id, "sessionKey": session_key}
        under_way.run_id = run_id
        limit_ms = action.timeout_ms or self._seconds * 1000
        return await self.deadlines.within(
            limit_ms, f"Run {run_id}", self._answer_of(principal, run_id), already_ms=awaited.seconds * 1000
        )

    async def _answer_of(self, principal: Principal, run_id: str) -> str:
        """What the session's agent says when its run has ended: the log says it, wherever the run is worked on."""
        viewer = await self._runs.open(principal, run_id, None, WHOLE_RUN)
        said: dict[str, Any] = {}
        if viewer is not None:
            try:
                while (events := await viewer.next()) is not None:
                    said = next(
                        (
                            msgspec.json.decode(one.data)
                            for one in reversed(events)
                            if one.type == "message.completed"
                        ),
                        said,
                    )
            finally:
                viewer.close()
        if not said:
            raise ToolFailed(
                tool="session.send",
                reason=f"the log of its run {run_id} cannot be read; the run itself goes on.",
            )
        if said["status"] != "completed":
            raise ToolFailed(
                tool="session.send",
                reason=f"its run {run_id} has {said['status']}: {said.get('error', 'it was stopped')}",
            )
        return (await restore(self._artifacts, principal.user_id, said))["text"]


def _context(
    principal: Principal, session_key: str, execution: Execution, under_way: ExecutionContext
) -> ToolContext:
    if under_way.hear is None:
        return ToolContext(principal, session_key)
    watched = Watched(execution.canvas_id, execution.event_id, execution.action_id, execution.owner_id or "")
    return ToolContext(principal, session_key, on_output=under_way.hear, watched=watched)
