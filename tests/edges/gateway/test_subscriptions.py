"""Subscriptions and views: a tail of the canvas's own log over `/ws`, with replay; and who displays a canvas now."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from easel.edges.gateway.connection import Connection
from easel.edges.gateway.hello import ENDED
from tests.edges.http.live import LiveEasel, new_session
from tests.edges.http.test_canvases import png, snap, watched
from tests.requirements import rule
from tests.support.gateway import GatewayClient, Refused
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path


def add(key: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": f"/{key}", "value": value}


# --- subscriptions --------------------------------------------------------------------------------------------------------


@rule("CV-01", "CV-37", "CV-38", "CV-46")
async def test_a_subscriber_gets_what_was_and_then_what_comes_with_the_log_s_own_numbers(
    client: GatewayClient, canvas: str
) -> None:
    """Bug 11 of GSV: no subscription per canvas, no `seq`, no replay."""
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
async def test_get_and_then_subscribe_from_there_misses_nothing(
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
            heard = await reader.event()
            assert heard.payload["revision"] == revision + 1, "it builds on what was read"
            revision += 1
        await writing
        assert len(snapshot["state"]) == snapshot["revision"], "state and revision were read together"


@rule("CV-01", "RS-07")
async def test_events_go_to_who_subscribed_and_to_nobody_else(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as other:
        mine = new_session()
        await other.call("canvas.create", canvasId=mine)
        await other.call("canvas.subscribe", canvasId=mine, afterSeq=1)
        await client.call("canvas.patch", canvasId=canvas, statePatch=[add("a", 1)])
        await client.call("canvas.patch", canvasId=mine, statePatch=[add("b", 2)])
        assert (await other.event()).payload["canvasId"] == mine, "of the other canvas nothing came before"
        assert (client.unheard, other.unheard) == (0, 0)


@rule("RS-07")
async def test_the_chat_is_not_on_the_gateway(client: GatewayClient) -> None:
    assert not [
        name
        for name in client.hello["features"]["methods"]
        if name.startswith(("chat", "session", "run", "message"))
    ]
    assert all(name.startswith("canvas.") for name in client.hello["features"]["events"])


@rule("RS-08", "CC-07")
async def test_the_same_events_are_on_the_gateway_and_on_sse(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    await client.call("canvas.patch", canvasId=canvas, statePatch=[add("a", 1)])
    await client.call("canvas.open", canvasId=canvas)
    assert snap(easel, canvas, png(3)).status_code == 201
    await client.call("canvas.subscribe", canvasId=canvas)
    heard = await client.events(4)
    seen = watched(easel, canvas, 4)
    assert [(one.event, str(one.seq)) for one in heard] == [(one["event"], one["id"]) for one in seen]
    assert [one.event for one in heard] == [
        "canvas.created",
        "canvas.updated",
        "canvas.view.updated",
        "canvas.snapshot",
    ]
    assert all({"canvasId", "revision"} <= set(one.payload) for one in heard)


async def test_a_subscription_across_instances_hears_of_the_other_s_writes(two_edges: LiveEasel) -> None:
    here, there = (instance.base_url for instance in two_edges.instances)
    name = new_session()
    async with (
        GatewayClient.connected(here, two_edges.token) as one,
        GatewayClient.connected(there, two_edges.token) as other,
    ):
        await one.call("canvas.create", canvasId=name)
        await other.call("canvas.subscribe", canvasId=name, afterSeq=1)
        for n in range(5):
            await one.call("canvas.patch", canvasId=name, statePatch=[add("n", n)])
        assert [event.seq for event in await other.events(5)] == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "params, code",
    [({"afterSeq": 99}, 404), ({"afterSeq": -1}, 400), ({"afterSeq": "1"}, 400), ({"canvas": "x"}, 400)],
)
async def test_a_cursor_that_cannot_be_served_is_refused(
    client: GatewayClient, canvas: str, params: dict[str, Any], code: int
) -> None:
    with pytest.raises(Refused) as refused:
        await client.call("canvas.subscribe", **{"canvasId": canvas, **params})
    assert refused.value.code == code
    await client.call("canvas.subscribe", canvasId=canvas)  # and it is no obstacle
    await client.event()


async def test_a_subscription_can_be_ended_and_begun_again(client: GatewayClient, canvas: str) -> None:
    await client.call("canvas.subscribe", canvasId=canvas, afterSeq=1)
    with pytest.raises(Refused) as twice:
        await client.call("canvas.subscribe", canvasId=canvas)
    assert twice.value.code == 400
    assert await client.call("canvas.unsubscribe", canvasId=canvas) == {
        "canvasId": canvas,
        "subscribed": False,
    }
    await client.call("canvas.patch", canvasId=canvas, statePatch=[add("a", 1)])
    assert client.unheard == 0
    await client.call("canvas.subscribe", canvasId=canvas, afterSeq=1)
    assert (await client.event()).seq == 2
    with pytest.raises(Refused) as never:
        await client.call("canvas.unsubscribe", canvasId="never-was")
    assert never.value.code == 404


async def test_who_watches_a_canvas_that_is_deleted_is_told(client: GatewayClient, canvas: str) -> None:
    await client.call("canvas.subscribe", canvasId=canvas, afterSeq=1)
    await client.call("canvas.delete", canvasId=canvas)
    told = await client.event()
    assert (told.event, told.payload, told.seq) == (
        "canvas.unsubscribed",
        {"canvasId": canvas, "reason": "DELETED"},
        None,
    )
    await client.call("canvas.create", canvasId=canvas)
    await client.call("canvas.subscribe", canvasId=canvas)
    assert (await client.event()).event == "canvas.created"


async def test_who_is_told_of_the_end_can_subscribe_anew_at_once(
    client: GatewayClient, easel: LiveEasel, canvas: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late whoever told it goes on: the frame is with its reader before that."""
    may_go_on = asyncio.Event()
    send = Connection._send

    async def send_and_wait(self: Connection, text: str) -> None:
        await send(self, text)
        if ENDED in text:
            await may_go_on.wait()

    await client.call("canvas.subscribe", canvasId=canvas, afterSeq=1)
    monkeypatch.setattr(Connection, "_send", send_and_wait)
    await client.call("canvas.delete", canvasId=canvas)
    assert (await client.event()).event == ENDED
    await client.call("canvas.create", canvasId=canvas)
    await client.call("canvas.subscribe", canvasId=canvas)
    assert (await client.event()).event == "canvas.created"
    easel._loop.call_soon_threadsafe(may_go_on.set)
    await client.call("canvas.patch", canvasId=canvas, statePatch=[add("a", 1)])
    assert (await client.event()).event == "canvas.updated", (
        "and the end of the older one is not that of the newer"
    )
    await client.call("canvas.unsubscribe", canvasId=canvas)


