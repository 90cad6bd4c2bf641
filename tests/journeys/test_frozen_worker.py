"""A worker that loses its claim without noticing: paused, cut off from the database, or with a wrong clock.

No write of such a worker may reach the log.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.journeys.client import Client, call, say, script, ticked, ticks
from tests.journeys.stored_runs import after_last_start, said_in, starts_in
from tests.requirements import case, rule
from tests.support.processes import wait_for_text
from tests.support.proxy import Proxy
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for, wait_for_sync

if TYPE_CHECKING:
    from pathlib import Path

    from tests.journeys.stored_runs import StoredRuns
    from tests.support.processes import EaselProcess, Launcher

RACES = 200
# "Each race drill runs at least 200 times": that many runs are frozen at once, each at another point.
TICKS = 60
RACE_CLAIM_SECONDS = 4.0
# One process owns all of them on two cores: its claims must outlast its busiest moment.
SKEWED_CLAIM_SECONDS = 5.0
# A healthy worker that is delayed for three seconds loses no run.
CUT_OFF_TICKS = 10_000  # far more than needed
RESERVE = 0.1
# The fraction of a claim after which a worker that cannot renew it has stopped.


async def owner_of_all(stored_runs: StoredRuns, run_ids: list[str], attempt: int) -> bool:
    found = await stored_runs.value(
        "select count(*) from runs where run_id = any($1) and attempt >= $2", run_ids, attempt
    )
    return found == len(run_ids)


@case("J2", "J3")
@rule("RX-13", "RX-22", "RX-29", "RX-30", "RX-37", "RS-38", "RS-39")
@pytest.mark.parametrize(
    "environment", [{}, {"JOURNEY_BLIND": "1"}], ids=["that notices", "that notices nothing"]
)
async def test_frozen_worker_that_thaws_after_a_take_over_changes_nothing(
    launcher: Launcher, stored_runs: StoredRuns, environment: dict[str, str]
) -> None:
    """Half of the runs stream while A is frozen (J3), half wait in a tool whose time is over at the thaw, so
    that A finishes at once (J2). A worker's own deadline stops it; a worker without that check is stopped by
    the store alone.
    """
    launcher.settings["CLAIM_SECONDS"] = str(RACE_CLAIM_SECONDS)
    (api,) = launcher.ready(launcher.api())
    streaming, finishing = (
        script(ticks(TICKS, 60)),
        script(say("nearly"), call("gsv__Sleep", ms=3500), say(" there")),
    )
    async with Client(api) as client:
        messages = [streaming, finishing] * (RACES // 2)
        # All runs are enqueued before A starts, so that they begin together.
        run_ids = list(await asyncio.gather(*(client.start(message) for message in messages)))
        first = launcher.test_worker(environment, WORKER_RUNS=str(RACES))
        await wait_for(lambda: owner_of_all(stored_runs, run_ids, 1), within=60, what="A has claimed all")
        probe = client.follower(run_ids[-2])
        await probe.read_until(lambda event: "tick" in event.data.get("text", ""), within=20)
        first.freeze()
        second = launcher.worker(WORKER_RUNS=str(RACES))
        unfinished = [
            run_id for run_id, status in (await stored_runs.statuses(run_ids)).items() if status == "running"
        ]
        assert len(unfinished) >= RACES // 2, "too late: most runs ended before the freeze"
        await wait_for(
            lambda: owner_of_all(stored_runs, unfinished, 2), within=60, what="B has taken over all"
        )
        await probe.read_until(
            lambda event: event.type == "run.start" and event.data["attempt"] == 2, within=30
        )
        before = {run_id: (await stored_runs.run(run_id))["owner_id"] for run_id in unfinished[:1]}
        first.thaw()
        await stored_runs.wait_until_all_ended(run_ids, within=80)
        await probe.close()

        for run_id, owner in before.items():
            assert (await stored_runs.run(run_id))["owner_id"] in (owner, None), "the row does not show B"
        says = {
            run_id: ticked(TICKS) if message == streaming else "nearly\n\n there"
            for run_id, message in zip(run_ids, messages, strict=True)
        }
        await stored_runs.check(run_ids, says=says)
        for run_id, log in (await stored_runs.logs(run_ids)).items():
            if run_id in unfinished and says[run_id] == ticked(TICKS):
                assert [row.data["attempt"] for row in starts_in(log)] == [1, 2]
                # Any event of A among B's would break the count.
                assert said_in(after_last_start(log)) == ticked(TICKS)

        # A has released every run that it believed to own, and accepts new ones.
        async def has_let_go() -> bool:
            said = lines_about(first, "run.claim_lost")
            return sum(f"run_id='{run_id}'" in said for run_id in unfinished) >= len(unfinished) * 9 // 10

        await wait_for(
            has_let_go,
            within=30,
            what=f"A tried to go on with nearly all of {len(unfinished)} runs, and was refused",
        )
        second.kill()
        await client.wait_for(await client.start("noop"), within=60)
        assert first.is_alive


def lines_about(process: EaselProcess, event: str) -> str:
    return "\n".join(line for line in process.output().splitlines() if event in line)


@case("J7")
@rule("RX-13", "RX-26")
async def test_worker_cut_off_from_the_database_stops_before_its_claim_expires(
    launcher: Launcher, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    """The cut holds sent bytes and delivers them at the end, as TCP does: even the late writes must change
    nothing.
    """
    claim_seconds = 2.0
    beats = tmp_path / "beats"
    (api,) = launcher.ready(launcher.api())
    with Proxy.before(launcher.database_url) as network:
        cut_off = launcher.test_worker(
            CLAIM_SECONDS=str(claim_seconds), DATABASE_URL=network.url(launcher.database_url)
        )
        async with Client(api) as client:
            run_id = await client.start(
                script(call("test__Heartbeat", file=str(beats), every_ms=20), say("end"))
            )
            streaming = await client.start(script(ticks(CUT_OFF_TICKS, 20)))
            await wait_for(
                lambda: owner_of_all(stored_runs, [run_id, streaming], 1),
                within=60,
                what="the worker has both runs",
            )
            follower = client.follower(streaming)
            await follower.read_until(lambda event: event.type == "message.delta", within=20)
            await asyncio.to_thread(wait_for_text, beats, within=60, what="the tool is at work")
            network.black_hole()
            # No other worker yet: the row must show when the last write of the cut-off worker was stored.
            await wait_for(
                lambda: claims_are_over(stored_runs),
                within=30,
                what="the claims have run out by the database's clock",
            )
            claim_end: datetime = (await stored_runs.run(run_id))["lease_until"]
            check_beats(
                [float(beat) for beat in beats.read_text().split()],
                claim_end.timestamp(),
                claim_seconds * RESERVE,
            )
            quiet = await stored_runs.log(streaming)
            assert quiet[-1].at < (await stored_runs.run(streaming))["lease_until"]

            healthy = launcher.test_worker(CLAIM_SECONDS=str(claim_seconds))
            began = time.monotonic()
            await follower.read_until(
                lambda event: event.type == "run.start" and event.data["attempt"] == 2, within=60
            )
            taken_over = await stored_runs.log(streaming)
            assert starts_in(taken_over)[-1].seq == len(quiet) + 1, (
                "something landed between the end of the claim and the take-over"
            )
            await asyncio.sleep(
                max(0.0, began + 5 - time.monotonic())
            )  # the cut lasts for the claim and 5 s, as the case demands
            assert network.held_bytes > 0, "no write is on its way, so none can be late"
            network.heal()
            assert (await client.cancel(streaming)).status_code == 202
            await follower.read_to_end(within=30)
            assert (await client.cancel(run_id)).status_code == 202
            await stored_runs.wait_until_all_ended([run_id, streaming], within=30)
            await stored_runs.check([run_id, streaming], ends="cancelled")
            log = await stored_runs.log(streaming)
            assert ticked(CUT_OFF_TICKS).startswith(said_in(after_last_start(log)))

            # Healed, it works again; the other worker has ended.
            healthy.kill()
            await client.wait_for(await client.start("noop"), within=60)
            assert cut_off.is_alive


def check_beats(beats: list[float], claim_end: float, reserve: float) -> None:
    """Check for beats after the claim. One is allowed if the machine was paused for longer than the reserve:
    no timer fires then.
    """
    before, late = [beat for beat in beats if beat < claim_end], [beat for beat in beats if beat >= claim_end]
    assert len(late) <= 1, (
        f"the tool went on after the claim had run out: {[round(beat - claim_end, 3) for beat in late]}"
    )
    assert not late or late[0] - before[-1] > reserve, (
        f"{late[0] - claim_end:.3f} s late, {late[0] - before[-1]:.3f} s after the one before"
    )


async def claims_are_over(stored_runs: StoredRuns) -> bool:
    """Wait until the claims have been expired for long enough that a late write would be visible."""
    return await stored_runs.value(
        "select bool_and(clock_timestamp() > lease_until + interval '0.5 seconds') from runs where status = "
        "'running'"
    )


@case("J8")
@rule("RX-22", "RX-26", "RX-37")
@pytest.mark.parametrize("skew_seconds", [3600, -3600])
async def test_wrong_clock_of_a_worker_has_no_effect(
    launcher: Launcher, stored_runs: StoredRuns, skew_seconds: int
) -> None:
    """Runs longer than the claim stay with a skewed owner, and a killed owner's runs pass to a skewed worker
    in time.
    """
    launcher.settings["CLAIM_SECONDS"] = str(SKEWED_CLAIM_SECONDS)
    (api,) = launcher.ready(launcher.api())
    skewed = launcher.test_worker({"JOURNEY_CLOCK_SKEW_SECONDS": str(skew_seconds)})
    async with Client(api) as client:
        run_ids = list(
            await asyncio.gather(
                *(client.start(script(ticks(int(SKEWED_CLAIM_SECONDS * 1.6 / 0.05), 50))) for _ in range(10))
            )
        )
        await wait_for(
            lambda: owner_of_all(stored_runs, run_ids, 1), within=60, what="the skewed worker has all"
        )
        told = datetime.fromisoformat(lines_about(skewed, "worker.started").split()[0])
        assert abs((told - datetime.now(UTC)).total_seconds() - skew_seconds) < 60, "its clock is not wrong"
        true = launcher.test_worker()
        await stored_runs.wait_until_all_ended(run_ids, within=60)
        await stored_runs.check(run_ids)
        assert await stored_runs.value("select max(attempt) from runs") == 1, (
            "a run was taken from a healthy worker"
        )
        assert skewed.is_alive

        skewed.kill()
        orphan = await client.start(script(ticks(10_000, 20)))
        follower = client.follower(orphan)
        await follower.read_until(lambda event: event.type == "message.delta", within=60)
        heir = launcher.test_worker({"JOURNEY_CLOCK_SKEW_SECONDS": str(skew_seconds)})
        await asyncio.to_thread(
            wait_for_sync, lambda: "worker.started" in heir.output(), within=60, what="the heir has started"
        )
        true.kill()
        watch = Stopwatch()
        await follower.read_until(
            lambda event: event.type == "run.start" and event.data["attempt"] == 2, within=60
        )
        assert watch.seconds < SKEWED_CLAIM_SECONDS + 2 + 2, "later than the claim and a poll"
        await client.cancel(orphan)
        await follower.read_to_end(within=30)
        assert heir.is_alive
    times = await stored_runs.fetch("select created_at, started_at, finished_at, now() as now from runs")
    for row in times:
        assert row["created_at"] <= row["started_at"] <= row["finished_at"] <= row["now"], (
            "a worker's clock reached the table"
        )
