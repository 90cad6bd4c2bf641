"""Live output of a running action for the canvas log: batched, redacted and limited in size.

Owns the content of the output events. An incomplete line after complete lines is kept for the next batch.
Secrets that span batches are redacted, because each batch is redacted together with the unfinished line or
key before it. Base64 over 2 KB is replaced by a note. Does not know the time: the caller calls `drain` at
intervals.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from easel.core.action.execution import (
    Execution,
    ExecutionChange,
    ExecutionStatus,
    Transition,
    events_of,
    principal_of,
)
from easel.core.audit.redaction import unfinished_tail
from easel.core.canvas.canvas import CanvasSnapshot
from easel.core.run.deltas import DELTA_BYTES, DeltaSplitter
from easel.core.stream.envelope import Envelope

# Interval between batches: at most four writes per second.
GATHER_SECONDS = 0.25
GAP = "\n… some output could not be shown live …\n"


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """A piece of output. `is_cut` marks the last chunk of an output that exceeded its limit."""

    text: str
    is_cut: bool = False


class LiveText:
    """Buffers and redacts the live output of one execution."""

    def __init__(self, max_bytes: int, redact: Callable[[str], str] = str) -> None:
        self._max_bytes = self._bytes_left = max_bytes
        self._redact = redact
        self._buffer: list[str] = []
        self._prefix = ""  # a notice to write before the next batch
        self._unfinished = ""  # the end of the last batch, redacted again together with the next batch
        self._flow = DeltaSplitter()
        # Whether output was dropped, and whether a chunk with `is_cut` was returned.
        self.is_cut = self._is_cut_reported = not max_bytes

    def feed(self, text: str) -> None:
        """Add output to the buffer. Output beyond the limit is dropped."""
        if self.is_cut or not text:
            return
        part = _cut_to_bytes(text, self._bytes_left)
        self._bytes_left -= _size(part)
        self.is_cut = len(part) < len(text)
        if part:
            self._buffer.append(part)

    def mark_gap(self) -> None:
        """Write a notice before the next batch, because the last batch may not have been stored."""
        self._prefix = GAP

    @property
    def has_more(self) -> bool:
        return bool(self._buffer) or self._flow.is_holding or (self.is_cut and not self._is_cut_reported)

    def drain(self, *, is_end: bool = False) -> list[OutputChunk]:
        """Return the next chunks.

        Until `is_end`, an incomplete line after complete lines, and Base64 that may continue, are held back.
        """
        text = "".join(self._buffer)
        is_last = is_end or self.is_cut
        end = len(text) if is_last else max(text.rfind("\n"), text.rfind("\r")) + 1 or len(text)
        self._buffer = [text[end:]] if end < len(text) else []
        prefix, self._prefix = (self._prefix, "") if text else ("", self._prefix)
        pieces = self._flow.feed(prefix + self._redact_batch(text[:end]), is_end=is_last or not text)
        chunks = [OutputChunk(_without_base64(piece)) for piece in pieces]
        if self.is_cut and not self._is_cut_reported:
            self._is_cut_reported = True
            notice = f"\n… over {self._max_bytes} bytes: the rest is not shown live …\n"
            chunks.append(OutputChunk(notice, is_cut=True))
        return chunks

    def _redact_batch(self, batch: str) -> str:
        text = self._unfinished + batch
        redacted = self._redact(text).removeprefix(self._redact(self._unfinished))
        self._unfinished = unfinished_tail(text)
        return redacted


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _cut_to_bytes(text: str, max_bytes: int) -> str:
    """Return the longest prefix of complete characters that fits into `max_bytes`."""
    if len(text) * 4 <= max_bytes:
        return text
    encoded = text.encode("utf-8", "surrogatepass")
    return text if len(encoded) <= max_bytes else encoded[:max_bytes].decode("utf-8", "ignore")


def _without_base64(piece: str) -> str:
    """Return the piece, or a note if it is longer than `DELTA_BYTES`, as only Base64 can be."""
    return piece if len(piece) <= DELTA_BYTES else f"[{len(piece)} characters of Base64 are not shown live]"


def output_events(execution: Execution, revision: int, chunks: Sequence[OutputChunk]) -> Iterator[Envelope]:
    events = events_of(execution, principal_of(execution))
    for chunk in chunks:
        cut = {"cut": True} if chunk.is_cut else {}
        names = {"actionId": execution.action_id, "eventId": execution.event_id}
        yield events.action("output", revision, {**names, "text": chunk.text, **cut})


def append_output(
    execution: Execution, chunks: Sequence[OutputChunk]
) -> Callable[[CanvasSnapshot], ExecutionChange]:
    """Return a change that appends output to the log, valid only while the owner runs the execution."""
    running = replace(execution, status=ExecutionStatus.RUNNING)
    transition = Transition(running, from_status=ExecutionStatus.RUNNING)
    return lambda snapshot: ExecutionChange(
        events=list(output_events(execution, snapshot.canvas.revision, chunks)),
        is_mutation=False,
        transition=transition,
    )
