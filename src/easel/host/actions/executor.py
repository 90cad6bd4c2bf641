"""The work of an action: a tool call, or a message to a session and its reply. CV-03, CV-43

Owns the time limit of the work. Work that ignores its cancellation is abandoned: its result is discarded, and
it counts against the limit of running actions until it ends. Does not know how results are stored. CV-23
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import msgspec
import structlog

from easel.core.action.confirmation import PendingReply
from easel.core.action.execution import StartedRun
from easel.core.action.parsing import parse_result
from easel.core.action.resolution import ResolvedCall, ResolvedMessage
from easel.core.action.transitions import StartedExecution
from easel.core.canvas.actions import CallTool, SendMessage
from easel.core.principal import Principal
from easel.core.session.session import session_id_of_key
from easel.core.stream.filter import WHOLE_RUN
from easel.core.stream.json_text import to_json
from easel.core.tool.context import ToolContext, UsedSecrets, Watched
from easel.core.tool.long_command import check_has_ended
from easel.errors import HostError, TimedOut, ToolFailed, Unavailable
from easel.host.actions.running import RunningExecution
from easel.host.artifacts.artifacts import Artifacts, read_text
from easel.host.metrics import ACTIONS_ABANDONED
from easel.host.runs.queue import RunQueue
from easel.host.streams import Tails
from easel.host.tools.registry import ToolRegistry

# How long a cancelled tool may take to end. A cancelled command ends its processes within this time.
GRACE_SECONDS = 2.0
# An adopted execution gets at least this long, so that a reply that exists already can be read.
MIN_SECONDS = 1.0

log = structlog.get_logger("actions")


class ActionExecutor:
    def __init__(
        self,
        tools: ToolRegistry,
        queue: RunQueue,
        runs: Tails,
        artifacts: Artifacts,
        *,
        answer_seconds: float,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._tools = tools
        self._queue = queue
        self._runs = runs
        self._artifacts = artifacts
        self._answer_seconds = answer_seconds
        self.grace_seconds = grace_seconds
        self._abandoned: set[asyncio.Task[Any]] = set()

    def abandoned_count(self) -> int:
        """Return how many cancelled tool calls still run."""
        return len(self._abandoned)

    async def run(self, principal: Principal, started: StartedExecution, running: RunningExecution) -> Any:
        """Run the work and return its result. Raises a HostError if it fails. A cancel stops the tool."""
        result = await self._work(principal, started, running)
        return await asyncio.to_thread(parse_result, started.action, result)  # megabytes take seconds

    async def _work(self, principal: Principal, started: StartedExecution, running: RunningExecution) -> Any:
        match started.action, started.work:
            case CallTool(), ResolvedCall():
                return await self._call_tool(principal, started.action, started.work, started, running)
            case SendMessage(), ResolvedMessage():
                return await self._send(principal, started.action, started.work, started, running)
            case SendMessage(), PendingReply(session_key, run):
                return await self._wait_for_reply(principal, started.action, session_key, run, running)
            case _:
                raise AssertionError("a patch of the state completes when it starts")

    # -- tool calls --------------------------------------------------------------------------------

    async def _call_tool(
        self,
        principal: Principal,
        action: CallTool,
        call: ResolvedCall,
        started: StartedExecution,
        running: RunningExecution,
    ) -> Any:
        execution, watched = started.execution, None
        if running.on_output is not None:
            watched = Watched(
                execution.canvas_id, execution.event_id, execution.action_id, execution.owner_id or ""
            )
        context = ToolContext(
            principal,
            call.session_key,
            on_output=running.on_output,
            watched=watched,
            commands=running.commands,
            unaccepted_canvas=None if started.is_trusted else execution.canvas_id,
            secrets=UsedSecrets(call.secrets, call.env, call.texts),
            hosts=action.hosts if started.is_trusted else frozenset[str](),
        )
        # The registry enforces its own, shorter limit; this longer one is for a tool that ignores a cancel.
        default_ms = (self._tools.timeout_seconds + self.grace_seconds) * 1000
        result = await self._run_with_deadline(
            (action.timeout_ms or default_ms) / 1000,
            call.tool,
            self._tools.call(call.tool, call.args, context),
        )
        check_has_ended(call.tool, result)
        # Plain JSON, so that the returned result equals the stored one.
        return msgspec.json.decode(to_json(result))

    # -- messages ----------------------------------------------------------------------------------

    async def _send(
        self,
        principal: Principal,
        action: SendMessage,
        message: ResolvedMessage,
        started: StartedExecution,
        running: RunningExecution,
    ) -> Any:
        """Enqueue a run in the session, and wait for its reply if the action saves the reply. CV-24"""
        event_id = started.execution.event_id
        # Enqueue in a separate task: if this task is cancelled, the id of the enqueued run is still needed to
        # cancel the run.
        starting = asyncio.create_task(
            self._queue.start(principal, session_id_of_key(message.session_key), message.text, event_id)
        )
        try:
            run = await asyncio.shield(starting)
        except Unavailable as problem:
            raise Unavailable.after_sending(problem.details["what"], is_repeatable=False) from problem
        except asyncio.CancelledError:
            with contextlib.suppress(HostError):
                running.run_id = (await starting).run_id
            raise
        return await self._wait_for_reply(
            principal, action, message.session_key, StartedRun(run.run_id, 0), running
        )

    async def _wait_for_reply(
        self,
        principal: Principal,
        action: SendMessage,
        session_key: str,
        run: StartedRun,
        running: RunningExecution,
    ) -> Any:
        if action.save_target is None:
            return {"runId": run.run_id, "sessionKey": session_key}
        running.run_id = run.run_id
        seconds = action.timeout_ms / 1000 if action.timeout_ms else self._answer_seconds
        remaining = max(seconds - run.seconds, MIN_SECONDS) if run.seconds else seconds
        reply = self._read_reply(principal, run.run_id)
        return await self._run_with_deadline(remaining, f"Run {run.run_id}", reply, limit_seconds=seconds)

    async def _read_reply(self, principal: Principal, run_id: str) -> str:
        """Return the text of the agent's last message, with its references, from the log of its run.

        Raises ToolFailed if the run did not complete.
        """
        viewer = await self._runs.open(principal, run_id, None, WHOLE_RUN)
        message: dict[str, Any] = {}
        if viewer is not None:
            try:
                while (events := await viewer.next()) is not None:
                    completed = [event for event in events if event.type == "message.completed"]
                    message = msgspec.json.decode(completed[-1].data) if completed else message
            finally:
                viewer.close()
        if not message:
            raise ToolFailed(
                tool="session.send",
                reason=f"the log of run {run_id} cannot be read; the run itself continues.",
            )
        if message["status"] != "completed":
            raise ToolFailed(
                tool="session.send",
                reason=f"run {run_id} has {message['status']}: {message.get('error', 'it was cancelled')}",
            )
        return await read_text(self._artifacts, principal.account_id, message)

    async def cancel_run(self, principal: Principal, running: RunningExecution) -> None:
        """Cancel the run that the execution started, if there is one."""
        if running.run_id is not None:
            # The run may have ended, or the store may be unavailable: then the run continues.
            with contextlib.suppress(HostError):
                await self._queue.cancel(principal, running.run_id)

    # -- deadlines ---------------------------------------------------------------------------------

    async def _run_with_deadline(
        self, seconds: float, what: str, work: Coroutine[Any, Any, Any], *, limit_seconds: float | None = None
    ) -> Any:
        """Return the result of `work`. Raises TimedOut after `seconds`.

        On timeout or cancellation, `work` is cancelled and its later result is discarded. The error names
        `limit_seconds`, which is more than `seconds` if part of the time was spent on another instance.
        """
        task = asyncio.create_task(work)
        task.add_done_callback(self._on_done)
        try:
            await asyncio.wait([task], timeout=seconds)
        except asyncio.CancelledError:
            await self._cancel(task, what)
            raise
        if task.done():
            return task.result()
        await self._cancel(task, what)
        raise TimedOut(what=what, seconds=f"{limit_seconds or seconds:g}")

    async def _cancel(self, task: asyncio.Task[Any], what: str) -> None:
        """Cancel the task; if it does not end within the grace period, abandon it."""
        task.cancel()
        try:
            await asyncio.wait([task], timeout=self.grace_seconds)
        finally:
            if not task.done():
                log.warning("actions.abandoned", what=what, seconds=self.grace_seconds)
                self._abandoned.add(task)
                ACTIONS_ABANDONED.set(len(self._abandoned))

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # mark the exception as retrieved: the result of an abandoned task is discarded
        if task in self._abandoned:
            self._abandoned.discard(task)
            ACTIONS_ABANDONED.set(len(self._abandoned))
            log.info("actions.abandoned_ended")
