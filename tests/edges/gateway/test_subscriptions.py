"""Subscriptions to the log of a canvas over `/ws`, with replay, and views."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from easel.edges.gateway import connection
from easel.edges.gateway.frames import ENDED
from easel.edges.socket import Socket
from tests.edges.gateway.canvas_calls import add
from tests.edges.http.canvas_calls import add_snapshot, png, read_stream
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import rule
from tests.support.gateway import GatewayClient, Refused
from tests.support.waiting import wait_for

# --- subscriptions ------------------------------------------------------------------------------------------


@rule("CV-01", "CV-37", "CV-38", "CV-46")
async def test_subscriber_receives_past_and_new_events_with_their_seq(
    client: GatewayClient, canvas: str
) -> None:
    """Regression: GSV had no subscription per canvas, no `seq` and no replay."""
    await client.call("canvas.patch", canvasId=canvas, statePatch=[add("a", 1)])
    assert await client.call("canvas.subscribe", canvasId=canvas) == {"canvasId": canvas, "subscribed": True}
    created, updated = await client.events(2)
    assert (created.event, created.seq, created.payload["revision"]) == ("canvas.created", 1, 1)
    assert (updated.event, updated.seq) == ("canvas.updated", 2)
    assert updated.payload["canvasId"] == canvas
    assert (updated.payload["revision"], updated.payload["changedPaths"]) == (2, ["/a"])
    await client.call("canvas.patch", canvasId=canvas, statePatch=[add("b", 1)], title="New")
    live = await client.event()
    assert (live.seq, live.payload["revision"], live.payload["changedPaths"]) == (3, 3, ["$title", "/b"])


@rule("CV-46")
async def test_subscription_from_the_seq_of_a_snapshot_has_no_gap(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    async def write() -> None:
        for n in range(30):
            await client.call("canvas.patch", canvasId=canvas, statePatch=[add(f"k{n}", n)])

    async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as reader:
        writing = asyncio.create_task(write())
        snapshot = await reader.call("canvas.get", canvasId=canvas)
        await reader.call("canvas.subscribe", canvasId=canvas, afterSeq=snapshot["descriptor"]["lastSeq"])
        revision = snapshot["revision"]
        while revision < 31:
            event = await reader.event()
            assert event.payload["revision"] == revision + 1, "no revision is missing"
            revision += 1
        await writing
        assert len(snapshot["state"]) == snapshot["revision"], "state and revision were read together"


@rule("CV-01", "RS-07")
async def test_events_are_sent_only_to_subscribers(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as other:
        subscribed = new_session()
        await other.call("canvas.create", canvasId=subscribed)
        await other.call("canvas.subscribe", canvasId=subscribed, afterSeq=1)
        await client.call("canvas.patch", canvasId=canvas, statePatch=[add("a", 1)])
        await client.call("canvas.patch", canvasId=subscribed, statePatch=[add("b", 2)])
        assert (await other.event()).payload["canvasId"] == subscribed, "no event of the other canvas"
        assert (client.unheard, other.unheard) == (0, 0)


@rule("RS-08", "CC-07")
async def test_gateway_and_sse_send_the_same_events(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    await client.call("canvas.patch", canvasId=canvas, statePatch=[add("a", 1)])
    assert easel.post("/api/rpc", {"method": "canvas.open", "params": {"canvasId": canvas}}).is_success
    assert add_snapshot(easel, canvas, png(3)).status_code == 201
    await client.call("canvas.subscribe", canvasId=canvas)
    events = await client.events(4)
    frames = read_stream(easel, canvas, 4)
    assert [(event.event, str(event.seq)) for event in events] == [
        (frame["event"], frame["id"]) for frame in frames
    ]
    assert [event.event for event in events] == [
        "canvas.created",
        "canvas.updated",
        "canvas.view.updated",
        "canvas.snapshot",
    ]
    assert [event.payload for event in events] == [json.loads(frame["data"])["data"] for frame in frames]
    assert all({"canvasId", "revision"} <= set(event.payload) for event in events)


async def test_subscription_receives_writes_of_another_instance(two_edges: LiveEasel) -> None:
    here, there = (instance.base_url for instance in two_edges.instances)
    name = new_session()
    async with (
        GatewayClient.connected(here, two_edges.token) as first,
        GatewayClient.connected(there, two_edges.token) as second,
    ):
        await first.call("canvas.create", canvasId=name)
        await second.call("canvas.subscribe", canvasId=name, afterSeq=1)
        for n in range(5):
            await first.call("canvas.patch", canvasId=name, statePatch=[add("n", n)])
        assert [event.seq for event in await second.events(5)] == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "params, code",
    [
        ({"afterSeq": 99}, 404),
        ({"afterSeq": -1}, 400),
        ({"afterSeq": "1"}, 400),
        ({"expectedRevision": 1}, 400),
    ],
)
async def test_invalid_cursor_is_refused(
    client: GatewayClient, canvas: str, params: dict[str, Any], code: int
) -> None:
    with pytest.raises(Refused) as refused:
        await client.call("canvas.subscribe", **{"canvasId": canvas, **params})
    assert refused.value.code == code
    await client.call("canvas.subscribe", canvasId=canvas)  # the connection stays usable
    await client.event()


async def test_subscription_can_be_ended_and_started_again(client: GatewayClient, canvas: str) -> None:
    await client.call("canvas.subscribe", canvasId=canvas, afterSeq=1)
    assert await client.call("canvas.unsubscribe", canvasId=canvas) == {
        "canvasId": canvas,
        "subscribed": False,
    }
    await client.call("canvas.patch", canvasId=canvas, statePatch=[add("a", 1)])
    assert client.unheard == 0
    await client.call("canvas.subscribe", canvasId=canvas, afterSeq=1)
    assert (await client.event()).seq == 2
    with pytest.raises(Refused) as never:
        await client.call("canvas.unsubscribe", canvasId="unknown")
    assert never.value.code == 404


async def test_subscription_ends_with_an_event_when_the_canvas_is_deleted(
    client: GatewayClient, canvas: str
) -> None:
    await client.call("canvas.subscribe", canvasId=canvas, afterSeq=1)
    await client.call("canvas.delete", canvasId=canvas)
    event = await client.event()
    assert (event.event, event.payload, event.seq) == (
        "canvas.unsubscribed",
        {"canvasId": canvas, "reason": "DELETED"},
        None,
    )
    await client.call("canvas.create", canvasId=canvas)
    await client.call("canvas.subscribe", canvasId=canvas)
    assert (await client.event()).event == "canvas.created"


async def test_client_can_subscribe_again_at_once_after_the_end_event(
    client: GatewayClient, easel: LiveEasel, canvas: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may receive the frame before the server has finished the old subscription."""
    may_continue = asyncio.Event()
    send = Socket.send

    async def send_and_wait(self: Socket, text: str) -> None:
        await send(self, text)
        if ENDED in text:
            await may_continue.wait()

    await client.call("canvas.subscribe", canvasId=canvas, afterSeq=1)
    monkeypatch.setattr(Socket, "send", send_and_wait)
    await client.call("canvas.delete", canvasId=canvas)
    assert (await client.event()).event == ENDED
    await client.call("canvas.create", canvasId=canvas)
    await client.call("canvas.subscribe", canvasId=canvas)
    assert (await client.event()).event == "canvas.created"
    easel._loop.call_soon_threadsafe(may_continue.set)
    await client.call("canvas.patch", canvasId=canvas, statePatch=[add("a", 1)])
    assert (await client.event()).event == "canvas.updated", "the new subscription is still active"
    await client.call("canvas.unsubscribe", canvasId=canvas)


