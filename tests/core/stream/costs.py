"""Measure processor time, which does not depend on the load of the machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TIMES = 3


def least_seconds(work: Callable[[], object], enough: float = 0.0) -> float:
    """Return the shortest of several measurements, or the first one under `enough`."""
    least = float("inf")
    for _ in range(TIMES):
        started = time.process_time()
        work()
        least = min(least, time.process_time() - started)
        if least < enough:
            break
    return least
