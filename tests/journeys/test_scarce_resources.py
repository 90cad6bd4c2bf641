"""Too few connections, too little disk: a plain 503 instead of a hang, no false promise, and recovery when
resources are back.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from tests.journeys.client import Client, new_session, say, script, ticks
from tests.journeys.conftest import CLAIM_SECONDS
from tests.journeys.small_disk import small_disk
from tests.journeys.stored_runs import StoredRuns, check_delivery
from tests.requirements import case, rule
from tests.support.postgres import Postgres, temporary_parent, unprivileged_account
from tests.support.processes import Launcher
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator

    import httpx2

    from tests.support.processes import EaselProcess

VIEWERS = 200
CONNECTIONS = 20
POOL = 3
ANSWERED_WITHIN_SECONDS = 10.0
# "Answers 503 + Retry-After, not hang": the database timeout and a reserve.
RECOVERY_SECONDS = 10.0
SUPERVISED_SECONDS = 60.0
NOTICED_SECONDS = 5.0
# The age that an answer of /readyz may have, and the time to detect a change.


@pytest.fixture
def tight_postgres() -> Iterator[Postgres]:
    with Postgres(
        fsync=False, max_connections=CONNECTIONS, settings={"superuser_reserved_connections": 1}
    ) as server:
        yield server


@contextlib.asynccontextmanager
async def every_connection_taken(database_url: str) -> AsyncIterator[None]:
    """End Easel's connections and hold all connections of the server ourselves."""
    taken: list[asyncpg.Connection[asyncpg.Record]] = []

    async def take_all() -> None:
        with contextlib.suppress(asyncpg.TooManyConnectionsError):
            while True:
                taken.append(await asyncpg.connect(database_url, timeout=30))

    async def have_all() -> bool:
        """A connection that has just ended may still count for a moment, and Easel connects again."""
        await taken[0].fetchval(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name like "
            "'easel%'"
        )
        await take_all()
        return len(taken) == CONNECTIONS

    try:
        await take_all()
        await wait_for(have_all, within=120, what="every connection is ours")
        yield
    finally:
        await asyncio.gather(*(one.close(timeout=30) for one in taken))


async def timed(answer: Coroutine[Any, Any, httpx2.Response]) -> tuple[httpx2.Response, float]:
    watch = Stopwatch()
    return await answer, watch.seconds


async def accepts(client: Client) -> bool:
    return (await client.ask(new_session(), "noop")).status_code == 202


async def watches(client: Client, viewers: int) -> bool:
    """Whether the instance counts that many open streams."""
    text = (await client.get("/metrics")).text
    return any(
        line.split()[-1] == f"{viewers}.0"
        for line in text.splitlines()
        if line.startswith("easel_subscribers")
    )


