"""The commands of `compose.yaml`, run as plain processes, are a working Easel."""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest
from websockets.asyncio.client import connect

from tests.journeys.client import Client, call, say, script, ticked, ticks
from tests.journeys.composition import Composition, filled
from tests.journeys.stored_runs import StoredRuns, after_last_start, check_delivery, said_in
from tests.requirements import rule
from tests.support.postgres import execute, temporary_parent, unprivileged_account
from tests.support.processes import EaselProcess, Launcher
from tests.support.waiting import wait_for, wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "a-token-of-the-journey"
PASSWORD = "letters-and-digits"
GRACE_SECONDS = 20.0  # as in the file
FOREVER = ticks(20_000, 50)


@dataclass
class Composed:
    composition: Composition
    launcher: Launcher
    apis: list[EaselProcess]
    workers: list[EaselProcess]
    stored_runs: StoredRuns
    worker_ports: list[str]


def named(composition: Composition, verb: str) -> list[str]:
    return [
        name
        for name, service in composition.services.items()
        if (service.get("command") or [])[:2] == ["easel", verb]
    ]


@pytest.fixture(scope="module")
def composed(postgres: str) -> Iterator[Composed]:
    """Start everything but the web server from the file, in the order of its dependencies."""
    parent = temporary_parent(unprivileged_account())
    with tempfile.TemporaryDirectory(
        prefix="easel-compose-", dir=parent, ignore_cleanup_errors=True
    ) as folder:
        Path(folder).chmod(0o755)  # nginx changes its account and must still read its files
        composition = Composition(Path(folder), {"EASEL_TOKEN": TOKEN, "POSTGRES_PASSWORD": PASSWORD})
        role = composition.environment("postgres")
        make_database(postgres, role["POSTGRES_USER"], role["POSTGRES_PASSWORD"], role["POSTGRES_DB"])
        composition.places["postgres:5432"] = postgres.rpartition("@")[2].split("/")[0]
        url = composition.environment("migrate")["EASEL_DATABASE_URL"]
        with Launcher(Path(folder) / "logs", url, token=TOKEN) as launcher:
            migrate = start(composition, launcher, "migrate")
            wait_for_sync(lambda: not migrate.is_alive, within=60, what="the migration has ended")
            assert migrate.process.returncode == 0, migrate.last_output()
            apis = [start(composition, launcher, name) for name in named(composition, "api")]
            workers = [start(composition, launcher, name) for name in named(composition, "worker")]
            launcher.ready(*apis)
            yield Composed(
                composition,
                launcher,
                apis,
                workers,
                StoredRuns(url),
                [one.environment["EASEL_WORKER_PORT"] for one in workers],
            )
        drop_all(postgres, role["POSTGRES_USER"], role["POSTGRES_DB"])


def make_database(postgres: str, user: str, password: str, database: str) -> None:
    """Create a role with its database, as the postgres image does. Easel gets no other privilege."""
    drop_all(postgres, user, database)
    execute(postgres, f"create role {user} login password '{password}'")
    execute(postgres, f"create database {database} owner {user}")


def drop_all(postgres: str, user: str, database: str) -> None:
    execute(postgres, f"drop database if exists {database} with (force)")
    execute(postgres, f"drop role if exists {user}")


def start(composition: Composition, launcher: Launcher, name: str) -> EaselProcess:
    return launcher.start(name, composition.command(name), {}, composition.environment(name))


@rule("RX-45")
def test_variables_are_filled_in_as_compose_does() -> None:
    assert filled("${A}/${B:-b}/${C:-x${A}y}", {"A": "1"}) == "1/b/x1y"
    with pytest.raises(KeyError, match="set it"):
        filled("${A:?set it}", {})


@rule("RX-04", "RX-08", "RX-45")
async def test_services_of_the_file_carry_runs_and_survive_the_loss_of_one_of_each(
    composed: Composed,
) -> None:
    assert {"postgres", "web"} <= set(composed.composition.services)
    assert len(composed.apis) == len(composed.workers) == 2
    async with Client(*composed.apis) as client:
        run_ids = [
            await client.start(script(say("hello"), call("gsv__Echo", value=1), ticks(20, 50)), at=number % 2)
            for number in range(10)
        ]
        followers = [client.follower(run_id) for run_id in run_ids]
        await asyncio.gather(
            *(one.read_until(lambda event: event.type == "message.delta", within=60) for one in followers)
        )
        composed.apis[0].kill()
        await asyncio.to_thread(composed.workers[0].terminate, GRACE_SECONDS)
        seen = await asyncio.gather(*(one.read_to_end(within=60) for one in followers))
    logs = await composed.stored_runs.logs(run_ids)
    for run_id, events in zip(run_ids, seen, strict=True):
        check_delivery(events, logs[run_id])
    await composed.stored_runs.check(run_ids, says="hello\n\n" + ticked(20))
    composed.apis[0] = composed.launcher.again(composed.apis[0])
    composed.workers[0] = composed.launcher.again(composed.workers[0])
    composed.launcher.ready(composed.apis[0])


