"""The executions that run in this process, each in a task that outlives the connection of its caller. CV-39

Owns these tasks and limits their number. Does not know what an execution does or how it is stored.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from easel.errors import HostError, TooMany, Unavailable
from easel.host.actions.live_output import LiveOutput
from easel.host.actions.request import ActionResult
from easel.host.metrics import ACTIONS_RUNNING
from easel.host.usage import AccountUsage
from easel.ids import AccountId


@dataclass(slots=True)
class RunningExecution:
    """An execution that runs in this process."""

    task: asyncio.Task[Any]
    output: LiveOutput = field(init=False)
    on_output: Callable[[str], object] | None = None  # if the live output is streamed
    run_id: str | None = None  # of the run that the execution started
    # The audit details of the commands of a refresh job, which is tallied; None for other executions.
    commands: list[Mapping[str, Any]] | None = None
    is_ending: bool = False  # its end is being stored, and must not be interrupted
    is_abandoned: bool = False  # cancelled or adopted: another task or instance stores its end

    def abandon(self) -> None:
        """Stop the work, because the execution was cancelled or adopted by another instance."""
        if not self.is_abandoned and not self.is_ending:
            self.task.cancel()
        self.is_abandoned = True


class RunningExecutions:
    def __init__(self, limit: int, abandoned_count: Callable[[], int], usage: AccountUsage) -> None:
        self._limit = limit
        self._usage = usage
        self._abandoned_count = abandoned_count
        self._tasks: set[asyncio.Task[ActionResult]] = set()
        self.by_event_id: dict[str, RunningExecution] = {}
        self.is_stopping = False

    @property
    def has_capacity(self) -> bool:
        """Whether one more execution may start. Abandoned tool calls that still run count too."""
        return len(self._tasks) + self._abandoned_count() < self._limit

    async def detach(
        self, work: Coroutine[Any, Any, ActionResult], *, of_account: AccountId | None = None
    ) -> ActionResult:
        """Run `work` in its own task and return its result; the task continues if the caller is cancelled.

        With `of_account` the task counts for the limit of that account. Raises TooMany at a limit, and
        Unavailable while this instance is stopping.
        """
        try:
            if self.is_stopping:
                raise Unavailable(what="This instance")
            if not self.has_capacity:
                raise TooMany(what="actions at once", limit=self._limit)
            if of_account is not None:
                self._usage.check("actions", of_account)
        except HostError:
            work.close()
            raise
        task = self.spawn(work)
        if of_account is not None:
            self._usage.hold("actions", of_account, 1)
            task.add_done_callback(lambda _: self._usage.hold("actions", of_account, -1))
        return await asyncio.shield(task)

    def spawn(self, work: Coroutine[Any, Any, ActionResult]) -> asyncio.Task[ActionResult]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[ActionResult]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark the exception as retrieved: the caller may have disconnected

    @contextmanager
    def register(self, event_id: str) -> Generator[RunningExecution]:
        """Register the current task as the task that runs this execution, until the block ends."""
        task = asyncio.current_task()
        assert task is not None
        running = self.by_event_id[event_id] = RunningExecution(task)
        ACTIONS_RUNNING.set(len(self.by_event_id))
        try:
            yield running
        finally:
            del self.by_event_id[event_id]
            ACTIONS_RUNNING.set(len(self.by_event_id))

    async def stop(self, seconds: float) -> None:
        """Cancel all tasks, and once more the tasks that have not ended after `seconds`. Waits for all."""
        self.is_stopping = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
