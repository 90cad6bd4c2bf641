"""Retention of canvases' logs, as clients meet it: an old cursor is told that it is gone, and the canvas is read anew."""

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


async def changed(client: GatewayClient, canvas: str, times: int) -> int:
    """The last event's number after so many changes."""
    for n in range(times):
        await client.call(
            "canvas.patch", canvasId=canvas, statePatch=[{"op": "add", "path": "/n", "value": n}]
        )
    return (await client.call("canvas.get", canvasId=canvas))["descriptor"]["lastSeq"]


async def shorten(easel: LiveEasel) -> int:
    """What retention does to every event but the last of each log."""
    return await run_inside(easel, CanvasLogRetention(easel.instances[0].opened.canvases, -1).once())


@rule("RS-34")
async def test_an_old_cursor_is_gone_and_whoever_reads_the_canvas_goes_on_from_there(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    last = await changed(client, canvas, 5)
    assert await shorten(easel) >= last - 1
    for cursor in (0, 1, last - 2):
        answer = easel.get(f"/sse/canvas/{canvas}", headers={"Last-Event-ID": str(cursor)})
        assert (answer.status_code, answer.json()["error"]["details"]) == (
            410,
            {"cursor": cursor, "oldest": last, "newest": last},
        )
        with pytest.raises(Refused) as gone:
            await client.call("canvas.subscribe", canvasId=canvas, afterSeq=cursor)
        assert gone.value.error["name"] == "CURSOR_OUT_OF_RANGE"
    snapshot = await client.call("canvas.get", canvasId=canvas)
    assert snapshot["state"]["n"] == 4, "the canvas itself has lost nothing"
    await client.call("canvas.subscribe", canvasId=canvas, afterSeq=snapshot["descriptor"]["lastSeq"])
    assert await changed(client, canvas, 1) == last + 1
    heard = await client.event()
    assert (heard.event, heard.seq) == ("canvas.updated", last + 1)


async def test_who_names_no_cursor_gets_what_there_is(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    last = await changed(client, canvas, 3)
    await shorten(easel)
    await client.call("canvas.subscribe", canvasId=canvas)
    assert (await client.event()).seq == last


async def test_who_watches_while_a_log_is_shortened_sees_no_gap(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    last = await changed(client, canvas, 3)
    await client.call("canvas.subscribe", canvasId=canvas, afterSeq=last)
    await shorten(easel)
    await changed(client, canvas, 3)
    assert [(await client.event()).seq for _ in range(3)] == [last + 1, last + 2, last + 3]


@rule("CV-48")
async def test_records_of_actions_stay_when_the_log_that_told_of_them_is_shortened(
    client: GatewayClient, easel: LiveEasel
) -> None:
    spec = {
        "version": 1,
        "actions": {"set": {"kind": "state.patch", "patch": [{"op": "add", "path": "/a", "value": 1}]}},
    }
    await client.call("canvas.create", canvasId=(name := new_session()), spec=spec)
    done = await client.call("canvas.action", canvasId=name, actionId="set")
    await shorten(easel)
    [record] = (await client.call("canvas.records", canvasId=name))["records"]
    assert (record["eventId"], record["status"]) == (done["eventId"], "completed")
