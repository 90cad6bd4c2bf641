"""The cost of an idle viewer: database transactions a second with one viewer of a quiet run, and with two
hundred more.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from bench import easel_processes
from bench.figures import Figure, within
from bench.processes import bench_module, child
from bench.setting import Setting, connected

if TYPE_CHECKING:
    import asyncpg

VIEWERS = 200
SETTLE_SECONDS = 12.0
# A backend may report its last counts up to ten seconds after it goes idle; the cost of connecting must not
# count as idling.
ALLOWED = 0.01
# An autovacuum worker can add a hundredth of a transaction per second and viewer to either side; a query per
# viewer is more.


async def idle(setting: Setting) -> list[Figure]:
    """Database transactions per idle viewer: none."""
    window = setting.size(20.0, 11.0)
    async with (
        setting.database() as url,
        connected(url.rpartition("/")[0] + "/postgres") as outside,
        easel_processes.api(setting, url) as api,
        easel_processes.worker(setting, url),
    ):
        async with api.server.connection() as link:
            run_id = await link.post_run("idle", json.dumps({"script": [{"wait_ms": 120_000}]}))
        name = url.rpartition("/")[2]
        rates: dict[int, float] = {}
        async with AsyncExitStack() as stack:
            watching = 0
            for viewers in (1, VIEWERS + 1):
                command = bench_module(
                    "viewers", api.server.url, api.server.token, run_id, str(viewers - watching), "120"
                )
                crowd = await stack.enter_async_context(child(command, name="viewers", folder=setting.folder))
                await crowd.line("connected")
                watching = viewers
                rates[viewers] = await _transactions_a_second(outside, name, window)
                setting.say(f"{viewers} viewers: {rates[viewers]:.2f} transactions/s in all")
    each = max(0.0, (rates[VIEWERS + 1] - rates[1]) / VIEWERS)
    return [
        within(
            f"transactions/s per idle viewer ({VIEWERS} more than one)",
            each,
            ALLOWED,
            unit="tx/s",
            what="zero, noise up to",
        )
    ]


async def _transactions_a_second(outside: asyncpg.Connection, database: str, seconds: float) -> float:
    await asyncio.sleep(SETTLE_SECONDS)
    before = await _committed(outside, database)
    await asyncio.sleep(seconds)
    return (await _committed(outside, database) - before) / seconds


async def _committed(outside: asyncpg.Connection, database: str) -> int:
    return await outside.fetchval(
        "select xact_commit + xact_rollback from pg_stat_database where datname = $1", database
    )