@rule("RX-45", "RX-46")
async def test_worker_answers_the_health_check_of_the_image(composed: Composed) -> None:
    for worker, port in zip(composed.workers, composed.worker_ports, strict=True):
        worker.base_url = f"http://127.0.0.1:{port}"
        try:
            await wait_for(lambda worker=worker: is_ready(worker), within=60, what=f"{worker.name} is ready")
        finally:
            worker.base_url = ""


async def is_ready(process: EaselProcess) -> bool:
    return await asyncio.to_thread(process.answers, "/readyz") == 200


@pytest.mark.nginx
@rule("RX-03", "RX-45", "RX-48")
async def test_web_service_spreads_requests_and_hides_the_loss_of_an_api(composed: Composed) -> None:
    web = start(composed.composition, composed.launcher, "web")
    ((_, address),) = [
        (name, place) for name, place in composed.composition.places.items() if name.startswith("web:")
    ]
    web.base_url = f"http://{address}"
    await wait_for(lambda: is_ready(web), within=60, what="nginx passes requests on")
    async with Client(web) as client, Client(*composed.apis) as direct:
        # They run until they are cancelled: every stream is open when streams are counted, and when an API is
        # lost.
        run_ids = [await client.start(script(FOREVER)) for _ in range(20)]
        followers = [client.follower(run_id) for run_id in run_ids]
        await asyncio.gather(
            *(one.read_until(lambda event: event.type == "message.delta", within=60) for one in followers)
        )
        counts = [await streams_of(direct, index) for index in (0, 1)]
        assert min(counts) >= 5, f"streams are not spread: {counts}"
        await check_chat_and_files(web)
        composed.apis[1].kill()
        more = [
            await client.start("noop") for _ in range(10)
        ]  # at the first attempt, although one API has ended
        for answer in [await client.cancel(run_id) for run_id in run_ids]:
            assert answer.status_code == 202, answer.text
        seen = await asyncio.gather(*(one.read_to_end(within=60) for one in followers))
        await composed.stored_runs.wait_until_all_ended(more, within=60)
    assert sum(one.connected > 1 for one in followers) >= 5, "the lost API had hardly any stream"
    logs = await composed.stored_runs.logs(run_ids)
    for run_id, events in zip(run_ids, seen, strict=True):
        check_delivery(events, logs[run_id])
        assert ticked(FOREVER["ticks"]).startswith(said_in(after_last_start(logs[run_id])))
    await composed.stored_runs.check(run_ids, ends="cancelled")
    web.process.send_signal(signal.SIGQUIT)
    await asyncio.to_thread(web.process.wait, 30)
    composed.apis[1] = composed.launcher.again(composed.apis[1])
    composed.launcher.ready(composed.apis[1])


async def check_chat_and_files(web: EaselProcess) -> None:
    """Check that WebSockets and large files go through the same server."""
    address = web.base_url.replace("http", "ws", 1)
    async with asyncio.timeout(60), connect(f"{address}/ws/chat/through-nginx?token={web.token}") as chat:
        await chat.send('{"type":"message","text":"noop"}')
        said = [json.loads(await chat.recv()) for _ in range(2)]
    assert [event["data"]["role"] for event in said] == ["user", "assistant"]
    async with httpx2.AsyncClient(
        base_url=web.base_url, headers={"Authorization": f"Bearer {web.token}"}, timeout=60, trust_env=False
    ) as http:
        kept = await http.post("/api/artifacts", content=b"many bytes " * 300_000)
        assert kept.status_code == 201, kept.text
        assert len((await http.get(kept.json()["uri"])).content) == 3_300_000
        assert (await http.post("/api/runs", content=b"x" * 2_000_000)).status_code == 413


async def streams_of(client: Client, at: int) -> int:
    lines = (await client.get("/metrics", at)).text.splitlines()
    return int(
        float(next(line.split()[-1] for line in lines if line.startswith('easel_subscribers{log="run"}')))
    )


@rule("RX-49")
def test_every_service_stops_within_its_grace_period(composed: Composed) -> None:
    for one in (*composed.apis, *composed.workers):
        one.terminate(within=GRACE_SECONDS)
        assert one.process.returncode == 0, one.last_output()
