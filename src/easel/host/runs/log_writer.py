"""The pen of one claimed run: what its worker writes into its log.

Owns order, coalescing and the batch key: at most one append is under way, what comes meanwhile goes into the next.
Deltas are gathered for a moment before they become events. A store that cannot be reached is tried again until the
claim's time is over; a claim that was lost is told to whoever holds the pen.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from easel.core.run.batch import Appended, Batch
from easel.core.run.deltas import DELTA_BYTES, DELTA_SECONDS, MAX_HELD_SECONDS, DeltaSplitter
from easel.core.run.events import RunEvents
from easel.core.run.run import Claim, ClaimLost
from easel.core.run.status import Status
from easel.core.session.message import Message, message
from easel.core.stream.envelope import Envelope
from easel.core.stream.notifications import RunAppended, RunReady, ThreadAppended
from easel.errors import Unavailable
from easel.host.audit import Audit
from easel.host.metrics import APPEND_SECONDS
from easel.host.ports import ArtifactAccess, Notifier, RunStore
from easel.ids import MessageId, answer_id, owned

AGENT, NODE = "main", "tool_loop"  # who acts in a run
MAX_PENDING = 1_000  # events not yet durable; a writer that is ahead by more has to wait
RETRY_SECONDS = 0.05

Answer = TypeVar("Answer")


async def retry_until_available(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """A store that is away is no failure of the run: it is asked again until it answers or the claim is over."""
    while True:
        try:
            return await ask()
        except Unavailable:
            await asyncio.sleep(RETRY_SECONDS)


class RunLogWriter:
    def __init__(
        self,
        claim: Claim,
        runs: RunStore,
        keeper: ArtifactAccess,
        notifier: Notifier,
        audit: Audit,
        *,
        cancel_asked: Callable[[], None],
    ) -> None:
        self.events = RunEvents(claim.run_id, agent_id=AGENT, node_id=NODE)
        self.claim = claim
        self._message_id = answer_id(claim.run_id)
        self._runs = runs
        self._keeper = keeper
        self._audit = audit
        self._notifier = notifier
        self._cancel_asked = cancel_asked
        self._pending: list[Envelope] = []
        self._words: list[str] = []  # of which the next delta is made
        self._gathered = 0
        self._flow = DeltaSplitter()
        self._delta = self.events.delta  # or a thought
        self._timer: asyncio.TimerHandle | None = None
        self._next_batch = 1
        self._ending: tuple[Status, str | None, Message] | None = None
        self._pump: asyncio.Task[None] | None = None
        self._kicked = False
        self._failure: Exception | None = None
        self.is_lost = False

    def write(self, *events: Envelope) -> None:
        """Will be durable soon, in this order; `flush` waits until it is."""
        self._gather_up()
        self._pending.extend(events)
        self._kick()

    def say(self, text: str) -> None:
        self._gather(self.events.delta, text)

    def think(self, text: str) -> None:
        self._gather(self.events.thought, text)

    async def flush(self) -> None:
        """Everything written so far is durable. Raises `ClaimLost` when it never will be."""
        self._gather_up()
        while (self._pending or self._pump) and not self.is_lost:
            if self._failure is not None:
                raise self._failure
            self._start_pump()
            if self._pump is not None:
                await asyncio.shield(self._pump)
        if self.is_lost:
            raise ClaimLost

    async def breathe(self) -> None:
        """Wait only when far ahead of the store, or when it refused something."""
        if len(self._pending) > MAX_PENDING or self._failure is not None:
            await self.flush()

    async def end(self, text: str, status: Status, error: str | None) -> None:
        """The closing events and the run's outcome, in one transaction with whatever is still pending. RX-28"""
        closing = self.events.ending(self._message_id, text, status, error)
        self._ending = (status, error if status is Status.FAILED else None, message(self._message_id, text))
        self._failure = None
        self._gather_up()
        self._pending += closing
        try:
            await self._write_out()
        except ClaimLost:
            raise
        except Exception:  # noqa: BLE001 - what cannot be stored is left out; that the run has ended is not
            self._failure = None
            self._pending = list(closing)
            await self._write_out()

    async def _write_out(self) -> None:
        """As `flush`, by the task that asks: one that ends is cancelled no more, but for a claim that is lost anyway."""
        while self._pump is not None and not self.is_lost:
            await asyncio.shield(self._pump)
        if self._failure is None and not self.is_lost:
            await self._drain()
        if self.is_lost:
            raise ClaimLost
        if self._failure is not None:
            raise self._failure

    def lose(self) -> None:
        """Nothing more may be written."""
        self.is_lost = True
        self._stop_timer()

    def _gather(self, delta: Callable[[MessageId, str], Envelope], text: str) -> None:
        if not text:
            return
        if delta != self._delta:
            self._gather_up()
            self._delta = delta
        self._words.append(text)
        self._gathered += len(text)
        if self._gathered >= DELTA_BYTES:
            self._gather_up(is_end=False)
            self._kick()
        elif self._timer is None or self._gathered == len(
            text
        ):  # the first words of a delta, perhaps while others are held back
            self._wait(DELTA_SECONDS)

    def _wait(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._waited_long_enough)

    def _waited_long_enough(self) -> None:
        self._gather_up(is_end=not self._gathered)
        self._kick()

    def _gather_up(self, *, is_end: bool = True) -> None:
        """What was gathered becomes events; but for the end, Base64 that may go on is held back."""
        self._stop_timer()
        if self._gathered or self._flow.is_holding:
            told = self._flow.feed("".join(self._words), is_end=is_end)
            self._pending += [self._delta(self._message_id, piece) for piece in told]
            self._words.clear()
            self._gathered = 0
            if self._flow.is_holding:
                self._wait(MAX_HELD_SECONDS)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _kick(self) -> None:
        # Not at once but when the writer next waits: what it writes in one go becomes one batch.
        if self._pump is None and not self._kicked:
            self._kicked = True
            asyncio.get_running_loop().call_soon(self._start_pump)

    def _start_pump(self) -> None:
        self._kicked = False
        if self._pump is None and self._pending and not self.is_lost and self._failure is None:
            self._pump = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        events: list[Envelope] = []
        try:
            while self._pending and not self.is_lost:
                events, self._pending = self._pending, []
                ends_as, error, answer = self._ending or (None, None, None)
                batch = Batch(self.claim, self._next_batch, events, ends_as, error, answer)
                appended = await self._append(batch)
                if appended is None:
                    self.lose()
                    return
                self._next_batch += 1
                self._tell(appended)
                if appended.cancel_requested and ends_as is None:
                    self._cancel_asked()
        except Exception as problem:  # noqa: BLE001 - kept for the writer, who finds it when it next waits
            self._failure = problem
            self._pending = (
                events + self._pending
            )  # nothing that follows is written before what was refused: no hole
        finally:
            self._pump = None

    def _tell(self, appended: Appended) -> None:
        self._notifier.notify(RunAppended(self.claim.run_id, appended.last_seq))
        if appended.thread_seq is not None:
            self._notifier.notify(
                ThreadAppended(owned(self.claim.user_id, self.claim.session_id), appended.thread_seq)
            )
        if appended.turn_passed:
            self._notifier.notify(RunReady(prefers=self.claim.worker_id))

    async def _append(self, batch: Batch) -> Appended | None:
        """The same batch until the store has answered: its key makes a repetition harmless. RX-29

        What was too heavy for it is kept before it is: a reference never points at nothing.
        """
        heavy = [
            offloaded
            for speaker in (*batch.events, *([batch.answer] if batch.answer else []))
            for offloaded in speaker.offloaded
        ]
        while not self.is_lost:
            try:
                if heavy:
                    await self._keeper.store(self.claim.user_id, heavy)
                began = time.monotonic()
                appended = await self._runs.append(batch)
            except Unavailable:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            seconds = time.monotonic() - began
            APPEND_SECONDS.observe(seconds)
            self._audit.slow("append.slow", seconds, subject=self.claim.run_id)
            return appended
        return None
