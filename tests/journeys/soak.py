"""The length of the long drills: short in `make test`, as long as their case demands in `make soak`."""

from __future__ import annotations

import os
from typing import TypeVar

SECONDS = float(os.environ.get("EASEL_SOAK_SECONDS") or 0)
IS_SOAK = SECONDS > 0

Number = TypeVar("Number", int, float)


def short_or_full(short: Number, full: Number) -> Number:
    """Return the size for `make test` or for `make soak`. Tests that use it are marked `soak`."""
    return full if IS_SOAK else short
