"""Postgres crashes, restarts and goes silent under load: acknowledged data stays, and work resumes without
help.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.journeys import soak
from tests.journeys.client import Client, call, check_each, new_session, say, script, ticked, ticks
from tests.journeys.conftest import CLAIM_SECONDS
from tests.journeys.soak import short_or_full
from tests.journeys.stored_runs import StoredRuns, check_delivery
from tests.requirements import case, rule
from tests.support.postgres import Postgres
from tests.support.processes import EaselProcess, Launcher
from tests.support.proxy import Proxy
from tests.support.sse import Follower
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


RECOVERY_SECONDS = 10.0
# D1: processes reconnect within this time after the database is available.
NOTICED_SECONDS = 3.0
# The readiness that a load balancer reads may be this old.
DETECTION_SECONDS = 15.0
# D4: a connection that is silently dead is detected and replaced within this time.
CRASHES = short_or_full(5, 20)
CHAOS_SECONDS = short_or_full(20.0, soak.SECONDS)
MIN_RESTARTS = short_or_full(2, 4)
CHAOS_PAUSE_SECONDS = short_or_full(6, 40)  # the longest pause between two restarts
TIMEOUT_SECONDS = 120.0


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Postgres]:
    """Start a server that these drills may break; durable, since durability is what they test."""
    with Postgres() as server:
        yield server


@pytest.fixture
def faulty(own_postgres: Postgres, tmp_path: Path) -> Iterator[Launcher]:
    own_postgres.start()
    with Launcher(
        tmp_path, own_postgres.create_database(), {"CLAIM_SECONDS": str(CLAIM_SECONDS), "MAX_ATTEMPTS": "100"}
    ) as launcher:
        yield launcher


@dataclass
class Load:
    """Clients that start runs continuously and remember every acknowledged run."""

    client: Client
    message: str
    acknowledged: list[str] = field(default_factory=list[str])
    followers: list[Follower] = field(default_factory=list[Follower])
    last_accepted: float = 0.0

    @contextlib.asynccontextmanager
    async def going(self, clients: int, *, pause: float = 0.0) -> AsyncIterator[Load]:
        """Run the load; `pause` bounds it: two cores serve the clients, the servers and the database."""
        over = asyncio.Event()

        async def one(number: int) -> None:
            session_id = new_session()
            while not over.is_set():
                run_id = await self.client.start_surely(
                    self.message, within=TIMEOUT_SECONDS, session_id=session_id, first_at=number
                )
                self.acknowledged.append(run_id)
                self.last_accepted = time.monotonic()
                if len(self.acknowledged) % 5 == 0:
                    follower = self.client.follower(run_id)
                    self.followers.append(follower)
                    await follower.read_to_end(within=TIMEOUT_SECONDS)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await over.wait()

        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(one(number))
            try:
                yield self
            finally:
                over.set()

    async def check(self, stored_runs: StoredRuns, text: str) -> None:
        """Check that no acknowledged run is lost, all ended as expected, and each reader has
        exactly the log.
        """
        await stored_runs.wait_until_all_ended(self.acknowledged, within=TIMEOUT_SECONDS)
        await stored_runs.check(self.acknowledged, says=text)
        logs = await stored_runs.logs([one.run_id for one in self.followers])
        for follower in self.followers:
            check_delivery(follower.events, logs[follower.run_id])


MESSAGE, TEXT = script(say("in"), call("gsv__Echo", value=1), ticks(5, 40)), "in\n\n" + ticked(5)


def start_two_of_each(launcher: Launcher) -> tuple[EaselProcess, ...]:
    apis = launcher.ready(launcher.api(), launcher.api())
    launcher.worker()
    launcher.worker()
    return apis


@case("D1")
@rule("RX-01", "RX-31", "RX-49")
@pytest.mark.soak
@pytest.mark.timeout(600)  # twenty crashes, each with its own promised limits
async def test_crashing_database_loses_no_acknowledged_run(faulty: Launcher, own_postgres: Postgres) -> None:
    apis = start_two_of_each(faulty)
    noticed: list[float] = []
    recovered: list[float] = []
    async with Client(*apis) as client, Load(client, MESSAGE).going(12, pause=0.05) as load:
        for _ in range(CRASHES):
            before = len(load.acknowledged)
            await wait_for(
                lambda before=before: _more(load, before + 40), within=TIMEOUT_SECONDS, what="runs under way"
            )
            await asyncio.to_thread(own_postgres.stop, "immediate")
            is_noticed = wait_for(
                lambda: _all_answer(apis, 503),
                within=TIMEOUT_SECONDS,
                what="both APIs say that they are not ready",
            )
            noticed.append(await is_noticed)
            assert [api.answers("/healthz") for api in apis] == [200, 200]
            await asyncio.to_thread(own_postgres.start)
            back, watch = time.monotonic(), Stopwatch()
            await wait_for(
                lambda: _all_answer(apis, 200), within=RECOVERY_SECONDS, what="both APIs are ready again"
            )
            await wait_for(
                lambda back=back: _accepted_since(load, back),
                within=RECOVERY_SECONDS,
                what="runs are accepted again",
            )
            recovered.append(watch.seconds)
    print(f"noticed after {sorted(noticed)}, recovered after {sorted(recovered)}")
    check_each(noticed, NOTICED_SECONDS, "/readyz notices")
    assert max(recovered) < RECOVERY_SECONDS
    await load.check(StoredRuns(faulty.database_url), TEXT)
    assert all(one.is_alive for one in faulty.started), "a process did not survive and needed a hand"


async def _more(load: Load, count: int) -> bool:
    return len(load.acknowledged) >= count


async def _accepted_since(load: Load, moment: float) -> bool:
    return load.last_accepted > moment


async def _all_answer(apis: tuple[EaselProcess, ...], status: int) -> bool:
    return all([await asyncio.to_thread(api.answers, "/readyz") == status for api in apis])


@case("D2")
@rule("RX-49")
@pytest.mark.soak
@pytest.mark.timeout(400 + CHAOS_SECONDS)
async def test_random_restarts_leave_every_output_right_and_no_run_stuck(
    faulty: Launcher, own_postgres: Postgres
) -> None:
    apis = start_two_of_each(faulty)
    chance = random.Random(20261102)
    deadline = time.monotonic() + CHAOS_SECONDS
    restarts = 0
    async with Client(*apis) as client, Load(client, MESSAGE).going(16, pause=0.1) as load:
        while (left := deadline - time.monotonic()) > 0 or restarts < MIN_RESTARTS:
            before = len(load.acknowledged)
            # The drill is defined by its times: 5 to 40 s up, 0 to 2 s down.
            await asyncio.sleep(min(max(left, 5), chance.uniform(5, CHAOS_PAUSE_SECONDS)))
            await wait_for(
                lambda before=before: _more(load, before + 40), within=TIMEOUT_SECONDS, what="runs under way"
            )
            await asyncio.to_thread(own_postgres.stop, chance.choice(("fast", "immediate")))
            await asyncio.sleep(chance.uniform(0, 2))
            await asyncio.to_thread(own_postgres.start)
            restarts += 1
    print(f"{restarts} restarts, {len(load.acknowledged)} runs")
    await load.check(StoredRuns(faulty.database_url), TEXT)


@rule("RX-06", "RX-30", "RX-49")
async def test_database_restart_in_the_middle_of_a_run_costs_nothing(
    faulty: Launcher, own_postgres: Postgres
) -> None:
    """With a claim as long as a user's, the same worker goes on after the restart: no attempt is lost, no
    text repeated.
    """
    faulty.settings["CLAIM_SECONDS"] = "15"
    apis = start_two_of_each(faulty)
    stored_runs = StoredRuns(faulty.database_url)
    async with Client(*apis) as client:
        run_ids = [await client.start(script(ticks(100, 50))) for _ in range(10)]
        followers = [client.follower(run_id) for run_id in run_ids]
        await asyncio.gather(
            *(
                one.read_until(lambda event: "tick 10" in event.data.get("text", ""), within=60)
                for one in followers
            )
        )
        await asyncio.to_thread(own_postgres.restart, "fast")
        seen = await asyncio.gather(*(one.read_to_end(within=60) for one in followers))
    await stored_runs.check(run_ids, says=ticked(100))
    logs = await stored_runs.logs(run_ids)
    for run_id, events in zip(run_ids, seen, strict=True):
        check_delivery(events, logs[run_id])
        assert [event.data["attempt"] for event in events if event.type == "run.start"] == [1]
        assert "".join(event.data["text"] for event in events if event.type == "message.delta") == ticked(100)


@case("D4")
@rule("RX-11", "RX-49")
@pytest.mark.parametrize("whose", ["api", "worker"])
async def test_silently_dead_connections_are_replaced(
    launcher: Launcher, stored_runs: StoredRuns, whose: str
) -> None:
    """The database's answers vanish on every present connection, the notifier's too; new connections work.

    Claims and timeouts are the defaults: a claim outlasts the time until the fault is detected.
    """
    launcher.settings.clear()
    with Proxy.before(launcher.database_url) as network:
        through_proxy = network.url(launcher.database_url)
        (api,) = launcher.ready(
            launcher.api(DATABASE_URL=through_proxy if whose == "api" else launcher.database_url)
        )
        launcher.worker(DATABASE_URL=through_proxy if whose == "worker" else launcher.database_url)
        async with Client(api) as client:
            await client.wait_for(await client.start("noop"), within=60)
            watched = await client.start(script(ticks(100, 50)))
            follower = client.follower(watched)
            await follower.read_until(lambda event: event.type == "message.delta", within=60)
            network.black_hole("to_client", new_connections=False)
            watch = Stopwatch()
            started = await asyncio.gather(
                *(client.start_surely("noop", within=DETECTION_SECONDS) for _ in range(20))
            )
            await stored_runs.wait_until_all_ended(started, within=DETECTION_SECONDS)
            assert watch.seconds < DETECTION_SECONDS
            # A stream that was open all the time gets the rest too, although the notifier's connection was
            # dead.
            await follower.read_to_end(within=DETECTION_SECONDS)
            await wait_for(lambda: _all_answer((api,), 200), within=NOTICED_SECONDS, what="it says so too")
        await stored_runs.wait_until_all_ended([watched], within=60)
        await stored_runs.check([*started, watched])
        check_delivery(follower.events, await stored_runs.log(watched))
