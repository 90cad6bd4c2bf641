"""The length of the long drills: short in `make test`, as long as their case demands in `make soak`."""

from __future__ import annotations

import os

SECONDS = float(os.environ.get("EASEL_SOAK_SECONDS") or 0)
IS_SOAK = SECONDS > 0


def either(in_ci: float, in_soak: float) -> float:
    return in_soak if IS_SOAK else in_ci