async def test_one_connection_watches_so_many_canvases_and_no_more(small_easel: LiveEasel) -> None:
    async with GatewayClient.connected(small_easel.base_url, small_easel.token, new_session()) as client:
        names = [new_session() for _ in range(3)]
        for name in names:
            await client.call("canvas.create", canvasId=name)
        for name in names[:2]:
            await client.call("canvas.subscribe", canvasId=name, afterSeq=1)
        with pytest.raises(Refused) as refused:
            await client.call("canvas.subscribe", canvasId=names[2])
        assert (refused.value.code, refused.value.error["retryable"]) == (429, True)
        await client.call("canvas.unsubscribe", canvasId=names[0])
        await client.call("canvas.subscribe", canvasId=names[2], afterSeq=1)


async def test_a_connection_that_goes_leaves_no_subscription_behind(small_easel: LiveEasel) -> None:
    tails = small_easel.instances[0].services.canvas_tails
    async with GatewayClient.connected(small_easel.base_url, small_easel.token, new_session()) as client:
        name = new_session()
        await client.call("canvas.create", canvasId=name)
        await client.call("canvas.subscribe", canvasId=name, afterSeq=1)
        assert f"owner/{name}" in tails._tails

    async def is_left() -> bool:
        return f"owner/{name}" not in tails._tails

    await wait_for(is_left)


# --- views ----------------------------------------------------------------------------------------------------------------


