"""Case D6: old code runs on the new schema, beside the new code, instead of it again, and after it.

The old code is a wheel in `tests/releases`. Features that only new code has (values offloaded to artifacts,
boards, threads) are not in this load: old workers cannot run them on any schema.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from easel.stores import migrations
from tests.journeys.client import Client, call, new_session, say, script, ticked, ticks
from tests.journeys.soak import short_or_full
from tests.journeys.stored_runs import StoredRuns, check_delivery
from tests.requirements import case, rule
from tests.support.chat import ChatFollower
from tests.support.processes import EASEL, EaselProcess, Launcher
from tests.support.sse import Event, Stream, StreamRefused
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.journeys.client import Step

RELEASE = Path(__file__).parents[1] / "releases" / "easel_host-0.1.0-1spine-py3-none-any.whl"
PHASE_SECONDS = short_or_full(10, 120) / 4
ACTORS = 6
MAX_THREADS = 30
MAX_ATTEMPTS = 50
STOPPED_WITHIN_SECONDS = 30.0
WATCHED_SECONDS = 120.0
FOREVER = ticks(20_000, 30)
UNFINISHED = ticks(60, 80), ticked(60)
# Longer than any delay between seeing a run start and stopping its process.
OLD_VERSION, NEW_VERSION = 1, max(one.version for one in migrations.available("postgres"))


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment in which `python -m easel` is the old code."""
    folder = tmp_path_factory.mktemp("old")
    with zipfile.ZipFile(RELEASE) as wheel:
        wheel.extractall(folder)
    return {"PYTHONPATH": str(folder)}


def test_release_is_the_one_before_the_second_migration(old: dict[str, str]) -> None:
    folder = Path(old["PYTHONPATH"])
    for dialect in ("postgres", "sqlite"):
        found = sorted(path.name for path in (folder / "easel/stores/migrations" / dialect).iterdir())
        assert found == ["0001_spine.sql"]
        ours = {f"{one.version:04}_{one.name}.sql": one.sql for one in migrations.available(dialect)}
        assert ours["0001_spine.sql"] == (folder / "easel/stores/migrations" / dialect / found[0]).read_text(
            "utf-8"
        ), "never edited"
    assert NEW_VERSION > OLD_VERSION


# --- a fleet of both versions
# ----------------------------------------------------------------------------------