@case("D3")
@pytest.mark.timeout(300)
@rule("RX-11", "RX-34")
async def test_two_hundred_viewers_hold_no_connection_and_exhaustion_is_a_503(
    tight_postgres: Postgres, tmp_path: Path
) -> None:
    url = tight_postgres.create_database()
    stored_runs = StoredRuns(url)
    with Launcher(
        tmp_path,
        url,
        # Each outage longer than a claim costs the first run an attempt.
        {
            "CLAIM_SECONDS": str(CLAIM_SECONDS),
            "DATABASE_POOL": str(POOL),
            "DATABASE_TIMEOUT_SECONDS": "3",
            "MAX_ATTEMPTS": "100",
        },
    ) as launcher:
        (api,) = launcher.ready(launcher.api())
        worker = launcher.worker()
        async with Client(api) as client:
            # A run that waits behind another one of its session: its viewers have no events for now.
            session_id = new_session()
            first = await client.start(script(ticks(100_000, 100)), session_id=session_id)
            run_id = await client.start(script(say("for all of you")), session_id=session_id)
            watching = [
                asyncio.create_task(client.follower(run_id).read_to_end(within=200)) for _ in range(VIEWERS)
            ]
            await wait_for(lambda: watches(client, VIEWERS), within=60, what="all viewers are connected")
            used = await stored_runs.value(
                "select count(*) from pg_stat_activity where datname = current_database() and pid <> "
                "pg_backend_pid()"
            )
            assert used <= 2 * (POOL + 1), "viewers hold connections"

            # Every connection of the API waits for a lock, so that none is free for a request.
            blocker = await asyncpg.connect(url)
            try:
                held = blocker.transaction()
                await held.start()
                await blocker.execute("lock table runs in access exclusive mode")
                answers = await asyncio.gather(*(timed(client.ask(new_session(), "noop")) for _ in range(30)))
                assert await asyncio.to_thread(api.answers, "/healthz") == 200
                assert await asyncio.to_thread(api.answers, "/readyz", 10) in (200, 503)
                await held.rollback()
            finally:
                await blocker.close()
            for response, seconds in answers:
                assert response.status_code == 503, response.text
                assert int(response.headers["retry-after"]) >= 1
                assert seconds < ANSWERED_WITHIN_SECONDS
            await wait_for(lambda: accepts(client), within=RECOVERY_SECONDS, what="runs are accepted again")

            # Its connections are ended and it cannot open new ones. It is frozen, so that it cannot be
            # quicker than the test.
            for one in (api, worker):
                one.freeze()
            async with every_connection_taken(url):
                for one in (api, worker):
                    one.thaw()
                answers = await asyncio.gather(*(timed(client.ask(new_session(), "noop")) for _ in range(10)))
                await wait_for(lambda: is_ready(api, 503), within=NOTICED_SECONDS, what="/readyz says so")
            for response, seconds in answers:
                assert response.status_code == 503, response.text
                assert int(response.headers["retry-after"]) >= 1
                assert seconds < ANSWERED_WITHIN_SECONDS
            await wait_for(lambda: accepts(client), within=RECOVERY_SECONDS, what="runs are accepted again")

            answer = await client.cancel(first)
            assert answer.status_code == 202, (
                answer.text,
                await stored_runs.run(first),
                worker.last_output(),
            )
            seen = await asyncio.gather(*watching)
        log = await stored_runs.log(run_id)
        for events in seen:
            check_delivery(events, log)
        await stored_runs.check([run_id], says="for all of you")


def open_folder(stack: contextlib.ExitStack) -> Path:
    """Create a folder that the database's account can reach; pytest's own are closed to others."""
    parent = temporary_parent(unprivileged_account())
    folder = Path(
        stack.enter_context(
            tempfile.TemporaryDirectory(prefix="easel-disk-", dir=parent, ignore_cleanup_errors=True)
        )
    )
    folder.chmod(0o755)
    return folder


