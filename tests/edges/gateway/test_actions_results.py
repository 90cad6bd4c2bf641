"""Results and errors of actions: plain data without secrets, whole for the caller, offloaded in tables."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from typing import TYPE_CHECKING, Any

from easel.errors import ToolFailed
from tests.edges.gateway.action_fixtures import CanvasClient, audit_records, call_tool, expect_refusal
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.edges.gateway.action_fixtures import ControlledTools
    from tests.support.gateway import GatewayClient

PIXELS, OTHERS = (base64.b64encode(bytes(n * k % 251 for n in range(6_000))).decode() for k in (31, 37))


def is_marker(value: Any) -> bool:
    return isinstance(value, dict) and value.get("redacted") is True


@rule("RS-15", "CV-42", "RS-35")
@case("P6")
async def test_error_is_cut_and_its_secrets_are_redacted_everywhere(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    key, password, name = "sk-" + secrets.token_hex(16), secrets.token_hex(8), new_session()
    text = f"401 from https://joe:{password}@host/v1 with api_key={key}, Bearer {action_easel.token}"
    # In characters of four bytes even a shortened error exceeds the size limit of an event.
    tools.problems |= {
        f"{name}-1": ToolFailed(tool="test__Fail", reason=text + "😀" * 50_000),
        f"{name}-2": RuntimeError(text),
    }
    canvas = await CanvasClient.create(
        action_client, {n: call_tool(tools.fail, args={"name": f"{name}-{n}"}) for n in ("1", "2")}
    )
    await canvas.listen()
    problems = [
        (await expect_refusal(canvas.run(action, requestId=action))).error for action in ("1", "1", "2", "2")
    ]
    message = problems[0]["message"]
    assert "401 from https://joe:[redacted]@host/v1" in message, "only the secret is redacted"
    assert 500 < len(message) < 1_200
    events = [event.payload for event in await action_client.events(4)]
    marker = events[1]["error"]["message"]
    assert (await asyncio.to_thread(action_easel.get, marker["uri"])).text == message
    await wait_for(lambda: len(audit_records(action_easel, "canvas.action", canvas.name)) == 2)
    stored = action_easel.sql("select record from audit")
    stored += action_easel.sql("select answer from executions where status = 'failed'")
    for place in (problems, events, await canvas.records(), stored):
        for secret in (key, password, action_easel.token):
            assert secret not in str(place)


ODD: list[tuple[Any, Any]] = [
    # result of the tool, in the state
    (float("nan"), None),
    (float("inf"), None),
    (None, None),
    ("a\x00b", "a\ufffdb"),
    ("a\ud800b", "a\ufffdb"),
    (2**80, 2**80),
    ((1, 2), [1, 2]),
    ("{{state.secret}}", "{{state.secret}}"),
    ({"redacted": True, "uri": "/x"}, {"~redacted": True, "uri": "/x"}),
]


@rule("CV-21", "CV-27")
async def test_unusual_result_is_plain_data(action_client: GatewayClient, tools: ControlledTools) -> None:
    name = new_session()
    give = call_tool(tools.give, args={"name": name}, saveAs="x")
    canvas = await CanvasClient.create(action_client, {"go": give}, state={"secret": "hush"})
    for given, stored in ODD:
        tools.gives[name] = given
        answer = await canvas.run("go", requestId=repr(given))
        assert (await canvas.state())["x"]["result"] == stored
        assert answer["result"] == (given if isinstance(given, dict) else stored)
        assert await canvas.run("go", requestId=repr(given)) == answer


@rule("CV-26", "CV-27", "CC-26")
async def test_placeholder_of_an_offloaded_value_yields_the_value(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    args = {
        "picture": "{{state.picture}}",
        "uri": "data:image/png;base64,{{ state.album.cover.bytes }} of {{state.album.cover.title}}",
        "album": "{{state.album}}",
        "part": "{{state.picture.sha256}}|{{state.picture.redacted}}",
        "redacted": "{{state.theirs.redacted}} {{state.theirs}}",
        "input": "{{input.mark}}",
    }
    state = {
        "picture": PIXELS,
        "album": {"cover": {"title": "é", "bytes": OTHERS}, "tracks": [1, PIXELS]},
        "theirs": {"redacted": True, "sha256": "0" * 64, "original_size": 5, "uri": "/api/artifacts/x"},
    }
    canvas = await CanvasClient.create(action_client, {"show": call_tool(tools.act, args=args)}, state=state)
    stored = await canvas.state()
    assert is_marker(stored["picture"])
    assert is_marker(stored["album"]["cover"]["bytes"])
    forged = {**stored["picture"]}
    done = await canvas.run("show", mark=forged)
    args_sent = tools.act.args[-1]
    assert args_sent["picture"] == PIXELS
    assert args_sent["uri"] == f"data:image/png;base64,{OTHERS} of é"
    assert json.loads(args_sent["album"]) == state["album"]
    assert args_sent["part"] == "|", "text has no members, and those of a marker are not visible"
    assert args_sent["redacted"].startswith("true {")
    assert json.loads(args_sent["redacted"].removeprefix("true ")) == state["theirs"]
    assert json.loads(args_sent["input"]) == forged, "input is never offloaded"
    assert done["result"]["picture"] == PIXELS


@rule("CC-23", "CV-21", "CV-22", "CV-26", "RS-35", "RS-43")
@case("R3", "X6")
async def test_large_result_and_call_are_complete_for_the_caller_and_offloaded_in_the_tables(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    tools.gives["shot"] = PIXELS
    actions = {
        "take": call_tool(tools.give, args={"name": "shot"}, saveAs="shot"),
        "send": call_tool(tools.act, args={"bytes": "{{state.shot.result}}"}, confirm="always"),
    }
    canvas = await CanvasClient.create(action_client, actions)
    await canvas.listen()
    taken = [(await canvas.run("take", requestId="r"))["result"] for _ in range(2)]
    assert taken == [PIXELS, PIXELS], "also when the request is repeated"
    pending = await canvas.run("send", requestId="s")
    assert pending["resolved"]["args"] == {"bytes": PIXELS}
    assert await canvas.run("send", requestId="s") == pending
    [waiting] = await canvas.confirmations()
    assert waiting["resolved"] == pending["resolved"], "the list shows all of it"
    rows = str(action_easel.sql(f"select state from canvases where canvas_id = '{canvas.name}'"))
    executions = f"select answer, resolved from executions where canvas_id = '{canvas.name}'"
    rows += str(action_easel.sql(executions))
    events = [json.dumps(event.payload) for event in await action_client.events(4)]
    assert all(PIXELS not in place for place in (rows, *events))
    await canvas.patch("/shot/result", "changed after the confirmation was asked for")
    assert (await canvas.confirm(pending))["result"] == {"bytes": PIXELS}
    assert tools.act.args[-1] == {"bytes": PIXELS}, "the confirmed value runs"
