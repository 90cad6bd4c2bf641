"""Durable appends a second by 32 runs at once, through the Python store, against the same fenced append in
SQL alone.

The floor is pgbench with 32 clients and prepared statements on the bare schema: no foreign key, no second
index, no batch key. Rounds alternate.
"""

from __future__ import annotations

import asyncio
import re
import time
import timeit
from typing import TYPE_CHECKING

from bench import our_store
from bench.account_order import order_costs
from bench.figures import Figure, at_least, at_most, median
from bench.setting import ROOT, Setting, connected, find_pgbench
from easel.core.run.batch import Batch
from easel.core.run.events import RunEvents
from easel.ids import RunId, answer_id

if TYPE_CHECKING:
    from easel.core.run.run import Claim
    from easel.stores.postgres import PostgresDatabase

WRITERS = 32
BATCH_EVENTS = 50
ROUNDS = 3
SEALED = 20_000
ORDINARY = (
    "A piece of an answer as a model says it: some twenty words or so, with a comma, and a full stop at the "
    "end. "
)


async def appends(setting: Setting) -> list[Figure]:
    """Durable appends/s of 32 runs through the store, against the same fenced append by pgbench."""
    seconds = setting.size(4.0, 2.0)
    sql: list[float] = []
    single: list[float] = []
    batched: list[float] = []
    async with setting.database("schema.sql") as floor_url, our_store.opened(setting) as (database, _):
        await _prepare_floor(floor_url)
        claims = await _claims(database)
        numbers = dict.fromkeys((claim.run_id for claim in claims), 0)
        for turn in range(setting.size(ROUNDS, 1)):
            sql.append(await _pgbench(floor_url, seconds))
            single.append(await _ours(database, claims, numbers, 1, seconds))
            batched.append(await _ours(database, claims, numbers, BATCH_EVENTS, seconds))
            setting.say(
                f"round {turn + 1}: SQL {sql[-1]:,.0f}/s, ours {single[-1]:,.0f}/s, in batches of "
                f"{BATCH_EVENTS} {batched[-1]:,.0f} events/s"
            )
    against = "pgbench"
    seal_seconds = _sealing(claims[0].run_id)
    return [
        at_most(
            "sealing an ordinary event, of the time of its append",
            seal_seconds * 1e6,
            1e6 / median(single),
            unit="µs",
            bar=0.05,
            against="one append",
        ),
        at_least(
            f"durable appends, {WRITERS} runs, one event each",
            median(single),
            median(sql),
            unit="/s",
            bar=0.3,
            against=against,
        ),
        at_least(
            f"durable appends, {WRITERS} runs, {BATCH_EVENTS} events each",
            median(batched),
            median(sql),
            unit="events/s",
            bar=0.75,
            against=against,
        ),
        *await order_costs(setting),
    ]


def _sealing(run_id: RunId) -> float:
    """Return the seconds of one `seal()` with its JSON: the best of some rounds, since disturbances only add
    to it.
    """
    maker, message_id = RunEvents(run_id, agent_id="main", node_id="bench"), answer_id(run_id)
    return min(timeit.repeat(lambda: maker.delta(message_id, ORDINARY), number=SEALED, repeat=5)) / SEALED


async def _claims(database: PostgresDatabase) -> list[Claim]:
    await our_store.enqueue(database, WRITERS)
    claims = await our_store.claim(database, our_store.worker(), WRITERS)
    assert len(claims) == WRITERS
    return claims


async def _ours(
    database: PostgresDatabase, claims: list[Claim], numbers: dict[RunId, int], events: int, seconds: float
) -> float:
    """Append batches in each run; count only appends that the store has confirmed as durable."""
    deadline = time.perf_counter() + seconds

    async def write(claim: Claim) -> int:
        maker = RunEvents(claim.run_id, agent_id="main", node_id="bench")
        message_id = answer_id(claim.run_id)
        stored = 0
        while time.perf_counter() < deadline:
            numbers[claim.run_id] += 1
            batch = Batch(
                claim,
                numbers[claim.run_id],
                [maker.delta(message_id, f"tick {stored + nth}\n") for nth in range(events)],
            )
            if await database.runs.append(batch) is None:
                raise RuntimeError("a claim was lost while nobody else was there")
            stored += events
        return stored

    began = time.perf_counter()
    stored = sum(await asyncio.gather(*(write(claim) for claim in claims)))
    return stored / (time.perf_counter() - began)


async def _prepare_floor(url: str) -> None:
    async with connected(url) as connection:
        await connection.execute(
            "insert into runs (input, status, owner_id, attempt) select 'noop', 'running', 'floor', 1 from "
            "generate_series(1, $1::int)",
            WRITERS,
        )


async def _pgbench(url: str, seconds: float) -> float:
    program = find_pgbench()
    if program is None:
        raise RuntimeError(
            "pgbench was not found beside Postgres or on the path; install Postgres's client programs"
        )
    command = [
        program,
        "-n",
        "-M",
        "prepared",
        "-c",
        str(WRITERS),
        "-j",
        "2",
        "-T",
        str(round(seconds)),
        "-f",
        str(ROOT / "bench/floors/append.sql"),
        url,
    ]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(seconds + 30):
            said, problem = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    found = re.search(rb"tps = ([\d.]+)", said)
    if not found:
        raise RuntimeError(f"pgbench failed: {problem.decode(errors='replace')[-500:]}")
    return float(found[1])
