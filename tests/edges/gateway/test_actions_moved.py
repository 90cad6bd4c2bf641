"""Templates that name what is too heavy for a table: a tool gets the value itself, and never the marker that stands for it, on either store."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from tests.edges.gateway.action_fixtures import CanvasClient, call_tool, expect_refusal
from tests.edges.http.live import LiveEasel as Live
from tests.requirements import rule
from tests.support.gateway import GatewayClient

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.gateway.action_fixtures import ControlledTools
    from tests.edges.http.live import LiveEasel

PIXELS = base64.b64encode(bytes(n * 31 % 251 for n in range(6_000))).decode()
OTHERS = base64.b64encode(bytes(n * 37 % 241 for n in range(6_000))).decode()


def is_marker(value: Any) -> bool:
    return isinstance(value, dict) and value.get("redacted") is True


@rule("CV-26", "CV-27", "CC-26")
async def test_a_placeholder_yields_the_value_that_was_moved(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    args = {
        "picture": "{{state.picture}}",
        "uri": "data:image/png;base64,{{ state.album.cover.bytes }} of {{state.album.cover.title}}",
        "album": "{{state.album}}",
        "run_inside": "{{state.picture.sha256}}|{{state.picture.redacted}}",
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
    told = tools.act.args[-1]
    assert told["picture"] == PIXELS
    assert told["uri"] == f"data:image/png;base64,{OTHERS} of é"
    assert json.loads(told["album"]) == state["album"]
    assert told["run_inside"] == "|", "text has no parts, and a marker's are nobody's business"
    assert told["redacted"].startswith("true {")
    assert json.loads(told["redacted"].removeprefix("true ")) == state["theirs"]
    assert json.loads(told["input"]) == forged, "what comes as input was never moved"
    assert done["result"]["picture"] == PIXELS


@rule("CV-26", "CV-21")
async def test_what_one_action_saved_the_next_one_is_given_whole(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    tools.gives["shot"] = PIXELS
    actions = {
        "take": call_tool(tools.give, args={"name": "shot"}, saveAs="shot"),
        "send": call_tool(tools.act, args={"bytes": "{{state.shot.result}}"}, confirm="always"),
    }
    canvas = await CanvasClient.create(action_client, actions)
    await canvas.run("take")
    asked = await canvas.run("send")
    assert asked["resolved"]["args"] == {"bytes": PIXELS}, "a person is shown what will run"
    await canvas.patch("/shot/result", "another meanwhile")
    await canvas.confirm(asked)
    assert tools.act.args[-1] == {"bytes": PIXELS}, "and exactly that runs"


async def test_a_member_that_is_called_redacted_is_no_marker(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    """Set by a patch, member by member, it is as it was written."""
    canvas = await CanvasClient.create(
        action_client,
        {"show": call_tool(tools.act, args={"doc": "{{state.doc}}"})},
        state={"doc": {"title": "T"}},
    )
    await canvas.patch("/doc/redacted", value=True)
    await canvas.patch("/doc/sha256", value=5)
    await canvas.run("show")
    assert json.loads(tools.act.args[-1]["doc"]) == {"title": "T", "redacted": True, "sha256": 5}


async def test_more_than_an_action_may_be_filled_with_is_refused_by_its_path_before_it_is_fetched(
    tmp_path: Path, tools: ControlledTools
) -> None:
    large = base64.b64encode(bytes(n * 31 % 251 for n in range(251)) * 1_500).decode()
    settings = {"max_state_bytes": 8_000_000, "poll_seconds": 0.1}
    with Live(tmp_path, with_worker=False, settings=settings, tools=tools.tools) as easel:
        _write(easel, large)
        for blob in (tmp_path / "blobs").rglob("*"):
            if blob.is_file():
                blob.unlink()  # whoever reads one is told that it is damaged
        async with GatewayClient.connected(easel.base_url, easel.token, "action_client") as client:
            canvas = CanvasClient(client, "c")
            problem = await expect_refusal(canvas.run("show"))
            assert (problem.code, problem.error["name"]) == (413, "TOO_LARGE")
            assert "{{state.pages}}" in problem.error["message"]
            [record] = await canvas.records()
            assert (record["status"], record["error"]["name"]) == ("failed", "TOO_LARGE")
            assert (await expect_refusal(canvas.run("one"))).error["name"] in ("CORRUPT_DATA", "NOT_FOUND")


def _write(easel: LiveEasel, large: str) -> None:
    actions = {
        name: {"kind": "tool.call", "tool": "test__Act", "args": {"a": text}} for name, text in ACTS.items()
    }
    spec = {"version": 1, "toolPolicy": {"allow": ["test__Act"]}, "actions": actions}
    state = {"pages": [large, large[4:]], "one": large[8:]}
    answer = easel.post(
        "/api/rpc", {"method": "canvas.create", "params": {"canvasId": "c", "spec": spec, "state": state}}
    )
    assert answer.status_code == 200, answer.text


ACTS = {"show": "{{state.pages}}", "one": "{{state.one}}"}
