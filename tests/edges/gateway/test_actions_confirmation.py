"""Confirmation by a person, on both stores: when it is needed, for what, by whom and for how long.
CV-22, X6
"""

from __future__ import annotations

import base64
import json
import secrets
from typing import TYPE_CHECKING

import pytest

from tests.edges.gateway.action_fixtures import (
    CanvasClient,
    audit_records,
    call_tool,
    expect_refusal,
    make_spec,
    set_state,
)
from tests.edges.http.live import LiveEasel
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient

if TYPE_CHECKING:
    from tests.edges.gateway.action_fixtures import ControlledTools


# --- levels ---------------------------------------------------------------------------------------


@rule("RS-14", "CV-41")
async def test_approval_mode_minimal_asks_for_every_action(
    tmp_path_factory: pytest.TempPathFactory, tools: ControlledTools
) -> None:
    settings = {"approval_mode": "minimal"}
    with LiveEasel(
        tmp_path_factory.mktemp("strict"), settings=settings, tools=tools.tools, with_worker=False
    ) as strict:
        async with GatewayClient.connected(strict.base_url, strict.token) as client:
            message = {"kind": "session.send", "message": "hi", "confirm": "never"}
            canvas = await CanvasClient.create(
                client,
                {"read": call_tool(tools.read), "patch": set_state("/n", 1, confirm="never"), "say": message},
            )
            for action in ("read", "patch", "say"):
                assert (await canvas.run(action))["status"] == "needs_confirmation"
            assert await canvas.revision() == 1
            spec = make_spec({"read": call_tool(tools.read)}) | {
                "refresh": [{"id": "r", "everyMs": 60_000, "action": "read"}]
            }
            problem = await expect_refusal(client.call("canvas.create", canvasId="jobs", spec=spec))
            assert (problem.code, "on this server (EASEL_APPROVAL_MODE)" in problem.error["message"]) == (
                400,
                True,
            )


