"""Actions while the store is away, slow or forgetful: what was done is told once and truly, and nothing is left running."""

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

LEASE_SECONDS = 1.0
STOPPED_WITHIN_SECONDS = 20.0
# With its database gone: a few seconds for every part that would have liked to tell it something. It must not be for ever.
INTERRUPTED = "stopped in the middle"


@pytest.fixture(scope="module", params=("sqlite", "postgres"))
def quick(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tools: ControlledTools
) -> Iterator[LiveEasel]:
    """What is not heard of is given up soon."""
    url = request.getfixturevalue("module_database_url") if request.param == "postgres" else ""
    settings = {"claim_seconds": LEASE_SECONDS, "poll_seconds": 0.05}
    with LiveEasel(
        tmp_path_factory.mktemp("easel"), url, settings=settings, tools=tools.tools, with_worker=False
    ) as live:
        yield live


@pytest_asyncio.fixture
async def hand(quick: LiveEasel) -> AsyncIterator[GatewayClient]:
    async with GatewayClient.connected(quick.base_url, quick.token, new_session()) as connected:
        yield connected


class Forgetful:
    """The real store, which at the next change that does this stores it, and then is gone before it has said so."""

    def __init__(self, easel: LiveEasel, monkeypatch: pytest.MonkeyPatch) -> None:
        self._canvases: Any = easel.instances[0].opened.canvases
        self._change = self._canvases.change
        self._event = ""
        self.forgotten = 0
        monkeypatch.setattr(self._canvases, "change", self.change)

    def at(self, event: str) -> None:
        self._event = event

    async def change(self, *args: Any, **more: Any) -> Any:
        seen: list[str] = []
        user_id, canvas_id, decide = args

        def watched(snapshot: Any) -> Any:
            change = decide(snapshot)
            seen[:] = [] if change is None else [event.type for event in change.events]
            return change

        outcome = await self._change(user_id, canvas_id, watched, **more)
        if self._event and self._event in seen:
            self._event = ""
            self.forgotten += 1
            raise Unavailable(what="The database")
        return outcome


@pytest.fixture
def forgetful(quick: LiveEasel, monkeypatch: pytest.MonkeyPatch) -> Forgetful:
    return Forgetful(quick, monkeypatch)


async def types(canvas: CanvasClient) -> list[str]:
    return [
        one.event.removeprefix("canvas.action.")
        for one in await canvas.log()
        if one.event.startswith("canvas.action.")
    ]


async def until_over(canvas: CanvasClient, count: int = 1) -> list[dict[str, Any]]:
    async def are_over() -> bool:
        records = await canvas.records()
        return sum("endedAt" in record for record in records) >= count

    await wait_for(are_over)
    return await canvas.records()


# --- a store that is slow to answer -------------------------------------------------------------------------------------


