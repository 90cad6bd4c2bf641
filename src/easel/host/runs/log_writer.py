"""The writer of one claimed run's log.

Owns order, batching and the batch key: at most one append is in progress, and events written during it form
the next batch. Text is buffered briefly and becomes delta events. While the store is unavailable, appends are
retried until the claim expires; a lost claim is raised as `ClaimLost`. Unavailable artifacts delay the end of
a run for a limited time only.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from easel.core.document.document import Reported
from easel.core.principal import MAIN_AGENT
from easel.core.run.batch import Appended, Batch
from easel.core.run.conversation import Usage
from easel.core.run.deltas import DELTA_BYTES, DELTA_SECONDS, MAX_HELD_SECONDS, DeltaSplitter, split_text
from easel.core.run.events import RunEvents
from easel.core.run.run import Claim, ClaimLost
from easel.core.run.status import Status
from easel.core.session.message import Message, message
from easel.core.stream.envelope import Envelope
from easel.core.stream.message_text import MessageText, take_out_runs
from easel.core.stream.notifications import RunAppended, RunReady, ThreadAppended
from easel.core.stream.payload_limit import OffloadedValue
from easel.errors import Unavailable
from easel.host.audit import Audit
from easel.host.metrics import APPEND_SECONDS
from easel.host.ports import ArtifactAccess, Notifier, RunStore
from easel.ids import MessageId, answer_id, scoped_key

AGENT, NODE = MAIN_AGENT, "tool_loop"  # the provenance of a run's events
MAX_PENDING = 1_000  # events not yet durable, before `apply_backpressure` waits
RETRY_SECONDS = 0.05
MAX_SHORT_TEXT = 2**18  # characters; a longer text is searched for Base64 outside of the event loop
MAX_ARTIFACT_WAIT_SECONDS = 30.0  # for unavailable artifacts, when a run ends
MAX_SHORTENED_BYTES = 600  # of the text and of the reason in an event that must need no artifact

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Updates:
    """Hidden canvas updates of a batch: their events and messages, and the drafts that they report. CT-51"""

    events: Sequence[Envelope] = ()
    messages: Sequence[Message] = ()
    reported: Sequence[Reported] = ()
    texts: Sequence[MessageText] = ()


NO_UPDATES = Updates()


async def retry_until_available(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Repeat the call while the store is unavailable. The caller is cancelled when its claim expires."""
    while True:
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(RETRY_SECONDS)


