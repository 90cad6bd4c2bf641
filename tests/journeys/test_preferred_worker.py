"""A session prefers its last worker and is never tied to it: two real workers, and one that is stopped.
SB-12, RX-51

Claims and polls last longer than the test, so that neither of them can start a run.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.journeys.client import Client, new_session, script, wait_ms
from tests.requirements import rule
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from tests.journeys.stored_runs import StoredRuns
    from tests.support.processes import EaselProcess, Launcher

SESSIONS = 40
PREFER_SECONDS = 5.0  # long enough for a delayed worker to claim its own sessions in time
MARGIN_SECONDS = 20.0  # for a busy machine; claims and polls would take three times as long
SETTINGS = {"CLAIM_SECONDS": "60", "POLL_SECONDS": "60", "PREFER_WORKER_SECONDS": str(PREFER_SECONDS)}
LONG = script(wait_ms(120_000))
WAITED = "extract(epoch from started_at - coalesce(turn_at, created_at))::float8 as waited"


async def sent(
    client: Client, stored_runs: StoredRuns, sessions: Sequence[str], *, each: int = 1
) -> list[asyncpg.Record]:
    """Return the runs that answered these messages, in the order of the sessions."""
    run_ids = await asyncio.gather(
        *(client.start("noop", session_id=session) for _ in range(each) for session in sessions)
    )
    await stored_runs.wait_until_all_ended(run_ids, within=60)
    await stored_runs.check(run_ids)
    found = await stored_runs.fetch(
        f"select run_id, session_id, owner_id, started_at, finished_at, queue_no, {WAITED} from runs where "
        f"run_id = any($1)",
        run_ids,
    )
    return sorted(found, key=lambda row: (sessions.index(row["session_id"]), row["queue_no"]))


async def shared_out(client: Client, stored_runs: StoredRuns, sessions: Sequence[str]) -> dict[str, str]:
    """Return the worker of each session. All run at the same time and fill both workers, so both have as
    many.
    """
    run_ids = await asyncio.gather(*(client.start(LONG, session_id=session) for session in sessions))

    async def all_run() -> bool:
        return set((await stored_runs.statuses(run_ids)).values()) == {"running"}

    await wait_for(all_run, within=60, what="all are under way")
    had = {
        row["session_id"]: row["owner_id"]
        for row in await stored_runs.fetch("select * from runs where run_id = any($1)", run_ids)
    }
    for answer in await asyncio.gather(*map(client.cancel, run_ids)):
        assert answer.status_code == 202, answer.text
    await stored_runs.wait_until_all_ended(run_ids, within=60)
    return had


async def two_workers(
    launcher: Launcher, stored_runs: StoredRuns, *, slots: int
) -> tuple[EaselProcess, dict[str, EaselProcess]]:
    """An API, and two workers by their ids, all of which listen for notifications: the poll is far away."""
    launcher.settings |= SETTINGS | {"WORKER_RUNS": str(slots)}
    api, *workers = launcher.api(), launcher.worker(), launcher.worker()
    await asyncio.to_thread(launcher.ready, api)
    await wait_for(lambda: stored_runs.has_listeners(3), within=60, what="all three listen")

    async def have_started() -> bool:
        return all("worker_id=" in worker.output() for worker in workers)

    await wait_for(have_started, within=60, what="both workers have started")
    return api, {worker.output().partition("worker_id='")[2].partition("'")[0]: worker for worker in workers}


@rule("SB-12", "RX-51", "RX-31")
@pytest.mark.parametrize("goes", ["killed", "frozen", "stopped"])
async def test_session_keeps_its_worker_until_that_one_stops(
    launcher: Launcher, stored_runs: StoredRuns, goes: str
) -> None:
    api, workers = await two_workers(launcher, stored_runs, slots=SESSIONS // 2)
    sessions = [new_session() for _ in range(SESSIONS)]
    async with Client(api) as client:
        had = await shared_out(client, stored_runs, sessions)
        assert Counter(had.values()) == dict.fromkeys(workers, SESSIONS // 2)

        again = await sent(client, stored_runs, sessions, each=3)
        assert {row["session_id"]: row["owner_id"] for row in again} == had, (
            f"by chance, once in 2**{3 * SESSIONS}"
        )
        assert all(row["owner_id"] == had[row["session_id"]] for row in again)
        for before, after in itertools.pairwise(again):
            assert (
                before["session_id"] != after["session_id"] or before["finished_at"] <= after["started_at"]
            ), "out of order"

        (gone, process), (left, _) = workers.items()
        await wait_for(stored_runs.is_at_rest, within=30, what="the stopping worker holds no lock")
        match goes:
            case "killed":
                process.kill()
            case "frozen":
                process.freeze()
            case _:
                await asyncio.to_thread(process.terminate, 15)
        offloaded = await sent(client, stored_runs, sessions)
        assert {row["owner_id"] for row in offloaded} == {left}
        for row in offloaded:
            if had[row["session_id"]] == gone:
                assert PREFER_SECONDS <= row["waited"] < PREFER_SECONDS + MARGIN_SECONDS
            else:
                assert row["waited"] < PREFER_SECONDS, "it had to wait for the worker that it has"
        settled = await sent(client, stored_runs, sessions)
        assert max(row["waited"] for row in settled) < PREFER_SECONDS, (
            "that its worker went costs a session one moment, once"
        )


@rule("SB-12", "RX-51")
async def test_full_worker_delays_no_session(launcher: Launcher, stored_runs: StoredRuns) -> None:
    slots = 4
    api, _ = await two_workers(launcher, stored_runs, slots=slots)
    async with Client(api) as client:
        had: dict[str, list[str]] = {}
        for _ in range(2):  # fills both workers, so that in the end each has had more sessions than slots
            for session, owner in (
                await shared_out(client, stored_runs, [new_session() for _ in range(2 * slots)])
            ).items():
                had.setdefault(owner, []).append(session)
        full, sessions = next(iter(had.items()))
        assert len(sessions) == 2 * slots
        long = [await client.start(LONG, session_id=session) for session in sessions[:slots]]

        async def is_full() -> bool:
            held = await stored_runs.value(
                "select count(*) from runs where run_id = any($1) and status = 'running' and owner_id = $2",
                long,
                full,
            )
            return held == slots

        await wait_for(is_full, within=60, what="it has taken as many of its sessions as it can")
        [row] = await sent(client, stored_runs, sessions[slots : slots + 1])
        assert row["owner_id"] != full
        assert PREFER_SECONDS <= row["waited"] < PREFER_SECONDS + MARGIN_SECONDS
