"""Retention of canvas logs, seen by clients: an old cursor is out of range, and the canvas is read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from easel.host.canvases.log_retention import CanvasLogRetention
from tests.edges.gateway.action_fixtures import run_inside
from tests.edges.http.live import new_session
from tests.requirements import rule
from tests.support.gateway import GatewayClient, Refused

if TYPE_CHECKING:
    from tests.edges.http.live import LiveEasel


async def patch_times(client: GatewayClient, canvas: str, times: int) -> int:
    """Patch the canvas several times and return the number of the last event."""
    for n in range(times):
        await client.call(
            "canvas.patch", canvasId=canvas, statePatch=[{"op": "add", "path": "/n", "value": n}]
        )
    return (await client.call("canvas.get", canvasId=canvas))["descriptor"]["lastSeq"]


async def trim_logs(easel: LiveEasel) -> int:
    """Delete every event but the last of each log."""
    return await run_inside(easel, CanvasLogRetention(easel.instances[0].opened.canvases, -1).once())


@rule("RS-34")
async def test_old_cursor_is_refused_and_the_canvas_gives_a_new_one(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    last = await patch_times(client, canvas, 5)
    assert await trim_logs(easel) >= last - 1
    for cursor in (0, 1, last - 2):
        answer = easel.get(f"/sse/canvas/{canvas}", headers={"Last-Event-ID": str(cursor)})
        assert (answer.status_code, answer.json()["error"]["details"]) == (
            410,
            {"cursor": cursor, "oldest": last, "newest": last},
        )
        with pytest.raises(Refused) as problem:
            await client.call("canvas.subscribe", canvasId=canvas, afterSeq=cursor)
        assert problem.value.error["name"] == "CURSOR_OUT_OF_RANGE"
    snapshot = await client.call("canvas.get", canvasId=canvas)
    assert snapshot["state"]["n"] == 4, "the canvas is unchanged"
    await client.call("canvas.subscribe", canvasId=canvas, afterSeq=snapshot["descriptor"]["lastSeq"])
    assert await patch_times(client, canvas, 1) == last + 1
    event = await client.event()
    assert (event.event, event.seq) == ("canvas.updated", last + 1)


async def test_subscription_without_a_cursor_begins_with_the_remaining_events(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    last = await patch_times(client, canvas, 3)
    await trim_logs(easel)
    await client.call("canvas.subscribe", canvasId=canvas)
    assert (await client.event()).seq == last


async def test_subscriber_sees_no_gap_while_the_log_is_trimmed(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    last = await patch_times(client, canvas, 3)
    await client.call("canvas.subscribe", canvasId=canvas, afterSeq=last)
    await trim_logs(easel)
    await patch_times(client, canvas, 3)
    assert [(await client.event()).seq for _ in range(3)] == [last + 1, last + 2, last + 3]


@rule("CV-48")
async def test_records_of_actions_are_kept_when_the_log_is_trimmed(
    client: GatewayClient, easel: LiveEasel
) -> None:
    spec = {
        "version": 1,
        "actions": {"set": {"kind": "state.patch", "patch": [{"op": "add", "path": "/a", "value": 1}]}},
    }
    await client.call("canvas.create", canvasId=(name := new_session()), spec=spec)
    action = await client.call("canvas.action", canvasId=name, actionId="set")
    await trim_logs(easel)
    [record] = (await client.call("canvas.records", canvasId=name))["records"]
    assert (record["eventId"], record["status"]) == (action["eventId"], "completed")
