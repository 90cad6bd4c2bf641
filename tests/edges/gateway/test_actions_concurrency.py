"""Actions over a socket that meet a disconnection or a repeated request, on both stores."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from tests.edges.gateway.action_fixtures import (
    HOLD_SECONDS,
    CanvasClient,
    call_tool,
    expect_refusal,
    set_state,
)
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import rule
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


# --- disconnection -----------------------------------------------------------------------------------


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
    tools.gate.release(name, "done")
    answers = await asyncio.gather(*requests)
    assert len(tools.hold.calls) == count + 1
    assert all(answer == answers[0] for answer in answers)
    for request in (
        canvas.run("set", requestId="r1"),
        canvas.run("go", requestId="r1", input={"x": 2}),
        canvas.run("go", requestId="r1", expectedRevision=99),
    ):
        problem = await expect_refusal(request)
        assert (problem.code, problem.error["name"]) == (409, "IDEMPOTENCY_CONFLICT")
        assert problem.error["message"].startswith("The requestId r1 ")
    other = await CanvasClient.create(action_client, {"set": set_state("/n", 1)})
    assert (await other.run("set", requestId="r1"))["revision"] == 2, "request ids belong to one canvas"
    assert len(await canvas.records()) == 1


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
