"""One run with 50 events a second, watched by 500 viewers, against a bare SSE loop that keeps everything in
memory.

Lateness is from an event's own timestamp to its last byte in the viewer; ours is stamped by the database
while it is stored, and sent once it is durable. Rounds alternate.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from bench import easel_processes
from bench.figures import Figure, at_most, median, within
from bench.processes import Child, bench_module, child
from bench.wire import Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.setting import Setting

VIEWERS = 500
EVERY_MS = 20
GATHER_MS = 3000
# The run waits this long before its first tick, so that every viewer is connected.
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Side:
    """A server to watch. Ours has a database, in which a ticker replaces the worker; the floor makes its own
    events.
    """

    server: Server
    process: Child
    database_url: str = ""


async def fanout(setting: Setting) -> list[Figure]:
    """One run at 50 events/s to 500 viewers, against a bare Starlette SSE loop."""
    viewers = setting.size(VIEWERS, 100)
    ticks = setting.size(250, 100)
    seen: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    async with _easel(setting) as ours, _floor(setting) as floor:
        for turn in range(setting.size(ROUNDS, 1)):
            for rounds, side in zip(seen, (ours, floor), strict=True):
                rounds.append(await _watch(setting, side, viewers, ticks, f"fanout-{turn}"))
            late = [f"{rounds[-1]['late_p50']:.1f}/{rounds[-1]['late_p99']:.1f}" for rounds in seen]
            setting.say(f"round {turn + 1}: ours {late[0]} ms, floor {late[1]} ms (p50/p99)")
        memory = [psutil.Process(side.process.pid).memory_info().rss / 2**20 for side in (ours, floor)]
    lost = sum(one["viewers"] - one["whole"] for one in seen[0])
    name = f"{viewers} viewers at {1000 // EVERY_MS} events/s"
    return [
        at_most(f"{name}, p50", *_medians(seen, "late_p50"), unit="ms", bar=None),
        at_most(f"{name}, p99", *_medians(seen, "late_p99"), unit="ms", bar=2),
        within(f"{name}, streams with an event lost", lost, 0, unit="streams", what="allowed"),
        at_most(f"memory of the API after {viewers} viewers", memory[0], memory[1], unit="MB", bar=None),
    ]


async def _watch(setting: Setting, side: Side, viewers: int, ticks: int, session_id: str) -> dict[str, Any]:
    script = {"script": [{"wait_ms": GATHER_MS}, {"ticks": ticks, "every_ms": EVERY_MS}]}
    async with side.server.connection() as connection:
        run_id = await connection.post_run(session_id, json.dumps(script))
    seconds = (GATHER_MS + ticks * EVERY_MS) / 1000 + 30
    crowd_command = bench_module(
        "viewers", side.server.url, side.server.token, run_id, str(viewers), str(seconds)
    )
    async with (
        _ticking(setting, side, ticks),
        child(crowd_command, name="viewers", folder=setting.folder) as crowd,
    ):
        await crowd.line("connected", seconds=GATHER_MS / 1000)
        seen = json.loads((await crowd.line(r"^\{.*\}$", seconds=seconds + 10))[0])
    if seen["ticks"] != ticks * viewers:
        raise RuntimeError(
            f"{viewers} viewers should have seen {ticks * viewers} ticks and saw {seen['ticks']}"
        )
    return seen


@asynccontextmanager
async def _ticking(setting: Setting, side: Side, ticks: int) -> AsyncIterator[None]:
    if not side.database_url:
        yield
        return
    command = bench_module("ticker", side.database_url, str(GATHER_MS), str(ticks), str(EVERY_MS))
    async with child(command, name="ticker", folder=setting.folder) as ticker:
        yield
        await ticker.line("ended")


def _medians(seen: tuple[list[dict[str, Any]], list[dict[str, Any]]], what: str) -> tuple[float, float]:
    return median([one[what] for one in seen[0]]), median([one[what] for one in seen[1]])


@asynccontextmanager
async def _easel(setting: Setting) -> AsyncIterator[Side]:
    async with setting.database() as url, easel_processes.api(setting, url) as api:
        yield Side(api.server, api.process, url)


@asynccontextmanager
async def _floor(setting: Setting) -> AsyncIterator[Side]:
    async with child(
        bench_module("floors.broadcast"), name="floor-broadcast", folder=setting.folder
    ) as process:
        yield Side(Server((await process.line(r"http://\S+"))[0]), process)
