"""Actions while the store is unavailable, slow or loses replies: each outcome is stored once and reported
correctly. D1
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from easel.errors import Unavailable
from tests.edges.gateway.action_fixtures import CanvasClient, call_tool, expect_refusal
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient
from tests.support.postgres import Postgres
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.edges.gateway.action_fixtures import ControlledTools

pytestmark = pytest.mark.slow

# Without its database: a few seconds for each part that tries to write to it.
STOPPED_WITHIN_SECONDS = 20.0
INTERRUPTED = "stopped in the middle"


async def wait_until_ended(canvas: CanvasClient, count: int = 1) -> list[dict[str, Any]]:
    async def have_ended() -> bool:
        records = await canvas.records()
        return sum("endedAt" in record for record in records) >= count

    await wait_for(have_ended)
    return await canvas.records()


@rule("CV-42", "CV-44")
@case("D1")
async def test_change_whose_reply_was_lost_is_reported_as_maybe_stored(
    action_client: GatewayClient, action_easel: LiveEasel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idempotent requests are marked as retryable, the others are not."""
    append = [{"op": "add", "path": "/list/-", "value": 1}]
    canvas = await CanvasClient.create(
        action_client, {"add": {"kind": "state.patch", "patch": append}}, state={"list": []}
    )
    name = {"canvasId": canvas.name}
    canvases: Any = action_easel.instances[0].opened.canvases
    change = canvases.change

    async def lose_reply(*args: Any, **options: Any) -> Any:
        if await change(*args, **options) is not None:
            raise Unavailable(what="The database")

    async def fail(*_: Any, **__: Any) -> Any:
        raise Unavailable(what="The database")

    with monkeypatch.context() as patched:
        patched.setattr(canvases, "change", lose_reply)
        for is_safe, method, params in (
            (False, "canvas.patch", {"statePatch": append}),
            (True, "canvas.patch", {"statePatch": append, "expectedRevision": 2}),
            (False, "canvas.action", {"actionId": "add"}),
            (True, "canvas.action", {"actionId": "add", "requestId": "r"}),
            (True, "canvas.upsert", {"title": "Another"}),
            (True, "canvas.asset.put", {"path": "assets/index.html", "text": "<b>"}),
        ):
            problem = await expect_refusal(action_client.call(method, **name, **params))
            assert (problem.code, problem.details["mayBeStored"]) == (503, True), method
            assert problem.error.get("retryable", False) is is_safe, method
            assert "may have been stored" in problem.error["message"]
    with monkeypatch.context() as patched:
        patched.setattr(canvases, "change", fail)
        problem = await expect_refusal(action_client.call("canvas.patch", **name, title="Another"))
        assert (problem.error["retryable"], "nothing was changed" in problem.error["message"]) == (True, True)
    assert (await canvas.run("add", requestId="r"))["status"] == "completed"
    assert (await canvas.state())["list"] == [1, 1, 1, 1]


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Postgres]:
    with Postgres(fsync=False) as server:
        yield server


@rule("CV-39")
@case("D1")
async def test_result_is_stored_when_the_database_is_available_again(
    own_postgres: Postgres, tmp_path_factory: pytest.TempPathFactory, tools: ControlledTools
) -> None:
    name, url = new_session(), own_postgres.create_database()
    settings = {"claim_seconds": 30.0, "poll_seconds": 0.1}
    with LiveEasel(
        tmp_path_factory.mktemp("easel"), url, settings=settings, tools=tools.tools, with_worker=False
    ) as live:
        async with GatewayClient.connected(live.base_url, live.token) as client:
            canvas = await CanvasClient.create(
                client, {"go": call_tool(tools.hold, args={"name": name}, saveAs="x")}
            )
            request = asyncio.create_task(canvas.run("go"))
            await tools.gate.wait_until_entered(name)
            await asyncio.to_thread(own_postgres.stop, "immediate")
            tools.gate.release(name, "worth waiting for")
            assert (await expect_refusal(canvas.run("go"))).code == 503
            await asyncio.to_thread(own_postgres.start)
            assert (await request)["result"] == "worth waiting for"
            assert (await canvas.state())["x"]["result"] == "worth waiting for"


@rule("CV-42", "CV-48")
@case("D1")
async def test_instance_stops_without_its_database_and_another_recovers_its_execution(
    own_postgres: Postgres, tmp_path_factory: pytest.TempPathFactory, tools: ControlledTools
) -> None:
    name, url = new_session(), own_postgres.create_database()
    settings = {"claim_seconds": 600.0, "poll_seconds": 0.1}
    folder = tmp_path_factory.mktemp("easel")
    with contextlib.ExitStack() as life:
        live = life.enter_context(
            LiveEasel(folder, url, settings=settings, tools=tools.tools, with_worker=False)
        )
        async with GatewayClient.connected(live.base_url, live.token) as client:
            canvas = await CanvasClient.create(
                client, {"go": call_tool(tools.hold, args={"name": name}, saveAs="x")}
            )
            request = asyncio.create_task(canvas.run("go"))
            await tools.gate.wait_until_entered(name)
            await asyncio.to_thread(own_postgres.stop, "immediate")
            stopping = Stopwatch()
            await asyncio.to_thread(life.close)
            assert stopping.seconds < STOPPED_WITHIN_SECONDS
            assert tools.gate.ended[name] == "cancelled"
            with pytest.raises(EOFError):
                await request
    await asyncio.to_thread(own_postgres.start)
    with LiveEasel(
        folder, url, settings=settings, tools=tools.tools, with_worker=False, token=live.token
    ) as again:
        again.sql("update executions set lease_until = clock_timestamp()")  # the claim expires
        async with GatewayClient.connected(again.base_url, again.token) as client:
            await asyncio.to_thread(again.do, again.instances[0].services.actions.renew_and_recover())
            [record] = await wait_until_ended(CanvasClient(client, canvas.name))
            assert (record["status"], INTERRUPTED in record["error"]["message"]) == ("failed", True)
            assert await CanvasClient(client, canvas.name).state() == {}
