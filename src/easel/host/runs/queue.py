"""The queue of runs: start, find and cancel them.

Owns validation, idempotency and notifications. Does not execute runs: that is the worker.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from easel.core.principal import Principal, Role
from easel.core.run.batch import QueueDepth
from easel.core.run.conversation import Usage
from easel.core.run.events import RunEvents, message_of_unstarted_run
from easel.core.run.run import NewRun, Run
from easel.core.run.status import Status
from easel.core.session.events import session_change_by
from easel.core.session.message import Message, message, question
from easel.core.session.session import make_title
from easel.core.stream.envelope import Envelope
from easel.core.stream.message_text import take_out_runs
from easel.core.stream.notifications import (
    AccountAppended,
    CancelRequested,
    RunAppended,
    RunReady,
    ThreadAppended,
)
from easel.errors import BadInput, NotFound, RunFinished, TooLarge, Unavailable
from easel.host.audit.audit import Audit
from easel.host.canvas_heads import notify_canvases
from easel.host.metrics import QUEUE_DEPTH, RUNS_ENQUEUED
from easel.host.ports import ArtifactAccess, LogSource, Notifier, RunStore
from easel.host.runs.history import read_progress
from easel.ids import AccountId, RunId, SessionId, answer_id, is_generated_id, is_name, new_run_id, scoped_key

MAX_KEY_LENGTH = 200
UNCOUNTED_SHARE = 8
INVALID_SESSION_ID = (
    "session_id must be 1 to 128 letters, digits or . _ : - and begin with a letter or digit."
)


class QueuedRuns:
    """Decides whether to count the queued runs of an account: often if the account is near its limit.

    Counting reads as many rows as the account has queued runs. So after a count this instance enqueues an
    eighth of the rest without another one.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._uncounted: dict[AccountId, int] = {}  # runs to enqueue before the next count

    def limit_now(self, account_id: AccountId) -> int:
        """Return the limit if the queued runs must be counted now, else 0."""
        left = self._uncounted.pop(account_id, 0)
        if left > 1:
            self._uncounted[account_id] = left - 1
        return 0 if left else self._limit

    def note(self, account_id: AccountId, queued_count: int | None) -> None:
        if queued_count is not None and (left := (self._limit - queued_count) // UNCOUNTED_SHARE) > 0:
            self._uncounted[account_id] = left


class RunQueue:
    def __init__(
        self,
        runs: RunStore,
        artifacts: ArtifactAccess,
        notifier: Notifier,
        audit: Audit,
        *,
        canvases: LogSource,
        max_attempts: int,
        max_message_bytes: int,
        max_queued: int = 0,
    ) -> None:
        self._runs = runs
        self._artifacts = artifacts
        self._audit = audit
        self._notifier = notifier
        self._canvases = canvases
        self._max_attempts = max_attempts
        self.max_message_bytes = max_message_bytes
        self._queued = QueuedRuns(max_queued)

    async def start(
        self, principal: Principal, session_id: str, text: str, idempotency_key: str | None = None
    ) -> Run:
        """Enqueue a run and notify the workers. The run is durable when this returns. RX-31"""
        new = self._to_new_run(principal, session_id, text, idempotency_key)
        if new.question and new.question.offloaded:
            await self._artifacts.store(principal.account_id, new.question.offloaded)
        enqueued = await self._runs.enqueue(replace(new, max_queued=self._queued.limit_now(new.account_id)))
        self._queued.note(new.account_id, enqueued.queued_count)
        if enqueued.is_new:
            RUNS_ENQUEUED.inc()
            self._notifier.notify(RunReady(prefers=enqueued.prefers))
            if enqueued.thread_seq is not None:
                self._notifier.notify(
                    ThreadAppended(scoped_key(principal.account_id, session_id), enqueued.thread_seq)
                )
            if enqueued.account_seq is not None:
                self._notifier.notify(AccountAppended(principal.account_id, enqueued.account_seq))
            await notify_canvases(self._canvases, self._notifier, principal.account_id, enqueued.preempted)
        return enqueued.run

    def _to_new_run(self, principal: Principal, session_id: str, text: str, key: str | None) -> NewRun:
        if not is_name(session_id):
            raise BadInput(problem=INVALID_SESSION_ID)
        if len(text.encode()) > self.max_message_bytes:
            raise TooLarge(what="message", limit=self.max_message_bytes)
        if not text or "\x00" in text:
            raise BadInput(problem="message must not be empty or contain NUL characters.")
        if key is not None and (not 0 < len(key) <= MAX_KEY_LENGTH or not key.isprintable()):
            raise BadInput(problem=f"idempotency_key must be 1 to {MAX_KEY_LENGTH} printable characters.")
        digest = hashlib.sha256(f"{session_id}\x00{text}".encode()).hexdigest() if key is not None else None
        run_id = new_run_id()
        light = take_out_runs(text)
        return NewRun(
            run_id,
            principal.account_id,
            SessionId(session_id),
            light.text,
            self._max_attempts,
            key,
            digest,
            question(run_id, light),
            make_title(text),
            light.attachments,
            session_change_by(principal, run_id),
            started_by=principal.responsible,
            started_role=Role.MEMBER if principal.responsible is None else principal.role,
        )

    async def get(self, principal: Principal, run_id: str) -> Run:
        run = await self._runs.get(principal.account_id, RunId(run_id)) if is_generated_id(run_id) else None
        if run is None:
            raise NotFound(what="run", id=run_id)
        return run

    async def read_usage(self, run: Run) -> Usage | None:
        """Return the tokens that an ended run used, None if it called no model that counts them.

        They are in the last event of the log, which no retention deletes.
        """
        if not run.is_terminal:
            return None
        events = await self._runs.events_after(run.run_id, run.last_seq - 1, 1)
        usage = msgspec.json.decode(events[0].data).get("usage") if events else None
        return Usage.from_json(usage) if usage else None

    async def list_runs(
        self,
        principal: Principal,
        session_id: str | None,
        statuses: Sequence[Status],
        before: int | None,
        limit: int,
    ) -> list[Run]:
        if session_id is not None and not is_name(session_id):
            raise BadInput(problem=INVALID_SESSION_ID)
        session = SessionId(session_id) if session_id is not None else None
        return await self._runs.list_runs(
            principal.account_id, session_id=session, statuses=statuses, before=before, limit=limit
        )

    async def cancel(self, principal: Principal, run_id: str) -> Run:
        """Cancel a queued run, or request the cancellation of a running one without waiting. RX-12, RS-37"""
        while True:
            closing, answer = await self._prepare_end(principal, RunId(run_id))
            result = await self._runs.request_cancel(principal.account_id, RunId(run_id), closing, answer)
            if result is None or not result.must_retry:
                break
        if result is None:
            raise NotFound(what="run", id=run_id)
        run = result.run
        if run.is_terminal and not result.changed:
            raise RunFinished(run_id=run_id, status=run.status.value)
        await self._audit.record(principal, "run.cancelled", subject=run_id)
        self._notifier.notify(
            RunAppended(run.run_id, run.last_seq) if run.is_terminal else CancelRequested(run.run_id)
        )
        if result.thread_seq is not None:
            self._notifier.notify(
                ThreadAppended(scoped_key(run.account_id, run.session_id), result.thread_seq)
            )
        if result.turn_passed:
            self._notifier.notify(RunReady(prefers=result.prefers))
        await notify_canvases(self._canvases, self._notifier, run.account_id, result.preempted)
        return run

    async def _prepare_end(
        self, principal: Principal, run_id: RunId
    ) -> tuple[list[Envelope] | None, Message | None]:
        """Return the last events and the answer of a queued run; None for a run that a worker ends."""
        events = RunEvents(run_id, agent_id=principal.actor_id, node_id="cancel", kind=principal.actor_kind)
        run = await self.get(principal, run_id)
        if run.status is not Status.QUEUED:
            return None, None  # the run's worker writes its closing events
        if run.started_at is None:
            return events.end_without_message(Status.CANCELLED), message_of_unstarted_run(run_id)
        progress = await read_progress(
            self._runs, self._artifacts, principal.account_id, run_id, run.last_seq
        )
        text = progress.text
        answer = message(answer_id(run_id), text)
        closing = events.end_with_message(answer_id(run_id), text, Status.CANCELLED, None)
        await self._artifacts.store(
            principal.account_id,
            [offloaded for source in (answer, *closing) for offloaded in source.offloaded],
        )
        return closing, answer

    async def measure(self) -> None:
        """Update the metrics of the queue. An unavailable store is reported as -1, not as an error."""
        try:
            depth = await self._runs.queue_depth()
        except Unavailable:
            depth = QueueDepth(-1, -1, -1)
        for state in ("ready", "waiting", "running"):
            QUEUE_DEPTH.labels(state).set(getattr(depth, state))
