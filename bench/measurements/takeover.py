"""How long a run pauses after its worker was killed: at most the claim window and two seconds."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from bench import easel_processes
from bench.figures import Figure, within
from bench.setting import Setting, connected
from bench.waiting import wait_for

if TYPE_CHECKING:
    import asyncpg

CLAIM_SECONDS = 2.0
GRACE_SECONDS = 2.0
DEADLINE_SECONDS = 60.0
STARTS = "select count(*) from run_events where run_id = $1 and event_type = 'run.start'"


async def takeover(setting: Setting) -> list[Figure]:
    """Take-over of a run after kill -9 of its worker, with a claim window of 2 s."""
    took: list[float] = []
    async with (
        setting.database() as url,
        connected(url) as connection,
        easel_processes.api(setting, url) as api,
        api.server.connection() as link,
        AsyncExitStack() as workers,
    ):
        window = str(CLAIM_SECONDS)
        holder = await workers.enter_async_context(easel_processes.worker(setting, url, CLAIM_SECONDS=window))
        for sample in range(setting.size(5, 2)):
            run_id = await link.post_run(
                f"takeover-{sample}", json.dumps({"script": [{"ticks": 400, "every_ms": 20}]})
            )
            await _starts(connection, run_id, 1)
            heir = await workers.enter_async_context(
                easel_processes.worker(setting, url, CLAIM_SECONDS=window)
            )
            # Past the first renewals, and at another moment between two of them each time.
            await asyncio.sleep(0.5 + 0.23 * sample)
            killed_at = time.monotonic()
            holder.kill()
            await _starts(connection, run_id, 2)
            took.append(time.monotonic() - killed_at)
            setting.say(f"taken over after {took[-1]:.2f} s")
            await link.ask("POST", f"/api/runs/{run_id}/cancel")
            holder = heir
    return [
        within(
            "take-over after kill -9, slowest",
            max(took),
            CLAIM_SECONDS + GRACE_SECONDS,
            unit="s",
            what=f"window {CLAIM_SECONDS:g} s + {GRACE_SECONDS:g} s =",
        )
    ]


async def _starts(connection: asyncpg.Connection, run_id: str, count: int) -> None:
    async def is_started() -> bool:
        return await connection.fetchval(STARTS, run_id) >= count

    await wait_for(
        is_started, within=DEADLINE_SECONDS, every=0.01, what=f"attempt {count} of {run_id} started"
    )
