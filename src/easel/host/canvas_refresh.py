"""Refresh jobs: actions that canvases run by themselves, each once however many instances there are. CV-19, X9

A job is claimed as a run is, so a job that still runs is not started twice, and one whose instance died moves on. What fails is
told in the canvas's log, and tried more and more rarely.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from easel.core.canvas.canvas import Change, WholeCanvas
from easel.core.canvas.refresh import Due, next_delay
from easel.core.principal import Kind, Principal
from easel.core.run.pace import shortened
from easel.errors import HostError, NotFound, Unavailable
from easel.host.audit import Audit
from easel.host.canvas_actions import Ask, CanvasActions
from easel.host.canvas_changes import CanvasChanges, events_of
from easel.host.metrics import REFRESHES
from easel.host.ports import CanvasActionStore

REFRESH = "refresh"  # what presses the button
LONGEST_REASON = 300  # characters, so that the event is light by itself whatever they are

log = structlog.get_logger("refresh")


@dataclass(frozen=True, slots=True)
class RefreshLimits:
    at_once: int  # jobs of one instance
    lease_seconds: float  # how long an instance is believed to be alive
    poll_seconds: float
    unwatched: bool  # whether jobs run while nobody looks at their canvas


class CanvasRefresh:
    def __init__(
        self,
        jobs: CanvasActionStore,
        actions: CanvasActions,
        changes: CanvasChanges,
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
        self.at_work: set[asyncio.Task[None]] = set()  # the jobs that run now
        self._duties: list[asyncio.Task[None]] = []

    def start(self) -> None:
        if not self._duties:
            self._duties = [asyncio.create_task(self._fire_forever()), asyncio.create_task(self._renew_forever())]

    async def stop(self) -> None:
        tasks = [*self._duties, *self.at_work]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _fire_forever(self) -> None:
        while True:
            wait = self._limits.poll_seconds
            try:
                await self.once()
                due_in = await self._jobs.next_refresh()
                wait = min(wait, max(0.01, due_in)) if due_in is not None and len(self.at_work) < self._limits.at_once else wait
            except Unavailable:
                log.info("refresh.no_database")
            except Exception as problem:
                log.exception("refresh.broke")
                self._audit.broke(None, "worker.broke", problem, details={"duty": "refresh"})
            await asyncio.sleep(wait)

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(self._limits.lease_seconds / 3)
            if self.at_work:
                with contextlib.suppress(Unavailable):
                    await self._jobs.renew_refreshes(self._instance, self._limits.lease_seconds)

    async def once(self) -> int:
        """Start the jobs whose time has come, as far as there is room; how many."""
        room = self._limits.at_once - len(self.at_work)
        if room <= 0:
            return 0
        claimed = await self._jobs.claim_refreshes(self._instance, room, self._limits.lease_seconds)
        for due in claimed:
            task = asyncio.create_task(self._run(due))
            self.at_work.add(task)
            task.add_done_callback(self.at_work.discard)
        return len(claimed)

    async def _run(self, due: Due) -> None:
        began = time.monotonic()
        failures, outcome = due.failures, "paused"
        who = Principal(due.user_id, REFRESH, kind=Kind.SERVICE)
        try:
            if self._limits.unwatched or (await self._changes.find(who, due.canvas_id)).live_views:
                failures, outcome = await self._press(who, due)
        except NotFound:
            return  # the canvas is gone, and its jobs with it
        except Unavailable:
            outcome = "failed"
        REFRESHES.labels(outcome).inc()
        # From its start to its next start, however long it took: a job that is slower than its interval follows itself.
        delay = max(0.0, next_delay(due.every_ms, failures, self._dice()) - (time.monotonic() - began))
        with contextlib.suppress(Unavailable):  # then its hold runs out, and it is due again
            await self._jobs.settle_refresh(self._instance, due, failures=failures, delay=delay)

    async def _press(self, who: Principal, due: Due) -> tuple[int, str]:
        ask = Ask(canvas_id=due.canvas_id, action_id=due.action_id, input={}, client_id=REFRESH, trigger=REFRESH)
        try:
            await self._actions.press(who, ask)
        except HostError as problem:
            failures = due.failures + 1
            await self._tell(who, due, failures, problem)
            return failures, "failed"
        return 0, "completed"

    async def _tell(self, who: Principal, due: Due, failures: int, problem: HostError) -> None:
        """Whoever looks at the canvas sees that a job fails, why, and how rarely it is tried now."""
        events = events_of(who, due.canvas_id)
        error = {"code": problem.gateway, "name": problem.code, "message": shortened(self._audit.redacted(problem.message), LONGEST_REASON)}
        told = {
            "refreshId": due.refresh_id,
            "actionId": due.action_id,
            "error": error,
            "failures": failures,
            "retryInMs": round(next_delay(due.every_ms, failures, 0) * 1000),
        }

        def decide(whole: WholeCanvas) -> Change:
            return Change(events=[events.refresh_failed(whole.canvas.revision, told)], is_mutation=False)

        await self._changes.make(who, due.canvas_id, decide)
