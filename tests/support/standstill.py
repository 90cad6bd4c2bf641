"""A stopwatch for promises of time that does not run while the whole machine stands still.

A shared machine stops for seconds now and then, for another guest on the same host. Nothing of Easel runs then either, so such time
says nothing about it. A thread that wants to wake up every few milliseconds notes how much too late it did. On a machine that
goes on, a stopwatch shows what any clock shows. What this process itself did meanwhile is no standstill: Easel may live in it, and
whoever holds the interpreter keeps that thread waiting too.
"""

from __future__ import annotations

import threading
import time

BEAT_SECONDS = 0.02
UNEVEN_SECONDS = 0.05
# A beat that is late by less is ordinary: no machine is that even, and no promise that narrow.


class _Pulse:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._beat = 0.0
        self._worked = 0.0  # by the processor, up to that beat
        self._lost = 0.0

    def start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._note_beat()
                self._thread = threading.Thread(target=self._go_on, name="standstill", daemon=True)
                self._thread.start()

    def lost(self) -> float:
        """Seconds, also of a standstill that is just over and that the thread has not noted yet."""
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
    """Runs from the moment that it is made."""

    def __init__(self) -> None:
        _PULSE.start()
        self._lost_before = _PULSE.lost()
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        went_by = time.monotonic() - self._began
        return max(0.0, went_by - self.stood_still)

    @property
    def stood_still(self) -> float:
        """What is left out: for a time that was measured by another clock meanwhile."""
        return _PULSE.lost() - self._lost_before
