"""The time of every call on databases of three sizes, while background tasks delete what is old."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench import easel_processes
from bench.figures import Figure, at_most, median, percentile, within
from bench.gateway import gateway
from bench.growth.filling import fill_postgres, fill_sqlite
from bench.growth.lock_waits import logged_waits
from bench.growth.samples import Client, Deletes, Sample, all_samples, make_call
from bench.growth.sizes import RETENTION_DAYS, Size

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from bench.easel_processes import Listening
    from bench.setting import Setting

PASSES = 3
CALLS = 200
WARM_UP_CALLS = 10
MAX_RATIO = 2.0
MAX_P99_MS = 100.0
BACKGROUND_WORK = {
    "RETENTION_DAYS": f"{RETENTION_DAYS}",
    "AUDIT_DAYS": f"{RETENTION_DAYS}",
    "ARTIFACT_DAYS": "0.05",
    "SWEEP_SECONDS": "60",
}


@dataclass(frozen=True, slots=True)
class Filled:
    """A filled database, how to start Easel on it, and the times of all calls on it."""

    size: Size
    start: Callable[[], AbstractAsyncContextManager[Listening]]
    deletes: Deletes = field(default_factory=Deletes)
    seconds: dict[str, list[list[float]]] = field(default_factory=dict[str, list[list[float]]])

    def p50_ms(self, name: str) -> float:
        return 1000 * percentile([took for one in self.seconds[name] for took in one], 0.5)

    def p99_ms(self, name: str) -> float:
        """Return the median of the passes."""
        return 1000 * median([percentile(one, 0.99) for one in self.seconds[name]])


async def growth(setting: Setting) -> list[Figure]:
    """Every route and method on databases of three sizes, up to 10^6 runs: p50 against the smallest size,
    p99, and lock waits by background tasks.
    """
    return [*await growth_postgres(setting), *await growth_sqlite(setting)]


async def growth_postgres(setting: Setting) -> list[Figure]:
    """Growth on Postgres."""
    sizes = _sizes(setting, (10_000, 100_000, 1_000_000), (1_000, 3_000, 10_000))
    async with AsyncExitStack() as stack:
        databases: list[Filled] = []
        for size in sizes:
            url = await stack.enter_async_context(setting.database())
            began = time.monotonic()
            await fill_postgres(url, size)
            setting.say(f"Postgres with {size.label} filled in {time.monotonic() - began:.0f} s")
            databases.append(Filled(size, lambda url=url: _on_postgres(setting, url)))
        async with logged_waits(setting) as waits:
            await _measure(setting, databases)
    for wait in waits.found:
        setting.say(f"lock wait: {wait}")
    lock_waits = Figure(
        "Postgres: lock waits over 200 ms in the server's log",
        f"{len(waits.found)}",
        "none",
        None,
        "0",
        not waits.found,
    )
    return [*_figures("Postgres", databases), lock_waits]


async def growth_sqlite(setting: Setting) -> list[Figure]:
    """Growth on SQLite."""
    databases: list[Filled] = []
    for size in _sizes(setting, (10_000, 30_000, 100_000), (1_000, 1_000, 1_000)):
        folder = setting.folder / f"growth-{size.runs}"
        began = time.monotonic()
        await fill_sqlite(folder / "easel.db", size)
        setting.say(f"SQLite with {size.label} filled in {time.monotonic() - began:.0f} s")
        databases.append(
            Filled(
                size,
                lambda folder=folder: easel_processes.up(setting, DATA=str(folder), **BACKGROUND_WORK),
            )
        )
    await _measure(setting, databases)
    return _figures("SQLite", databases)


def _sizes(setting: Setting, runs: Sequence[int], canvases: Sequence[int]) -> list[Size]:
    if setting.quick:
        return [Size(1_000 * factor, 100 * factor, 100 * factor, 50) for factor in (1, 2)]
    reserved = PASSES * (CALLS + WARM_UP_CALLS)
    return [Size(number, number // 10, few, reserved) for number, few in zip(runs, canvases, strict=True)]


@asynccontextmanager
async def _on_postgres(setting: Setting, url: str) -> AsyncIterator[Listening]:
    async with (
        easel_processes.worker(setting, url, **BACKGROUND_WORK),
        easel_processes.api(setting, url, **BACKGROUND_WORK) as api,
    ):
        yield api


async def _measure(setting: Setting, databases: Sequence[Filled]) -> None:
    """Time all calls. Every pass starts new processes, whose background tasks begin at once."""
    calls, warm_up = setting.size(CALLS, 3), setting.size(WARM_UP_CALLS, 1)
    samples = all_samples()
    for turn in range(setting.size(PASSES, 1)):
        began = time.monotonic()
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(_connected(filled)) for filled in databases]
            for name, sample in samples.items():
                took = await _time_calls(sample, clients, warm_up + calls)
                for filled, seconds in zip(databases, took, strict=True):
                    filled.seconds.setdefault(name, []).append(seconds[warm_up:])
        setting.say(f"pass {turn + 1} took {time.monotonic() - began:.0f} s; so far:\n{_curves(databases)}")


async def _time_calls(sample: Sample, clients: Sequence[Client], count: int) -> list[list[float]]:
    """Return the times of the calls of each client. The clients take turns call by call, so that the load of
    the machine is the same for all sizes.
    """
    took: list[list[float]] = [[] for _ in clients]
    async with AsyncExitStack() as stack:
        for client in clients:  # anew, because a server closes an idle connection
            await stack.enter_async_context(client.connected())
        for _ in range(count):
            for client, seconds in zip(clients, took, strict=True):
                call = await make_call(sample, client)
                start = time.perf_counter()
                await client.send(call)
                seconds.append(time.perf_counter() - start)
    return took


@asynccontextmanager
async def _connected(filled: Filled) -> AsyncIterator[Client]:
    async with (
        filled.start() as easel,
        gateway(easel.server.url, easel_processes.TOKEN) as socket,
    ):
        client = Client(filled.size, easel.server, socket, filled.deletes)
        async with client.connected():
            await client.set_up()
        yield client
        async with client.connected():
            await client.tear_down()


# --- report -------------------------------------------------------------------------------------------------


def _figures(database: str, filled: Sequence[Filled]) -> list[Figure]:
    """Print the curves, and return the worst of all calls and every one that misses a bar."""
    print(f"\n{database}, ms: p50 p99 of each size, and the p50 of the largest by that of the smallest\n")
    print(_curves(filled))
    small, large = filled[0], filled[-1]
    names = list(large.seconds)
    by_ratio = sorted(names, key=lambda name: large.p50_ms(name) / small.p50_ms(name), reverse=True)
    by_p99 = sorted(names, key=large.p99_ms, reverse=True)
    ratios = [
        at_most(
            f"{database}: p50 of {name}, {large.size.label}",
            large.p50_ms(name),
            small.p50_ms(name),
            unit="ms",
            bar=MAX_RATIO,
            against=small.size.label,
        )
        for name in by_ratio
    ]
    slowest = [
        within(
            f"{database}: p99 of {name}, {large.size.label}",
            large.p99_ms(name),
            MAX_P99_MS,
            unit="ms",
            what="promised",
        )
        for name in by_p99
    ]
    return [
        figure
        for figures in (ratios, slowest)
        for number, figure in enumerate(figures)
        if number == 0 or not figure.held
    ]


def _curves(filled: Sequence[Filled]) -> str:
    width = max(map(len, filled[0].seconds))
    heading = " " * width + "".join(f"{one.size.label:>20}" for one in filled) + "   ratio"
    lines = [
        f"{name:<{width}}"
        + "".join(f"{one.p50_ms(name):>11.2f}{one.p99_ms(name):>9.2f}" for one in filled)
        + f"{filled[-1].p50_ms(name) / filled[0].p50_ms(name):>8.2f}"
        for name in filled[0].seconds
    ]
    return "\n".join([heading, *lines])
