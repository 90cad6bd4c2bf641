"""The length of tests: all examples and both databases in `make test`, fewer in `make check`."""

from __future__ import annotations

import os

IS_SHORT = os.environ.get("EASEL_TEST_LENGTH") == "short"

# Of tests that do not concern a store; the contract tests of the stores always run on both.
DATABASES = ("sqlite",) if IS_SHORT else ("sqlite", "postgres")


def examples(full: int) -> int:
    """Return how many examples or repetitions to run."""
    return max(full // 4, 5) if IS_SHORT else full
