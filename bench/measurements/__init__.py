"""The measurements, one module each; the docstring of a measurement is printed while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.measurements.appends import appends
from bench.measurements.canvases import actions, busy_canvases
from bench.measurements.claims import claims
from bench.measurements.documents import documents
from bench.measurements.documents_load import documents_load
from bench.measurements.fanout import fanout
from bench.measurements.footprint import footprint
from bench.measurements.growth import growth
from bench.measurements.idle import idle
from bench.measurements.latency import latency
from bench.measurements.long_logs import replay, resume
from bench.measurements.nodes import node_calls
from bench.measurements.providers import providers
from bench.measurements.runs import runs
from bench.measurements.steps import steps
from bench.measurements.tabs import tabs
from bench.measurements.takeover import takeover

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bench.figures import Figure
    from bench.setting import Setting

MEASUREMENTS: Mapping[str, Callable[[Setting], Awaitable[list[Figure]]]] = {
    measure.__name__: measure
    for measure in (
        latency,
        runs,
        appends,
        fanout,
        replay,
        resume,
        idle,
        tabs,
        claims,
        takeover,
        footprint,
        actions,
        busy_canvases,
        node_calls,
        providers,
        documents,
        documents_load,
        steps,
    )
}

# Named explicitly only: it takes half an hour and some GB of disk.
LONG_MEASUREMENTS: Mapping[str, Callable[[Setting], Awaitable[list[Figure]]]] = {"growth": growth}
