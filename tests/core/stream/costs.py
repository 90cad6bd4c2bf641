"""What something costs, in time of the processor: a test that waits for its turn is not slow, and one that is held is not either."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TIMES = 3


def least_seconds(work: Callable[[], object], enough: float = 0.0) -> float:
    """The least of several times, or the first that is under `enough`: whatever else happens on a machine makes it more, and never less."""
    least = float("inf")
    for _ in range(TIMES):
        begun = time.process_time()
        work()
        least = min(least, time.process_time() - begun)
        if least < enough:
            break
    return least