def incompressible(size: int) -> str:
    return secrets.token_hex(size // 2)


async def post_until_refused(client: Client, *, within: float) -> list[str]:
    """Post large messages until the disk is full. Every 202 is a promise that is checked later."""
    promised: list[str] = []
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        response = await client.ask(new_session(), incompressible(100_000))
        if response.status_code != 202:
            assert response.status_code == 503, response.text
            assert int(response.headers["retry-after"]) >= 1
            return promised
        promised.append(response.json()["run_id"])
    raise AssertionError(f"a full disk took {len(promised)} messages")


async def use_up_the_log(database_url: str) -> None:
    """Fill the space that the database reserved for its log, until the server cannot continue."""
    with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection = await asyncpg.connect(database_url, timeout=10)
        try:
            for _ in range(200):
                await connection.execute(
                    "select pg_logical_emit_message(false, 'ballast', repeat('x', 500000))", timeout=10
                )
        finally:
            connection.terminate()
        raise AssertionError("the full disk took 100 MB of log")


async def is_served(server: Postgres, database_url: str) -> bool:
    """Restart the database as a supervisor does. Without space for its log it ends all sessions, tries once
    more and then ends itself: possibly only after space is free again, and so after a first check whether it
    runs.
    """
    await asyncio.to_thread(server.start)
    with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection = await asyncpg.connect(database_url, timeout=5)
        await connection.close(timeout=5)
        return True
    return False


async def is_ready(api: EaselProcess, status: int) -> bool:
    return await asyncio.to_thread(api.answers, "/readyz", ANSWERED_WITHIN_SECONDS) == status


@case("D5")
@pytest.mark.timeout(300)
@rule("RX-31")
async def test_full_disk_under_postgres_is_a_503_and_work_resumes_when_space_is_free(
    tmp_path: Path,
) -> None:
    with contextlib.ExitStack() as stack:
        server: Postgres | None = None
        disk = stack.enter_context(
            small_disk(
                open_folder(stack) / "disk", 96, lambda: [server.pid] if server and server.is_running else []
            )
        )
        server = stack.enter_context(Postgres(data_folder=disk.folder / "data"))
        url = server.create_database()
        stored_runs = StoredRuns(url)
        launcher = stack.enter_context(
            Launcher(tmp_path, url, {"CLAIM_SECONDS": str(CLAIM_SECONDS), "MAX_ATTEMPTS": "100"})
        )
        (api,) = launcher.ready(launcher.api())
        launcher.worker()
        async with Client(api) as client:
            promised = [await client.start(script(say("before"))) for _ in range(5)]
            running = await client.start(script(ticks(60, 100)))
            await client.wait_for(running, {"running"}, within=60)
            disk.fill()
            promised += await post_until_refused(client, within=30)

            await use_up_the_log(url)
            await wait_for(
                lambda: is_ready(api, 503), within=NOTICED_SECONDS, what="/readyz says that there is no room"
            )
            assert (await client.ask(new_session(), "noop")).status_code == 503
            assert api.answers("/healthz") == 200

            disk.free()
            await wait_for(
                lambda: is_served(server, url), within=SUPERVISED_SECONDS, what="the database answers again"
            )
            await wait_for(lambda: is_ready(api, 200), within=RECOVERY_SECONDS, what="the API is ready again")
            promised.append(await client.start_surely(script(say("after")), within=RECOVERY_SECONDS))
            await stored_runs.wait_until_all_ended([*promised, running], within=90)
        await stored_runs.check([*promised, running])


@case("D5")
@pytest.mark.timeout(300)
@rule("RX-31", "RS-50")
@pytest.mark.parametrize("logs", ["elsewhere", "on the same disk"])
async def test_full_disk_under_sqlite_is_a_503_and_work_resumes_when_space_is_free(
    tmp_path: Path, logs: str
) -> None:
    """Also when the log file, which would report it, cannot be written either."""
    with contextlib.ExitStack() as stack:
        started: list[EaselProcess] = []
        disk = stack.enter_context(small_disk(tmp_path / "disk", 24, lambda: [one.pid for one in started]))
        folder = tmp_path / "logs" if logs == "elsewhere" else disk.folder / "logs"
        launcher = stack.enter_context(
            Launcher(folder, "", {"DATA": str(disk.folder / "data"), "CLAIM_SECONDS": str(CLAIM_SECONDS)})
        )
        started.append(launcher.up())
        (easel,) = launcher.ready(*started)
        async with Client(easel) as client:
            promised = [await client.start(script(say("before"))) for _ in range(5)]
            for run_id in promised:
                await client.wait_for(run_id, within=60)
            disk.fill()
            promised += await post_until_refused(client, within=30)
            await wait_for(lambda: is_ready(easel, 503), within=10, what="/readyz says that there is no room")
            assert easel.answers("/healthz") == 200
            assert (await client.run(promised[0]))["status"] == "completed", "reading needs no room"

            disk.free()
            await wait_for(lambda: is_ready(easel, 200), within=RECOVERY_SECONDS, what="it is ready again")
            promised.append(await client.start_surely(script(say("after")), within=RECOVERY_SECONDS))
            for run_id in promised:
                view = await client.wait_for(run_id, within=60)
                assert view["status"] == "completed", view
                events = await client.follower(run_id).read_to_end(within=30)
                assert [event.type for event in events].count("done") == 1
        easel.terminate(30)
