"""Rows of the tables that every store has, as the values of the core."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from easel.core.run.life import Status
from easel.core.run.run import Run

_FIELDS = tuple(field.name for field in fields(Run))
_TIMES = ("created_at", "started_at", "finished_at", "cancel_requested_at")


def run_of(row: Mapping[str, Any], time: Callable[[Any], datetime] | None = None) -> Run:
    """The columns are named like the fields; `time` reads a stored time, where the driver does not."""
    given = {name: row[name] for name in _FIELDS}
    given["status"] = Status(given["status"])
    if time is not None:
        given |= {name: time(given[name]) for name in _TIMES if given[name] is not None}
    return Run(**given)
