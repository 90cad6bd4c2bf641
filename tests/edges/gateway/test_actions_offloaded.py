"""Templates that refer to offloaded values: a tool gets the value itself, never its marker, on both
stores.
"""

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


@rule("RS-66", "CC-26")
async def test_reference_to_an_offloaded_value_gives_and_copies_the_value(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    constant = {"redacted": True, "~redacted": 1}
    album = {"cover": {"bytes": OTHERS}, "tracks": [1, PIXELS, None], **constant}
    args = {"album": {"$value": "state.album"}, "n": {"$value": "input.n"}, "constant": constant}
    copies = [
        {"op": "add", "path": "/copy", "value": {"album": {"$value": "state.album"}, "constant": constant}},
        {"op": "add", "path": "/sent", "value": {"$value": "input.bytes"}},
    ]
    actions = {
        "show": call_tool(tools.act, args=args),
        "copy": {"kind": "state.patch", "patch": copies, "confirm": "always"},
        "again": call_tool(
            tools.act, args={"copy": {"$value": "state.copy"}, "sent": {"$value": "state.sent"}}
        ),
    }
    canvas = await CanvasClient.create(action_client, actions, state={"album": album})
    await canvas.run("show", n=1.5)
    assert tools.act.args[-1] == {"album": album, "n": 1.5, "constant": constant}
    pending = await canvas.run("copy", bytes=PIXELS)
    assert [operation["value"] for operation in pending["resolved"]["patch"]] == [
        {"album": album, "constant": constant},
        PIXELS,
    ]
    await canvas.patch("/album", "changed after the confirmation was asked for")
    await canvas.confirm(pending)
    stored = await canvas.state()
    assert is_marker(stored["sent"])
    assert is_marker(stored["copy"]["album"]["cover"]["bytes"])
    await canvas.run("again")
    assert tools.act.args[-1] == {"copy": {"album": album, "constant": constant}, "sent": PIXELS}
    missing = await expect_refusal(canvas.run("show"))
    assert (missing.code, "input.n" in missing.error["message"]) == (400, True)


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


async def test_member_named_redacted_is_not_a_marker(
    action_client: GatewayClient, tools: ControlledTools
) -> None:
    """A patch sets it member by member."""
    canvas = await CanvasClient.create(
        action_client,
        {"show": call_tool(tools.act, args={"doc": "{{state.doc}}"})},
        state={"doc": {"title": "T"}},
    )
    await canvas.patch("/doc/redacted", value=True)
    await canvas.patch("/doc/sha256", value=5)
    await canvas.run("show")
    assert json.loads(tools.act.args[-1]["doc"]) == {"title": "T", "redacted": True, "sha256": 5}


async def test_too_large_placeholder_is_refused_before_its_value_is_fetched(
    tmp_path: Path, tools: ControlledTools
) -> None:
    large = base64.b64encode(bytes(n * 31 % 251 for n in range(251)) * 1_500).decode()
    settings = {"max_state_bytes": 8_000_000, "poll_seconds": 0.1}
    with Live(tmp_path, with_worker=False, settings=settings, tools=tools.tools) as easel:
        _write(easel, large)
        for blob in (tmp_path / "blobs").rglob("*"):
            if blob.is_file():
                blob.unlink()  # reading one would fail
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
