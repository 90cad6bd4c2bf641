"""Actions over a socket that meet a timeout, a disconnection or a repeated request, on both stores."""

from __future__ import annotations

import asyncio
import base64
import secrets
import threading
from typing import TYPE_CHECKING, Any

from easel.errors import TooLarge, ToolFailed
from tests.edges.gateway.action_fixtures import (
    HOLD_SECONDS,
    CanvasClient,
    call_tool,
    expect_refusal,
    set_state,
)
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    import pytest

    from tests.edges.gateway.action_fixtures import ControlledTools


def call_gate(tools: ControlledTools, name: str, **options: Any) -> dict[str, Any]:
    """Return an action whose tool waits until the test releases it."""
    return call_tool(tools.hold, args={"name": name}, **options)


def run_frame(canvas: CanvasClient) -> dict[str, Any]:
    params = {"canvasId": canvas.name, "actionId": "go"}
    return {"type": "req", "id": "1", "method": "canvas.action", "params": params}


async def wait_until_ended(canvas: CanvasClient) -> dict[str, Any]:
    """Return the newest record, once it has wait_until_ended."""

    async def is_over() -> bool:
        return (await canvas.records())[0]["status"] not in ("running", "asked")

    await wait_for(is_over)
    return (await canvas.records())[0]


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


# --- disconnection -------------- -------------------------------------------------------------------


@rule("CV-39", "CV-07")
async def test_disconnected_client_does_not_stop_its_action(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    name = new_session()
    canvas = await CanvasClient.create(action_client, {"go": call_gate(tools, name, saveAs="x")})
    async with GatewayClient.connected(action_easel.base_url, action_easel.token, new_session()) as leaving:
        await leaving.send(run_frame(canvas))
        await tools.gate.wait_until_entered(name)
    tools.gate.release(name, "kept")
    assert (await wait_until_ended(canvas))["status"] == "completed"
    assert (await canvas.state())["x"]["result"] == "kept"


@rule("CV-39", "CV-42")
async def test_action_completes_if_its_client_disconnects_during_the_start(
    action_client: GatewayClient,
    tools: ControlledTools,
    action_easel: LiveEasel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    canvas = await CanvasClient.create(action_client, {"go": call_tool(tools.act, saveAs="x")})
    transitions, count = action_easel.instances[0].services.actions._transitions, len(tools.act.calls)
    starting, released, start = threading.Event(), threading.Event(), transitions.start

    async def start_later(*args: Any) -> Any:
        starting.set()
        await asyncio.to_thread(released.wait, HOLD_SECONDS)
        return await start(*args)

    monkeypatch.setattr(transitions, "start", start_later)
    async with GatewayClient.connected(action_easel.base_url, action_easel.token, new_session()) as leaving:
        await leaving.send(run_frame(canvas))
        await asyncio.to_thread(starting.wait, HOLD_SECONDS)
    async with GatewayClient.connected(action_easel.base_url, action_easel.token, new_session()):
        released.set()  # by now the disconnection was handled

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


async def test_malformed_input_or_request_id_is_refused(action_client: GatewayClient) -> None:
    canvas = await CanvasClient.create(action_client, {"set": set_state("/n", 1)})
    deep: Any = 1
    for _ in range(400):
        deep = [deep]
    for input_, problem in (
        ({"a": deep}, "input must not be nested deeper"),
        ({"note": ["a", {"b": "zero \x00"}]}, "input.note[1].b: a text must not contain U+0000"),
    ):
        refused = await expect_refusal(canvas.run("set", input=input_, requestId="r"))
        assert (refused.code, problem in refused.error["message"]) == (400, True)
    for request_id in ("", "x" * 201, "a\x00b", "line\nend"):
        assert (await expect_refusal(canvas.run("set", requestId=request_id))).code == 400
    assert await canvas.records() == []
    assert (await canvas.run("set", requestId="é " * 100))["revision"] == 2
