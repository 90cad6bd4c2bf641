"""Templates that refer to offloaded values: a tool gets the value itself, never its marker, on both
stores.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from tests.edges.gateway.action_fixtures import CanvasClient, call_tool
from tests.requirements import rule

if TYPE_CHECKING:
    from tests.edges.gateway.action_fixtures import ControlledTools
    from tests.support.gateway import GatewayClient

PIXELS = base64.b64encode(bytes(n * 31 % 251 for n in range(6_000))).decode()
OTHERS = base64.b64encode(bytes(n * 37 % 241 for n in range(6_000))).decode()


def is_marker(value: Any) -> bool:
    return isinstance(value, dict) and value.get("redacted") is True


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


@rule("CV-26", "CV-21")
async def test_offloaded_result_of_one_action_is_complete_in_the_next(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    tools.gives["shot"] = PIXELS
    actions = {
        "take": call_tool(tools.give, args={"name": "shot"}, saveAs="shot"),
        "send": call_tool(tools.act, args={"bytes": "{{state.shot.result}}"}, confirm="always"),
    }
    canvas = await CanvasClient.create(action_client, actions)
    await canvas.run("take")
    pending = await canvas.run("send")
    assert pending["resolved"]["args"] == {"bytes": PIXELS}
    await canvas.patch("/shot/result", "changed after the confirmation was asked for")
    await canvas.confirm(pending)
    assert tools.act.args[-1] == {"bytes": PIXELS}, "the confirmed value runs"