@rule("CV-39", "CV-42")
@case("D1")
async def test_an_end_whose_answer_was_lost_is_answered_as_it_was_stored(
    hand: GatewayClient,
    tools: ControlledTools,
    quick: LiveEasel,
    forgetful: Forgetful,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = quick.instances[0].services.actions._steps
    monkeypatch.setattr(
        steps, "_limits", replace(steps._limits, lease_seconds=60.0)
    )  # however slow the first try is, there is a second
    canvas = await CanvasClient.create(hand, {"go": call_tool(tools.act, saveAs="x", saveMode="append")})
    forgetful.at("canvas.action.finished")
    answer = await canvas.run("go", requestId="r")
    assert (answer["status"], answer["revision"], forgetful.forgotten) == ("completed", 2, 1)
    assert len((await canvas.state())["x"]) == 1
    assert await types(canvas) == ["started", "finished"]
    assert await canvas.run("go", requestId="r") == answer


@rule("CV-42", "CV-48")
@case("D1")
async def test_a_beginning_whose_answer_was_lost_is_not_left_running_by_a_busy_instance(
    hand: GatewayClient, tools: ControlledTools, forgetful: Forgetful
) -> None:
    name = new_session()
    canvas = await CanvasClient.create(
        hand, {"go": call_tool(tools.act, saveAs="x"), "busy": call_tool(tools.hold, args={"name": name})}
    )
    busy = asyncio.create_task(canvas.run("busy"))
    await tools.gate.wait_until_entered(name)
    count = len(tools.act.call_tool)
    forgetful.at("canvas.action.started")
    assert (await expect_refusal(canvas.run("go", requestId="r"))).code == 503
    lost = next(record for record in await until_over(canvas) if record["actionId"] == "go")
    assert (lost["status"], INTERRUPTED in lost["error"]["message"]) == ("failed", True)
    assert (await expect_refusal(canvas.run("go", requestId="r"))).details["eventId"] == lost["eventId"], (
        "it is not begun a second time"
    )
    assert len(tools.act.call_tool) == count
    tools.gate.release(name)
    assert (await busy)["status"] == "completed", "what really runs goes on"
    assert "failed" in await types(canvas)


@rule("CV-42")
async def test_an_instance_that_is_late_to_renew_does_not_give_up_what_it_runs(
    hand: GatewayClient, tools: ControlledTools, quick: LiveEasel
) -> None:
    """The machine slept for a while: nobody else has told, and the tool is still at it."""
    name = new_session()
    canvas = await CanvasClient.create(hand, {"go": call_tool(tools.hold, args={"name": name}, saveAs="x")})
    press = asyncio.create_task(canvas.run("go"))
    await tools.gate.wait_until_entered(name)
    past = "clock_timestamp() - interval '9 seconds'" if quick.database_url else "lease_until - 9000000"
    await asyncio.to_thread(
        quick.sql, f"update canvas_actions set lease_until = {past} where status = 'running'"
    )
    await asyncio.to_thread(quick.do, quick.instances[0].services.actions.renew_and_recover())
    assert [one["status"] for one in await canvas.records()] == ["running"]
    tools.gate.release(name, "awake")
    assert (await press)["result"] == "awake"


@rule("CV-42")
async def test_what_runs_longer_than_its_hold_is_held_on(
    hand: GatewayClient, tools: ControlledTools, quick: LiveEasel
) -> None:
    name = new_session()
    canvas = await CanvasClient.create(hand, {"go": call_tool(tools.hold, args={"name": name}, saveAs="x")})
    press = asyncio.create_task(canvas.run("go"))
    await tools.gate.wait_until_entered(name)
    seconds = "extract(epoch from lease_until)::float8" if quick.database_url else "lease_until / 1e6"

    async def held_until() -> float:
        [row] = await asyncio.to_thread(
            quick.sql, f"select {seconds} as held from canvas_actions where canvas_id = '{canvas.name}'"
        )
        return row["held"]

    first = await held_until()

    async def is_past() -> bool:
        return await held_until() > first + 1.5 * LEASE_SECONDS

    await wait_for(is_past)
    tools.gate.release(name, "still here")
    assert (await press)["result"] == "still here"


@rule("CV-42")
async def test_looking_after_actions_goes_on_after_something_broke(
    hand: GatewayClient,
    tools: ControlledTools,
    quick: LiveEasel,
    forgetful: Forgetful,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store: Any = quick.instances[0].opened.canvas_actions
    lost, broken = store.find_orphaned, list[bool]()

    async def breaks_once(*args: Any) -> Any:
        if not broken:
            broken.append(True)
            raise RuntimeError("something nobody thought of")
        return await lost(*args)

    monkeypatch.setattr(store, "find_orphaned", breaks_once)
    canvas = await CanvasClient.create(hand, {"go": call_tool(tools.act)})
    forgetful.at("canvas.action.started")
    assert (await expect_refusal(canvas.run("go"))).code == 503
    [record] = await until_over(canvas)
    assert (broken, record["status"]) == ([True], "failed")


@rule("CV-42", "CV-44")
@case("D1")
async def test_a_change_whose_answer_was_lost_is_not_told_as_if_nothing_was_changed(
    hand: GatewayClient, tools: ControlledTools, forgetful: Forgetful
) -> None:
    """What is safe to send twice may be sent again; the rest has to be looked at first."""
    append = [{"op": "add", "path": "/list/-", "value": 1}]
    canvas = await CanvasClient.create(
        hand, {"add": {"kind": "state.patch", "patch": append}}, state={"list": []}
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
        forgetful.at("canvas.updated")
        problem = await expect_refusal(hand.call(method, **name, **params))
        assert (problem.code, problem.details["mayBeStored"], problem.error.get("retryable", False)) == (
            503,
            True,
            is_safe,
        ), method
        assert "may be stored" in problem.error["message"]
    assert (await canvas.state())["list"] == [1, 1, 1, 1]
    assert (await canvas.run("add", requestId="r"))["status"] == "completed"
    assert (await canvas.state())["list"] == [1, 1, 1, 1], "it was safe to send again"


@rule("CV-44")
@case("D1")
async def test_what_the_store_never_heard_of_is_told_as_not_changed(
    hand: GatewayClient, tools: ControlledTools, quick: LiveEasel, monkeypatch: pytest.MonkeyPatch
) -> None:
    canvas = await CanvasClient.create(hand, {"go": call_tool(tools.act)}, state={})
    monkeypatch.setattr(quick.instances[0].opened.canvases, "change", is_away)
    problem = await expect_refusal(hand.call("canvas.patch", canvasId=canvas.name, title="Another"))
    assert (problem.error["retryable"], "nothing was changed" in problem.error["message"]) == (True, True)


@rule("CV-48", "RS-15")
async def test_what_runs_while_its_canvas_is_deleted_is_in_the_audit_trail_all_the_same(
    hand: GatewayClient, tools: ControlledTools, quick: LiveEasel
) -> None:
    """Its record has gone with the canvas, and whether the tool has done its work nobody knows: that it was called has to be known."""
    name = new_session()
    canvas = await CanvasClient.create(hand, {"go": call_tool(tools.hold, args={"name": name})})
    press = asyncio.create_task(canvas.run("go"))
    await tools.gate.wait_until_entered(name)
    await hand.call("canvas.delete", canvasId=canvas.name)
    assert (await expect_refusal(press)).code == 404
    assert tools.gate.ended[name] == "cancelled", "it works for nobody any more"

    async def is_audited() -> bool:
        return len(audit_records(quick, "canvas.action", canvas.name)) == 1

    await wait_for(is_audited)
    [record] = audit_records(quick, "canvas.action", canvas.name)
    details = record["details"]
    assert (details["actionId"], details["tool"], details["status"], details["actor"]["name"]) == (
        "go",
        tools.hold.name,
        "failed",
        "owner",
    )
    assert "deleted" in details["problem"]


# --- a store that is away -----------------------------------------------------------------------------------------------


async def is_away(*_: Any, **__: Any) -> Any:
    raise Unavailable(what="The database")


@rule("CV-39", "CV-42", "CV-48")
@case("D1")
async def test_what_a_tool_has_done_is_not_told_as_undone_where_it_cannot_be_stored(
    hand: GatewayClient, tools: ControlledTools, quick: LiveEasel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever pressed and believed it would press again, and it would be done twice."""
    name = new_session()
    canvas = await CanvasClient.create(hand, {"go": call_tool(tools.hold, args={"name": name}, saveAs="x")})
    press = asyncio.create_task(canvas.run("go", requestId="r"))
    await tools.gate.wait_until_entered(name)
    with monkeypatch.context() as patched:
        patched.setattr(quick.instances[0].opened.canvases, "change", is_away)
        tools.gate.release(name, "deployed")
        problem = await expect_refusal(press)
    assert (problem.error["name"], "retryable" in problem.error) == ("ACTION_FAILED", False)
    assert "The tool has done its work; its result could not be stored" in problem.error["message"]
    [record] = await until_over(canvas)
    assert record["error"]["message"] == problem.error["message"], (
        "its instance has not stopped, and that is not said"
    )
    assert (await expect_refusal(canvas.run("go", requestId="r"))).error["message"] == problem.error[
        "message"
    ]

    async def is_audited() -> bool:
        return len(audit_records(quick, "canvas.action", canvas.name)) == 1

    await wait_for(is_audited)


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Postgres]:
    with Postgres(fsync=False) as server:
        yield server


@rule("CV-39")
@case("D1")
async def test_what_ends_while_the_database_is_away_is_stored_when_it_is_back(
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
            press = asyncio.create_task(canvas.run("go"))
            await tools.gate.wait_until_entered(name)
            await asyncio.to_thread(own_postgres.stop, "immediate")
            tools.gate.release(name, "worth waiting for")
            assert (await expect_refusal(canvas.run("go"))).code == 503
            await asyncio.to_thread(own_postgres.start)
            assert (await press)["result"] == "worth waiting for"
            assert (await canvas.state())["x"]["result"] == "worth waiting for"


@rule("CV-42", "CV-48")
@case("D1")
async def test_an_instance_that_stops_without_its_database_does_not_hang_and_another_tells_what_it_left(
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
            press = asyncio.create_task(canvas.run("go"))
            await tools.gate.wait_until_entered(name)
            await asyncio.to_thread(own_postgres.stop, "immediate")
            stopping = Stopwatch()
            await asyncio.to_thread(life.close)
            assert stopping.seconds < STOPPED_WITHIN_SECONDS
            assert tools.gate.ended[name] == "cancelled"
            with pytest.raises(EOFError):
                await press
    await asyncio.to_thread(own_postgres.start)
    with LiveEasel(
        folder, url, settings=settings, tools=tools.tools, with_worker=False, token=live.token
    ) as again:
        again.sql("update canvas_actions set lease_until = clock_timestamp()")  # as if that time were over
        async with GatewayClient.connected(again.base_url, again.token) as client:
            await asyncio.to_thread(again.do, again.instances[0].services.actions.renew_and_recover())
            [record] = await until_over(CanvasClient(client, canvas.name))
            assert (record["status"], INTERRUPTED in record["error"]["message"]) == ("failed", True)
            assert await CanvasClient(client, canvas.name).state() == {}
