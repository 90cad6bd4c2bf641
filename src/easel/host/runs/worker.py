"""The worker: claims runs, executes many at once, keeps its claims alive and lets go in time.

Owns the holding of runs: room, renewal, cancel, take-over, drain. A claim's end is decided by the store's clock; the
worker only makes sure, by its own monotonic clock, that it has stopped before that. What a run does is the tool
loop's business, what it writes is the run log's.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Generator, Sequence

import structlog

from easel.core.run.deltas import shorten
from easel.core.run.events import RunEvents
from easel.core.run.progress import Progress
from easel.core.run.run import Claim, ClaimLost
from easel.core.run.status import Status
from easel.core.stream.notifications import CancelRequested, Notification, RunAppended, RunReady
from easel.errors import AttemptsExhausted, HostError, InternalError, RunTimedOut, Unavailable
from easel.host.audit import Audit, agent_of
from easel.host.metrics import (
    CLAIM_SECONDS,
    CLAIMS_LOST,
    QUEUE_SECONDS,
    RUNS_ENDED,
    RUNS_RELEASED,
    RUNS_RUNNING,
    TAKEOVERS,
)
from easel.host.ports import ArtifactAccess, Notifier, RunStore
from easel.host.runs.claimed_run import ClaimedRun, Stop
from easel.host.runs.history import read_progress
from easel.host.runs.log_writer import AGENT, NODE, RunLogWriter, retry_until_available
from easel.host.runs.preferred_worker import PreferredWorkerDelay
from easel.host.runs.tool_loop import HandBack, ToolLoop, Transcript
from easel.ids import RunId, WorkerId, new_reference

NEAR_TURNS = 1_000  # claims look this far back; once a poll they look everywhere, so a pinned past costs one look a second
SAFETY = 0.1  # the part of a claim that is kept in reserve: by then a worker that could not renew has stopped
PRUNE_SECONDS = 60.0
OPENING = RunEvents.opening(agent_id=AGENT, node_id=NODE)
QUIET_SECONDS = 10.0  # a database that stays away is told this often, not every second


log = structlog.get_logger("worker")


class RunWorker:
    def __init__(
        self,
        worker_id: WorkerId,
        runs: RunStore,
        keeper: ArtifactAccess,
        notifier: Notifier,
        tool_loop: ToolLoop,
        *,
        slots: int,
        claim_seconds: float,
        poll_seconds: float,
        drain_seconds: float,
        run_timeout_seconds: float,
        audit: Audit,
        prefer_seconds: float = 0,
        retention_seconds: float = 0,
        also: Sequence[Callable[[], Awaitable[None]]] = (),
    ) -> None:
        self.worker_id = worker_id
        self._runs = runs
        self._keeper = keeper
        self._notifier = notifier
        self._tool_loop = tool_loop
        self._slots = slots
        self._claim_seconds = claim_seconds
        self._poll_seconds = poll_seconds
        self._drain_seconds = drain_seconds
        self._run_timeout = run_timeout_seconds
        self._retention = retention_seconds
        self._audit = audit
        self._also = also
        self._held: dict[RunId, ClaimedRun] = {}
        RUNS_RUNNING.set_function(lambda: len(self._held))
        self._wake = asyncio.Event()
        self._left = PreferredWorkerDelay(prefer_seconds, self._look_for_what_was_left)
        self._latest_turn = 0
        self._sweep_at = 0.0
        self._in_doubt_until = 0.0
        self._is_draining = False
        notifier.listen(self._on_notification)

    # -- the life of the worker ------------------------------------------------------------------------------------

    async def work(self, stop: asyncio.Event) -> None:
        """Until told to stop; then lets steps end for a while and hands the rest back, so that others go on at once."""
        duties = [
            self._claim_forever,
            self._renew_forever,
            self._guard_forever,
            self._look_for_cancels_forever,
            *self._also,
        ]
        if self._retention:
            duties.append(self._prune_forever)
        tasks = [asyncio.create_task(self._keep_at(duty), name=duty.__name__) for duty in duties]
        log.info(
            "worker.started", worker_id=self.worker_id, slots=self._slots, claim_seconds=self._claim_seconds
        )
        await stop.wait()
        claiming = tasks.pop(0)
        claiming.cancel()
        await self._drain(claiming)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        log.info("worker.stopped", worker_id=self.worker_id)

    async def _keep_at(self, duty: Callable[[], Awaitable[None]]) -> None:
        """A duty is never given up: what goes wrong is logged and it begins again."""
        told_at = -QUIET_SECONDS
        while True:
            try:
                await duty()
            except Unavailable:
                if time.monotonic() - told_at >= QUIET_SECONDS:
                    told_at = time.monotonic()
                    log.warning("worker.database_unavailable", duty=duty.__name__.strip("_"))
            except Exception as problem:
                log.exception("worker.duty_error", duty=duty.__name__.strip("_"))
                self._audit.record_exception(None, "worker.error", problem, details={"duty": duty.__name__.strip("_")})
            await asyncio.sleep(min(self._poll_seconds, self._claim_seconds / 4))

    async def _drain(self, claiming: asyncio.Task[None]) -> None:
        self._is_draining = True
        with contextlib.suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(self._drain_seconds):
                await asyncio.wait([claiming])
                await self._claim_unheard()
                while self._held:
                    await asyncio.wait([held.task for held in self._held.values()])
        for held in list(self._held.values()):
            held.end_by(Stop.HAND_BACK)
        while self._held:
            await asyncio.wait([held.task for held in self._held.values()])

    def _on_notification(self, notification: Notification) -> None:
        match notification:
            case RunReady(anywhere, prefers):
                if anywhere:
                    self._sweep_at = 0.0
                if prefers is not None and prefers != self.worker_id and self._left.seconds:
                    self._left.leave(self._latest_turn)
                else:
                    self._wake.set()
            case CancelRequested(run_id):
                if held := self._held.get(run_id):
                    held.end_by(Stop.CANCEL)
            case _:
                pass

    # -- claiming --------------------------------------------------------------------------------------------------

    async def _claim_forever(self) -> None:
        if self._left.seconds:  # what was rung before we listened may still be another's
            self._left.leave(self._latest_turn)
        while True:
            self._wake.clear()
            room = self._room()
            if (
                await self.once() < room or room <= 0
            ):  # what was there is claimed: the bell or the poll tells of more
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_seconds):
                        await self._wake.wait()

    async def once(self) -> int:
        """Claim what there is room for and start it; how many."""
        room = self._room()
        if room <= 0:
            return 0
        with CLAIM_SECONDS.time():
            if time.monotonic() < self._sweep_at:
                return await self._claim(room, after_turn=max(0, self._latest_turn - NEAR_TURNS))
            unheard = await self._claim_unheard()
            # What was lost has waited long enough: as much of it as fits, and not in waves.
            taken_over = await self._take_over(self._slots - len(self._held))
            room = self._room()
            queued = await self._claim(room, after_turn=0) if room > 0 else 0
            self._sweep_at = time.monotonic() + self._poll_seconds
        return unheard + taken_over + queued

    def _room(self) -> int:
        """Half of the slots at most: claimed all at once, short runs would also end all at once, and worker and store would take
        turns in waiting for each other. In two waves, one is at work while the other is being stored."""
        return min(self._slots - len(self._held), (self._slots + 1) // 2)

    def _look_for_what_was_left(self, turn: int) -> None:
        if (
            self._latest_turn - turn > NEAR_TURNS // 2
        ):  # meanwhile so much has passed that a look near the end might miss it
            self._sweep_at = 0.0
        self._wake.set()

    async def _claim(self, room: int, *, after_turn: int) -> int:
        now = time.monotonic()
        prefer = self._left.seconds
        with self._answer_may_be_lost():
            taken = await self._runs.claim_queued(
                self.worker_id, room, self._claim_seconds, after_turn, OPENING, prefer_seconds=prefer
            )
        return self._start(now, taken)

    async def _take_over(self, room: int) -> int:
        """A run on its last attempt may be what kills its workers, so of those each worker holds one at a time: when it
        strikes again, no other run loses its last attempt with it. J6"""
        count = await self._claim_expired(room, last_chance=False)
        if count < room and not any(held.claim.is_last_chance for held in self._held.values()):
            count += await self._claim_expired(1, last_chance=True)
        TAKEOVERS.inc(count)
        return count

    async def _claim_expired(self, room: int, *, last_chance: bool) -> int:
        now = time.monotonic()
        with self._answer_may_be_lost():
            taken = await self._runs.claim_expired(
                self.worker_id, room, self._claim_seconds, last_chance=last_chance, opening=OPENING
            )
        return self._start(now, taken)

    @contextlib.contextmanager
    def _answer_may_be_lost(self) -> Generator[None]:
        """A claim that was not answered may have been made, now or, by a slow network, in a while."""
        try:
            yield
        except (Unavailable, asyncio.CancelledError):
            self._in_doubt_until = time.monotonic() + self._claim_seconds
            self._sweep_at = 0.0
            raise

    async def _claim_unheard(self) -> int:
        """Nobody else would work on such a run until its claim is over. D4"""
        now = time.monotonic()
        if now >= self._in_doubt_until:
            return 0
        with self._answer_may_be_lost():
            unheard = await self._runs.claim_unacknowledged(
                self.worker_id, self._held.keys(), self._claim_seconds, opened=True
            )
        if unheard:
            log.info("worker.claims_unheard", runs=len(unheard))
        return self._start(now, unheard)

    def _start(self, asked_at: float, claims: Sequence[Claim]) -> int:
        """At once, whatever the next statement brings: what is claimed and not worked on would lose an attempt."""
        for claim in claims:
            self._begin_to_hold(claim, good_until=asked_at + self._claim_seconds)
        return len(claims)

    def _begin_to_hold(self, claim: Claim, good_until: float) -> None:
        if claim.is_takeover:
            log.info(
                "run.taken_over", run_id=claim.run_id, attempt=claim.attempt, max_attempts=claim.max_attempts
            )
        self._latest_turn = max(self._latest_turn, claim.turn_no)
        if not claim.is_takeover:
            QUEUE_SECONDS.observe(claim.queued_seconds)
        if (stale := self._held.get(claim.run_id)) is not None:  # our own, which we failed to keep
            stale.end_by(Stop.LOST)
        held = ClaimedRun(claim, good_until)
        if not claim.is_exhausted:
            self._notifier.notify(
                RunAppended(claim.run_id, claim.last_seq + 1)
            )  # the claim has opened its log
        held.log = RunLogWriter(
            claim,
            self._runs,
            self._keeper,
            self._notifier,
            self._audit,
            cancel_asked=lambda: held.end_by(Stop.CANCEL),
        )
        held.task = asyncio.create_task(self._hold(held))
        self._held[claim.run_id] = held
        held.task.add_done_callback(lambda _: self._let_go(held))

    def _let_go(self, held: ClaimedRun) -> None:
        if not held.task.cancelled() and (problem := held.task.exception()) is not None:
            log.error(
                "run.not_ended", run_id=held.claim.run_id, exc_info=problem
            )  # its claim runs out, and it is tried again
        if self._held.get(held.claim.run_id) is held:
            del self._held[held.claim.run_id]
        if held.claim.is_last_chance:
            self._sweep_at = 0.0  # the next one may be waiting for its turn
        self._wake.set()

    # -- executing one run -----------------------------------------------------------------------------------------

    async def _hold(self, held: ClaimedRun) -> None:
        spoken = Transcript()
        held.has_begun = True
        try:
            outcome = await self._outcome(held, spoken)
            held.is_ending = True
            if outcome is None:
                await self._hand_back(held)
                return
            status, error = outcome
            await held.log.end(spoken.text, status, error)
            RUNS_ENDED.labels(status.value).inc()
        except (ClaimLost, asyncio.CancelledError):
            if held.stop is not Stop.LOST and not held.log.is_lost:
                raise
            CLAIMS_LOST.inc()
            log.warning("run.claim_lost", run_id=held.claim.run_id, attempt=held.claim.attempt)

    def _begin(self, held: ClaimedRun) -> None:
        """Whether there is anything to begin: something may have ended the run before its first step."""
        if held.stop is Stop.LOST:
            raise ClaimLost
        if held.stop is Stop.HAND_BACK:
            raise HandBack
        if held.claim.is_exhausted:
            raise AttemptsExhausted(attempts=held.claim.max_attempts)

    async def _outcome(self, held: ClaimedRun, spoken: Transcript) -> tuple[Status, str | None] | None:
        """How the run ends: its status and why; None when it is to go back into the queue."""
        claim = held.claim
        limit = asyncio.timeout(max(0.0, self._run_timeout - claim.running_seconds))
        try:
            self._begin(held)
            if claim.cancel_requested or held.stop is Stop.CANCEL:
                return Status.CANCELLED, None
            async with limit:
                asked, done = await retry_until_available(lambda: self._before(claim))
                await self._tool_loop.play(asked, done, held.log, lambda: self._is_draining, spoken)
        except HandBack:
            return None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if held.stop is None or held.stop is Stop.LOST or task is None:
                raise
            task.uncancel()
            return None if held.stop is Stop.HAND_BACK else (Status.CANCELLED, None)
        except HostError as problem:
            reason = shorten(
                self._audit.redacted(problem.message)
            )  # a provider's answer may quote its key, or all that it was sent
            log.info("run.failed", run_id=claim.run_id, reason=reason)
            self._audit.record_exception(agent_of(claim.user_id), "run.failed", problem, subject=claim.run_id)
            return Status.FAILED, reason
        except ClaimLost:
            raise
        except Exception as problem:
            if isinstance(problem, TimeoutError) and limit.expired():
                too_long = RunTimedOut(seconds=f"{self._run_timeout:g}")
                self._audit.record_exception(agent_of(claim.user_id), "run.failed", too_long, subject=claim.run_id)
                return Status.FAILED, too_long.message
            reference = new_reference()
            log.exception("run.error", run_id=claim.run_id, reference=reference)
            self._audit.record_exception(
                agent_of(claim.user_id), "run.error", problem, reference=reference, subject=claim.run_id
            )
            return Status.FAILED, InternalError(reference=reference).message
        return Status.COMPLETED, None

    async def _before(self, claim: Claim) -> tuple[str, Progress]:
        """What was asked, and what earlier attempts have done."""
        asked = claim.input_text
        if claim.input_artifact is not None:
            asked = (await self._keeper.read(claim.user_id, claim.input_artifact)).decode()
        return asked, await read_progress(
            self._runs, self._keeper, claim.user_id, claim.run_id, claim.last_seq
        )

    async def _hand_back(self, held: ClaimedRun) -> None:
        await held.log.flush()
        if await retry_until_available(lambda: self._runs.release_claim(held.claim)):
            RUNS_RELEASED.inc()
            log.info("run.handed_back", run_id=held.claim.run_id, attempt=held.claim.attempt)
            self._notifier.notify(RunReady(anywhere=True))

    # -- keeping claims --------------------------------------------------------------------------------------------

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(self._claim_seconds / 3)
            await self.renew()

    async def renew(self) -> None:
        asked = list(self._held.values())
        if not asked:
            return
        now = time.monotonic()
        still = await self._runs.renew([held.claim for held in asked], self._claim_seconds)
        for held in asked:
            cancel = still.get(held.claim.run_id)
            if cancel is None:
                if not held.is_ending and not held.task.done():
                    held.end_by(Stop.LOST)
            else:
                held.good_until = now + self._claim_seconds
                if cancel:
                    held.end_by(Stop.CANCEL)

    async def _guard_forever(self) -> None:
        """Stop what could not be renewed before its claim ends, so that two workers never act for one run. J7"""
        reserve = self._claim_seconds * SAFETY
        while True:
            await asyncio.sleep(reserve / 2)
            now = time.monotonic()
            for held in list(self._held.values()):
                if held.good_until - reserve <= now and not held.task.done():
                    held.end_by(Stop.LOST)

    async def _look_for_cancels_forever(self) -> None:
        while True:
            await asyncio.sleep(self._poll_seconds)
            if self._held:
                for run_id in await self._runs.requested_cancels(self.worker_id):
                    if held := self._held.get(run_id):
                        held.end_by(Stop.CANCEL)

    async def _prune_forever(self) -> None:
        while True:
            while pruned := await self._runs.prune(self._retention):
                log.info("logs.pruned", runs=pruned)
            await asyncio.sleep(PRUNE_SECONDS)