@rule("CV-09", "CV-35", "CV-38")
async def test_open_adds_a_view_close_removes_it_and_each_is_told(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    await client.call("canvas.subscribe", canvasId=canvas, afterSeq=1)
    opened = await client.call("canvas.open", canvasId=canvas)
    assert set(opened) == {"viewId", "viewUrl", "revision"}
    assert (opened["viewUrl"], opened["revision"]) == (f"/canvas/main/{canvas}", 1)
    told = await client.event()
    assert (told.event, told.payload["status"], told.payload["views"]) == ("canvas.view.updated", "opened", 1)
    assert (told.payload["viewId"], told.payload["revision"]) == (opened["viewId"], 1)
    async with GatewayClient.connected(easel.base_url, easel.token, "somebody else") as other:
        second = await other.call("canvas.open", canvasId=canvas)
        views = (await client.call("canvas.get", canvasId=canvas))["views"]
        assert {view["viewId"] for view in views} == {opened["viewId"], second["viewId"]}
        assert "somebody else" in {view["clientId"] for view in views}
        with pytest.raises(Refused) as refused:
            await other.call("canvas.close", canvasId=canvas, viewId=opened["viewId"])
        assert refused.value.code == 404, "a client closes its own views"
        assert (await other.call("canvas.close", canvasId=canvas)) == {
            "canvasId": canvas,
            "closed": [second["viewId"]],
        }
    assert (await client.call("canvas.close", canvasId=canvas, viewId=opened["viewId"]))["closed"] == [
        opened["viewId"]
    ]
    assert [event.payload["status"] for event in await client.events(3)] == ["opened", "closed", "closed"]
    snapshot = await client.call("canvas.get", canvasId=canvas)
    assert (snapshot["views"], snapshot["revision"]) == ([], 1), "who looks at a canvas does not change it"


@rule("CV-35")
async def test_a_view_goes_with_its_connection(client: GatewayClient, easel: LiveEasel, canvas: str) -> None:
    """Bug 9 of GSV: view bindings were never cleaned on disconnect."""
    await client.call("canvas.subscribe", canvasId=canvas, afterSeq=1)
    async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as other:
        await other.call("canvas.open", canvasId=canvas)
        assert (await client.event()).payload["status"] == "opened"
    gone = await client.event()  # the other one vanished without a word
    assert (gone.payload["status"], gone.payload["views"]) == ("closed", 0)
    assert (await client.call("canvas.get", canvasId=canvas))["views"] == []
    assert easel.sql(f"select * from canvas_views where canvas_id = '{canvas}'") == []


@rule("CV-35")
async def test_the_view_of_a_replaced_connection_goes_and_the_newer_one_s_stays(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    name = new_session()
    async with GatewayClient.connected(easel.base_url, easel.token, name) as older:
        await older.call("canvas.open", canvasId=canvas)
        async with GatewayClient.connected(easel.base_url, easel.token, name) as newer:
            mine = await newer.call("canvas.open", canvasId=canvas)
            await older.closed()

            async def is_alone() -> bool:
                views = (await client.call("canvas.get", canvasId=canvas))["views"]
                assert mine["viewId"] in {view["viewId"] for view in views}
                return len(views) == 1

            await wait_for(is_alone)


async def test_a_view_over_http_is_closed_by_its_id_or_runs_out(easel: LiveEasel, canvas: str) -> None:
    def rpc(method: str, **params: Any) -> Any:
        return easel.post("/api/rpc", {"method": method, "params": params})

    view_id = rpc("canvas.open", canvasId=canvas).json()["viewId"]
    assert rpc("canvas.get", canvasId=canvas).json()["views"] == [{"viewId": view_id, "clientId": "http"}]
    assert rpc("canvas.close", canvasId=canvas).status_code == 400
    assert rpc("canvas.close", canvasId=canvas, viewId=view_id).json()["closed"] == [view_id]
    assert rpc("canvas.close", canvasId=canvas, viewId=view_id).status_code == 404


# --- a reader that does not read ------------------------------------------------------------------------------------------


async def test_a_reader_that_takes_nothing_is_cut_and_its_view_goes_with_it(tmp_path: Path) -> None:
    with LiveEasel(tmp_path, with_worker=False, settings={"stall_seconds": 0.5}) as live:
        async with (
            GatewayClient.connected(live.base_url, live.token, "good") as good,
            GatewayClient.connected(live.base_url, live.token, "lazy") as lazy,
        ):
            await good.call("canvas.create", canvasId="heavy", state={"text": "plain words " * 60_000})
            await good.call("canvas.subscribe", canvasId="heavy", afterSeq=1)
            await lazy.call("canvas.open", canvasId="heavy")
            assert (await good.event()).payload["status"] == "opened"
            lazy.socket.transport.pause_reading()
            asking = asyncio.create_task(_ask_on(lazy))
            gone = await good.event()
            assert (gone.payload["status"], gone.payload["clientId"]) == ("closed", "lazy")
            assert (await good.call("canvas.get", canvasId="heavy"))["views"] == [], (
                "and nobody else has noticed"
            )
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)


async def _ask_on(client: GatewayClient) -> None:
    """More and more, whatever comes of it."""
    for n in itertools.count():
        await client.send(
            {"type": "req", "id": f"more{n}", "method": "canvas.get", "params": {"canvasId": "heavy"}}
        )
        await asyncio.sleep(0.01)
