"""No-op runs a second with one worker, against a bare worker with two commits a row and against other queues
doing an equal job.

The rate is taken between the first start and the last finish, from each side's own tables, over a queue that
was full before the worker started. Ours has its start, status and done events durable before a run counts as
finished.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bench import easel_processes
from bench.figures import Figure, at_least, median, unmeasured
from bench.processes import ChildFailed, bench_module, child
from bench.setting import Setting, connected
from bench.waiting import wait_for

if TYPE_CHECKING:
    from bench.wire import Server

# of the peers, and of the stricter floor: as many as one of our processes has connections by default
# (EASEL_DATABASE_POOL)
LANES = 8
# Of the floor with the bar. The research gives its rate and not its lanes, but states 0.61 of pgqueuer; here
# four lanes reach 0.6 to 0.85 of pgqueuer, eight 0.9 to 1.1.
FLOOR_LANES = 4
ROUNDS = 3
DEADLINE_SECONDS = 120.0
POSTERS = 16

RATE = """
select count(*) / extract(epoch from max(finished_at) - min(started_at))::float
  from runs where status = 'completed'
"""


async def runs(setting: Setting) -> list[Figure]:
    """No-op runs/s of one worker, against a bare two-commit worker and against other queues."""
    count = setting.size(4000, 1000)
    ours: list[float] = []
    floor: list[float] = []
    harder: list[float] = []
    for turn in range(setting.size(ROUNDS, 1)):
        floor.append(await _floor(setting, count, FLOOR_LANES))
        ours.append(await _easel(setting, count))
        harder.append(await _floor(setting, count, LANES))
        setting.say(
            f"round {turn + 1}: ours {ours[-1]:,.0f}/s, floor {floor[-1]:,.0f}/s with 4 lanes, "
            f"{harder[-1]:,.0f}/s with 8"
        )
    rate = median(ours)
    figures = [
        at_least("no-op runs, one worker", rate, median(floor), unit="/s", bar=0.75),
        at_least("no-op runs, one worker, floor with 8 lanes", rate, median(harder), unit="/s", bar=None),
    ]
    for peer, bar in (("procrastinate", 1.0), ("dbos", 1.0), ("pgqueuer", None)):
        try:
            theirs = await _peer(setting, peer, setting.size(2000, 500))
        except ChildFailed as problem:
            setting.say(str(problem))
            figures.append(unmeasured(f"no-op runs against {peer}", f"{peer} did not run; see above"))
            continue
        setting.say(f"{peer} {theirs:,.0f}/s")
        figures.append(at_least(f"no-op runs against {peer}", rate, theirs, unit="/s", bar=bar, against=peer))
    return figures


async def _floor(setting: Setting, count: int, lanes: int) -> float:
    async with setting.database("schema.sql") as url, connected(url) as connection:
        await connection.execute(
            "insert into runs (input) select 'noop' from generate_series(1, $1::int)", count
        )
        await connection.execute("vacuum analyze runs")
        async with child(
            bench_module("floors.jobs_worker", url, str(lanes)), name="floor-jobs", folder=setting.folder
        ) as process:
            await process.line("ended", seconds=DEADLINE_SECONDS)
        return await connection.fetchval(RATE)


async def _easel(setting: Setting, count: int) -> float:
    async with setting.database() as url, connected(url) as connection:
        async with easel_processes.api(setting, url) as api:
            await _post(api.server, count)
        await connection.execute("vacuum analyze runs")
        async with easel_processes.unready_worker(setting, url):

            async def all_completed() -> bool:
                return (
                    await connection.fetchval("select count(*) from runs where status = 'completed'") == count
                )

            await wait_for(
                all_completed, within=DEADLINE_SECONDS, every=0.2, what=f"{count} no-op runs completed"
            )
        logged = await connection.fetchval(
            "select count(*) from run_events where event_type in ('run.start', 'run.status', 'done')"
        )
        if logged != 3 * count:
            raise RuntimeError(f"{count} runs left {logged} start, status and done events, not three each")
        return await connection.fetchval(RATE)


async def _post(server: Server, count: int) -> None:
    """Fill the queue over HTTP, each run in a session of its own."""
    numbers = iter(range(count))

    async def post_some() -> None:
        async with server.connection() as connection:
            for number in numbers:
                await connection.post_run(f"noop-{number}", "noop")

    await asyncio.gather(*(post_some() for _ in range(POSTERS)))


async def _peer(setting: Setting, name: str, jobs: int) -> float:
    module = f"peers.{name}_noop"
    async with (
        setting.database() as url,
        child(bench_module(module, url, str(jobs), str(LANES)), name=name, folder=setting.folder) as process,
    ):
        return float((await process.line(r"^rate ([\d.]+)$", seconds=DEADLINE_SECONDS))[1])
