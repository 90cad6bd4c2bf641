"""Live output of running actions, written to the canvas log as events for every subscriber.

Owns the batching and the writes. A tool is never delayed and never fails because of its output: while the
store is slow, batches grow; while it is unavailable, output is lost and a notice marks the gap. Output is
appended only while the execution runs, which is checked in the same transaction; the last output is stored
together with the end of the execution.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from easel.core.action.execution import Execution, StaleTransition
from easel.core.action.output import GATHER_SECONDS, LiveText, OutputChunk, append_output
from easel.core.principal import Principal
from easel.core.run.deltas import MAX_HELD_SECONDS
from easel.errors import HostError
from easel.host.audit.audit import Audit
from easel.host.canvases.transactions import CanvasTransactions

# How long the end of an execution waits for an output write in progress, so that the output stays in order.
FINAL_WRITE_SECONDS = 1.0
# Of one execution: what a person reads while it runs. The result has all of the output.
MAX_OUTPUT_BYTES = 65_536

log = structlog.get_logger("actions")


class LiveOutput:
    """The output of one execution, on the instance where its tool runs."""

    def __init__(
        self,
        outputs: "LiveOutputs",
        principal: Principal,
        execution: Execution,
        text: LiveText,
        on_ended: Callable[[], None],
    ) -> None:
        self._outputs = outputs
        self._principal = principal
        self._execution = execution
        self._text = text
        self._on_ended = on_ended
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        # The chunks to store with the end of the execution. Once this is set, no batch is written.
        self._final: Sequence[OutputChunk] | None = None

    def feed(self, text: str) -> bool:
        """Add output; it is written with the next batch. Returns False if no more is shown."""
        self._text.feed(text)
        self._schedule()
        return not self._text.is_cut

    def reopen(self) -> None:
        """Continue to write output after the end of the execution could not be stored.

        The final output may have been stored all the same, so a notice is written instead of it.
        """
        if self._final:
            self._text.mark_gap()
        self._final = None
        self._schedule()

    async def close(self) -> None:
        """Write the remaining output. Used when another instance stores the end of the execution."""
        if chunks := await self.take_final():
            self._final = []
            await self._write(chunks)

    def discard(self) -> None:
        """Drop the remaining output."""
        self._final = []
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def take_final(self) -> Sequence[OutputChunk]:
        """Return the output that was not written yet, to be stored with the end of the execution."""
        if self._final is None:
            self._final = []
            self._stop_timer()
            if self._writing is not None:
                await asyncio.wait([self._writing], timeout=FINAL_WRITE_SECONDS)
            self._final = self._text.drain(is_end=True) if self._text.has_more else []
        return self._final

    def _schedule(self, seconds: float = GATHER_SECONDS) -> None:
        if self._timer is None and self._writing is None and self._text.has_more and self._final is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._writing = asyncio.create_task(self._write_batch())

    async def _write_batch(self) -> None:
        chunks = self._text.drain()
        try:
            if chunks:
                await self._write(chunks)
        finally:
            self._writing = None
            self._schedule(GATHER_SECONDS if chunks else MAX_HELD_SECONDS)

    async def _write(self, chunks: Sequence[OutputChunk]) -> None:
        try:
            await self._outputs.changes.apply(
                self._principal,
                self._execution.canvas_id,
                append_output(self._execution, chunks),
                seconds=self._outputs.claim_seconds,
            )
        except StaleTransition:
            self.discard()
            self._on_ended()
        except HostError as problem:
            log.info("actions.output_lost", event_id=self._execution.event_id, problem=problem.code)
            self._text.mark_gap()
        except Exception:
            # The tool continues without live output.
            log.exception("actions.output_error", event_id=self._execution.event_id)
            self.discard()


@dataclass(slots=True)
class LiveOutputs:
    changes: CanvasTransactions
    audit: Audit
    claim_seconds: float  # writing output renews the claim of the execution
    max_bytes: int = MAX_OUTPUT_BYTES

    def open(
        self, principal: Principal, execution: Execution, on_ended: Callable[[], None] = lambda: None
    ) -> LiveOutput:
        """Return the output of one execution.

        `on_ended` is called if a write finds that the execution has ended or was adopted elsewhere.
        """
        return LiveOutput(self, principal, execution, LiveText(self.max_bytes, self.audit.redact), on_ended)
