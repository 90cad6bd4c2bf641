"""Easel's own store, opened as a worker opens it, for measurements below the processes: appends and
claims.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING

from easel.core.run.batch import Batch
from easel.core.run.events import UNCLAIMED_RUN_ID, RunEvents
from easel.core.run.run import Claim, NewRun
from easel.core.run.status import Status
from easel.ids import OWNER, AccountId, SessionId, WorkerId, answer_id, new_run_id, new_worker_id
from easel.settings import Settings
from easel.stores.postgres import PostgresDatabase, open_postgres
from easel.stores.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from bench.setting import Setting

CLAIM_SECONDS = 600.0
# Longer than any measurement: renewing is not what is measured.
OPENING = RunEvents(UNCLAIMED_RUN_ID, agent_id="main", node_id="bench").start(0)
_sessions = count(1)

Database = PostgresDatabase | SqliteDatabase


@asynccontextmanager
async def opened(setting: Setting) -> AsyncIterator[tuple[PostgresDatabase, str]]:
    """Open the store on a fresh, migrated database, with the default pool of one process."""
    async with setting.database() as url:
        database = await open_postgres(url, pool=Settings().database_pool)
        try:
            await database.migrate()
            yield database, url
        finally:
            await database.close()


async def enqueue(database: Database, runs: int, account_id: AccountId = OWNER) -> None:
    """Queue no-op runs, each in a session of its own."""
    new = (
        NewRun(
            new_run_id(),
            account_id,
            SessionId(f"bench-{next(_sessions)}"),
            "noop",
            max_attempts=Settings().max_attempts,
        )
        for _ in range(runs)
    )
    await asyncio.gather(*(database.runs.enqueue(one) for one in new))


def worker() -> WorkerId:
    return new_worker_id()


async def claim(database: Database, worker_id: WorkerId, room: int, after_turn: int = 0) -> list[Claim]:
    return await database.runs.claim_queued(worker_id, room, CLAIM_SECONDS, after_turn, OPENING)


async def finish(database: PostgresDatabase, claims: Sequence[Claim]) -> None:
    """End each run as a worker does: all its events and its status in one append."""

    async def one(claim: Claim) -> None:
        events = RunEvents(claim.run_id, agent_id="main", node_id="bench")
        log = events.end_with_message(answer_id(claim.run_id), "", Status.COMPLETED, None)
        if await database.runs.append(Batch(claim, 1, log, Status.COMPLETED)) is None:
            raise RuntimeError(f"{claim.run_id} could not be ended")

    await asyncio.gather(*(one(claim) for claim in claims))
