"""Actions that compete with each other, with time, with deletion and with repeated requests, on
both stores.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import threading
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from easel.errors import TooLarge, ToolFailed
from tests.edges.gateway.action_fixtures import (
    CanvasClient,
    call_tool,
    expect_refusal,
    set_state,
)
from tests.edges.gateway.node_peer import NodePeer
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient, Refused
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.edges.gateway.action_fixtures import ControlledTools

# Below the limit of one connection: a request counts for a moment after its reply.
AT_ONCE = 30


def call_gate(tools: ControlledTools, name: str, **options: Any) -> dict[str, Any]:
    """Return an action whose tool waits until the test releases it."""
    return call_tool(tools.hold, args={"name": name}, **options)


async def wait_until_ended(canvas: CanvasClient) -> dict[str, Any]:
    """Return the newest record, once it has wait_until_ended."""

    async def is_over() -> bool:
        return (await canvas.records())[0]["status"] not in ("running", "asked")

    await wait_for(is_over)
    return (await canvas.records())[0]


# --- concurrent changes ---------------------------------------------------------------------------


@rule("CV-44", "CV-21", "RS-12")
async def test_concurrent_actions_and_patches_are_all_applied(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    actions = {
        "append": call_tool(tools.read, args={"n": "{{input.n}}"}, saveAs="list", saveMode="append"),
        "push": {"kind": "state.patch", "patch": [{"op": "add", "path": "/pushed/-", "value": 1}]},
    }
    canvas = await CanvasClient.create(action_client, actions, state={"pushed": []})
    await canvas.listen()
    answers = await asyncio.gather(*(canvas.run("append", n=n) for n in range(AT_ONCE)))
    more = await asyncio.gather(
        *(canvas.run("append", n=n) for n in range(AT_ONCE, AT_ONCE + 10)),
        *(canvas.run("push") for _ in range(10)),
        *(canvas.patch(f"/k{n}", n) for n in range(10)),
    )
    state = await canvas.state()
    assert sorted(int(outcome["result"]["n"]) for outcome in state["list"]) == list(range(AT_ONCE + 10))
    assert state["pushed"] == [1] * 10
    assert all(state[f"k{n}"] == n for n in range(10))
    total = AT_ONCE + 30
    assert sorted(answer["revision"] for answer in (*answers, *more)) == list(range(2, total + 2)), (
        "each has its own revision"
    )
    events = await action_client.events(3 * (AT_ONCE + 20) + 10)
    assert [event.payload["revision"] for event in events if event.event == "canvas.updated"] == list(
        range(2, total + 2)
    )
    assert [event.seq for event in events] == list(range(2, len(events) + 2))
    by_execution: dict[str, list[str]] = {}
    for event in events:
        if event.event.startswith("canvas.action."):
            by_execution.setdefault(event.payload["eventId"], []).append(event.event.rpartition(".")[2])
    assert list(by_execution.values()) == [["started", "finished"]] * (AT_ONCE + 20)


@rule("CV-39", "CV-44")
async def test_result_is_saved_into_the_state_at_the_end_of_the_tool(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    name = new_session()
    canvas = await CanvasClient.create(
        action_client,
        {"go": call_gate(tools, name, saveAs="box.result"), "set": set_state("/box/by", "button")},
        state={"box": {}, "n": 1},
    )
    request = asyncio.create_task(canvas.run("go"))
    await tools.gate.wait_until_entered(name)
    await canvas.patch("/n", 2)
    await canvas.run("set")
    await action_client.call(
        "canvas.patch",
        canvasId=canvas.name,
        statePatch=[{"op": "add", "path": "/box/new", "value": [1]}],
        title="New",
    )
    tools.gate.release(name, "late but welcome")
    assert (await request)["revision"] == 5
    snapshot = await canvas.snapshot()
    assert (snapshot["descriptor"]["title"], snapshot["state"]["n"]) == ("New", 2)
    box = snapshot["state"]["box"]
    assert (box["by"], box["new"], box["result"]["result"]) == ("button", [1], "late but welcome")


@rule("CV-45")
async def test_expected_revision_is_checked_at_the_start_only(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    name = new_session()
    canvas = await CanvasClient.create(action_client, {"go": call_gate(tools, name, saveAs="x")})
    request = asyncio.create_task(canvas.run("go", expectedRevision=1))
    await tools.gate.wait_until_entered(name)
    await canvas.patch("/n", 2)
    tools.gate.release(name, 1)
    assert (await request)["revision"] == 3


# --- timeouts -------------------------------------------------------------------------------------


@rule("CV-23", "CV-42", "CV-20")
@case("X8")
async def test_tool_that_times_out_is_cancelled_and_its_late_result_is_not_stored(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    name = new_session()
    canvas = await CanvasClient.create(
        action_client, {"go": call_gate(tools, name, saveAs="x", timeoutMs=100)}
    )
    await canvas.listen()
    problem = await expect_refusal(canvas.run("go"))
    assert (problem.code, "0.1 s" in problem.error["message"]) == (504, True)
    assert tools.gate.ended[name] == "cancelled"
    tools.gate.release(name, "too late")
    assert [event.event for event in await action_client.events(2)] == [
        "canvas.action.started",
        "canvas.action.failed",
    ]
    assert (await canvas.state(), await canvas.revision(), action_client.unheard) == ({}, 1, 0)
    assert (await canvas.records())[0]["status"] == "failed"


async def test_tool_that_raises_cancelled_error_fails_its_action(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    name = new_session()
    tools.problems[name] = asyncio.CancelledError()
    canvas = await CanvasClient.create(
        action_client, {"go": call_tool(tools.fail, args={"name": name}, saveAs="x")}
    )
    assert (await expect_refusal(canvas.run("go"))).code == 500
    assert (await canvas.records())[0]["status"] == "failed"


@rule("CV-23", "CV-03")
async def test_call_to_a_node_is_cancelled_at_the_timeout(
    action_client: GatewayClient, action_easel: LiveEasel
) -> None:
    name = new_session()
    async with NodePeer.connected(action_easel, name) as node:
        canvas = await CanvasClient.create(
            action_client, {"go": call_tool(f"{name}__Echo", saveAs="x", timeoutMs=100)}
        )
        request = asyncio.create_task(canvas.run("go"))
        call = await node.receive_call()
        assert (await expect_refusal(request)).code == 504
        assert await node.receive_cancel() == call["callId"]
        await node.answer(call["callId"], result="too late")
    assert (await canvas.state(), await canvas.revision()) == ({}, 1)


# --- deletion and disconnection -------------------------------------------------------------------


@rule("CV-34", "CV-23")
async def test_result_is_not_saved_in_a_new_canvas_with_the_name_of_a_deleted_one(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    name = new_session()
    actions = {"go": call_gate(tools, name, saveAs="x")}
    canvas = await CanvasClient.create(action_client, actions)
    request = asyncio.create_task(canvas.run("go"))
    await tools.gate.wait_until_entered(name)
    await action_client.call("canvas.delete", canvasId=canvas.name)
    again = await CanvasClient.create(action_client, actions, name=canvas.name)
    head = (await again.snapshot())["descriptor"]["lastSeq"]
    tools.gate.release(name, "for another")
    assert (await expect_refusal(request)).details["eventId"].startswith("evt_")
    snapshot = await again.snapshot()
    assert (snapshot["state"], snapshot["revision"], snapshot["descriptor"]["lastSeq"]) == ({}, 1, head)
    assert await again.records() == []


@rule("CV-42", "CV-03")
async def test_disconnected_node_fails_its_action_at_once(
    action_client: GatewayClient, action_easel: LiveEasel
) -> None:
    name = new_session()
    async with NodePeer.connected(action_easel, name) as node:
        canvas = await CanvasClient.create(action_client, {"go": call_tool(f"{name}__Echo", saveAs="x")})
        await canvas.listen()
        request = asyncio.create_task(canvas.run("go"))
        await node.receive_call()
    problem = await expect_refusal(request)  # long before the timeout
    assert name in problem.error["message"]
    assert [event.event for event in await action_client.events(2)] == [
        "canvas.action.started",
        "canvas.action.failed",
    ]
    assert (await canvas.state(), (await canvas.records())[0]["status"]) == ({}, "failed")


@rule("CV-39", "CV-07")
async def test_disconnected_client_does_not_stop_its_action(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    name = new_session()
    canvas = await CanvasClient.create(action_client, {"go": call_gate(tools, name, saveAs="x")})
    async with GatewayClient.connected(action_easel.base_url, action_easel.token, new_session()) as leaving:
        await leaving.send(
            {
                "type": "req",
                "id": "1",
                "method": "canvas.action",
                "params": {"canvasId": canvas.name, "actionId": "go"},
            }
        )
        await tools.gate.wait_until_entered(name)
    tools.gate.release(name, "kept")
    assert (await wait_until_ended(canvas))["status"] == "completed"
    assert (await canvas.state())["x"]["result"] == "kept"


@pytest.fixture
async def locked(action_easel: LiveEasel) -> AsyncIterator[Any]:
    """Functions that lock a canvas, tell whether a transaction waits for it, and release it."""
    if action_easel.database_url:
        hand = await asyncpg.connect(action_easel.database_url)
        transaction = hand.transaction()

        async def hold(canvas_id: str) -> None:
            await transaction.start()
            await hand.execute("select 1 from canvases where canvas_id = $1 for update", canvas_id)

        async def is_waited_for() -> bool:
            lock = "wait_event_type = 'Lock' and datname = current_database()"
            mine = f"select 1 from pg_stat_activity where {lock}"
            return bool(await asyncio.to_thread(action_easel.sql, mine))

        yield hold, is_waited_for, transaction.rollback
        await hand.close()
        return
    free = threading.Event()
    begun = threading.Event()
    database: Any = action_easel.instances[0].opened
    waiting: list[asyncio.Task[Any]] = []

    def block(_: Any) -> None:
        begun.set()
        free.wait(20)

    async def hold(canvas_id: str) -> None:
        waiting.append(asyncio.create_task(asyncio.to_thread(action_easel.do, database.write(block))))
        await asyncio.to_thread(begun.wait, 20)

    async def is_waited_for() -> bool:
        return True  # the only writer thread is blocked, so the request is queued

    async def release() -> None:
        free.set()
        await asyncio.gather(*waiting)

    yield hold, is_waited_for, release
    free.set()


@rule("CV-39", "CV-42")
async def test_action_completes_if_its_client_disconnects_during_the_start(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel, locked: Any
) -> None:
    """The start waits for the lock of the canvas when the connection ends."""
    hold, is_waited_for, release = locked
    canvas = await CanvasClient.create(action_client, {"go": call_tool(tools.act, args={"n": 1}, saveAs="x")})
    count = len(tools.act.calls)
    await hold(canvas.name)
    async with GatewayClient.connected(action_easel.base_url, action_easel.token, new_session()) as leaving:
        await leaving.send(
            {
                "type": "req",
                "id": "1",
                "method": "canvas.action",
                "params": {"canvasId": canvas.name, "actionId": "go"},
            }
        )
        await wait_for(is_waited_for)
        assert (await leaving.refusal("canvas.none")) is not None, (
            "the request was read before this one was answered"
        )
    async with GatewayClient.connected(action_easel.base_url, action_easel.token, new_session()):
        pass  # by now the disconnection was handled
    await release()

    async def has_started() -> bool:
        return bool(await canvas.records())

    await wait_for(has_started)
    assert (await wait_until_ended(canvas))["status"] == "completed"
    assert len(tools.act.calls) == count + 1


# --- repeated requests ----------------------------------------------------------------------------


@rule("CV-36")
async def test_repeated_request_id_runs_once(action_client: GatewayClient, tools: ControlledTools) -> None:
    name = new_session()
    canvas = await CanvasClient.create(
        action_client,
        {"go": call_gate(tools, name, saveAs="x", saveMode="append"), "set": set_state("/n", 1)},
    )
    count = len(tools.hold.calls)
    requests = [asyncio.create_task(canvas.run("go", requestId="r1")) for _ in range(20)]
    await tools.gate.wait_until_entered(name)
    tools.gate.release(name, {"data": base64.b64encode(secrets.token_bytes(5_000)).decode()})
    answers = await asyncio.gather(*requests)
    assert len(tools.hold.calls) == count + 1
    assert all(answer == answers[0] for answer in answers)
    assert await canvas.run("go", requestId="r1") == answers[0], "the stored outcome has the complete result"
    assert len((await canvas.state())["x"]) == 1
    problem = await expect_refusal(canvas.run("set", requestId="r1"))
    assert (problem.code, "n" in await canvas.state()) == (409, False)
    assert problem.error["name"] == "IDEMPOTENCY_CONFLICT"
    assert problem.error["message"].startswith("The requestId r1 ")
    for another in ({"input": {"x": 2}}, {"input": {}, "expectedRevision": 99}):
        problem = await expect_refusal(canvas.run("go", requestId="r1", **another))
        assert problem.error["name"] == "IDEMPOTENCY_CONFLICT", (
            "a different request with the same id is a conflict"
        )
    first = await canvas.run("set", requestId="r2")
    await canvas.patch("/n", 9)
    assert (await canvas.run("set", requestId="r2"), (await canvas.state())["n"]) == (first, 9)
    other = await CanvasClient.create(action_client, {"set": set_state("/n", 1)})
    assert (await other.run("set", requestId="r2"))["eventId"] != first["eventId"], (
        "request ids belong to one canvas"
    )
    assert len(await canvas.records()) == 2


@rule("CV-36", "CV-42")
async def test_repeated_request_returns_the_stored_failure(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    name = new_session()
    tools.problems |= {
        f"{name}-1": TooLarge(what="It", limit=1),
        f"{name}-2": ToolFailed(tool="test__Fail", reason="once"),
    }
    slow = call_tool(tools.hold, args={"name": name}, timeoutMs=30)
    actions = {n: call_tool(tools.fail, args={"name": f"{name}-{n}"}) for n in ("1", "2")} | {
        "slow": slow,
        "gone": call_tool("nobody__Tool"),
    }
    canvas = await CanvasClient.create(action_client, actions)
    for action, code in (("1", 413), ("2", 500), ("slow", 504), ("gone", 503)):
        before = len(tools.fail.calls) + len(tools.hold.calls)
        first = await expect_refusal(canvas.run(action, requestId=action))
        count = len(tools.fail.calls) + len(tools.hold.calls)
        again = await expect_refusal(canvas.run(action, requestId=action))
        assert first.code == again.code == code
        assert (first.error["message"], first.details["eventId"]) == (
            again.error["message"],
            again.details["eventId"],
        )
        assert len(tools.fail.calls) + len(tools.hold.calls) == count == before + (action != "gone")


@rule("CV-36", "CV-22")
async def test_repeated_request_asks_for_one_confirmation(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    canvas = await CanvasClient.create(action_client, {"go": call_tool(tools.act, confirm="always")})
    answers = await asyncio.gather(*(canvas.run("go", requestId="r") for _ in range(10)))
    assert len({answer["confirmationId"] for answer in answers}) == 1
    assert len(await canvas.confirmations()) == 1
    await canvas.confirm(answers[0])
    assert (await canvas.run("go", requestId="r"))["status"] == "completed"
    no = await canvas.run("go", requestId="s")
    await canvas.confirm(no, approve=False)
    assert (await canvas.run("go", requestId="s"))["status"] == "refused"


async def test_deeply_nested_input_is_refused(action_client: GatewayClient) -> None:
    canvas = await CanvasClient.create(action_client, {"set": set_state("/n", 1)})
    deep: Any = 1
    for _ in range(400):
        deep = [deep]
    problem = await expect_refusal(canvas.run("set", input={"a": deep}, requestId="r"))
    assert (problem.code, "input must not be nested deeper" in problem.error["message"]) == (400, True)
    problem = await expect_refusal(canvas.run("set", note=["a", {"b": "zero \x00"}]))
    assert "input.note[1].b: a text must not contain U+0000" in problem.error["message"]
    assert await canvas.records() == []


@pytest.mark.parametrize("request_id", ["", "x" * 201, "a\x00b", "line\nend"])
async def test_malformed_request_id_is_refused(
    action_client: GatewayClient, tools: ControlledTools, request_id: str
) -> None:
    canvas = await CanvasClient.create(action_client, {"go": set_state("/n", 1)})
    assert (await expect_refusal(canvas.run("go", requestId=request_id))).code == 400
    assert (await canvas.run("go", requestId="é " * 100))["revision"] == 2


# --- limits ---------------------------------------------------------------------------------------


@rule("CV-36")
async def test_request_above_the_limit_of_running_actions_is_refused(
    tmp_path_factory: pytest.TempPathFactory, tools: ControlledTools
) -> None:
    with LiveEasel(
        tmp_path_factory.mktemp("small"), settings={"max_actions": 2}, tools=tools.tools, with_worker=False
    ) as small:
        async with GatewayClient.connected(small.base_url, small.token) as client:
            names = [new_session() for _ in range(2)]
            canvas = await CanvasClient.create(
                client, {name: call_gate(tools, name) for name in names} | {"set": set_state("/n", 1)}
            )
            requests = [asyncio.create_task(canvas.run(name)) for name in names]
            for name in names:
                await tools.gate.wait_until_entered(name)
            problem = await expect_refusal(canvas.run("set"))
            assert (problem.code, problem.error["retryable"]) == (429, True)
            assert len(await canvas.records()) == 2, "it never began"
            tools.gate.release(names[0])
            await requests[0]
            assert (await canvas.run("set"))["revision"] == 2
            tools.gate.release(names[1])
            assert not isinstance(await requests[1], Refused)
