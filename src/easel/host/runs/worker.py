"""The worker: claims runs, executes many at once, renews its claims and stops in time.

Owns the claims of one process: capacity, renewal, cancellation, take-over and drain. The store's clock
decides when a claim expires; the worker stops an unrenewed run before then, by its own monotonic clock. Does
not know how a run is executed (`execution`) or how its log is written (`log_writer`).
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

import structlog

from easel.core.run.events import UNCLAIMED_RUN_ID, RunEvents
from easel.core.run.run import Claim, ClaimLost
from easel.core.stream.notifications import CancelRequested, Notification, RunAppended, RunReady
from easel.errors import Unavailable
from easel.host.audit.audit import Audit
from easel.host.metrics import (
    CLAIM_SECONDS,
    CLAIMS_LOST,
    QUEUE_SECONDS,
    RUNS_RELEASED,
    RUNS_RUNNING,
    TAKEOVERS,
)
from easel.host.periodic import Periodic, Work
from easel.host.ports import ArtifactAccess, Notifier, RunStore
from easel.host.runs.claimed_run import ClaimedRun, StopReason
from easel.host.runs.execution import RunExecution
from easel.host.runs.log_writer import AGENT, NODE, RunLogWriter, retry_until_available
from easel.ids import RunId, WorkerId

# A claim searches the queue only from this many turns before the latest turn claimed here. One claim per poll
# searches the whole queue, so that the slow scan of old entries at its head happens once per poll.
NEAR_TURNS = 1_000
SAFETY = 0.1  # of the claim time: an unrenewed run is stopped this long before its claim expires
# The appends of a busy run lock its row for much of the time: a renewal that finds it locked is soon retried.
RENEW_ATTEMPTS, RENEW_PAUSE = 20, 1 / 300  # the pause is a part of the claim time
MERGE_SECONDS = 0.01  # runs that prefer another worker are claimed together if they came within this time
PRUNE_SECONDS = 60.0
# The store fills in run id and attempt when a run is claimed.
RUN_START = RunEvents(UNCLAIMED_RUN_ID, agent_id=AGENT, node_id=NODE).start(0)

log = structlog.get_logger("worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    slots: int  # runs executed at once
    claim_seconds: float
    poll_seconds: float
    drain_seconds: float
    prefer_seconds: float = 0  # head start of the worker that last executed a run of the session
    retention_seconds: float = 0  # 0: keep logs for ever


class RunWorker:
    def __init__(
        self,
        worker_id: WorkerId,
        runs: RunStore,
        artifacts: ArtifactAccess,
        notifier: Notifier,
        execution: RunExecution,
        *,
        limits: WorkerLimits,
        audit: Audit,
        background_tasks: Sequence[Periodic] = (),
    ) -> None:
        self.worker_id = worker_id
        self._runs = runs
        self._artifacts = artifacts
        self._notifier = notifier
        self._execution = execution
        self._limits = limits
        self._audit = audit
        self._running: dict[RunId, ClaimedRun] = {}
        self._failed_ends: Counter[RunId] = Counter()  # of runs that this worker could not end
        RUNS_RUNNING.set_function(lambda: len(self._running))
        self._deferred_until = 0.0
        self._latest_turn = 0
        self._search_all_at = 0.0
        self._claims_uncertain_until = 0.0
        self._is_draining = False
        self._claiming = self._periodic("worker.claim", limits.poll_seconds, self._claim_available)
        self._background_tasks = [
            self._periodic("worker.renew", limits.claim_seconds / 3, self.renew_claims),
            self._periodic("worker.guard", limits.claim_seconds * SAFETY / 2, self.stop_expiring_runs),
            self._periodic("worker.cancel", limits.poll_seconds, self._poll_cancels),
            *map(self._audited, background_tasks),
        ]
        if limits.retention_seconds:
            self._background_tasks.append(self._periodic("worker.prune", PRUNE_SECONDS, self._prune_logs))
        notifier.listen(self._on_notification)

    def _periodic(self, name: str, every: float, work: Work) -> Periodic:
        return self._audited(Periodic(name, every, work))

    def _audited(self, task: Periodic) -> Periodic:
        """Record the errors of a task in the audit trail."""

        def record(problem: Exception) -> None:
            self._audit.record_exception(None, "worker.error", problem, details={"duty": task.name})

        task.on_error = record
        return task

    # -- start and stop --------------------------------------------------------------------------------------

    async def work(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then drain: let current steps end for a while, and release the runs."""
        if self._limits.prefer_seconds:  # runs queued before this worker started may prefer another one
            self._defer_claim()
        claiming = asyncio.create_task(self._claiming.run(), name=self._claiming.name)
        tasks = [asyncio.create_task(task.run(), name=task.name) for task in self._background_tasks]
        log.info(
            "worker.started",
            worker_id=self.worker_id,
            slots=self._limits.slots,
            claim_seconds=self._limits.claim_seconds,
        )
        await stop.wait()
        claiming.cancel()
        await self._drain(claiming)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        log.info("worker.stopped", worker_id=self.worker_id)

    async def _drain(self, claiming: asyncio.Task[None]) -> None:
        self._is_draining = True
        with contextlib.suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(self._limits.drain_seconds):
                await asyncio.wait([claiming])
                await self._recover_unacknowledged_claims()
                while self._running:
                    await asyncio.wait([run.task for run in self._running.values()])
        for run in list(self._running.values()):
            run.request_stop(StopReason.RELEASE)
        while self._running:
            await asyncio.wait([run.task for run in self._running.values()])

    def _on_notification(self, notification: Notification) -> None:
        match notification:
            case RunReady(anywhere, prefers):
                if anywhere:
                    self._search_all_at = 0.0
                if prefers is not None and prefers != self.worker_id and self._limits.prefer_seconds:
                    self._defer_claim()
                else:
                    self._claiming.wake()
            case CancelRequested(run_id):
                self._cancel(run_id)
            case _:
                pass

    def _cancel(self, run_id: RunId) -> None:
        if run := self._running.get(run_id):
            run.request_stop(StopReason.CANCEL)

    # -- claiming --------------------------------------------------------------------------------------------

    async def _claim_available(self) -> None:
        """Claim until the queue is empty or all slots are taken. A notification starts the next round."""
        try:
            while (capacity := self._capacity()) > 0 and await self.once() >= capacity:
                pass
        except Exception:
            retry_seconds = min(self._limits.poll_seconds, self._limits.claim_seconds / 4)
            asyncio.get_running_loop().call_later(retry_seconds, self._claiming.wake)
            raise

    async def once(self) -> int:
        """Claim as many runs as there is capacity for, and start them. Returns how many."""
        capacity = self._capacity()
        if capacity <= 0:
            return 0
        with CLAIM_SECONDS.time():
            if time.monotonic() < self._search_all_at:
                return await self._claim(capacity, after_turn=max(0, self._latest_turn - NEAR_TURNS))
            recovered = await self._recover_unacknowledged_claims()
            # Runs with an expired claim are late already, so they may take all free slots, not only half.
            taken_over = await self._take_over(self._limits.slots - len(self._running))
            capacity = self._capacity()
            queued = await self._claim(capacity, after_turn=0) if capacity > 0 else 0
            self._search_all_at = time.monotonic() + self._limits.poll_seconds
        return recovered + taken_over + queued

    def _capacity(self) -> int:
        """Return how many runs to claim next: at most half of the slots.

        Short runs that are claimed together also end together. If they filled all slots, worker and store
        would wait for each other in turn; in two halves, one half is executed while the other is stored.
        """
        return min(self._limits.slots - len(self._running), (self._limits.slots + 1) // 2)

    def _defer_claim(self) -> None:
        """Claim after the head start of the worker that a run prefers, which may be stopped or full. RX-51"""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._limits.prefer_seconds
        if self._deferred_until < ends_at:  # else the call that is already scheduled covers this run too
            self._deferred_until = ends_at + MERGE_SECONDS
            loop.call_at(self._deferred_until, self._claim_deferred_runs, self._latest_turn)

    def _claim_deferred_runs(self, turn: int) -> None:
        if self._latest_turn - turn > NEAR_TURNS // 2:  # a search near the end of the queue might miss them
            self._search_all_at = 0.0
        self._claiming.wake()

    async def _claim(self, capacity: int, *, after_turn: int) -> int:
        return await self._start_claimed(
            self._runs.claim_queued(
                self.worker_id,
                capacity,
                self._limits.claim_seconds,
                after_turn,
                RUN_START,
                prefer_seconds=self._limits.prefer_seconds,
            )
        )

    async def _take_over(self, capacity: int) -> int:
        """Claim runs whose claim has expired. Returns how many.

        A run on its last attempt may be the run that crashes its workers. So each worker executes at most one
        such run at a time: if that run crashes the worker again, no other run loses its last attempt. J6
        """
        count = await self._claim_expired(capacity, last_chance=False)
        if count < capacity and not any(run.claim.is_last_chance for run in self._running.values()):
            count += await self._claim_expired(1, last_chance=True)
        TAKEOVERS.inc(count)
        return count

    async def _claim_expired(self, capacity: int, *, last_chance: bool) -> int:
        return await self._start_claimed(
            self._runs.claim_expired(
                self.worker_id,
                capacity,
                self._limits.claim_seconds,
                last_chance=last_chance,
                opening=RUN_START,
            )
        )

    async def _recover_unacknowledged_claims(self) -> int:
        """Start runs that this worker claimed without receiving the reply, before their claim expires. D4"""
        if time.monotonic() >= self._claims_uncertain_until:
            return 0
        recovered = await self._start_claimed(
            self._runs.claim_unacknowledged(
                self.worker_id, self._running.keys(), self._limits.claim_seconds, opened=True
            )
        )
        if recovered:
            log.info("worker.claims_recovered", runs=recovered)
        return recovered

    async def _start_claimed(self, claiming: Awaitable[Sequence[Claim]]) -> int:
        """Claim runs and start them. Returns how many. Without a reply, the claim may have been made.

        No `await` is between the claim and the starts: a claimed run that is not started loses an attempt.
        """
        claim_expires_at = time.monotonic() + self._limits.claim_seconds
        try:
            claims = await claiming
        except (Unavailable, asyncio.CancelledError):
            self._claims_uncertain_until = time.monotonic() + self._limits.claim_seconds
            self._search_all_at = 0.0
            raise
        for claim in claims:
            self._start_run(claim, claim_expires_at)
        return len(claims)

    def _start_run(self, claim: Claim, claim_expires_at: float) -> None:
        if claim.is_takeover:
            log.info(
                "run.taken_over", run_id=claim.run_id, attempt=claim.attempt, max_attempts=claim.max_attempts
            )
        else:
            QUEUE_SECONDS.observe(claim.queued_seconds)
        self._latest_turn = max(self._latest_turn, claim.turn_no)
        if (stale := self._running.get(claim.run_id)) is not None:  # this worker's expired claim
            stale.request_stop(StopReason.CLAIM_LOST)
        run = ClaimedRun(claim, claim_expires_at, self._failed_ends[claim.run_id])
        if not claim.is_exhausted:  # the claim has appended the opening event of this attempt
            self._notifier.notify(RunAppended(claim.run_id, claim.last_seq + 1))
        run.log = RunLogWriter(
            claim,
            self._runs,
            self._artifacts,
            self._notifier,
            self._audit,
            on_cancel_requested=lambda: run.request_stop(StopReason.CANCEL),
        )
        run.task = asyncio.create_task(self._execute(run))
        self._running[claim.run_id] = run
        run.task.add_done_callback(lambda _: self._on_run_done(run))

    def _on_run_done(self, run: ClaimedRun) -> None:
        if not run.task.cancelled() and (problem := run.task.exception()) is not None:
            # The claim expires, and a worker takes over the run.
            log.error("run.not_ended", run_id=run.claim.run_id, exc_info=problem)
            self._failed_ends[run.claim.run_id] += 1
        else:
            self._failed_ends.pop(run.claim.run_id, None)
        if self._running.get(run.claim.run_id) is run:
            del self._running[run.claim.run_id]
        if run.claim.is_last_chance:
            self._search_all_at = 0.0  # the next run on its last attempt may be waiting
        self._claiming.wake()

    # -- executing one run -----------------------------------------------------------------------------------

    async def _execute(self, run: ClaimedRun) -> None:
        run.has_started = True
        try:
            if await self._execution.execute(run, lambda: self._is_draining):
                return
            await self._release(run)
        except (ClaimLost, asyncio.CancelledError):
            if run.stop_reason is not StopReason.CLAIM_LOST and not run.log.claim_lost:
                raise
            CLAIMS_LOST.inc()
            log.warning("run.claim_lost", run_id=run.claim.run_id, attempt=run.claim.attempt)

    async def _release(self, run: ClaimedRun) -> None:
        """Put the run back into the queue for another worker."""
        await run.log.flush()
        if await retry_until_available(lambda: self._runs.release_claim(run.claim)):
            RUNS_RELEASED.inc()
            log.info("run.released", run_id=run.claim.run_id, attempt=run.claim.attempt)
            self._notifier.notify(RunReady(anywhere=True))

    # -- keeping claims --------------------------------------------------------------------------------------

    async def renew_claims(self) -> None:
        """Renew all claims, stop runs whose claim is lost, and cancel runs whose cancel was requested."""
        runs = list(self._running.values())
        for _ in range(RENEW_ATTEMPTS):
            if not runs or not (runs := await self._renew(runs)):
                break
            await asyncio.sleep(self._limits.claim_seconds * RENEW_PAUSE)

    async def _renew(self, runs: Sequence[ClaimedRun]) -> list[ClaimedRun]:
        """Renew these claims. Returns the runs whose valid claim was not renewed: their row is locked."""
        now = time.monotonic()
        renewed = await self._runs.renew([run.claim for run in runs], self._limits.claim_seconds)
        for run in runs:
            if run.claim.run_id not in renewed:
                if not run.is_ending and not run.task.done():
                    run.request_stop(StopReason.CLAIM_LOST)
            elif (cancel_requested := renewed[run.claim.run_id]) is not None:
                run.claim_expires_at = now + self._limits.claim_seconds
                if cancel_requested:
                    run.request_stop(StopReason.CANCEL)
        return [run for run in runs if renewed.get(run.claim.run_id, False) is None]

    async def stop_expiring_runs(self) -> None:
        """Stop unrenewed runs before their claim expires, so that two workers never execute one run. J7"""
        expires_before = time.monotonic() + self._limits.claim_seconds * SAFETY
        for run in list(self._running.values()):
            if run.claim_expires_at <= expires_before and not run.task.done():
                run.request_stop(StopReason.CLAIM_LOST)

    async def _poll_cancels(self) -> None:
        if self._running:
            for run_id in await self._runs.requested_cancels(self.worker_id):
                self._cancel(run_id)

    async def _prune_logs(self) -> None:
        while pruned := await self._runs.prune(self._limits.retention_seconds):
            log.info("logs.pruned", runs=len(pruned))