class Fleet:
    """Old and new processes on one database, and the load during their changes."""

    def __init__(
        self, launcher: Launcher, old: dict[str, str], client: Client, chance: random.Random
    ) -> None:
        self._launcher, self._old, self._client, self._chance = launcher, old, client, chance
        self.apis: dict[str, EaselProcess] = {}
        self.workers: dict[str, EaselProcess] = {}
        self.ends: dict[str, str] = {}
        self.says: dict[str, str] = {}
        self.seen: dict[str, list[Event]] = {}
        self.hops = 0

    async def add(self, age: str) -> None:
        environment = self._old if age == "old" else {}
        api = self._launcher.start(f"{age}-api", (*EASEL, "api", "--port", "0"), {}, environment)
        await asyncio.to_thread(self._launcher.ready, api)
        self.workers[age] = self._launcher.start(f"{age}-worker", (*EASEL, "worker"), {}, environment)
        self._serve({**self.apis, age: api})
        answer = await self._client.get("/api/sessions", at=list(self.apis).index(age))
        assert answer.status_code == (404 if age == "old" else 200), f"this is not the {age} code"

    async def remove(self, age: str) -> None:
        """Remove an API as a rolling restart does: take it out of the rotation, then stop it."""
        api, worker = self.apis[age], self.workers.pop(age)
        self._serve({other: one for other, one in self.apis.items() if other != age})
        await asyncio.to_thread(worker.terminate, STOPPED_WITHIN_SECONDS)
        await asyncio.to_thread(api.terminate, STOPPED_WITHIN_SECONDS)

    def _serve(self, apis: dict[str, EaselProcess]) -> None:
        self.apis = apis
        self._client.servers = tuple(apis.values())

    async def hand_over(self, lost: str, heir: str, stored_runs: StoredRuns) -> None:
        """Kill a worker with SIGKILL under load; the other one takes over its runs, and it is restarted."""
        run_id = await self._held_by(self.workers[lost], stored_runs)
        self.workers[lost].kill()

        async def has_taken_over() -> bool:
            return re.search(rf"run\.taken_over .*run_id='{run_id}'", self.workers[heir].output()) is not None

        await wait_for(
            has_taken_over, within=60, what=f"the {heir} worker has taken over {run_id} from the {lost} one"
        )
        self.workers[lost] = self._launcher.again(self.workers[lost])
        await self._cancel(run_id)

    async def _held_by(self, worker: EaselProcess, stored_runs: StoredRuns) -> str:
        """Return a run that this worker owns until it is cancelled. Runs that the other one claims are
        cancelled.
        """
        worker_id = await _id_of(worker)
        for _ in range(MAX_ATTEMPTS):
            run_id = await self._client.start(script(FOREVER), session_id=new_session(), at=self._one())
            self.ends[run_id] = "cancelled"

            owner_id: str | None = None

            async def is_claimed(run_id: str = run_id) -> bool:
                nonlocal owner_id
                owner_id = (await stored_runs.run(run_id))["owner_id"]
                return owner_id is not None

            await wait_for(is_claimed, within=60, what=f"{run_id} is claimed")
            if owner_id == worker_id:
                return run_id
            await self._cancel(run_id)
        raise AssertionError(f"{worker.name} claimed none of {MAX_ATTEMPTS} runs")

    async def _cancel(self, run_id: str) -> None:
        answer = await self._client.cancel(run_id, at=self._one())
        assert answer.status_code == 202, answer.text

    @contextlib.asynccontextmanager
    async def under_load(self) -> AsyncIterator[None]:
        """Keep up the load inside the block, then wait until every started run has ended."""
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for _ in range(ACTORS):
                group.create_task(self._act(enough))
            try:
                yield
            finally:
                enough.set()

    async def _act(self, enough: asyncio.Event) -> None:
        while not enough.is_set():
            session = new_session()
            await asyncio.gather(*(self._run(session) for _ in range(self._chance.randint(1, 2))))

    async def _run(self, session: str) -> None:
        count = self._chance.randint(5, 60)
        kind = self._chance.choice(["ticks", "ticks", "story", "fail", "cancel"])
        steps: dict[str, list[Step]] = {
            "ticks": [{"think": "how many?"}, ticks(count, 30)],
            "story": [
                say("First. "),
                call("gsv__Echo", value={"answer": count}),
                ticks(count, 10),
                call("gsv__Nothing"),
                say("Last."),
            ],
            "fail": [ticks(5, 10), {"fail": "on purpose"}],
            "cancel": [FOREVER],
        }
        run_id = await self._client.start(script(*steps[kind]), session_id=session, at=self._one())
        self.ends[run_id] = {"fail": "failed", "cancel": "cancelled"}.get(kind, "completed")
        if kind == "ticks":
            self.says[run_id] = ticked(count)
        self.seen[run_id] = await self._watch(run_id, cancels=kind == "cancel")

    def _one(self) -> int:
        return self._chance.randrange(len(self.apis))

    async def _watch(self, run_id: str, *, cancels: bool) -> list[Event]:
        """Read a run to its end, a few events from each instance."""
        events: list[Event] = []
        async with asyncio.timeout(WATCHED_SECONDS):
            while not (events and events[-1].type == "done"):
                base_url = self._client.base_urls[self._one()]
                few = self._chance.randint(1, 8)
                try:
                    async with Stream.open(
                        base_url, run_id, self._client.token, after=events[-1].seq if events else None
                    ) as stream:
                        self.hops += 1
                        while few > 0 and (items := await stream.read()) is not None:
                            new = [item for item in items if isinstance(item, Event)]
                            events += new
                            few -= len(new)
                except (OSError, EOFError, StreamRefused):
                    assert base_url not in self._client.base_urls, (
                        f"{base_url} refused a viewer although it was up"
                    )
                if cancels and any(event.type == "message.delta" for event in events):
                    cancels = False
                    await self._cancel(run_id)
        return events

    async def check(self, stored_runs: StoredRuns) -> None:
        """Check that every run has ended as expected, each reader saw all of it, and no process logged an
        error.

        Texts of old workers are in no thread, since they do not know threads; but no thread has a gap because
        of them.
        """
        threads = await stored_runs.fetch(
            "select session_id, last_thread_seq from sessions where last_thread_seq > 0 order by session_id"
        )
        assert threads
        for session_id, newest in threads[:: len(threads) // MAX_THREADS + 1]:
            chat = ChatFollower(
                self._client.base_urls, session_id, self._client.token, debug=True
            )  # it checks every number
            await chat.read_until(lambda event, newest=newest: event.seq == newest, within=30)
            await chat.close()
        await stored_runs.check(list(self.ends), ends=self.ends)
        await stored_runs.check(list(self.says), says=self.says)
        for run_id, log in (await stored_runs.logs(list(self.seen))).items():
            check_delivery(self.seen[run_id], log)
        complaints = [
            line
            for one in self._launcher.started
            for line in one.output().splitlines()
            if "[error" in line or "[warning" in line
        ]
        assert [line for line in complaints if "run.claim_lost" not in line] == []


async def _id_of(worker: EaselProcess) -> str:
    """Return the worker's id, which it prints when it has started."""
    started: re.Match[str] | None = None

    async def has_started() -> bool:
        nonlocal started
        started = re.search(r"worker\.started .*worker_id='(\w+)'", worker.output())
        return started is not None

    await wait_for(has_started, within=60, what=f"{worker.name} has started")
    assert started is not None
    return started[1]


@pytest.fixture
def launcher(database_url: str, tmp_path: Path) -> Iterator[Launcher]:
    # Three seconds, so that two versions, six processes and a busy machine lose no claim.
    with Launcher(tmp_path, database_url, {"CLAIM_SECONDS": "3"}) as launcher:
        yield launcher


@case("D6")
@rule("RX-01", "RX-23", "RX-48", "RX-49")
@pytest.mark.soak
@pytest.mark.timeout(300 + 8 * PHASE_SECONDS)
async def test_old_and_new_code_share_a_database_and_can_be_rolled_back(
    launcher: Launcher, stored_runs: StoredRuns, old: dict[str, str], tmp_path: Path
) -> None:
    chance = random.Random(2026)

    async def version() -> int:
        return await stored_runs.value("select max(version) from schema_migrations")

    first = launcher.start("old-migrate", (*EASEL, "migrate"), {}, old)
    assert await asyncio.to_thread(first.process.wait, 60) == 0, first.output()
    async with Client(first) as client:
        fleet = Fleet(launcher, old, client, chance)
        await fleet.add("old")
        assert await version() == OLD_VERSION
        async with fleet.under_load():
            # The new code starts and migrates the schema under the old one.
            await asyncio.sleep(PHASE_SECONDS / 2)
            await fleet.add("new")
            assert await version() == NEW_VERSION
            await asyncio.sleep(PHASE_SECONDS)
            await fleet.hand_over("old", "new", stored_runs)
            await fleet.hand_over("new", "old", stored_runs)
            # Roll back: the old code runs alone, on a schema that it does not know.
            await fleet.remove("new")
            await asyncio.sleep(PHASE_SECONDS)
            # Roll forward.
            await fleet.add("new")
            await asyncio.sleep(PHASE_SECONDS / 2)
            await fleet.remove("old")
            await asyncio.sleep(PHASE_SECONDS)
        assert await version() == NEW_VERSION
        await fleet.check(stored_runs)
    print(f"{len(fleet.ends)} runs, {fleet.hops} hops")
    assert len(fleet.ends) > 10
    assert fleet.hops > len(fleet.ends), "hardly any stream was resumed"


# --- SQLite -------------------------------------------------------------------------------------------------


@case("D6")
@rule("RX-49")
async def test_database_of_the_old_code_is_used_by_new_and_old_code_in_turn(
    tmp_path: Path, old: dict[str, str]
) -> None:
    """One folder, one process after the other: old, new, old, new; each continues the unfinished runs of the
    previous one.
    """
    session = new_session()
    run_ids: list[str] = []
    unfinished: str | None = None
    with Launcher(tmp_path, settings={"DRAIN_SECONDS": "0"}) as launcher:
        for turn, age in enumerate(("old", "new", "old", "new")):
            up = launcher.start(f"{age}-up", (*EASEL, "up", "--port", "0"), {}, old if age == "old" else {})
            await asyncio.to_thread(launcher.ready, up)
            async with Client(up) as client:
                assert (await client.get("/api/sessions")).status_code == (404 if age == "old" else 200)
                for run_id in run_ids:
                    view = await client.run(run_id)
                    events = await client.follower(run_id).read_to_end(within=30)
                    assert (view["status"], events[-1].data["status"]) == ("completed", "completed")
                if unfinished is not None:
                    await client.wait_for(unfinished, within=60)
                    events = await client.follower(unfinished).read_to_end(within=30)
                    assert [event.data["attempt"] for event in events if event.type == "run.start"] == [1, 2]
                    (answer,) = [event.data for event in events if event.type == "message.completed"]
                    assert (answer["status"], answer["text"]) == (
                        "completed",
                        "Before.\n\n" + UNFINISHED[1] + "After.",
                    )
                run_ids += [await client.start(script(say(f"turn {turn}")), session_id=session)]
                await client.wait_for(run_ids[-1], {"completed"}, within=60)
                if age == "new":
                    listed = (await client.get("/api/sessions")).json()["sessions"]
                    assert session in [one["session_id"] for one in listed]
                message = script(say("Before."), call("gsv__Echo", value=turn), UNFINISHED[0], say("After."))
                unfinished = await client.start(message)
                follower = client.follower(unfinished)
                await follower.read_until(lambda event: event.type == "tool.result", within=60)
                await follower.close()
            await asyncio.to_thread(up.terminate, STOPPED_WITHIN_SECONDS)
        assert [
            line
            for one in launcher.started
            for line in one.output().splitlines()
            if "[error" in line or "[warning" in line
        ] == []
