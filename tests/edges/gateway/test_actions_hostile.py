"""Hostile values, names, places and results of actions: nothing is evaluated, nothing leaks, limits hold."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from easel.errors import ToolFailed
from tests.core.shell.hostile import corpus, shell_folder
from tests.edges.gateway.action_fixtures import (
    CanvasClient,
    audit_records,
    call_tool,
    expect_refusal,
    make_spec,
    set_state,
)
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient, Refused
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.edges.gateway.action_fixtures import ControlledTools

VALUES = corpus()[::4]
HOSTILE = [value for value in VALUES if "PWN" in value]
AT_ONCE = 16


# --- shell values ---------------------------------------------------------------------------------


@rule("RS-71", "RS-44", "CV-27")
@case("X1", "X2")
async def test_hostile_values_reach_the_program_unchanged_as_text_and_are_refused_otherwise(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    place = shell_folder(tools.folder)
    args = {"command": "./deploy '{{input.x}}'"}
    actions = {
        "any": call_tool(tools.bash, args=args, text=["input.x"], allowOptions=["input.x"]),
        "plain": call_tool(tools.bash, args=args),
    }
    canvas = await CanvasClient.create(action_client, actions)
    slots = asyncio.Semaphore(AT_ONCE)

    async def run(action: str, value: str) -> list[str] | int:
        async with slots:
            try:
                return (await canvas.run(action, x=value))["result"]["arguments"]
            except Refused as problem:
                return problem.code

    received = await asyncio.gather(*(run("any", value) for value in VALUES))
    assert received == [[value] for value in VALUES], "no value is changed or refused"
    plain = await asyncio.gather(*(run("plain", value) for value in HOSTILE))
    assert plain == [400] * len(HOSTILE)
    assert not place.is_breached, "no value was executed"


# --- tool names -----------------------------------------------------------------------------------


@rule("CV-40", "CV-41", "CV-11")
@case("X4", "X5")
async def test_allowlist_cannot_be_bypassed(action_client: GatewayClient, tools: ControlledTools) -> None:
    nested = {"action": "upsert", "canvasId": "inner", "spec": make_spec({"go": call_tool(tools.act)})}
    canvas = await CanvasClient.create(
        action_client,
        {"nest": call_tool("gsv__Canvas", args=nested), "go": call_tool(tools.act)},
        allow=["test__Read"],
    )
    count = len(tools.act.calls)
    for action in ("nest", "go"):
        assert (await expect_refusal(canvas.run(action))).code == 403
    for method in (
        "tool.call",
        "tool.request",
        "tools.call",
        "test__Act",
        "canvas.action ",
        "Canvas.action",
    ):
        assert (
            await expect_refusal(
                action_client.call(method, canvasId=canvas.name, actionId="go", tool="test__Act", args={})
            )
        ).code == 404
    for action in ("test__Act", "tool.call", "toString", "__proto__", "constructor", "hasOwnProperty"):
        assert (await expect_refusal(canvas.run(action))).code == 404
    assert len(tools.act.calls) == count


# --- results --------------------------------------------------------------------------------------


@rule("RS-15", "CV-42")
@case("P6")
async def test_secrets_in_errors_are_redacted_everywhere(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    key, password = "sk-" + secrets.token_hex(16), secrets.token_hex(8)
    name = new_session()
    text = f"401 from https://joe:{password}@host/v1 with api_key={key}, Bearer {action_easel.token}"
    tools.problems |= {
        f"{name}-1": ToolFailed(tool="test__Fail", reason=text),
        f"{name}-2": RuntimeError(text),
    }
    canvas = await CanvasClient.create(
        action_client, {n: call_tool(tools.fail, args={"name": f"{name}-{n}"}) for n in ("1", "2")}
    )
    await canvas.listen()
    texts: list[str] = []
    for action in ("1", "2"):
        problem = await expect_refusal(canvas.run(action, requestId=action))
        again = await expect_refusal(canvas.run(action, requestId=action))
        texts += [json.dumps([problem.error, again.error])]
    assert "401 from https://joe:[redacted]@host/v1" in texts[0], "only the secret is redacted"
    texts += [
        json.dumps([event.payload for event in await action_client.events(4)]),
        json.dumps(await canvas.records()),
    ]

    async def is_audited() -> bool:
        return len(audit_records(action_easel, "canvas.action", canvas.name)) == 2

    await wait_for(is_audited)
    texts += [json.dumps([dict(row) for row in action_easel.sql("select record from audit")])]
    texts += [str(action_easel.sql("select answer from executions where status = 'failed'"))]
    for place in texts:
        for secret in (key, password, action_easel.token):
            assert secret not in place


@rule("CV-42", "RS-35")
async def test_long_error_is_cut_and_its_offloaded_values_exist(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    """In characters of four bytes even a shortened error exceeds the size limit of an event."""
    name = new_session()
    tools.problems[name] = ToolFailed(tool="test__Fail", reason="😀" * 50_000)
    path = ".".join(["語" * 128] * 7)
    canvas = await CanvasClient.create(
        action_client,
        {"go": call_tool(tools.fail, args={"name": name}), "far": call_tool(tools.read, saveAs=path)},
    )
    await canvas.listen()
    problem = await expect_refusal(canvas.run("go"))
    assert 500 < len(problem.error["message"]) < 1_200
    failed = (await action_client.events(2))[1].payload
    marker = failed["error"]["message"]
    assert (await asyncio.to_thread(action_easel.get, marker["uri"])).text == problem.error["message"]
    await canvas.run("far")
    finished = (await action_client.events(3))[2].payload
    assert (await asyncio.to_thread(action_easel.get, finished["saveAs"]["uri"])).text == path


LARGE = {
    "base64": lambda: {"data": base64.b64encode(secrets.token_bytes(6_000)).decode(), "n": 1},
    "text": lambda: {"data": "plain words, again and again. " * 400, "n": 1},
}


@rule("RS-35", "CC-23", "CV-21", "RS-43")
@case("R3")
@pytest.mark.parametrize("kind", LARGE)
async def test_large_result_is_complete_in_the_reply_and_offloaded_in_the_tables(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel, kind: str
) -> None:
    name, result = new_session(), LARGE[kind]()
    tools.gives[name] = result
    give = {"args": {"name": name}}
    canvas = await CanvasClient.create(
        action_client,
        {"save": call_tool(tools.give, saveAs="x", **give), "only": call_tool(tools.give, **give)},
    )
    await canvas.listen()
    for action in ("save", "only"):
        assert (await canvas.run(action, requestId=action))["result"] == result
        assert (await canvas.run(action, requestId=action))["result"] == result, (
            "also when the request is repeated"
        )
    saved = (await canvas.state())["x"]
    assert set(saved) == {"ok", "result", "finishedAt"}
    for event in await action_client.events(5):
        data = {key: value for key, value in event.payload.items() if key not in ("visibility", "provenance")}
        assert len(json.dumps(data, separators=(",", ":"))) <= 2_048
    rows = str(action_easel.sql(f"select state from canvases where canvas_id = '{canvas.name}'"))
    rows += str(
        action_easel.sql(f"select answer, resolved from executions where canvas_id = '{canvas.name}'")
    )
    pieces = (
        [result["data"]]
        if isinstance(result, dict) and "data" in result
        else list(result.values() if isinstance(result, dict) else result)
    )
    assert all((piece in rows) is (kind == "text") for piece in pieces)


ODD: list[tuple[str, Any, Any]] = [
    # case                  result of the tool      in the state
    ("not a number",        float("nan"),           None),
    ("infinity",            float("inf"),           None),
    ("nothing",             None,                   None),
    ("a NUL",               "a\x00b",               "a\ufffdb"),
    ("half a pair",         "a\ud800b",            "a\ufffdb"),
    ("a large number",      2**80,                  2**80),
    ("a tuple",             (1, 2),                 [1, 2]),
    ("braces",              "{{state.secret}}",     "{{state.secret}}"),
    ("a marker",            {"redacted": True, "uri": "/x"}, {"~redacted": True, "uri": "/x"}),
]  # fmt: skip


@rule("CV-21", "CV-27")
@pytest.mark.parametrize("gives, has", [row[1:] for row in ODD], ids=[row[0] for row in ODD])
async def test_unusual_result_is_plain_data(
    action_client: GatewayClient, tools: ControlledTools, gives: Any, has: Any
) -> None:
    name = new_session()
    tools.gives[name] = gives
    give = {"args": {"name": name}}
    canvas = await CanvasClient.create(
        action_client,
        {"go": call_tool(tools.give, saveAs="x", **give), "only": call_tool(tools.give, **give)},
        state={"secret": "hush"},
    )
    answer = await canvas.run("go")
    assert (await canvas.state())["x"]["result"] == has
    expected = gives if isinstance(gives, dict) else has
    assert (
        answer["result"]
        == (await canvas.run("only", requestId="r"))["result"]
        == (await canvas.run("only", requestId="r"))["result"]
        == expected
    )


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@rule("CV-42")
@case("X8")
@pytest.mark.parametrize(
    "gives", ["x" * 300_000, deep(150), deep(97)], ids=["too large", "too deep", "too deep where it goes"]
)
async def test_result_above_a_limit_fails_its_action(
    action_client: GatewayClient, tools: ControlledTools, gives: Any
) -> None:
    name = new_session()
    tools.gives[name] = gives
    canvas = await CanvasClient.create(
        action_client,
        {"go": call_tool(tools.give, args={"name": name}, saveAs="a.b.c.d"), "set": set_state("/n", 1)},
    )
    problem = await expect_refusal(canvas.run("go"))
    assert problem.code in (400, 413, 500)
    assert problem.error["name"] != "INTERNAL_ERROR"
    assert (await canvas.state(), (await canvas.records())[0]["status"]) == ({}, "failed")
    assert (await canvas.run("set"))["revision"] == 2
