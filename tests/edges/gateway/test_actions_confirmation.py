"""Confirmation of calls and acceptance of specs by a person, on both stores. CV-22, RS-59, X6"""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from easel.core.principal import PrincipalKind
from easel.host.actions.transitions import MAX_CONFIRMATIONS
from easel.host.canvases.drafts import Draft
from tests.edges.gateway.action_fixtures import (
    CanvasClient,
    audit_records,
    call_tool,
    expect_refusal,
    make_spec,
    run_inside,
    set_state,
)
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.edges.gateway.action_fixtures import ControlledTools
    from tests.support.gateway import GatewayClient

AGENT = replace(THE_OWNER, name="agent", kind=PrincipalKind.AGENT, user_id=None)


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
async def test_rejected_confirmation_changes_nothing_and_is_closed(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    actions = {"go": call_tool(tools.act, confirm="always", saveAs="x"), "read": call_tool(tools.read)}
    canvas = await CanvasClient.create(action_client, actions, state={"n": 1})
    await canvas.listen()
    count = len(tools.act.calls)
    pending = await canvas.run("go")
    assert (await canvas.confirm(pending, approve=False))["status"] == "refused"
    events = await action_client.events(2)
    assert [event.event for event in events] == ["canvas.action.asked", "canvas.action.refused"]
    assert (await canvas.state(), await canvas.revision(), await canvas.confirmations()) == ({"n": 1}, 1, [])
    for approve in (True, False):
        assert (await expect_refusal(canvas.confirm(pending, approve=approve))).code == 409
    assert len(tools.act.calls) == count
    for wrong in ("", "x", "evt_" + "0" * 26, "../evt", "\x00", "run_" + "0" * 26, "x" * 10_000):
        assert (await expect_refusal(canvas.confirm(wrong))).code == 404
    read = await canvas.run("read")
    assert (await expect_refusal(canvas.confirm(read["eventId"]))).code == 409, "it needed no confirmation"


@rule("CV-22", "RS-13")
async def test_confirmation_above_the_limit_is_refused(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    canvas = await CanvasClient.create(action_client, {"asks": call_tool(tools.act, confirm="always")})
    for _ in range(MAX_CONFIRMATIONS):
        await canvas.run("asks")
    problem = await expect_refusal(canvas.run("asks"))
    assert (problem.code, problem.error["retryable"]) == (429, True)
    assert problem.details["limit"] == MAX_CONFIRMATIONS
    await wait_for(lambda: bool(audit_records(action_easel, "guardrail.refused", canvas.name)))


@rule("RS-59", "CV-22", "CV-41", "CV-45")
async def test_never_of_an_agents_spec_needs_acceptance_of_that_revision(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    services, canvas = action_easel.instances[0].services, CanvasClient(action_client, new_session())
    spec = make_spec({"go": call_tool(tools.act), "patch": set_state("/n", 1, confirm="never")})
    await run_inside(action_easel, services.canvases.create(AGENT, Draft(canvas_id=canvas.name, spec=spec)))
    assert not (await canvas.snapshot())["accepted"]
    assert (await canvas.run("go"))["status"] == "needs_confirmation"
    assert (await canvas.run("patch"))["revision"] == 2, "the state changes after the spec was read"
    accept = partial(action_client.call, "canvas.accept", canvasId=canvas.name)
    for revision in (0, 3):
        problem = await expect_refusal(accept(revision=revision))
        assert (problem.code, problem.details["currentRevision"]) == (409, 2)
    accepted = await accept(revision=1)
    assert (accepted["accepted"], accepted["revision"]) == (True, 3)
    assert (await canvas.run("go"))["status"] == "completed"
    assert (await accept(revision=3))["revision"] == 3, "it was accepted before"
    assert (await expect_refusal(accept())).code == 400
    unknown = action_client.call("canvas.accept", canvasId="none", revision=1)
    assert (await expect_refusal(unknown)).code == 404


@rule("CV-22", "CV-48")
@pytest.mark.parametrize("ending", ["refused", "completed", "failed"])
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