@rule("RS-67")
async def test_number_of_subscriptions_per_connection_is_limited(
    small_easel: LiveEasel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_SUBSCRIPTIONS", 2)
    async with GatewayClient.connected(small_easel.base_url, small_easel.token, new_session()) as client:
        names = [new_session() for _ in range(3)]
        for name in names:
            await client.call("canvas.create", canvasId=name)
        for name in names[:2]:
            await client.call("canvas.subscribe", canvasId=name, afterSeq=1)
        with pytest.raises(Refused) as refused:
            await client.call("canvas.subscribe", canvasId=names[2])
        assert (refused.value.code, refused.value.error["retryable"]) == (429, True)
        assert "2 canvases" in (await client.call("canvas.open", canvasId=names[2]))["warnings"][0]
        await client.call("canvas.unsubscribe", canvasId=names[0])
        await client.call("canvas.subscribe", canvasId=names[2], afterSeq=1)


# --- views --------------------------------------------------------------------------------------------------


@rule("CV-09", "CV-35", "CV-38")
async def test_open_and_close_change_the_views_and_emit_events(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    await client.call("canvas.subscribe", canvasId=canvas, afterSeq=1)
    opened = await client.call("canvas.open", canvasId=canvas)
    assert set(opened) == {"ok", "canvasId", "viewId", "viewUrl", "revision", "lastSeq"}
    assert (opened["viewUrl"], opened["revision"]) == (f"/canvas/main/{canvas}", 1)
    event = await client.event()
    assert (event.event, event.payload["status"], event.payload["views"]) == (
        "canvas.view.updated",
        "opened",
        1,
    )
    assert (event.payload["viewId"], event.payload["revision"]) == (opened["viewId"], 1)
    async with GatewayClient.connected(easel.base_url, easel.token, "another client") as other:
        second = await other.call("canvas.open", canvasId=canvas)
        views = (await client.call("canvas.get", canvasId=canvas))["views"]
        assert {view["viewId"] for view in views} == {opened["viewId"], second["viewId"]}
        assert "another client" in {view["clientId"] for view in views}
        with pytest.raises(Refused) as refused:
            await other.call("canvas.close", canvasId=canvas, viewId=opened["viewId"])
        assert refused.value.code == 404, "a client closes its own views"
        assert (await other.call("canvas.close", canvasId=canvas)) == {
            "ok": True,
            "canvasId": canvas,
            "closed": [second["viewId"]],
        }
    assert (await client.call("canvas.close", canvasId=canvas, viewId=opened["viewId"]))["closed"] == [
        opened["viewId"]
    ]
    assert [event.payload["status"] for event in await client.events(3)] == ["opened", "closed", "closed"]
    snapshot = await client.call("canvas.get", canvasId=canvas)
    assert (snapshot["views"], snapshot["revision"]) == ([], 1), "a view is no mutation"


@rule("CV-35")
async def test_view_ends_with_its_connection(client: GatewayClient, easel: LiveEasel, canvas: str) -> None:
    """Regression: GSV never removed the views of a closed connection."""
    await client.call("canvas.subscribe", canvasId=canvas, afterSeq=1)
    async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as other:
        await other.call("canvas.open", canvasId=canvas)
        assert (await client.event()).payload["status"] == "opened"
    closed = await client.event()
    assert (closed.payload["status"], closed.payload["views"]) == ("closed", 0)
    assert (await client.call("canvas.get", canvasId=canvas))["views"] == []
    assert easel.sql(f"select * from canvas_views where canvas_id = '{canvas}'") == []


@rule("CV-35")
async def test_replaced_connection_loses_its_view_and_the_new_one_keeps_its_own(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    name = new_session()
    async with GatewayClient.connected(easel.base_url, easel.token, name) as older:
        await older.call("canvas.open", canvasId=canvas)
        async with GatewayClient.connected(easel.base_url, easel.token, name) as newer:
            opened = await newer.call("canvas.open", canvasId=canvas)
            await older.closed()

            async def has_one_view() -> bool:
                views = (await client.call("canvas.get", canvasId=canvas))["views"]
                assert opened["viewId"] in {view["viewId"] for view in views}
                return len(views) == 1

            await wait_for(has_one_view)


async def test_view_opened_over_http_is_closed_by_its_id(easel: LiveEasel, canvas: str) -> None:
    def rpc(method: str, **params: Any) -> Any:
        return easel.post("/api/rpc", {"method": method, "params": params})

    view_id = rpc("canvas.open", canvasId=canvas).json()["viewId"]
    [view] = rpc("canvas.get", canvasId=canvas).json()["views"]
    assert view == {"viewId": view_id, "clientId": "http", "userId": "owner"}
    assert rpc("canvas.close", canvasId=canvas).status_code == 400
    assert rpc("canvas.close", canvasId=canvas, viewId=view_id).json()["closed"] == [view_id]
    assert rpc("canvas.close", canvasId=canvas, viewId=view_id).status_code == 404
