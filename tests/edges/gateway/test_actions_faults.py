"""Actions while the store is unavailable, slow or loses replies: each outcome is stored once and reported
correctly. D1
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.errors import Unavailable
from tests.edges.gateway.action_fixtures import CanvasClient, audit_records, call_tool, expect_refusal
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient
from tests.support.postgres import Postgres
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.edges.gateway.action_fixtures import ControlledTools

pytestmark = pytest.mark.slow

CLAIM_SECONDS = 1.0
# Without its database: a few seconds for each part that tries to write to it.
STOPPED_WITHIN_SECONDS = 20.0
INTERRUPTED = "stopped in the middle"


@pytest.fixture(scope="module", params=("sqlite", "postgres"))
def easel_with_short_claims(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tools: ControlledTools
) -> Iterator[LiveEasel]:
    """An Easel with short claims."""
    url = request.getfixturevalue("module_database_url") if request.param == "postgres" else ""
    settings = {"claim_seconds": CLAIM_SECONDS, "poll_seconds": 0.05}
    with LiveEasel(
        tmp_path_factory.mktemp("easel"), url, settings=settings, tools=tools.tools, with_worker=False
    ) as live:
        yield live


@pytest_asyncio.fixture
async def client(easel_with_short_claims: LiveEasel) -> AsyncIterator[GatewayClient]:
    async with GatewayClient.connected(
        easel_with_short_claims.base_url, easel_with_short_claims.token, new_session()
    ) as connected:
        yield connected


class ReplyLosingStore:
    """The real store, but the reply of the next change with a given event is lost after the commit."""

    def __init__(self, easel: LiveEasel, monkeypatch: pytest.MonkeyPatch) -> None:
        self._canvases: Any = easel.instances[0].opened.canvases
        self._change = self._canvases.change
        self._event = ""
        self.lost_count = 0
        monkeypatch.setattr(self._canvases, "change", self.change)

    def at(self, event: str) -> None:
        self._event = event

    async def change(self, *args: Any, **options: Any) -> Any:
        types: list[str] = []
        account_id, canvas_id, decide = args

        def watched(snapshot: Any) -> Any:
            change = decide(snapshot)
            types[:] = [] if change is None else [event.type for event in change.events]
            return change

        outcome = await self._change(account_id, canvas_id, watched, **options)
        if self._event and self._event in types:
            self._event = ""
            self.lost_count += 1
            raise Unavailable(what="The database")
        return outcome


@pytest.fixture
def lossy(easel_with_short_claims: LiveEasel, monkeypatch: pytest.MonkeyPatch) -> ReplyLosingStore:
    return ReplyLosingStore(easel_with_short_claims, monkeypatch)


async def action_events(canvas: CanvasClient) -> list[str]:
    return [
        event.event.removeprefix("canvas.action.")
        for event in await canvas.log()
        if event.event.startswith("canvas.action.")
    ]


async def wait_until_ended(canvas: CanvasClient, count: int = 1) -> list[dict[str, Any]]:
    async def have_ended() -> bool:
        records = await canvas.records()
        return sum("endedAt" in record for record in records) >= count

    await wait_for(have_ended)
    return await canvas.records()


# --- lost replies ---------------------------------------------------------------------------------


@rule("CV-39", "CV-42")
@case("D1")
async def test_end_whose_reply_was_lost_returns_the_stored_outcome(
    client: GatewayClient,
    tools: ControlledTools,
    easel_with_short_claims: LiveEasel,
    lossy: ReplyLosingStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transitions = easel_with_short_claims.instances[0].services.actions._transitions
    # A second attempt is made even if the first one is slow.
    limits = replace(transitions._limits, claim_seconds=60.0)
    monkeypatch.setattr(transitions, "_limits", limits)
    canvas = await CanvasClient.create(client, {"go": call_tool(tools.act, saveAs="x", saveMode="append")})
    lossy.at("canvas.action.finished")
    answer = await canvas.run("go", requestId="r")
    assert (answer["status"], answer["revision"], lossy.lost_count) == ("completed", 2, 1)
    assert len((await canvas.state())["x"]) == 1
    assert await action_events(canvas) == ["started", "finished"]
    assert await canvas.run("go", requestId="r") == answer


@rule("CV-42", "CV-48")
@case("D1")
async def test_start_whose_reply_was_lost_is_ended_as_interrupted(
    client: GatewayClient, tools: ControlledTools, lossy: ReplyLosingStore
) -> None:
    name = new_session()
    canvas = await CanvasClient.create(
        client, {"go": call_tool(tools.act, saveAs="x"), "busy": call_tool(tools.hold, args={"name": name})}
    )
    busy = asyncio.create_task(canvas.run("busy"))
    await tools.gate.wait_until_entered(name)
    count = len(tools.act.calls)
    lossy.at("canvas.action.started")
    assert (await expect_refusal(canvas.run("go", requestId="r"))).code == 503
    lost = next(record for record in await wait_until_ended(canvas) if record["actionId"] == "go")
    assert (lost["status"], INTERRUPTED in lost["error"]["message"]) == ("failed", True)
    assert (await expect_refusal(canvas.run("go", requestId="r"))).details["eventId"] == lost["eventId"], (
        "it is not started again"
    )
    assert len(tools.act.calls) == count
    tools.gate.release(name)
    assert (await busy)["status"] == "completed"
    assert "failed" in await action_events(canvas)


@rule("CV-42")
async def test_expired_claim_that_no_instance_took_over_is_renewed(
    client: GatewayClient, tools: ControlledTools, easel_with_short_claims: LiveEasel
) -> None:
    """The machine was suspended, and the tool still runs."""
    name = new_session()
    canvas = await CanvasClient.create(client, {"go": call_tool(tools.hold, args={"name": name}, saveAs="x")})
    request = asyncio.create_task(canvas.run("go"))
    await tools.gate.wait_until_entered(name)
    past = (
        "clock_timestamp() - interval '9 seconds'"
        if easel_with_short_claims.database_url
        else "lease_until - 9000000"
    )
    await asyncio.to_thread(
        easel_with_short_claims.sql,
        f"update executions set lease_until = {past} where status = 'running'",
    )
    await asyncio.to_thread(
        easel_with_short_claims.do, easel_with_short_claims.instances[0].services.actions.renew_and_recover()
    )
    assert [record["status"] for record in await canvas.records()] == ["running"]
    tools.gate.release(name, "awake")
    assert (await request)["result"] == "awake"


@rule("CV-42", "CV-44")
@case("D1")
async def test_change_whose_reply_was_lost_is_reported_as_maybe_stored(
    client: GatewayClient, tools: ControlledTools, lossy: ReplyLosingStore
) -> None:
    """Idempotent requests are marked as retryable, the others are not."""
    append = [{"op": "add", "path": "/list/-", "value": 1}]
    canvas = await CanvasClient.create(
        client, {"add": {"kind": "state.patch", "patch": append}}, state={"list": []}
    )
    name = {"canvasId": canvas.name}
    for is_safe, method, params in (
        (False, "canvas.patch", {"statePatch": append}),
        (True, "canvas.patch", {"statePatch": append, "expectedRevision": 2}),
        (False, "canvas.action", {"actionId": "add"}),
        (True, "canvas.action", {"actionId": "add", "requestId": "r"}),
        (True, "canvas.upsert", {"title": "Another"}),
        (True, "canvas.asset.put", {"path": "assets/index.html", "text": "<b>"}),
    ):
        lossy.at("canvas.updated")
        problem = await expect_refusal(client.call(method, **name, **params))
        assert (problem.code, problem.details["mayBeStored"], problem.error.get("retryable", False)) == (
            503,
            True,
            is_safe,
        ), method
        assert "may have been stored" in problem.error["message"]
    assert (await canvas.state())["list"] == [1, 1, 1, 1]
    assert (await canvas.run("add", requestId="r"))["status"] == "completed"
    assert (await canvas.state())["list"] == [1, 1, 1, 1]


@rule("CV-44")
@case("D1")
async def test_change_that_never_reached_the_store_is_reported_as_not_changed(
    client: GatewayClient,
    tools: ControlledTools,
    easel_with_short_claims: LiveEasel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    canvas = await CanvasClient.create(client, {"go": call_tool(tools.act)}, state={})
    monkeypatch.setattr(easel_with_short_claims.instances[0].opened.canvases, "change", fail)
    problem = await expect_refusal(client.call("canvas.patch", canvasId=canvas.name, title="Another"))
    assert (problem.error["retryable"], "nothing was changed" in problem.error["message"]) == (True, True)


@rule("CV-48", "RS-15")
async def test_execution_of_a_deleted_canvas_is_in_the_audit_trail(
    client: GatewayClient, tools: ControlledTools, easel_with_short_claims: LiveEasel
) -> None:
    """Its record was deleted with the canvas."""
    name = new_session()
    canvas = await CanvasClient.create(client, {"go": call_tool(tools.hold, args={"name": name})})
    request = asyncio.create_task(canvas.run("go"))
    await tools.gate.wait_until_entered(name)
    await client.call("canvas.delete", canvasId=canvas.name)
    assert (await expect_refusal(request)).code == 404
    assert tools.gate.ended[name] == "cancelled"

    async def is_audited() -> bool:
        return len(audit_records(easel_with_short_claims, "canvas.action", canvas.name)) == 1

    await wait_for(is_audited)
    [record] = audit_records(easel_with_short_claims, "canvas.action", canvas.name)
    details = record["details"]
    assert (details["actionId"], details["tool"], details["status"], details["actor"]["name"]) == (
        "go",
        tools.hold.name,
        "failed",
        "owner",
    )
    assert "deleted" in details["problem"]


# --- an unavailable store -------------------------------------------------------------------------


async def fail(*_: Any, **__: Any) -> Any:
    raise Unavailable(what="The database")


@rule("CV-39", "CV-42", "CV-48")
@case("D1")
async def test_result_that_cannot_be_stored_is_reported_as_done_but_not_stored(
    client: GatewayClient,
    tools: ControlledTools,
    easel_with_short_claims: LiveEasel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that believed that nothing was done would run the action again."""
    name = new_session()
    canvas = await CanvasClient.create(client, {"go": call_tool(tools.hold, args={"name": name}, saveAs="x")})
    request = asyncio.create_task(canvas.run("go", requestId="r"))
    await tools.gate.wait_until_entered(name)
    with monkeypatch.context() as patched:
        patched.setattr(easel_with_short_claims.instances[0].opened.canvases, "change", fail)
        tools.gate.release(name, "deployed")
        problem = await expect_refusal(request)
    assert (problem.error["name"], "retryable" in problem.error) == ("ACTION_FAILED", False)
    assert "The tool has done its work; its result could not be stored" in problem.error["message"]
    [record] = await wait_until_ended(canvas)
    assert record["error"]["message"] == problem.error["message"], "it is not reported as interrupted"
    assert (await expect_refusal(canvas.run("go", requestId="r"))).error["message"] == problem.error[
        "message"
    ]

    async def is_audited() -> bool:
        return len(audit_records(easel_with_short_claims, "canvas.action", canvas.name)) == 1

    await wait_for(is_audited)


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
