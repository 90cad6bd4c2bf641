"""Deltas: the pieces in which streamed text is logged.

Owns the intervals of deltas. Base64 is held back until it is complete, so that Base64 over 2 KB becomes one
event, whose text is a reference (CC-23, RS-62). In this module a run is an unbroken sequence of Base64, as
in `base64_runs`. Does not know the clock: the caller decides when to flush.
"""

from easel.core.stream.base64_runs import find_base64_runs, open_run_start
from easel.core.stream.message_text import DELTA_BYTES, EncodedRun, cut_text

DELTA_SECONDS = 0.05  # interval between deltas
MAX_HELD_CHARACTERS = 262_144  # of Base64; longer Base64 becomes several deltas
MAX_HELD_SECONDS = 2.0  # without new text; then held text is flushed
_CONTEXT = 256  # preceding characters, enough to recognise Base64 that continues


def split_text(text: str, max_bytes: int = DELTA_BYTES) -> list[str]:
    """Split the text into pieces that take at most `max_bytes` in JSON."""
    pieces: list[str] = []
    at = 0
    while at < len(text):
        pieces.append(cut_text(text[at : at + max_bytes], max_bytes))
        at += len(pieces[-1])
    return pieces


class DeltaSplitter:
    """Splits streamed text into deltas. Base64 at the end of the text is held back until it is complete."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self._held_size = 0
        self._before = ""  # the end of all text so far
        self._before_held = ""  # the end of the text before the held text

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def feed(self, text: str, *, is_end: bool = False) -> list[str]:
        """Return the deltas that the text completes, in order. With `is_end` nothing is held back.

        A delta with Base64 over 2 KB, or with the end of such Base64, is an `EncodedRun`.
        """
        before, context = self._before, self._before + text
        is_over = is_end or self._held_size + len(text) > MAX_HELD_CHARACTERS
        run_start = len(context) if is_over else open_run_start(context)
        self._before = "" if is_end else context[-_CONTEXT:]
        if run_start == len(context):
            if self._held:
                before, text = self._before_held, "".join([*self._held, text])
                self._held, self._held_size = [], 0
            return _split_around_runs(before, text)
        if self._held:
            self._hold(text)
            return []
        cut = max(0, run_start - len(before))
        self._before_held = (before + text[:cut])[-_CONTEXT:]
        self._hold(text[cut:])
        return _split_around_runs(before, text[:cut])

    def _hold(self, text: str) -> None:
        self._held.append(text)
        self._held_size += len(text)


def _split_around_runs(before: str, text: str) -> list[str]:
    """Split `text` into deltas, with each Base64 run in one delta. `before` is the text that precedes it."""
    deltas: list[str] = []
    at = 0
    for start, end in find_base64_runs(before + text):
        start, end = max(0, start - len(before)), end - len(before)  # noqa: PLW2901
        if end > 0:
            deltas += [*split_text(text[at:start]), EncodedRun(text[start:end])]
            at = end
    return deltas + split_text(text[at:])


def shorten(reason: str, max_length: int = 1_000) -> str:
    """Return a failure's reason in about `max_length` characters: its beginning and its end."""
    if len(reason) <= max_length:
        return reason
    start, end = reason[: max_length * 2 // 3], reason[-max_length // 3 :]
    return f"{start} … {len(reason) - max_length} characters left out … {end}"
