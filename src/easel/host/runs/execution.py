"""The execution of one claimed run, from loading its input to storing its end.

Owns the outcome of a run: completed, failed with a reason, cancelled, or back into the queue. Hidden canvas
updates are written at its start and with its end. Does not know claims of other runs (`worker`).
"""

import asyncio
from collections.abc import Callable

import structlog

from easel.core.run.deltas import shorten
from easel.core.run.run import Claim, ClaimLost
from easel.core.run.status import Status
from easel.errors import HostError, InternalError, RunTimedOut
from easel.host.audit.audit import Audit
from easel.host.metrics import RUNS_ENDED
from easel.host.ports import ArtifactAccess, RunStore
from easel.host.runs.claimed_run import ClaimedRun, StopReason
from easel.host.runs.hidden_updates import HiddenUpdates
from easel.host.runs.history import read_final_progress, read_progress
from easel.host.runs.log_writer import NO_UPDATES, Updates, retry_until_available
from easel.host.runs.tool_loop import ReleaseRun, ToolLoop, Transcript
from easel.ids import new_reference

log = structlog.get_logger("worker")


class RunExecution:
    def __init__(
        self,
        runs: RunStore,
        artifacts: ArtifactAccess,
        tool_loop: ToolLoop,
        updates: HiddenUpdates,
        *,
        audit: Audit,
        timeout_seconds: float,
    ) -> None:
        self._runs = runs
        self._artifacts = artifacts
        self._tool_loop = tool_loop
        self._updates = updates
        self._audit = audit
        self._timeout_seconds = timeout_seconds

    async def execute(self, run: ClaimedRun, should_release: Callable[[], bool]) -> bool:
        """Execute the run and store its end. Returns False if it must go back into the queue."""
        transcript = Transcript()
        outcome = await self._outcome(run, should_release, transcript)
        run.is_ending = True
        if outcome is None:
            return False
        status, error = outcome
        if not transcript.is_loaded:
            progress = await read_final_progress(self._runs, self._artifacts, run.claim)
            transcript.steps, transcript.unfinished = progress.steps, [progress.unfinished]
        updates = await self._collect_updates(run, transcript)
        await run.log.end(transcript.text, status, error, usage=transcript.usage, updates=updates)
        RUNS_ENDED.labels(status.value).inc()
        return True

    async def _outcome(
        self, run: ClaimedRun, should_release: Callable[[], bool], transcript: Transcript
    ) -> tuple[Status, str | None] | None:
        """Execute the run. Returns its final status and reason; None when it must go back into the queue."""
        claim = run.claim
        timeout = asyncio.timeout(max(0.0, self._timeout_seconds - claim.running_seconds))
        try:
            run.check_may_start()
            if claim.cancel_requested or run.stop_reason is StopReason.CANCEL:
                return Status.CANCELLED, None
            async with timeout:
                ids = claim.account_id, claim.run_id, claim.last_seq
                progress = await retry_until_available(
                    lambda: read_progress(self._runs, self._artifacts, *ids)
                )
                updates = await self._updates.report_at_start(run.log, progress)
                await self._tool_loop.run(progress, updates, run.log, should_release, transcript)
        except ReleaseRun:
            return None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if run.stop_reason in (None, StopReason.CLAIM_LOST) or task is None:
                raise
            task.uncancel()
            return None if run.stop_reason is StopReason.RELEASE else (Status.CANCELLED, None)
        except ClaimLost:
            raise
        except Exception as problem:  # noqa: BLE001 - recorded, and the run ends as failed
            if isinstance(problem, TimeoutError) and timeout.expired():
                problem = RunTimedOut(seconds=f"{self._timeout_seconds:g}")
            return Status.FAILED, self._report_failure(claim, problem)
        return Status.COMPLETED, None

    def _report_failure(self, claim: Claim, problem: Exception) -> str:
        """Log and audit why a run failed. Returns the reason that its user is shown."""
        principal, subject = claim.agent, claim.run_id
        if isinstance(problem, HostError):
            self._audit.record_exception(principal, "run.failed", problem, subject=subject)
            # A model provider's error message may quote the API key or the whole request.
            reason = shorten(self._audit.redact(problem.message))
            log.info("run.failed", run_id=claim.run_id, reason=reason)
            return reason
        reference = new_reference()
        self._audit.record_exception(principal, "run.error", problem, reference=reference, subject=subject)
        log.error("run.error", run_id=claim.run_id, reference=reference, exc_info=problem)
        return InternalError(reference=reference).message

    async def _collect_updates(self, run: ClaimedRun, transcript: Transcript) -> Updates:
        """Return the hidden updates of the run's end. If they cannot be made, the next run reports them."""
        try:
            return await self._updates.collect_at_end(run.log, transcript.steps)
        except HostError:
            log.exception("run.updates_left", run_id=run.claim.run_id)
            return NO_UPDATES
