"""Running actions over the gateway, on both stores: tools, patches, templates, refusals and failures."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.gateway.action_fixtures import (
    CanvasClient,
    audit_records,
    call_tool,
    expect_refusal,
    make_spec,
    set_state,
)
from tests.edges.http.live import LiveEasel, new_session, script
from tests.requirements import case, rule
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.edges.gateway.action_fixtures import ControlledTools
    from tests.support.gateway import GatewayClient


# --- a tool ---------------------------------------------------------------------------------------


@rule("CV-04", "CV-20", "CV-21", "CV-24", "CV-26", "CV-36", "CV-37", "CV-38", "CV-39", "RS-33", "RS-43")
async def test_action_runs_its_tool_without_a_run_and_saves_the_result_in_the_canvas(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    act = call_tool(
        tools.act,
        args={"to": "{{state.who}} {{input.x.y}} {{runtime.now}}", "n": [1, {"deep": "{{input.x.y}}"}]},
        saveAs="out.last",
    )
    canvas = await CanvasClient.create(action_client, {"go": act}, state={"who": "me"})
    await canvas.listen()
    run_count = "select count(*) as n from runs"
    before, runs = int(time.time() * 1000), action_easel.sql(run_count)
    answer = await canvas.run("go", x={"y": "you"})
    after = int(time.time() * 1000)
    assert action_easel.sql(run_count) == runs, "models are called in runs only"
    assert (answer["status"], answer["revision"]) == ("completed", 2)
    sent = tools.act.args[-1]
    assert answer["result"] == sent
    assert (sent["n"], sent["to"].rpartition(" ")[0]) == ([1, {"deep": "you"}], "me you")
    assert before <= int(sent["to"].rpartition(" ")[2]) <= after
    out = (await canvas.state())["out"]["last"]
    assert out == {"ok": True, "result": sent, "finishedAt": out["finishedAt"]}
    assert before <= out["finishedAt"] <= after
    started, updated, finished = await action_client.events(3)
    assert [event.event for event in (started, updated, finished)] == [
        "canvas.action.started",
        "canvas.updated",
        "canvas.action.finished",
    ]
    assert [event.seq for event in (started, updated, finished)] == [2, 3, 4]
    assert [event.payload["revision"] for event in (started, updated, finished)] == [1, 2, 2]
    assert updated.payload["changedPaths"] == ["/out/last"]
    for event in (started, finished):
        assert {
            "canvasId": canvas.name,
            "actionId": "go",
            "eventId": answer["eventId"],
        }.items() <= event.payload.items()
    assert before <= started.payload["startedAt"] <= finished.payload["endedAt"] <= after
    provenance = {"kind": "person", "agent_id": "owner", "node_id": "go", "run_id": answer["eventId"]}
    assert all(event.payload["provenance"] == provenance for event in (started, updated, finished))


@rule("CV-03")
async def test_action_and_agent_call_the_same_tool_in_the_same_way(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    session = new_session()
    steps = [
        {"call": "test__Strict", "args": {"n": 7}},
        {"call": "test__Strict", "args": {"n": "7"}},
        {"call": "gsv__Echo", "args": {"value": 1}},
    ]
    run_id = await asyncio.to_thread(action_easel.finish, script(*steps), session)
    log = await asyncio.to_thread(action_easel.events, run_id)
    good, bad, native = [event.data for event in log if event.type == "tool.result"]
    actions = {
        "good": call_tool(tools.strict, args={"n": 7}),
        "bad": call_tool(tools.strict, args={"n": "7"}),
        "native": call_tool("gsv__Echo", args={"value": 1}),
    }
    canvas = await CanvasClient.create(action_client, actions, ownerSessionKey=f"agent:main:{session}")
    assert (await canvas.run("good"))["result"] == good["result"] == {"n": 7}
    assert (await canvas.run("native"))["result"] == native["result"] == 1
    assert (await expect_refusal(canvas.run("bad"))).error["message"] == bad["error"], (
        "the same schema and the same message"
    )
    (_, by_agent), (_, by_action) = tools.strict.calls[-2:]
    assert by_agent.session_key == by_action.session_key == f"agent:main:{session}"
    listed = {tool["name"]: tool for tool in (await action_client.call("tools.list"))["tools"]}
    assert listed["test__Strict"]["inputSchema"] == tools.strict.definition.schema


# --- refusals and failures ------------------------------------------------------------------------


@rule("CV-08", "CV-36", "CV-40", "CV-41", "CV-45", "CV-48", "RS-15")
@case("X4", "X5")
async def test_refused_action_changes_nothing_and_is_audited(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    canvas, count = CanvasClient(action_client, new_session()), len(tools.act.calls)
    spec = make_spec({"go": call_tool(tools.act), "set": set_state("/n", 1)}, allow=["test__Act2"])
    made = await action_client.call("canvas.create", canvasId=canvas.name, spec=spec)
    assert any("toolPolicy.allow does not list" in warning for warning in made["warnings"])
    for action in ("", "Go", "go ", "test__Act", "__proto__", "constructor", "x" * 100_000):
        assert (await expect_refusal(canvas.run(action))).code == 404
    for name in ("none", "", "../x", "x" * 1_000):
        run = action_client.call("canvas.action", canvasId=name, actionId="set")
        assert (await expect_refusal(run)).code == 404
    problem = await expect_refusal(canvas.run("set", expectedRevision=2))
    assert (problem.code, problem.details["currentRevision"]) == (409, 1)
    problem = await expect_refusal(canvas.run("go"))
    assert (problem.code, "test__Act" in problem.error["message"]) == (403, True)
    assert (await canvas.snapshot())["descriptor"]["lastSeq"] == 1, "no event was logged"
    assert (await canvas.records(), len(tools.act.calls)) == ([], count)

    def refusals() -> list[str]:
        found = audit_records(action_easel, "guardrail.refused", canvas.name)
        return [record["details"]["actionId"] for record in found]

    await wait_for(lambda: "go" in refusals())


@rule("CV-11", "RS-67")
async def test_definition_in_a_request_is_ignored_with_a_warning(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    canvas = await CanvasClient.create(action_client, {"go": call_tool(tools.read)})
    acts, reads = len(tools.act.calls), len(tools.read.calls)
    plain = await canvas.run("go")
    other = call_tool(tools.act)
    members = {"tool": other["tool"], "args": {"to": "x"}, "action": other, "spec": {}, "confirm": "never"}
    result = await action_client.call("canvas.action", canvasId=canvas.name, actionId="go", **members)
    warnings = result.pop("warnings")
    assert all(f"`{member}` was ignored" in str(warnings) for member in members)
    assert (result["status"], set(result)) == (plain["status"], set(plain))
    first, second = tools.read.calls[reads:]
    assert first == second, "the stored definition ran"
    assert len(tools.act.calls) == acts


@rule("CV-42", "CV-48", "RS-45", "RS-15")
@pytest.mark.parametrize(
    "action, code",
    [
        (call_tool("nobody__Tool", saveAs="out"), 503),
        (call_tool("test__Fail", args={"name": "on purpose"}, saveAs="out"), 500),
        (call_tool("test__Fail", args={"name": "cancels itself"}, saveAs="out"), 500),
        (call_tool("test__Strict", args={"n": "no number"}, confirm="always"), 400),
        ({"kind": "state.patch", "patch": [{"op": "remove", "path": "/none"}]}, 400),
        ({"kind": "session.send", "message": "{{state.none}}", "saveAs": "out"}, 400),
    ],
)
async def test_failure_is_logged_recorded_and_returned_again_and_saves_no_result(
    action_client: GatewayClient, tools: ControlledTools, action: dict[str, Any], code: int
) -> None:
    tools.problems["cancels itself"] = asyncio.CancelledError()
    canvas = await CanvasClient.create(action_client, {"go": action}, state={"n": 1})
    await canvas.listen()
    problem, again = [await expect_refusal(canvas.run("go", requestId="r")) for _ in range(2)]
    assert problem.code == again.code == code
    assert (again.error["message"], again.details["eventId"]) == (
        problem.error["message"],
        problem.details["eventId"],
    )
    started, failed = await action_client.events(2)
    assert (started.event, failed.event) == ("canvas.action.started", "canvas.action.failed")
    assert started.payload["eventId"] == failed.payload["eventId"] == problem.details["eventId"]
    assert (failed.payload["error"]["code"], failed.payload["error"]["message"]) == (
        code,
        problem.error["message"],
    )
    assert failed.payload["endedAt"] >= started.payload["startedAt"]
    assert (await canvas.state(), await canvas.revision()) == ({"n": 1}, 1)
    [record] = await canvas.records()
    assert (record["status"], record["error"]["message"]) == ("failed", problem.error["message"])
    assert action_client.unheard == 0


@rule("CV-36", "CV-22")
async def test_actions_over_http_behave_the_same(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    slow = call_tool(tools.hold, args={"name": new_session()}, timeoutMs=20)
    actions = {
        "go": call_tool(tools.read, saveAs="x"),
        "ask": call_tool(tools.act, confirm="always"),
        "slow": slow,
        "gone": call_tool("nobody__Tool"),
    }
    canvas = await CanvasClient.create(
        action_client,
        actions | {"deny": call_tool("test__Strict")},
        allow=[*(action["tool"] for action in actions.values())],
    )

    async def rpc(method: str, **params: Any) -> tuple[int, Any]:
        answer = await asyncio.to_thread(action_easel.post, "/api/rpc", {"method": method, "params": params})
        return answer.status_code, answer.json()

    status, done = await rpc("canvas.action", canvasId=canvas.name, actionId="go", requestId="r")
    assert (status, done) == (200, await canvas.run("go", requestId="r"))
    assert (await canvas.records())[0]["actor"]["clientId"] == "http"
    status, pending = await rpc("canvas.action", canvasId=canvas.name, actionId="ask")
    assert (status, pending["status"]) == (200, "needs_confirmation")
    assert (await rpc("canvas.confirm", confirmationId=pending["confirmationId"], approve=True))[1][
        "status"
    ] == "completed"
    for action, code, details in (
        ("none", 404, "id"),
        ("deny", 403, None),
        ("slow", 504, "eventId"),
        ("gone", 503, "eventId"),
    ):
        status, payload = await rpc("canvas.action", canvasId=canvas.name, actionId=action)
        assert (
            status,
            payload["error"]["code"],
            details is None or details in payload["error"]["details"],
        ) == (
            code,
            code,
            True,
        )
    status, payload = await rpc("canvas.action", canvasId=canvas.name, actionId="go", expectedRevision=1)
    assert (status, payload["error"]["details"]["currentRevision"]) == (409, 2)