async def test_call_that_does_not_fit_the_schema_is_refused_before_anybody_is_asked(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    action = call_tool(tools.strict, args={"n": "{{input.n}}"}, confirm="always")
    canvas = await CanvasClient.create(action_client, {"go": action})
    problem = await expect_refusal(canvas.run("go", n=7))
    assert (problem.code, "test__Strict: n" in problem.error["message"]) == (400, True)
    assert await canvas.confirmations() == []


# --- the call -------------------------------------------------------------------------------------


@rule("CV-22", "CV-39", "CV-37")
@case("X6")
async def test_confirmed_call_runs_even_if_the_state_has_changed(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    action = call_tool(
        tools.bash,
        args={"command": "printf '%s\\0' {{state.service}} {{input.to}}"},
        text=["input.to"],
        confirm="auto",
        saveAs="out",
    )
    canvas = await CanvasClient.create(action_client, {"go": action}, state={"service": "api"})
    await canvas.listen()
    count = len(tools.bash.calls)
    pending = await canvas.run("go", to="it's; touch PWN")
    assert pending["resolved"]["args"] == {"command": "printf '%s\\0' api \"${EASEL_TEXT_1}\""}
    assert pending["resolved"]["texts"] == {"EASEL_TEXT_1": "it's; touch PWN"}
    assert (len(tools.bash.calls), await canvas.revision()) == (count, 1)
    [waiting] = await canvas.confirmations()
    assert (waiting["confirmationId"], waiting["resolved"], waiting["status"]) == (
        pending["confirmationId"],
        pending["resolved"],
        "asked",
    )
    await canvas.patch("/service", "other")
    result = await canvas.confirm(pending)
    assert result["result"] == {"exitCode": 0, "arguments": ["api", "it's; touch PWN"]}
    assert tools.bash.args[-1] == pending["resolved"]["args"]
    assert (result["status"], result["eventId"], result["revision"]) == (
        "completed",
        pending["confirmationId"],
        3,
    )
    state = await canvas.state()
    assert (state["service"], state["out"]["result"]) == ("other", result["result"])
    events = await action_client.events(5)
    assert [event.event for event in events] == [
        "canvas.action.asked",
        "canvas.updated",
        "canvas.action.started",
        "canvas.updated",
        "canvas.action.finished",
    ]
    assert {event.payload.get("eventId", pending["confirmationId"]) for event in events} == {
        pending["confirmationId"]
    }
    assert await canvas.confirmations() == []


@rule("CV-22", "CV-48")
async def test_rejected_confirmation_changes_nothing(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    canvas = await CanvasClient.create(
        action_client, {"go": call_tool(tools.act, confirm="always", saveAs="x")}, state={"n": 1}
    )
    await canvas.listen()
    count = len(tools.act.calls)
    pending = await canvas.run("go")
    assert (await canvas.confirm(pending, approve=False))["status"] == "refused"
    assert [event.event for event in await action_client.events(2)] == [
        "canvas.action.asked",
        "canvas.action.refused",
    ]
    assert (
        len(tools.act.calls),
        await canvas.state(),
        await canvas.revision(),
        await canvas.confirmations(),
    ) == (
        count,
        {"n": 1},
        1,
        [],
    )
    for approve in (True, False):
        assert (await expect_refusal(canvas.confirm(pending, approve=approve))).code == 409
    assert len(tools.act.calls) == count


@rule("CV-22", "CV-48")
@pytest.mark.parametrize("ending", ["refused", "cancelled", "completed", "failed"])
async def test_typed_secret_is_kept_nowhere_after_its_confirmation_is_over(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel, ending: str
) -> None:
    secret = f"Tr0ub4dor-{secrets.token_hex(4)}"
    tool = tools.fail if ending == "failed" else tools.act
    args = {"name": "refused", "n": "vault login {{input.password}}"}
    action = call_tool(tool, args=args, confirm="always")
    canvas = await CanvasClient.create(action_client, {"login": action})
    pending = await canvas.run("login", password=secret)
    assert secret in json.dumps(pending["resolved"])
    assert secret in json.dumps((await canvas.confirmations())[0]["resolved"])
    event_id = pending["confirmationId"]
    log = f"select payload from canvas_events where canvas_id = '{canvas.name}' order by seq"
    assert secret not in json.dumps(action_easel.sql(log)), "while it is asked"
    match ending:
        case "refused":
            await canvas.confirm(pending, approve=False)
        case "cancelled":
            await action_client.call("canvas.cancel", canvasId=canvas.name, eventId=event_id)
        case "completed":
            await canvas.confirm(pending)
        case _:
            assert "refused" in (await expect_refusal(canvas.confirm(pending))).error["message"]
    [record] = action_easel.sql(f"select * from executions where event_id = '{event_id}'")
    assert (record["resolved"], record["tool"]) == (None, tool.name)
    assert secret not in json.dumps(record, default=str)
    assert secret not in json.dumps(action_easel.sql(log))
    assert secret not in json.dumps(await canvas.records())
    records = audit_records(action_easel, "canvas.action", canvas.name)
    assert secret not in json.dumps(records)


@rule("RS-35", "CV-22", "CC-23")
@case("X6")
@pytest.mark.parametrize("kind", ["base64", "text"])
async def test_large_call_is_shown_and_run_completely(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel, kind: str
) -> None:
    value = (
        base64.b64encode(secrets.token_bytes(6_000)).decode()
        if kind == "base64"
        else "plain words, again and again. " * 300
    )
    canvas = await CanvasClient.create(
        action_client, {"go": call_tool(tools.act, args={"data": "{{input.data}}", "n": 1}, confirm="always")}
    )
    await canvas.listen()
    pending = await canvas.run("go", data=value, requestId="r1")
    assert pending["resolved"]["args"] == {"data": value, "n": 1}
    assert await canvas.run("go", data=value, requestId="r1") == pending, (
        "a repeated request returns the same confirmation"
    )
    event = (await action_client.event()).payload
    assert (
        len(
            json.dumps(
                {k: v for k, v in event.items() if k not in ("visibility", "provenance")},
                separators=(",", ":"),
            )
        )
        <= 2_048
    )
    [row] = action_easel.sql(
        f"select resolved from executions where event_id = '{pending['confirmationId']}'"
    )
    assert (value in json.dumps(row["resolved"])) is (kind == "text"), "Base64 is offloaded"
    [waiting] = await canvas.confirmations()
    assert waiting["resolved"] == pending["resolved"], "the list shows all of it"
    assert (await canvas.confirm(pending))["result"] == {"data": value, "n": 1}
    assert tools.act.args[-1] == {"data": value, "n": 1}


# --- who, and how long ----------------------------------------------------------------------------


async def test_unknown_confirmation_is_not_found(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    canvas = await CanvasClient.create(action_client, {"go": call_tool(tools.read)})
    for wrong in ("", "x", "evt_" + "0" * 26, "../evt", "\x00", "run_" + "0" * 26, "x" * 10_000):
        assert (await expect_refusal(canvas.confirm(wrong))).code == 404
    result = await canvas.run("go")
    assert (await expect_refusal(canvas.confirm(result["eventId"]))).code == 409, "it needed no confirmation"
