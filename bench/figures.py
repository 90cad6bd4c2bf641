"""What a measurement reports: one row of the table, with its ratio, its bar and whether the bar held.

Knows how to compare and to print; knows nothing of how a figure was taken.
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
    """One comparison. `held` is None where no bar is set: the row is there to be read."""

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
    """Less is better: a time, a size. The bar is how many times the floor ours may be."""
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
    """More is better: a rate. The bar is the share of the floor that ours must reach."""
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
    """Less is better, against a limit that the contract states outright."""
    return Figure(
        measurement,
        f"{_number(ours)} {unit}",
        f"{what} {_number(limit)} {unit}",
        ours / limit if limit else None,
        f"≤ {limit:g} {unit}",
        ours <= limit,
    )


def reaches(measurement: str, ours: float, limit: float, *, unit: str, what: str) -> Figure:
    """More is better, against a limit that the contract states outright."""
    return Figure(
        measurement,
        f"{_number(ours)} {unit}",
        f"{what} {_number(limit)} {unit}",
        ours / limit,
        f"≥ {limit:,g} {unit}",
        ours >= limit,
    )


def unmeasured(measurement: str, why: str) -> Figure:
    """A figure that could not be taken is a miss, and says why: silence would read as success."""
    return Figure(measurement, "not measured", why, None, "–", False)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie, by nearest rank: no value is invented between two samples."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def table(figures: Sequence[Figure]) -> str:
    """The figures as plain text, columns as wide as their widest cell."""
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
