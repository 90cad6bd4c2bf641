"""Refresh jobs: actions that a canvas runs at an interval, on one instance at a time. CV-19, X9

Owns claiming, running and rescheduling the jobs. A claimed job is not started twice. When its instance stops,
the claim expires and another instance claims the job. An instance renews only the claims of jobs that it
runs, so a job whose end could not be stored is due again. A failing job is reported in the canvas log and
backs off.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

import structlog

from easel.core.canvas.canvas import CanvasSnapshot, Change
from easel.core.canvas.refresh import Due, Job, next_delay
from easel.core.principal import Principal, PrincipalKind
from easel.core.run.deltas import shorten
from easel.errors import ActionFailed, HostError, NotFound, Unavailable
from easel.host.actions.request import REFRESH, ActionRequest
from easel.host.actions.service import INTERNAL_ERROR, ActionService
from easel.host.actions.transitions import ActionResources
from easel.host.canvases.transactions import events_for
from easel.host.metrics import REFRESHES
from easel.host.periodic import Periodic

MIN_WAIT_SECONDS = 0.01
MAX_RUNNING = 50  # jobs of one instance, so that actions of people have slots left
MAX_REASON_LENGTH = 300  # characters, so that the event stays within its size limit

log = structlog.get_logger("refresh")


class RefreshScheduler:
    def __init__(
        self,
        resources: ActionResources,
        actions: ActionService,
        *,
        unwatched: bool,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._jobs = resources.executions
        self._actions = actions
        self._changes = resources.changes
        self._audit = resources.audit
        self._limits = resources.limits
        self._unwatched = unwatched  # whether jobs without `onlyWatched` run while their canvas has no view
        self._instance_id = resources.instance_id
        self._random = random
        self.running: dict[Job, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._starting = Periodic(
            "start refresh jobs",
            self._limits.poll_seconds,
            self._start_due_jobs,
            on_error=self._record_exception,
        )
        interval = self._limits.claim_seconds / 3
        self._renewing = Periodic(
            "renew refresh jobs", interval, self.renew, delay=interval, on_error=self._record_exception
        )

    def start(self) -> None:
        self._starting.start()
        self._renewing.start()

    async def stop(self) -> None:
        """Stop claiming jobs and cancel those that run."""
        self._stop_timer()
        await self._starting.stop()
        await self._renewing.stop()
        tasks = list(self.running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- scheduling --------------------------------------------------------------------------------

    async def _start_due_jobs(self) -> None:
        self._stop_timer()
        wait = await self.start_due()
        if wait < self._limits.poll_seconds:
            self._timer = asyncio.get_running_loop().call_later(wait, self._starting.wake)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def start_due(self) -> float:
        """Start the jobs that are due.

        Returns the seconds until the next job is due, at most the poll interval.
        """
        max_wait = self._limits.poll_seconds
        while (due_in := await self._jobs.next_refresh(unwatched=self._unwatched)) is not None:
            if due_in > 0:
                return min(max_wait, max(MIN_WAIT_SECONDS, due_in))
            if not await self.claim_and_start():
                break  # no capacity, or another instance claimed the job first
        return max_wait

    async def claim_and_start(self) -> int:
        """Claim as many due jobs as there is capacity for, and start them. Returns how many."""
        capacity = MAX_RUNNING - len(self.running)
        if capacity <= 0:
            return 0
        # Exclude the jobs that run here: after a suspend or a clock jump their claims may have expired
        # although they still run. X9
        claimed = await self._jobs.claim_refreshes(
            self._instance_id,
            capacity,
            self._limits.claim_seconds,
            running=list(self.running),
            unwatched=self._unwatched,
        )
        for due in claimed:
            self.running[due.job] = task = asyncio.create_task(self._run(due))
            task.add_done_callback(lambda _, job=due.job: self._on_done(job))
        return len(claimed)

    async def renew(self) -> None:
        """Renew the claims of the jobs that run here."""
        if self.running:
            await self._jobs.renew_refreshes(
                self._instance_id, list(self.running), self._limits.claim_seconds
            )

    def _on_done(self, job: Job) -> None:
        del self.running[job]
        self._starting.wake()

    # -- running -----------------------------------------------------------------------------------

    async def _run(self, due: Due) -> None:
        """Run the action and store when the job is due next.

        If that time cannot be stored, the claim expires and the job is due again.
        """
        started = time.monotonic()
        principal = Principal(due.account_id, REFRESH, kind=PrincipalKind.SERVICE)
        request = ActionRequest(
            canvas_id=due.canvas_id,
            action_id=due.action_id,
            input={},
            client_id=due.refresh_id,
            trigger=REFRESH,
        )
        problem: HostError | None = ActionFailed(problem=INTERNAL_ERROR)
        with self._supervised(due):
            try:
                await self._actions.execute(principal, request)
                problem = None
            except HostError as failure:
                problem = failure
        with self._supervised(due):
            REFRESHES.labels("completed" if problem is None else "failed").inc()
            failures, error = (0, None) if problem is None else (due.failures + 1, self._error(problem))
            # The interval counts from start to start: a job that is slower than its interval is due at once.
            delay = next_delay(due.every_ms, failures, self._random()) - (time.monotonic() - started)
            # Store the outcome before its event, so that a canvas that is read after the event shows it too.
            await self._jobs.finish_refresh(
                self._instance_id, due, failures=failures, delay=max(0.0, delay), error=error
            )
            if failures or due.failures:
                with contextlib.suppress(NotFound):  # the canvas was deleted with its jobs
                    await self._report(principal, due, failures, error)

    # -- reporting ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _supervised(self, due: Due) -> Generator[None]:
        """Log and record an unexpected error of a job instead of raising it."""
        names = {"canvas": due.canvas_id, "refresh": due.refresh_id}
        try:
            yield
        except Unavailable:
            log.info("refresh.database_unavailable", **names)
        except Exception as problem:
            log.exception("refresh.error", **names)
            self._record_exception(problem, **names)

    def _record_exception(self, problem: Exception, **details: str) -> None:
        self._audit.record_exception(None, "worker.error", problem, details={"duty": "refresh", **details})

    def _error(self, problem: HostError) -> dict[str, Any]:
        message = shorten(self._audit.redact(problem.message), MAX_REASON_LENGTH)
        return {"code": problem.gateway, "name": problem.code, "message": message}

    async def _report(
        self, principal: Principal, due: Due, failures: int, error: Mapping[str, Any] | None
    ) -> None:
        """Append an event to the canvas log. RS-45

        The event is the failure of the job with its error and retry time, or the recovery of the job.
        """
        events = events_for(principal, due.canvas_id)
        names = {"refreshId": due.refresh_id, "actionId": due.action_id}
        retry_ms = round(next_delay(due.every_ms, failures, 0) * 1000)

        def decide(snapshot: CanvasSnapshot) -> Change | None:
            revision = snapshot.canvas.revision
            if error is None:
                return Change(events=[events.refresh_recovered(revision, names)], is_mutation=False)
            if all(job.refresh_id != due.refresh_id for job in snapshot.failing):
                return None  # a new spec removed the job, so its recovery would never be reported
            payload = {**names, "error": error, "failures": failures, "retryInMs": retry_ms}
            return Change(events=[events.refresh_failed(revision, payload)], is_mutation=False)

        await self._changes.apply(principal, due.canvas_id, decide)