class RunLogWriter:
    def __init__(
        self,
        claim: Claim,
        runs: RunStore,
        artifacts: ArtifactAccess,
        notifier: Notifier,
        audit: Audit,
        *,
        on_cancel_requested: Callable[[], None],
    ) -> None:
        self.events = RunEvents(claim.run_id, agent_id=AGENT, node_id=NODE, attempt=claim.attempt)
        self.claim = claim
        self._message_id = answer_id(claim.run_id)
        self._runs = runs
        self._artifacts = artifacts
        self._audit = audit
        self._notifier = notifier
        self._on_cancel_requested = on_cancel_requested
        self._pending: list[Envelope] = []
        self._buffer: list[str] = []  # text of the next delta
        self._buffer_size = 0
        self._splitter = DeltaSplitter()
        self._make_delta = self.events.delta  # of the buffered text; `events.thought` for a thought
        self._flush_timer: asyncio.TimerHandle | None = None
        self._next_batch = 1
        self._ending: tuple[Status, str | None, Message] | None = None
        self._updates = NO_UPDATES  # of the next batch; their events, if any, are pending
        self._give_up_at: float | None = None  # when unavailable artifacts become a failure
        self._write_task: asyncio.Task[None] | None = None
        self._write_scheduled = False
        self._failure: Exception | None = None
        self.claim_lost = False

    def write(self, *events: Envelope) -> None:
        """Queue events in this order; `flush` waits until they are durable."""
        self._flush_deltas()
        self._pending.extend(events)
        self._schedule_write()

    def write_updates(self, updates: Updates) -> None:
        """Queue hidden canvas updates: their events, messages and reports are stored in one batch."""
        self._updates = updates
        self.write(*updates.events)

    def write_text(self, text: str) -> None:
        self._add_to_buffer(self.events.delta, text)

    def write_thought(self, text: str) -> None:
        self._add_to_buffer(self.events.thought, text)

    def repeat_step(self, number: int) -> None:
        """Discard buffered text, and queue an empty delta: readers drop the text of the step so far. RS-80"""
        self._stop_timer()
        self._buffer, self._buffer_size, self._splitter = [], 0, DeltaSplitter()
        self.events.try_number = number
        self._pending.append(self.events.delta(self._message_id, ""))
        self._schedule_write()

    async def flush(self) -> None:
        """Wait until all written events are durable. Raises `ClaimLost` or the error of a failed write."""
        self._flush_deltas()
        while (self._has_pending or self._write_task) and not self.claim_lost:
            if self._failure is not None:
                raise self._failure
            self._start_write()
            if self._write_task is not None:
                await asyncio.shield(self._write_task)
        if self.claim_lost:
            raise ClaimLost

    async def settle(self) -> bool:
        """Write pending events. Returns whether no hidden update is left to write. Never raises."""
        with contextlib.suppress(Exception):
            await self.flush()
        return self._updates is NO_UPDATES

    async def apply_backpressure(self) -> None:
        """Wait when too many events are pending. Raises the error of a failed write."""
        if len(self._pending) > MAX_PENDING or self._failure is not None:
            await self.flush()

    async def end(
        self,
        text: str,
        status: Status,
        error: str | None,
        *,
        usage: Usage | None = None,
        updates: Updates = NO_UPDATES,
    ) -> None:
        """Write pending events, the closing events and the run's outcome in one transaction. RX-28

        If that fails, the pending events are dropped and the events are shortened, so that they need no
        artifact: the run must end all the same. Plain text stays whole in the message. Dropped hidden updates
        are written by the next run of the session.
        """

        def make_end() -> tuple[list[Envelope], Message]:
            whole = text if is_short else take_out_runs(text)
            events = self.events.end_with_message(self._message_id, whole, status, error, usage=usage)
            return events, message(self._message_id, whole)

        is_short = len(text) <= MAX_SHORT_TEXT
        closing, answer = make_end() if is_short else await asyncio.to_thread(make_end)
        self._ending = status, error if status is Status.FAILED else None, answer
        self._failure = None
        self._give_up_at = time.monotonic() + MAX_ARTIFACT_WAIT_SECONDS
        self._flush_deltas()
        if updates.reported:
            self._updates = updates
        self._pending += [*updates.events, *closing]
        try:
            await self._write_now()
        except ClaimLost:
            raise
        except Exception:  # noqa: BLE001 - see above
            self._failure = None
            self._updates = NO_UPDATES
            short, reason = _beginning(text), error and _beginning(error)
            self._pending = self.events.end_with_message(
                self._message_id, short, status, reason, is_truncated=short != text, usage=usage
            )
            if self._ending[2].offloaded:
                self._ending = (*self._ending[:2], message(self._message_id, short))
            await self._write_now()

    async def _write_now(self) -> None:
        """Write pending events in the caller's task, which ends the run and is no longer cancelled.

        Raises `ClaimLost` or the error of a failed write.
        """
        while self._write_task is not None and not self.claim_lost:
            await asyncio.shield(self._write_task)
        if self._failure is None and not self.claim_lost:
            await self._write_pending()
        if self.claim_lost:
            raise ClaimLost
        if self._failure is not None:
            raise self._failure

    def mark_claim_lost(self) -> None:
        """Stop all writes, because the claim is lost."""
        self.claim_lost = True
        self._stop_timer()

    # -- deltas ----------------------------------------------------------------------------------------------

    def _add_to_buffer(self, make_delta: Callable[[MessageId, str], Envelope], text: str) -> None:
        if not text:
            return
        if make_delta != self._make_delta:
            self._flush_deltas()
            self._make_delta = make_delta
        self._buffer.append(text)
        self._buffer_size += len(text)
        if self._buffer_size >= DELTA_BYTES:
            self._flush_deltas(is_end=False)
            self._schedule_write()
        elif self._flush_timer is None or self._buffer_size == len(text):
            # The first text of a delta. A timer that runs already is for Base64 that is held back.
            self._start_timer(DELTA_SECONDS)

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._flush_timer = asyncio.get_running_loop().call_later(seconds, self._on_flush_timer)

    def _on_flush_timer(self) -> None:
        self._flush_deltas(is_end=not self._buffer_size)
        self._schedule_write()

    def _flush_deltas(self, *, is_end: bool = True) -> None:
        """Turn buffered text into events. Without `is_end`, Base64 that may continue is held back."""
        self._stop_timer()
        if self._buffer_size or self._splitter.is_holding:
            deltas = self._splitter.feed("".join(self._buffer), is_end=is_end)
            self._pending += [self._make_delta(self._message_id, delta) for delta in deltas]
            self._buffer.clear()
            self._buffer_size = 0
            if self._splitter.is_holding:
                self._start_timer(MAX_HELD_SECONDS)

    def _stop_timer(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None

    @property
    def _has_pending(self) -> bool:
        return bool(self._pending) or self._updates is not NO_UPDATES

    # -- batches ---------------------------------------------------------------------------------------------

    def _schedule_write(self) -> None:
        # Start at the caller's next `await`, so that all events that it writes before form one batch.
        if self._write_task is None and not self._write_scheduled:
            self._write_scheduled = True
            asyncio.get_running_loop().call_soon(self._start_write)

    def _start_write(self) -> None:
        self._write_scheduled = False
        if self._write_task is None and self._has_pending and not self.claim_lost and self._failure is None:
            self._write_task = asyncio.create_task(self._write_pending())

    async def _write_pending(self) -> None:
        events: list[Envelope] = []
        updates = NO_UPDATES
        try:
            while self._has_pending and not self.claim_lost:
                events, self._pending = self._pending, []
                updates, self._updates = self._updates, NO_UPDATES
                ends_as, error, answer = self._ending or (None, None, None)
                batch = Batch(
                    self.claim,
                    self._next_batch,
                    events,
                    ends_as,
                    error,
                    answer,
                    hidden=updates.messages,
                    reported=updates.reported,
                )
                appended = await self._append(batch)
                if appended is None:
                    self.mark_claim_lost()
                    return
                self._next_batch += 1
                self._notify(appended)
                if appended.cancel_requested and ends_as is None:
                    self._on_cancel_requested()
        except Exception as problem:  # noqa: BLE001 - raised by the next call of `flush`
            self._failure = problem
            # Keep the refused events in front: later events must not be written without them.
            self._pending, self._updates = events + self._pending, updates
        finally:
            self._write_task = None

    def _notify(self, appended: Appended) -> None:
        self._notifier.notify(RunAppended(self.claim.run_id, appended.last_seq))
        if appended.thread_seq is not None:
            thread = scoped_key(self.claim.account_id, self.claim.session_id)
            self._notifier.notify(ThreadAppended(thread, appended.thread_seq))
        if appended.turn_passed:
            self._notifier.notify(RunReady(prefers=self.claim.worker_id))

    async def _append(self, batch: Batch) -> Appended | None:
        """Append the batch, and retry while the store is unavailable. RX-29

        The batch key makes a retry safe: events are never appended twice. Offloaded values are stored first,
        so that no event refers to a missing artifact. Returns None if the claim is lost. Raises `Unavailable`
        if the run ends and artifacts stay unavailable.
        """
        sources = (*batch.events, *batch.hidden, *([batch.answer] if batch.answer else []))
        offloaded = [value for source in sources for value in source.offloaded]
        # Once the values are stored, only the append is repeated: after an append without a reply, the batch
        # number must not be used for other events.
        await self._store_artifacts(offloaded)
        while not self.claim_lost:
            started_at = time.monotonic()
            try:
                appended = await self._runs.append(batch)
            except Unavailable:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            seconds = time.monotonic() - started_at
            APPEND_SECONDS.observe(seconds)
            self._audit.record_slow("append.slow", seconds, subject=self.claim.run_id)
            return appended
        return None

    async def _store_artifacts(self, offloaded: Sequence[OffloadedValue]) -> None:
        """Store the values, and retry while artifacts are unavailable.

        Raises `Unavailable` if the run ends and artifacts stay unavailable.
        """
        while offloaded and not self.claim_lost:
            try:
                await self._artifacts.store(self.claim.account_id, offloaded)
            except Unavailable:
                if self._give_up_at is not None and time.monotonic() >= self._give_up_at:
                    raise
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return


def _beginning(text: str) -> str:
    return next(iter(split_text(text, MAX_SHORTENED_BYTES)), "")
