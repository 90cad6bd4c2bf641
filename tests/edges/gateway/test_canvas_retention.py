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
    async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as late:
        await trim_logs(easel)
        await late.call("canvas.subscribe", canvasId=canvas)
        assert (await late.event()).seq == last + 1, "without a cursor: the remaining events"
