"""Refresh jobs: actions that canvases run by themselves, each once however many instances there are. CV-19, X9

A job is claimed as a run is, so a job that still runs is not started twice, and one whose instance died moves on. What runs is named
whenever it is renewed: a job whose end was lost on the way is due again. What fails is told in the canvas's log, and tried more and more rarely.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from easel.core.canvas.canvas import CanvasSnapshot, Change
from easel.core.canvas.refresh import Due, Job, next_delay
from easel.core.principal import Principal, PrincipalKind
from easel.core.run.deltas import shortened
from easel.errors import ActionFailed, HostError, NotFound, Unavailable
from easel.host.actions.request import ActionRequest
from easel.host.actions.service import ActionService
from easel.host.audit import Audit
from easel.host.canvases.transactions import CanvasTransactions, events_for
from easel.host.metrics import REFRESHES
from easel.host.ports import CanvasActionStore

REFRESH = "refresh"  # what presses the button
MIN_WAIT = 0.01  # seconds between two looks for what is due
BROKE = "Something broke inside Easel; its log knows more."
MAX_REASON_LENGTH = 300  # characters, so that the event is light by itself whatever they are

log = structlog.get_logger("refresh")


@dataclass(frozen=True, slots=True)
class RefreshLimits:
    at_once: int  # jobs of one instance
    lease_seconds: float  # how long an instance is believed to be alive
    poll_seconds: float
    unwatched: bool  # whether jobs run while nobody looks at their canvas, where they do not say otherwise


class RefreshScheduler:
    def __init__(
        self,
        jobs: CanvasActionStore,
        actions: ActionService,
        changes: CanvasTransactions,
        audit: Audit,
        limits: RefreshLimits,
        *,
        instance_id: str,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._jobs = jobs
        self._actions = actions
        self._changes = changes
        self._audit = audit
        self._limits = limits
        self._instance = instance_id
        self._dice = dice
        self.at_work: dict[Job, asyncio.Task[None]] = {}  # the jobs that run here
        self._one_ended = asyncio.Event()
        self._duties: list[asyncio.Task[None]] = []

    def start(self) -> None:
        if not self._duties:
            self._duties = [
                asyncio.create_task(self._fire_forever()),
                asyncio.create_task(self._keep_forever()),
            ]

    async def stop(self) -> None:
        tasks = [*self._duties, *self.at_work.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _fire_forever(self) -> None:
        while True:
            self._one_ended.clear()
            wait = self._limits.poll_seconds
            with self._supervised(duty="refresh"):
                wait = await self.look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._one_ended.wait()  # then there is room, or its next time is known

    async def _keep_forever(self) -> None:
        while True:
            await asyncio.sleep(self._limits.lease_seconds / 3)
            with self._supervised(duty="keeping refreshes"):
                await self.keep()

    async def look(self) -> float:
        """Start what is due, and say in how many seconds to look again. What runs, here or elsewhere, is not looked for: it tells its end."""
        most = self._limits.poll_seconds
        while (due_in := await self._jobs.next_refresh(unwatched=self._limits.unwatched)) is not None:
            if due_in > 0:
                return min(most, max(MIN_WAIT, due_in))
            if not await self.once():
                break  # there is no room, or another instance was faster
        return most

    async def once(self) -> int:
        """Start the jobs whose time has come, as far as there is room; how many."""
        room = self._limits.at_once - len(self.at_work)
        if room <= 0:
            return 0
        # After a sleep of the machine or a jump of its clock, the holds of what runs here are over, and it runs on all the same. X9
        claimed = await self._jobs.claim_refreshes(
            self._instance,
            room,
            self._limits.lease_seconds,
            running=list(self.at_work),
            unwatched=self._limits.unwatched,
        )
        for due in claimed:
            self.at_work[due.job] = task = asyncio.create_task(self._run(due))
            task.add_done_callback(lambda _, job=due.job: self._ended(job))
        return len(claimed)

    async def keep(self) -> None:
        """Say that what runs here does; and let nothing wait for a time that a clock told which was wrong."""
        if self.at_work:
            await self._jobs.renew_refreshes(self._instance, list(self.at_work), self._limits.lease_seconds)
        await self._jobs.correct_after_clock_jump(self._limits.lease_seconds)

    def _ended(self, job: Job) -> None:
        del self.at_work[job]
        self._one_ended.set()

    async def _run(self, due: Due) -> None:
        with self._supervised(duty="refresh", canvas=due.canvas_id, refresh=due.refresh_id):
            await self._run_and_settle(due)

    async def _run_and_settle(self, due: Due) -> None:
        """Where its end cannot be stored its hold runs out, and it is due again."""
        began = time.monotonic()
        principal = Principal(due.user_id, REFRESH, kind=PrincipalKind.SERVICE)
        problem: HostError | None = ActionFailed(problem=BROKE)
        with self._supervised(duty="refresh", canvas=due.canvas_id, refresh=due.refresh_id):
            problem = await self._press(principal, due)
        REFRESHES.labels("completed" if problem is None else "failed").inc()
        failures, error = (0, None) if problem is None else (due.failures + 1, self._told(problem))
        # From its start to its next start, however long it took: a job that is slower than its interval follows itself.
        delay = max(0.0, next_delay(due.every_ms, failures, self._dice()) - (time.monotonic() - began))
        # Stored first, then told: whoever reads the canvas after the event finds the job as the event says.
        await self._jobs.finish_refresh(self._instance, due, failures=failures, delay=delay, error=error)
        if failures or due.failures:
            with contextlib.suppress(NotFound):  # the canvas is gone, and its jobs with it
                await self._tell(principal, due, failures, error)

    @contextlib.contextmanager
    def _supervised(self, **details: str) -> Generator[None]:
        """What breaks is told to whoever runs this server, and ends nothing else."""
        try:
            yield
        except Unavailable:
            log.info("refresh.database_unavailable", **details)
        except Exception as problem:
            log.exception("refresh.error", **details)
            self._audit.record_exception(None, "worker.error", problem, details=details)

    async def _press(self, principal: Principal, due: Due) -> HostError | None:
        ask = ActionRequest(
            canvas_id=due.canvas_id, action_id=due.action_id, input={}, client_id=REFRESH, trigger=REFRESH
        )
        try:
            await self._actions.execute(principal, ask)
        except HostError as problem:
            return problem
        return None

    def _told(self, problem: HostError) -> dict[str, Any]:
        message = shortened(self._audit.redacted(problem.message), MAX_REASON_LENGTH)
        return {"code": problem.gateway, "name": problem.code, "message": message}

    async def _tell(
        self, principal: Principal, due: Due, failures: int, error: Mapping[str, Any] | None
    ) -> None:
        """Whoever looks at the canvas sees that a job fails, why, and how rarely it is tried now; and that it works again. RS-45"""
        events = events_for(principal, due.canvas_id)
        named = {"refreshId": due.refresh_id, "actionId": due.action_id}
        retry = round(next_delay(due.every_ms, failures, 0) * 1000)

        def decide(snapshot: CanvasSnapshot) -> Change | None:
            revision = snapshot.canvas.revision
            if error is None:
                return Change(events=[events.refresh_recovered(revision, named)], is_mutation=False)
            if all(job.refresh_id != due.refresh_id for job in snapshot.failing):
                return (
                    None  # a new spec has ended the job meanwhile: nobody would ever tell that it works again
                )
            told = {**named, "error": error, "failures": failures, "retryInMs": retry}
            return Change(events=[events.refresh_failed(revision, told)], is_mutation=False)

        await self._changes.apply(principal, due.canvas_id, decide)
