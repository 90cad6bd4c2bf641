"""Writes into a real run's log through the real store, in the test's place, at any pace.

For drills on the reading side, where the written events have to be exact and no worker's pace may matter.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from easel.core.run.batch import Batch
from easel.core.run.events import RunEvents
from easel.core.run.status import Status
from easel.core.stream.notifications import RunAppended
from easel.ids import answer_id, new_worker_id
from easel.stores.postgres import PostgresDatabase, open_postgres

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from easel.core.run.run import Claim
    from easel.core.stream.envelope import Envelope
    from tests.journeys.client import Client

LONG_CLAIM_SECONDS = 300.0
# No drill with this writer is about losing a claim.


class LogAppender:
    def __init__(self, database: PostgresDatabase, claim: Claim) -> None:
        self.run_id = claim.run_id
        self._database, self._claim = database, claim
        self._events = RunEvents(claim.run_id, agent_id="main", node_id="appender")
        self._batches = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def claim(cls, client: Client, database_url: str) -> AsyncIterator[LogAppender]:
        """Create a run and claim it for the test. There must be no other worker."""
        run_id = await client.start("written by a test")
        database = await open_postgres(database_url, pool=2)
        try:
            (claim,) = await database.runs.claim_queued(new_worker_id(), 1, LONG_CLAIM_SECONDS, 0)
            assert claim.run_id == run_id, "another worker or another run is about"
            appender = cls(database, claim)
            await appender._append([appender._events.start(claim.attempt)])
            yield appender
        finally:
            await database.close()

    async def say(self, texts: Sequence[str]) -> None:
        """Append one event for each text in one commit, and notify."""
        await self._append([self._events.delta(answer_id(self._claim.run_id), text) for text in texts])

    async def end(self, text: str = "") -> None:
        await self._append(
            self._events.end_with_message(answer_id(self._claim.run_id), text, Status.COMPLETED, None),
            Status.COMPLETED,
        )

    async def _append(self, events: Sequence[Envelope], ends_as: Status | None = None) -> None:
        self._batches += 1
        answer = await self._database.runs.append(Batch(self._claim, self._batches, events, ends_as))
        assert answer is not None
        self._database.notifier.notify(RunAppended(self._claim.run_id, answer.last_seq))
