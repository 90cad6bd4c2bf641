"""Many documents edited at once by real runs: all edits land, and no tool call takes long."""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING

from bench import easel_processes
from bench.figures import Figure, within
from bench.setting import Setting, connected
from bench.waiting import wait_for

if TYPE_CHECKING:
    import asyncpg

    from bench.wire import Server

DEADLINE_SECONDS = 120.0
LINES = 300
EDITS = 3  # of each document, in one run
TEXT = "".join(f"- item {number} of a list\n" for number in range(1, LINES + 1))
CALLS = """
select c.payload->>'tool' as tool, extract(epoch from r.created_at - c.created_at) as seconds
  from run_events c join run_events r on r.run_id = c.run_id and r.event_type = 'tool.result'
   and r.payload->>'call_id' = c.payload->>'call_id'
 where c.event_type = 'tool.call' and c.payload->>'tool' like 'canvas_%'
"""


async def documents_load(setting: Setting) -> list[Figure]:
    """200 documents edited at once on Postgres, by two workers; the time of a tool call in the run's log."""
    count = setting.size(200, 10)
    async with (
        setting.database() as url,
        connected(url) as connection,
        easel_processes.api(setting, url) as api,
        easel_processes.worker(setting, url, WORKER_RUNS="100"),
        easel_processes.worker(setting, url, WORKER_RUNS="100"),
    ):
        await asyncio.gather(*(_create(api.server, number) for number in range(count)))
        await asyncio.gather(*(_start(api.server, number) for number in range(count)))

        async def are_ended() -> bool:
            return (
                await connection.fetchval("select count(*) from runs where finished_at is not null") >= count
            )

        await wait_for(are_ended, within=DEADLINE_SECONDS, every=0.1, what="all runs ended")
        edited = sum(await asyncio.gather(*(_is_edited(api.server, number) for number in range(count))))
        seconds = await _call_seconds(connection)
    setting.say(f"{edited} of {count} documents edited, {len(seconds)} tool calls")
    return [
        within("documents without their edits", count - edited, 0, unit="", what="of all,"),
        within(
            f"tool call, {count} documents edited at once, p99",
            seconds[math.ceil(len(seconds) * 0.99) - 1],
            1.0,
            unit="s",
            what="limit",
        ),
        within("… p50", seconds[len(seconds) // 2], 1.0, unit="s", what="limit"),
    ]


async def _create(server: Server, number: int) -> None:
    spec = {"version": 1, "mode": "markdown"}
    params = {"canvasId": f"doc-{number}", "spec": spec, "ownerSessionKey": f"agent:main:edit-{number}"}
    async with server.connection() as link:
        await link.ask("POST", "/api/rpc", {"method": "canvas.create", "params": params})
        await link.ask("PUT", f"/api/documents/doc-{number}", {"text": TEXT})


async def _start(server: Server, number: int) -> None:
    lease = {"lease_id": "$1.lease_id"}
    steps: list[dict[str, object]] = [{"call": "canvas_check_out", "args": {}}]
    for line in range(1, EDITS + 1):
        place = line * 100
        steps += [
            {"call": "canvas_grep", "args": {**lease, "query": f"item {place} of"}},
            {
                "call": "canvas_apply_patch",
                "args": {
                    **lease,
                    "patch": f"@@ -{place} +{place} @@\n-- item {place} of a list\n+- edited {place}\n",
                },
            },
        ]
    steps.append({"call": "canvas_check_in", "args": lease})
    async with server.connection() as link:
        await link.post_run(f"edit-{number}", json.dumps({"script": steps}))


async def _is_edited(server: Server, number: int) -> bool:
    async with server.connection() as link:
        document = await link.ask("GET", f"/api/documents/doc-{number}")
    expected = TEXT
    for line in range(1, EDITS + 1):
        expected = expected.replace(f"- item {line * 100} of a list\n", f"- edited {line * 100}\n")
    return document["text"] == expected


async def _call_seconds(connection: asyncpg.Connection) -> list[float]:
    """Return the seconds from each stored call to its stored result, in order."""
    return sorted(float(row["seconds"]) for row in await connection.fetch(CALLS))
