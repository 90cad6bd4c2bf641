"""Canvas events for clients of GSV: of opened views without a subscription, with `agentId`. RS-67"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.gateway.canvas_calls import add, refusal_of
from tests.edges.http.canvas_calls import read_stream
from tests.edges.http.live import new_session
from tests.requirements import rule
from tests.support.gateway import GatewayClient
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.edges.http.live import LiveEasel


async def patch(client: GatewayClient, canvas: str, key: str) -> int:
    """Add a member to the state. Returns the new revision."""
    return (await client.call("canvas.patch", canvasId=canvas, statePatch=[add(key, 1)]))["revision"]


@rule("RS-67", "CV-37")
async def test_view_receives_the_events_after_it_was_opened(client: GatewayClient, canvas: str) -> None:
    await patch(client, canvas, "before")
    opened = await client.call("canvas.open", canvasId=canvas)
    await patch(client, canvas, "a")
    event = await client.event()
    assert (event.event, event.seq, event.payload["revision"]) == ("canvas.updated", opened["lastSeq"] + 1, 3)
    await client.call("canvas.open", canvasId=canvas)
    assert (await client.event()).event == "canvas.view.updated"
    await patch(client, canvas, "b")
    assert (await client.event()).payload["changedPaths"] == ["/b"], "two views, one event"
    await client.call("canvas.close", canvasId=canvas, viewId=opened["viewId"])
    assert (await client.event()).payload["status"] == "closed"
    await patch(client, canvas, "c")
    assert (await client.event()).payload["changedPaths"] == ["/c"], "one view is left"


@rule("RS-67")
async def test_delivery_ends_with_the_last_view(client: GatewayClient, easel: LiveEasel, canvas: str) -> None:
    tails = easel.instances[0].services.canvas_tails
    await client.call("canvas.open", canvasId=canvas)
    await wait_for(lambda: f"owner/{canvas}" in tails._tails, what="the delivery started")
    await client.call("canvas.close", canvasId=canvas)
    await wait_for(lambda: f"owner/{canvas}" not in tails._tails, what="the delivery ended")
    async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as other:
        await other.call("canvas.open", canvasId=canvas)
        await wait_for(lambda: f"owner/{canvas}" in tails._tails, what="the delivery started")
    await wait_for(lambda: f"owner/{canvas}" not in tails._tails, what="the delivery ended")


@rule("RS-67")
@pytest.mark.parametrize("is_replayed", [False, True])
async def test_client_that_opens_and_subscribes_receives_each_event_once(
    client: GatewayClient, easel: LiveEasel, canvas: str, *, is_replayed: bool
) -> None:
    last = 0

    async def write() -> None:
        nonlocal last
        for n in range(60):
            last = await patch(client, canvas, f"k{n}")

    async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as reader:
        opened = await reader.call("canvas.open", canvasId=canvas)
        writing = asyncio.create_task(write())
        first = await reader.event()
        params = {} if is_replayed else {"afterSeq": opened["lastSeq"]}
        answers = [await reader.call("canvas.subscribe", canvasId=canvas, **params) for _ in range(2)]
        assert answers == [{"canvasId": canvas, "subscribed": True}] * 2, "the second is like the first"
        await writing
        await client.call("canvas.patch", canvasId=canvas, title="The end")
        seqs = [first.seq]
        while True:
            event = await reader.event()
            seqs.append(event.seq)
            if event.payload.get("changedPaths") == ["$title"]:
                break
        start = 0 if is_replayed else opened["lastSeq"]
        newest = (await client.call("canvas.get", canvasId=canvas))["descriptor"]["lastSeq"]
        assert sorted(seq for seq in seqs if seq) == list(range(start + 1, newest + 1)), "each event once"
        await reader.call("canvas.close", canvasId=canvas, viewId=opened["viewId"])
        assert (await reader.event()).payload["status"] == "closed", "the subscription goes on"
        assert reader.unheard == 0


@rule("RS-67")
async def test_view_opened_by_a_subscriber_adds_no_second_delivery(
    client: GatewayClient, canvas: str
) -> None:
    await client.call("canvas.subscribe", canvasId=canvas, afterSeq=1)
    await client.call("canvas.open", canvasId=canvas)
    await patch(client, canvas, "a")
    assert [event.event for event in await client.events(2)] == ["canvas.view.updated", "canvas.updated"]
    await client.call("canvas.unsubscribe", canvasId=canvas)
    await patch(client, canvas, "b")
    await client.call("canvas.get", canvasId=canvas)
    assert client.unheard == 0, "the client has asked for no more events"


@rule("RS-67")
async def test_refused_subscription_leaves_the_delivery_to_a_view(client: GatewayClient, canvas: str) -> None:
    await client.call("canvas.open", canvasId=canvas)
    refused = await refusal_of(client.call("canvas.subscribe", canvasId=canvas, afterSeq=99))
    assert refused.error["name"] == "CURSOR_OUT_OF_RANGE"
    await patch(client, canvas, "a")
    assert (await client.event()).payload["changedPaths"] == ["/a"]


@rule("RS-67")
async def test_delivery_to_a_view_ends_with_an_event_when_the_canvas_is_deleted(
    client: GatewayClient, canvas: str
) -> None:
    await client.call("canvas.open", canvasId=canvas)
    await client.call("canvas.delete", canvasId=canvas)
    event = await client.event()
    assert (event.event, event.payload) == ("canvas.unsubscribed", {"canvasId": canvas, "reason": "DELETED"})


@rule("RS-67", "CV-38")
async def test_events_name_the_agent_of_the_canvas_live_and_from_the_log(
    client: GatewayClient, easel: LiveEasel
) -> None:
    name = new_session()
    await client.call("canvas.create", canvasId=name, agentId="painter")
    opened = await client.call("canvas.open", canvasId=name)
    await patch(client, name, "a")
    live = await client.event()
    assert (live.seq, live.payload["agentId"]) == (opened["lastSeq"] + 1, "painter")
    await client.call("canvas.subscribe", canvasId=name)
    assert {event.payload["agentId"] for event in await client.events(2)} == {"painter"}
    assert all('"agentId":"painter"' in frame["data"] for frame in read_stream(easel, name, 3))


# --- requests that overlap ----------------------------------------------------------------------------------


@pytest.fixture
def gate(easel: LiveEasel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Hold the start of each subscription until the test opens the gate."""
    tails = easel.instances[0].services.canvas_tails
    held = Gate()
    open_log = tails.open

    async def open_later(*args: Any) -> Any:
        held.count += 1
        await asyncio.to_thread(held.opened.wait, 30)
        return await open_log(*args)

    monkeypatch.setattr(tails, "open", open_later)
    yield held
    held.opened.set()


