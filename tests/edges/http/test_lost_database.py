"""An outage of the database: requests get 503 at once, no stored work is lost, and runs continue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.http.live import LiveEasel, in_time, new_session, script
from tests.requirements import case, rule
from tests.support.postgres import Postgres
from tests.support.sse import Follower
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

AT_MOST_SECONDS = 14.0
# A request under way may wait for the settings' statement limit of eight seconds, and not for two of them one
# after the other.
SOON = 60.0
# To notice that the database is away or back: who needs longer does not notice it at all.


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Postgres]:
    with Postgres(fsync=False) as server:
        yield server


@pytest.fixture(scope="module")
def on_it(own_postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    settings = {"claim_seconds": 2.0, "poll_seconds": 0.2, "heartbeat_seconds": 0.5}
    with LiveEasel(
        tmp_path_factory.mktemp("easel"), own_postgres.create_database(), settings=settings
    ) as live:
        yield live


def is_ready(easel: LiveEasel) -> bool:
    return easel.get("/readyz").status_code == 200


@case("D1")
@rule("RX-01")
def test_requests_without_database_get_retry_after_and_lose_nothing(
    on_it: LiveEasel, own_postgres: Postgres
) -> None:
    before = on_it.finish(script({"say": "kept"}))
    log = on_it.events(before)
    assert is_ready(on_it)
    own_postgres.stop("immediate")
    asks: list[tuple[str, str, Any]] = [
        ("POST", "/api/runs", {"session_id": new_session(), "message": "noop"}),
        ("GET", "/api/runs", None),
        ("GET", f"/api/runs/{before}", None),
        ("POST", f"/api/runs/{before}/cancel", None),
        ("GET", f"/api/runs/{before}/events", None),
        ("GET", "/readyz", None),
    ]
    wait_for_sync(lambda: not is_ready(on_it), within=SOON, what="/readyz notices")
    for method, path, body in asks:
        watch = Stopwatch()
        answer = on_it.ask(method, path, json=body)
        assert answer.status_code == 503, (path, answer.text)
        assert watch.seconds < AT_MOST_SECONDS, path
        assert int(answer.headers["retry-after"]) >= 1
        error = answer.json()["error"]
        assert (error["code"], error["name"]) == (503, "UNAVAILABLE")
        assert "5432" not in answer.text
        assert "postgres" not in answer.text.lower().replace("postgres:", "")
    assert on_it.get("/healthz").status_code == 200
    own_postgres.start()
    wait_for_sync(lambda: is_ready(on_it), within=SOON, what="ready again")
    assert on_it.events(before) == log
    wait_for_sync(
        lambda: on_it.post("/api/runs", {"session_id": "after", "message": "noop"}).status_code == 202,
        within=SOON,
        what="work is taken",
    )
    assert on_it.events(on_it.start("noop"))[-1].data["status"] == "completed"


@case("D1")
@rule("RX-34", "RX-48")
async def test_stream_survives_or_resumes_after_a_database_restart(
    on_it: LiveEasel, own_postgres: Postgres
) -> None:
    run_id = on_it.start(script({"ticks": 60, "every_ms": 50}, {"say": "end"}))
    follower = Follower([on_it.base_url], run_id, on_it.token)
    await follower.read_until(lambda event: event.seq > 5, within=SOON)
    restarting = asyncio.create_task(asyncio.to_thread(own_postgres.restart, "immediate"))
    seen = await follower.read_to_end(within=SOON)
    await restarting
    wait_for_sync(
        lambda: is_ready(on_it), within=SOON, what="ready again"
    )  # if the run ended before the outage
    assert seen == on_it.events(run_id)
    assert seen[-1].data["status"] == "completed"


@case("D5")
def test_read_only_database_is_not_ready(on_it: LiveEasel, own_postgres: Postgres) -> None:
    wait_for_sync(lambda: is_ready(on_it), within=SOON, what="ready")
    name = on_it.database_url.rpartition("/")[2]
    # Wait until the connections are closed: one that closes later would fail a later request.
    end_connections = (
        f"select pg_terminate_backend(pid, {SOON * 1000:.0f}) from pg_stat_activity where datname = '{name}'"
    )
    own_postgres.execute(f'alter database "{name}" set default_transaction_read_only = on')
    own_postgres.execute(end_connections)
    try:
        wait_for_sync(
            lambda: on_it.get("/readyz").status_code == 503,
            within=SOON,
            what="/readyz notices that nothing can be written",
        )
        answer = on_it.post("/api/runs", {"session_id": new_session(), "message": "noop"})
        assert answer.status_code == 503, answer.text
    finally:
        own_postgres.execute(f'alter database "{name}" reset default_transaction_read_only')
        own_postgres.execute(end_connections)
    wait_for_sync(lambda: is_ready(on_it), within=SOON, what="ready again")
    assert on_it.events(on_it.start())[-1].data["status"] == "completed"


def test_stopping_instance_is_not_ready_and_ends_its_streams(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with LiveEasel(tmp_path_factory.mktemp("easel")) as easel:
        run_id = easel.start(script({"say": "x"}, {"wait_ms": 600_000}))
        with (
            easel.stranger() as http,
            http.stream("GET", f"/api/runs/{run_id}/events", headers=easel.bearer) as stream,
        ):
            lines = in_time(stream.iter_lines())
            assert any(line == "event: message.delta" for line in lines), "the reader is connected"
            easel.instances[0].services.readiness.is_stopping = True
            assert easel.get("/readyz").status_code == 503
            easel.do(easel.instances[0].services.tails.close())
            rest = list(lines)
        assert "event: done" not in rest
        assert "retry: 1000" in rest
        assert easel.stream(run_id).status_code == 503
        easel.cancel(run_id)
