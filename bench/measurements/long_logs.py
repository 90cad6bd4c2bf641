"""Long logs: how fast a stored one is replayed, and whether resuming near its end costs more than near its
start.

The log is made in the database: a run is executed, then its log is extended in place.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bench import easel_processes
from bench.figures import Figure, at_least, at_most, median, reaches
from bench.processes import bench_module, child
from bench.setting import Setting, connected
from bench.wire import Server, read_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

REPLAY_BAR = 60_000
ROUNDS = 3
TAKEN = 100
# Events that a resumed stream reads: those after the late cursor.
WARM_UP = 5
PAUSE_SECONDS = 0.02
# Between two resumes: the early one is left in the middle of the log, and the server needs a moment to close
# it.

LENGTHEN = """
insert into run_events (run_id, seq, event_type, visibility, payload)
select $1, n, 'message.delta', 'public',
       jsonb_build_object('message_id', 'message-1', 'text', 'tick ' || n || E'\\n', 'visibility', 'public')
  from generate_series(1, $2::bigint - 1) as n
"""
FLOOR_LOG = """
insert into run_events (run_id, seq, event_type, payload)
select 1, n, 'message.delta',
       jsonb_build_object('message_id', 'message-1', 'text', 'tick ' || n || E'\\n', 'visibility', 'public')
  from generate_series(1, $1::bigint) as n
"""


async def replay(setting: Setting) -> list[Figure]:
    """Replay of a stored log over SSE, in events/s, against a bare loop with pages of 100."""
    events = setting.size(200_000, 50_000)
    ours: list[float] = []
    floor: list[float] = []
    async with _stored(setting, events) as (server, run_id), _floor(setting, events) as bare:
        for _ in range(ROUNDS):
            ours.append(await _rate(server, run_id, events))
            floor.append(await _rate(bare, "1", events))
    return [
        reaches("replay of a stored log", median(ours), REPLAY_BAR, unit="events/s", what="promised"),
        at_least("replay against pages of 100", median(ours), median(floor), unit="events/s", bar=None),
    ]


async def resume(setting: Setting) -> list[Figure]:
    """Resuming near the end of a log of 1,000,000 events, against near its start."""
    events = setting.size(1_000_000, 100_000)
    late, early = events - TAKEN, TAKEN
    took: dict[int, list[float]] = {late: [], early: []}
    async with _stored(setting, events) as (server, run_id):
        for sample in range(WARM_UP + setting.size(200, 50)):
            for cursor, times in took.items():
                stream = await read_log(server, run_id, after=cursor, events=TAKEN)
                await asyncio.sleep(PAUSE_SECONDS)
                if sample >= WARM_UP:
                    times.append((stream.last_at - stream.opened_at) * 1000)
    against = f"at {early:,}:"
    return [
        at_most(
            f"resume at event {late:,} of {events:,}, {TAKEN} events",
            median(took[late]),
            median(took[early]),
            unit="ms",
            bar=1.5,
            against=against,
        )
    ]


async def _rate(server: Server, run_id: str, events: int) -> float:
    stream = await read_log(server, run_id)
    if stream.events != events:
        raise RuntimeError(f"a log of {events} events was replayed as {stream.events}")
    return events / (stream.last_at - stream.opened_at)


@asynccontextmanager
async def _stored(setting: Setting, events: int) -> AsyncIterator[tuple[Server, str]]:
    """Start an API whose database has one finished run with that many events."""
    async with (
        setting.database() as url,
        connected(url) as connection,
        easel_processes.api(setting, url) as api,
    ):
        async with easel_processes.worker(setting, url), api.server.connection() as link:
            run_id = await link.post_run("long", "noop")
            await read_log(api.server, run_id)
        setting.say(f"lengthening a log to {events:,} events")
        await _lengthen(connection, run_id, events)
        yield api.server, run_id


async def _lengthen(connection: asyncpg.Connection, run_id: str, events: int) -> None:
    async with connection.transaction():
        # The foreign key of each row need not be checked again: the run exists.
        await connection.execute("set local session_replication_role = replica")
        await connection.execute("delete from run_events where run_id = $1 and event_type <> 'done'", run_id)
        await connection.execute("update run_events set seq = $2 where run_id = $1", run_id, events)
        await connection.execute(LENGTHEN, run_id, events, timeout=300)
        await connection.execute(
            "update runs set last_seq = $2, batch_seq = $2 where run_id = $1", run_id, events
        )
    await connection.execute("vacuum analyze run_events", timeout=300)


@asynccontextmanager
async def _floor(setting: Setting, events: int) -> AsyncIterator[Server]:
    async with setting.database("schema.sql") as url:
        async with connected(url) as connection:
            await connection.execute(FLOOR_LOG, events, timeout=300)
            await connection.execute("vacuum analyze run_events")
        async with child(
            bench_module("floors.replay", url, "100"), name="floor-replay", folder=setting.folder
        ) as process:
            yield Server((await process.line(r"http://\S+"))[0])
