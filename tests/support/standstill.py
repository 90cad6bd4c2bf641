"""A stopwatch that does not count the time in which the whole machine was paused.

A shared machine is paused for seconds now and then. Easel does not run then either, so such time must not
fail a promise. A thread that wakes up every few milliseconds measures how late it was. CPU time of this
process is not a pause: Easel may run in it, and a thread that holds the interpreter delays the measuring
thread too.
"""

from __future__ import annotations

import threading
import time

BEAT_SECONDS = 0.02
UNEVEN_SECONDS = 0.05
# A smaller delay is ordinary and below every promised time.


class _Pulse:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._beat = 0.0
        self._worked = 0.0  # CPU seconds of this process at that beat
        self._lost = 0.0

    def start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._note_beat()
                self._thread = threading.Thread(target=self._go_on, name="standstill", daemon=True)
                self._thread.start()

    def paused_seconds(self) -> float:
        """Return the paused seconds, including a pause that the thread has not recorded yet."""
        with self._lock:
            return self._lost + self._late()

    def _late(self) -> float:
        late = time.monotonic() - self._beat - BEAT_SECONDS - (time.process_time() - self._worked)
        return late if late > UNEVEN_SECONDS else 0.0

    def _note_beat(self) -> None:
        self._beat, self._worked = time.monotonic(), time.process_time()

    def _go_on(self) -> None:
        while True:
            time.sleep(BEAT_SECONDS)
            with self._lock:
                self._lost += self._late()
                self._note_beat()


_PULSE = _Pulse()


class Stopwatch:
    """Measures seconds from its creation, pauses of the machine excluded."""

    def __init__(self) -> None:
        _PULSE.start()
        self._lost_before = _PULSE.paused_seconds()
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        went_by = time.monotonic() - self._began
        return max(0.0, went_by - self.stood_still)

    @property
    def stood_still(self) -> float:
        """Return the paused seconds since the start, to correct a time that another clock measured."""
        return _PULSE.paused_seconds() - self._lost_before