@dataclass
class Gate:
    opened: threading.Event = field(default_factory=threading.Event)
    count: int = 0


async def subscribe_at(gate: Gate, client: GatewayClient, canvas: str, **params: Any) -> asyncio.Task[Any]:
    """Send `canvas.subscribe` and return its task when the request is at the gate."""
    count = gate.count
    task = asyncio.create_task(client.call("canvas.subscribe", canvasId=canvas, **params))
    await wait_for(lambda: gate.count > count, what="the request is at the gate")
    return task


@rule("RS-67")
@pytest.mark.parametrize("has_view", [False, True])
async def test_unsubscribe_before_the_answer_to_subscribe_answers_both(
    client: GatewayClient, canvas: str, gate: Gate, *, has_view: bool
) -> None:
    """Regression: the first request was never answered, and the delivery to a view went on."""
    if has_view:
        gate.opened.set()
        await client.call("canvas.open", canvasId=canvas)
        await wait_for(lambda: gate.count == 1, what="the delivery to the view")
        gate.opened.clear()
    subscribing = await subscribe_at(gate, client, canvas, afterSeq=1)
    unsubscribing = asyncio.create_task(client.call("canvas.unsubscribe", canvasId=canvas))
    await client.call("canvas.get", canvasId=canvas)
    gate.opened.set()
    assert (await subscribing)["subscribed"] is True
    assert (await unsubscribing)["subscribed"] is False
    heard = client.unheard
    await patch(client, canvas, "a")
    await client.call("canvas.get", canvasId=canvas)
    assert client.unheard == heard, "the client has asked for no more events"
    assert (await refusal_of(client.call("canvas.unsubscribe", canvasId=canvas))).code == 404


