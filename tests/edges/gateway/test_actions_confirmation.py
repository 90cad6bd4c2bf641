"""Confirmation by a person, on both stores: when it is needed, for what, by whom and for how long.
CV-22, X6
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.principal import PrincipalKind
from easel.errors import Forbidden
from easel.host.actions.request import ActionRequest
from tests.edges.gateway.action_fixtures import (
    CanvasClient,
    audit_records,
    call_tool,
    expect_refusal,
    make_spec,
    run_inside,
    set_state,
)
from tests.edges.gateway.node_peer import NodePeer, new_tool
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient, Refused
from tests.support.principals import THE_OWNER
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.edges.gateway.action_fixtures import ControlledTools

AGENT = replace(THE_OWNER, name="agent", kind=PrincipalKind.AGENT, user_id=None)


# --- levels ---------------------------------------------------------------------------------------

LEVELS = [
    # confirm  tool          needs confirmation
    (None,     "test__Act",  True),
    (None,     "test__Read", False),
    ("always", "test__Read", True),
    ("never",  "test__Act",  False),
]  # fmt: skip


@rule("RS-13", "RS-44", "RS-45", "CV-22")
@pytest.mark.parametrize("confirm, tool, asks", LEVELS)
async def test_confirmation_level_and_tool_decide_whether_a_person_is_asked(
    action_client: GatewayClient, tools: ControlledTools, confirm: str | None, tool: str, asks: bool
) -> None:
    action = {
        "kind": "tool.call",
        "tool": tool,
        "args": {"command": "true"},
        **({"confirm": confirm} if confirm else {}),
    }
    canvas = await CanvasClient.create(action_client, {"go": action})
    used = next(found for found in tools.tools if found.name == tool)
    count = len(used.calls)
    answer = await canvas.run("go")
    assert answer["status"] == ("needs_confirmation" if asks else "completed")
    assert len(used.calls) == count + (not asks)


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


@rule("RS-45", "RS-13", "RS-44", "CV-41")
@case("X4")
async def test_current_tool_definition_decides_at_every_execution(
    action_client: GatewayClient, action_easel: LiveEasel
) -> None:
    """A node reconnects with a different definition of the same tool each time."""
    name = new_session()
    read_only = {"readOnlyHint": True}
    async with NodePeer.connected(action_easel, name, tools=[new_tool("Do", annotations=read_only)]) as node:
        action = {"kind": "tool.call", "tool": f"{name}__Do", "args": {"x": "echo $({{input.v}})"}}
        canvas = await CanvasClient.create(action_client, {"go": action})
        request = asyncio.create_task(canvas.run("go", v="a"))
        assert (await node.echo_next_call())["args"] == {"x": "echo $(a)"}, (
            "plain text, for all that is known"
        )
        assert (await request)["result"] == {"x": "echo $(a)"}
    async with NodePeer.connected(action_easel, name, tools=[new_tool("Do")]):
        assert (await canvas.run("go", v="a"))["status"] == "needs_confirmation"
    shell = {"type": "object", "properties": {"x": {"type": "string", "x-shell": True}}}
    async with NodePeer.connected(action_easel, name, tools=[new_tool("Do", shell, annotations=read_only)]):
        problem = await expect_refusal(canvas.run("go", v="a"))
        assert (problem.code, "actions.go.args.x" in problem.error["message"]) == (400, True)
    async with NodePeer.connected(action_easel, name, tools=[new_tool("Renamed", annotations=read_only)]):
        assert (await expect_refusal(canvas.run("go", v="a"))).code == 503


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


@rule("CV-22")
@case("X6")
async def test_confirmation_is_used_once_by_concurrent_approvals(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    canvas = await CanvasClient.create(
        action_client,
        {
            "go": call_tool(
                tools.act, args={"n": new_session()}, confirm="always", saveAs="x", saveMode="append"
            )
        },
    )
    pending = await canvas.run("go")
    count = len(tools.act.calls)
    answers = await asyncio.gather(*(canvas.confirm(pending) for _ in range(20)), return_exceptions=True)
    assert sorted(answer.code for answer in answers if isinstance(answer, Refused)) == [409] * 19
    assert len(tools.act.calls) == count + 1
    assert len((await canvas.state())["x"]) == 1


@rule("CV-22", "CV-24", "CV-25")
async def test_patch_and_message_can_need_confirmation(
    action_client: GatewayClient, action_easel: LiveEasel
) -> None:
    session = new_session()
    say = {
        "kind": "session.send",
        "message": "about {{state.n}}",
        "sessionKey": f"agent:main:{session}",
        "confirm": "always",
    }
    canvas = await CanvasClient.create(
        action_client, {"patch": set_state("/n", 2, confirm="always"), "say": say}, state={"n": 1}
    )
    patch, message = await canvas.run("patch"), await canvas.run("say")
    assert _without_digest(patch) == {
        "kind": "state.patch",
        "patch": [{"op": "add", "path": "/n", "value": 2}],
        "confirm": "always",
    }
    assert _without_digest(message) == {
        "kind": "session.send",
        "sessionKey": f"agent:main:{session}",
        "message": "about 1",
        "confirm": "always",
    }
    runs = f"select input_text from runs where session_id = '{session}'"
    assert (await canvas.state(), action_easel.sql(runs)) == ({"n": 1}, [])
    assert (await canvas.confirm(patch))["revision"] == 2
    await canvas.confirm(message)
    assert (await canvas.state(), action_easel.sql(runs)) == ({"n": 2}, [{"input_text": "about 1"}])


def _without_digest(pending: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in pending["resolved"].items() if name not in ("salt", "digest")}


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


@rule("RS-45")
async def test_confirmation_stays_open_while_its_tool_is_unavailable(
    action_client: GatewayClient, action_easel: LiveEasel
) -> None:
    name = new_session()
    async with NodePeer.connected(action_easel, name, tools=[new_tool("Do")]):
        canvas = await CanvasClient.create(
            action_client, {"go": call_tool(f"{name}__Do", args={"n": 1}, confirm="always")}
        )
        pending = await canvas.run("go")
    async with NodePeer.connected(action_easel, name, tools=[new_tool("Other")]):
        assert (await expect_refusal(canvas.confirm(pending))).code == 503
    async with NodePeer.connected(action_easel, name, tools=[new_tool("Do")]) as node:
        confirm = asyncio.create_task(canvas.confirm(pending))
        assert (await node.echo_next_call())["args"] == {"n": 1}
        assert (await confirm)["status"] == "completed"


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


@rule("RS-59", "CV-22", "RS-15")
@pytest.mark.parametrize("kind", [PrincipalKind.AGENT])
async def test_only_a_person_may_confirm_or_accept(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel, kind: PrincipalKind
) -> None:
    canvas = await CanvasClient.create(action_client, {"go": call_tool(tools.act, confirm="always")})
    pending = await canvas.run("go")
    principal = replace(THE_OWNER, name="robot", kind=kind, user_id=None)
    services, count = action_easel.instances[0].services, len(tools.act.calls)
    for approve in (True, False):
        with pytest.raises(Forbidden):
            await run_inside(
                action_easel, services.actions.confirm(principal, pending["confirmationId"], approve=approve)
            )
    with pytest.raises(Forbidden):
        await run_inside(action_easel, services.canvases.accept(principal, canvas.name, 1))
    assert len(tools.act.calls) == count

    async def is_audited() -> bool:
        return bool(audit_records(action_easel, "guardrail.refused", pending["confirmationId"]))

    await wait_for(is_audited)
    assert (await canvas.confirm(pending))["status"] == "completed", "a person can still answer"


@rule("RS-59", "CV-41")
async def test_action_started_by_an_agent_is_confirmed_by_a_person(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    canvas = await CanvasClient.create(action_client, {"go": call_tool(tools.act, confirm="auto")})
    request = ActionRequest(canvas_id=canvas.name, action_id="go", input={}, client_id="agent:main:main")
    answer = await run_inside(
        action_easel, action_easel.instances[0].services.actions.execute(AGENT, request)
    )
    [waiting] = await canvas.confirmations()
    assert (waiting["confirmationId"], waiting["actor"]["kind"]) == (answer.event_id, "agent")
    assert (await canvas.confirm(waiting))["status"] == "completed"


async def test_unknown_confirmation_is_not_found(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    canvas = await CanvasClient.create(action_client, {"go": call_tool(tools.read)})
    for wrong in ("", "x", "evt_" + "0" * 26, "../evt", "\x00", "run_" + "0" * 26, "x" * 10_000):
        assert (await expect_refusal(canvas.confirm(wrong))).code == 404
    result = await canvas.run("go")
    assert (await expect_refusal(canvas.confirm(result["eventId"]))).code == 409, "it needed no confirmation"


@rule("CV-22")
async def test_expired_confirmation_is_refused(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    canvas = await CanvasClient.create(action_client, {"go": call_tool(tools.act, confirm="always")})
    pending, count = await canvas.run("go"), len(tools.act.calls)

    async def wait(seconds: int) -> None:
        older = (
            f"created_at - interval '{seconds} seconds'"
            if action_easel.database_url
            else f"created_at - {seconds}000000"
        )
        await asyncio.to_thread(
            action_easel.sql,
            f"update executions set created_at = {older} where event_id = '{pending['confirmationId']}'",
        )

    await wait(850)
    assert len(await canvas.confirmations()) == 1
    await wait(60)
    assert await canvas.confirmations() == []
    problem = await expect_refusal(canvas.confirm(pending))
    assert (problem.code, "expired" in problem.error["message"]) == (409, True)
    assert len(tools.act.calls) == count
