"""The next run of a session goes to its previous worker, and to another one after a delay. SB-12, RX-51

The poll interval is so long that no run here is found by polling. The store contract has the rules of the
preference itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from easel.core.run.status import Status
from easel.host.runs.worker import NEAR_TURNS
from easel.ids import WorkerId
from tests.host.runs.workers import wait_until_ended, working
from tests.requirements import rule
from tests.stores.harness import CLAIM_SECONDS, ending_batch, new_run
from tests.support.waiting import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from easel.host.runs.worker import RunWorker
    from easel.ids import RunId
    from tests.host.conftest import RunHarness

STOPPED_WORKER = WorkerId("wrk_stopped")
LONG_SECONDS = 60.0
DELAY_SECONDS = 0.5
NEVER = 3600.0  # seconds between two polls


def make_worker(harness: RunHarness, *, prefer: float, **options: Any) -> RunWorker:
    return harness.worker(poll_seconds=NEVER, prefer_seconds=prefer, **options)


async def finish_run(harness: RunHarness, session: str, worker_id: WorkerId) -> None:
    """Let this worker start and end a run of the session."""
    await harness.start("noop", session)
    [claim] = await harness.runs.claim_queued(worker_id, 1, CLAIM_SECONDS, 0)
    assert await harness.runs.append(ending_batch(claim, 1)) is not None


async def owner_of(harness: RunHarness, run_id: RunId) -> str:
    def read_owner(connection: Any) -> str:
        row = connection.execute("select owner_id from runs where run_id = ?", (run_id,)).fetchone()
        return row["owner_id"]

    return await harness.database.read(read_owner)


async def queued_seconds(harness: RunHarness, run_id: RunId) -> float:
    """Return the time between request and start of the run, by the store's clock."""
    run = await wait_until_ended(harness, run_id)
    assert run.started_at is not None
    return (run.started_at - run.created_at).total_seconds()


@rule("SB-12", "RX-51")
async def test_session_keeps_its_previous_worker(harness: RunHarness):
    workers = [make_worker(harness, prefer=LONG_SECONDS, slots=100) for _ in range(2)]
    sessions = {f"s{number}": workers[number % 2].worker_id for number in range(20)}
    for session, worker_id in sessions.items():
        await finish_run(harness, session, worker_id)
    async with working(workers[0]), working(workers[1]):
        runs = [(await harness.start("noop", session), worker_id) for session, worker_id in sessions.items()]
        for run_id, worker_id in runs:
            assert await queued_seconds(harness, run_id) < TIMEOUT_SECONDS
            assert await owner_of(harness, run_id) == worker_id, "the chance of this is 1 in 2**20"


@rule("SB-12", "RX-51", "RX-23")
async def test_run_of_a_stopped_worker_starts_after_the_delay_and_the_next_one_at_once(harness: RunHarness):
    for session in ("early", "s"):
        await finish_run(harness, session, STOPPED_WORKER)
    # Enqueued without a notification, as before the worker started.
    early = (await harness.runs.enqueue(new_run("early", "noop"))).run.run_id
    async with working(make_worker(harness, prefer=DELAY_SECONDS)):
        assert (await wait_until_ended(harness, early)).status is Status.COMPLETED
        deferred = await harness.start("noop")
        advance = f"update run_counters set turn_no = turn_no + {2 * NEAR_TURNS}"
        await harness.database.write(lambda connection: connection.execute(advance).rowcount)
        newer = await harness.start(
            "noop", "new"
        )  # claimed at once: the search near the queue's end starts here
        assert (await wait_until_ended(harness, newer)).status is Status.COMPLETED
        assert await queued_seconds(harness, deferred) >= DELAY_SECONDS
        harness.clock.stop()  # so that no further delay ever ends
        assert await queued_seconds(harness, await harness.start("noop")) < DELAY_SECONDS, (
            "the session has another worker now"
        )