@rule("RS-67")
async def test_unsubscribe_waits_for_a_subscription_after_a_refused_one(
    client: GatewayClient, canvas: str, gate: Gate
) -> None:
    first = await subscribe_at(gate, client, canvas, afterSeq=99)
    second = asyncio.create_task(client.call("canvas.subscribe", canvasId=canvas, afterSeq=1))
    await client.call("canvas.get", canvasId=canvas)
    removing = asyncio.create_task(client.call("canvas.unsubscribe", canvasId=canvas))
    await client.call("canvas.get", canvasId=canvas)
    gate.opened.set()
    await refusal_of(first)
    assert [(await one)["subscribed"] for one in (second, removing)] == [True, False]


@rule("RS-67")
async def test_second_subscription_is_not_refused_because_of_the_first(
    client: GatewayClient, canvas: str, gate: Gate
) -> None:
    first = await subscribe_at(gate, client, canvas, afterSeq=99)
    second = asyncio.create_task(client.call("canvas.subscribe", canvasId=canvas, afterSeq=1, colour="red"))
    await client.call("canvas.get", canvasId=canvas)
    gate.opened.set()
    refused = await refusal_of(first)
    assert (refused.error["name"], "warnings" in refused.details) == ("CURSOR_OUT_OF_RANGE", False)
    assert (await second)["warnings"] == ["unknown member `colour` was ignored."]
    await patch(client, canvas, "a")
    assert (await client.event()).payload["changedPaths"] == ["/a"]


@rule("RS-67")
@pytest.mark.parametrize("is_closed", [False, True])
async def test_view_opened_during_a_refused_subscription_receives_events(
    client: GatewayClient, easel: LiveEasel, canvas: str, gate: Gate, *, is_closed: bool
) -> None:
    """Regression: the refused subscription took the delivery with it."""
    subscribing = await subscribe_at(gate, client, canvas, afterSeq=99)
    opened = await client.call("canvas.open", canvasId=canvas)
    closing = asyncio.create_task(client.call("canvas.close", canvasId=canvas)) if is_closed else None
    gate.opened.set()
    await refusal_of(subscribing)
    if closing is None:
        await patch(client, canvas, "a")
        event = await client.event()
        assert (event.seq, event.payload["changedPaths"]) == (opened["lastSeq"] + 1, ["/a"])
        return
    await closing
    tails = easel.instances[0].services.canvas_tails
    await wait_for(lambda: f"owner/{canvas}" not in tails._tails, what="the delivery ended")


@rule("RS-67")
async def test_delivery_ends_if_its_view_is_closed_during_a_refused_subscription(
    client: GatewayClient, easel: LiveEasel, canvas: str, gate: Gate
) -> None:
    tails = easel.instances[0].services.canvas_tails
    gate.opened.set()
    await client.call("canvas.open", canvasId=canvas)
    await wait_for(lambda: f"owner/{canvas}" in tails._tails, what="the delivery started")
    gate.opened.clear()
    subscribing = await subscribe_at(gate, client, canvas, afterSeq=99)
    await client.call("canvas.close", canvasId=canvas)
    gate.opened.set()
    await refusal_of(subscribing)
    await wait_for(lambda: f"owner/{canvas}" not in tails._tails, what="the delivery ended")


@rule("RS-67")
async def test_view_closed_before_its_request_was_answered_receives_nothing(
    client: GatewayClient, easel: LiveEasel, canvas: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = easel.instances[0].services.views
    released, open_view = threading.Event(), views.open

    async def open_slowly(*args: Any) -> Any:
        opened = await open_view(*args)
        await asyncio.to_thread(released.wait, 30)
        return opened

    monkeypatch.setattr(views, "open", open_slowly)
    opening = asyncio.create_task(client.call("canvas.open", canvasId=canvas))
    get = partial(client.call, "canvas.get", canvasId=canvas)
    while not (await get())["views"]:
        pass
    closing = asyncio.create_task(client.call("canvas.close", canvasId=canvas))
    while (await get())["views"]:
        pass
    released.set()
    assert (await closing)["closed"] == [(await opening)["viewId"]]
    await patch(client, canvas, "a")
    await get()
    tails = easel.instances[0].services.canvas_tails
    await wait_for(lambda: f"owner/{canvas}" not in tails._tails, what="the delivery ended")
    assert all(event.event == "canvas.view.updated" for event in await client.events(client.unheard))
