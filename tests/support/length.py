"""The length of repeated tests: all examples in `make test`, a quarter of them in `make check`."""

from __future__ import annotations

import os

IS_SHORT = os.environ.get("EASEL_TEST_LENGTH") == "short"


def examples(full: int) -> int:
    """Return how many examples or repetitions to run."""
    return max(full // 4, 5) if IS_SHORT else full
