"""Departures: the work of former members and disabled people is ended. RS-76

Their rights, tokens and nodes end in the transaction in which they leave, which also stores the departure.
Owns the rest: their runs are cancelled and their questions end as refused. Each step may be repeated, and
the departure is removed at the end, so that a killed process loses nothing. Audit is never rewritten.
"""

import structlog

from easel.core.people import Departure
from easel.core.principal import host_for
from easel.errors import NotFound, RunFinished, Unavailable
from easel.host.actions.confirmations import Confirmations
from easel.host.periodic import Periodic
from easel.host.ports import DepartureStore
from easel.host.runs.queue import RunQueue

INTERVAL_SECONDS = 1.0
# A request that was admitted before the departure may start a run shortly after it.
SETTLE_SECONDS = 10.0
MAX_DEPARTURES = 100  # of one pass
MAX_ENDED = 200  # runs, and as many questions, of one departure in one pass

log = structlog.get_logger("departures")


class Departures:
    def __init__(self, store: DepartureStore, queue: RunQueue, confirmations: Confirmations) -> None:
        self._store = store
        self._queue = queue
        self._confirmations = confirmations
        self.periodic = Periodic("departures.end", INTERVAL_SECONDS, self.once)

    async def once(self) -> int:
        """End the work of former members. Returns how many runs and questions were ended."""
        count = 0
        for departure in await self._store.list_departures(MAX_DEPARTURES):
            count += await self._end(departure)
        return count

    async def start_now(self) -> None:
        """Do it now, after a change. The periodic repeats a part that fails."""
        try:
            await self.once()
        except Unavailable:
            log.info("departures.postponed")

    async def _end(self, departure: Departure) -> int:
        runs = await self._store.list_runs(departure, MAX_ENDED)
        for run_id in runs:
            try:
                await self._queue.cancel(host_for(departure.account_id), run_id)
            except (NotFound, RunFinished):  # it ended, or its session was deleted
                continue
        questions = await self._store.list_questions(departure, MAX_ENDED)
        await self._confirmations.end_questions(departure.account_id, questions)
        count = len(runs) + len(questions)
        if not count and departure.seconds >= SETTLE_SECONDS:
            await self._store.finish(departure)
        return count
