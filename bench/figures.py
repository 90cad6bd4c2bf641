"""The report of a measurement: one row of the table, with its ratio, its bar and whether the bar held.

Compares and prints figures; does not take them.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADINGS = ("measurement", "ours", "against", "ratio", "bar", "")


@dataclass(frozen=True, slots=True)
class Figure:
    """One comparison. `held` is None without a bar: the row is informative."""

    measurement: str
    ours: str
    against: str
    ratio: float | None
    bar: str
    held: bool | None

    def cells(self) -> tuple[str, ...]:
        verdict = {True: "ok", False: "MISS", None: ""}[self.held]
        return (
            self.measurement,
            self.ours,
            self.against,
            "–" if self.ratio is None else _ratio(self.ratio),
            self.bar,
            verdict,
        )


def at_most(
    measurement: str, ours: float, floor: float, *, unit: str, bar: float | None, against: str = "floor"
) -> Figure:
    """Compare a time or a size: less is better. The bar is a multiple of the floor."""
    ratio = ours / floor if floor else math.inf
    return Figure(
        measurement,
        f"{_number(ours)} {unit}",
        f"{against} {_number(floor)} {unit}",
        ratio,
        "–" if bar is None else f"≤ {bar:g}×",
        None if bar is None else ratio <= bar,
    )


def at_least(
    measurement: str, ours: float, floor: float, *, unit: str, bar: float | None, against: str = "floor"
) -> Figure:
    """Compare a rate: more is better. The bar is a fraction of the floor."""
    ratio = ours / floor if floor else 0.0
    return Figure(
        measurement,
        f"{_number(ours)} {unit}",
        f"{against} {_number(floor)} {unit}",
        ratio,
        "–" if bar is None else f"≥ {bar:g}×",
        None if bar is None else ratio >= bar,
    )


def within(measurement: str, ours: float, limit: float, *, unit: str, what: str) -> Figure:
    """Compare with an absolute upper limit of the contract."""
    return Figure(
        measurement,
        f"{_number(ours)} {unit}",
        f"{what} {_number(limit)} {unit}",
        ours / limit if limit else None,
        f"≤ {limit:g} {unit}",
        ours <= limit,
    )


def reaches(measurement: str, ours: float, limit: float, *, unit: str, what: str) -> Figure:
    """Compare with an absolute lower limit of the contract."""
    return Figure(
        measurement,
        f"{_number(ours)} {unit}",
        f"{what} {_number(limit)} {unit}",
        ours / limit,
        f"≥ {limit:,g} {unit}",
        ours >= limit,
    )


def unmeasured(measurement: str, why: str) -> Figure:
    """Report a figure that could not be taken as a miss with its reason."""
    return Figure(measurement, "not measured", why, None, "–", False)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the percentile by nearest rank, without interpolation."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def table(figures: Sequence[Figure]) -> str:
    """Format the figures as plain text with aligned columns."""
    rows = [HEADINGS, *(figure.cells() for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths).rstrip())
    return "\n".join(lines)


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _ratio(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.2f}×"
