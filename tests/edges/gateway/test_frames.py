"""Frames that are not what they should be, too large, too many: each is answered, none is met with silence, and no other suffers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import ConnectionClosed

from easel.edges.gateway import frames
from tests.edges.http.live import new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient, Refused

if TYPE_CHECKING:
    from tests.edges.http.live import LiveEasel

BAD: list[tuple[str | bytes, str | None]] = [
    # a frame                                                                    the id that its refusal has
    ("", None),
    ("hello", None),
    ("{", None),
    ("[1,2]", None),
    ("null", None),
    (b'{"type":"req","id":"7","method":"tools.list"}', None),
    ('{"type":"req","method":"tools.list"}', None),
    ('{"type":"req","id":7,"method":"tools.list"}', None),
    ('{"type":"req","id":"","method":"tools.list"}', None),
    (f'{{"type":"req","id":"{"x" * 201}","method":"tools.list"}}', None),
    ('{"id":"7","method":"tools.list"}', "7"),
    ('{"type":"REQ","id":"7","method":"tools.list"}', "7"),
    ('{"type":"evt","id":"7","event":"x"}', "7"),
    ('{"type":"res","id":"7","ok":true}', "7"),
    ('{"type":"req","id":"7"}', "7"),
    ('{"type":"req","id":"7","method":5}', "7"),
    ('{"type":"req","id":"7","method":"tools.list","params":[]}', "7"),
    ('{"type":"req","id":"7","method":"tools.list","method":"canvas.list"}', "7"),
    (
        '{"type":"req","id":"7","method":"tools.list","params":' + '{"a":' * 5_000 + "1" + "}" * 5_000 + "}",
        None,
    ),
]


@rule("CV-01")
@case("R5")
@pytest.mark.parametrize("frame, id_", BAD, ids=[str(row[0])[:50] for row in BAD])
async def test_a_bad_frame_gets_a_400_and_the_connection_stays(
    small_easel: LiveEasel, frame: str | bytes, id_: str | None
) -> None:
    """Bug 13 of GSV: malformed JSON or an unknown frame type met silence."""
    async with GatewayClient.connected(small_easel.base_url, small_easel.token, new_session()) as client:
        await client.send(frame)
        res = await client.stray()
        assert (res["ok"], res["id"], res["error"]["code"]) == (False, id_, 400)
        assert (await client.call("tools.list"))["tools"]


@rule("CV-01")
@case("R5")
async def test_no_depth_of_a_frame_ends_the_connection(small_easel: LiveEasel) -> None:
    """Readers differ in how deep they go: where one has gone further than the next one can, that must not be the end of all requests."""
    async with GatewayClient.connected(small_easel.base_url, small_easel.token, new_session()) as client:
        for depth in (*range(400, 1_100, 7), *range(960, 1_000)):
            await client.send(
                '{"type":"req","id":"7","method":"tools.list","params":{"a":'
                + "[" * depth
                + '":"'
                + "]" * depth
                + "}}"
            )
            res = await client.stray()
            assert (res["ok"], res["error"]["code"]) == (False, 400), depth
        assert (await client.call("tools.list"))["tools"]


@case("R5")
async def test_a_bad_frame_before_connect_gets_its_400_too(small_easel: LiveEasel) -> None:
    async with GatewayClient.open(small_easel.base_url, None) as client:
        await client.send("{")
        assert (await client.stray())["error"]["code"] == 400


@case("R5")
async def test_a_frame_of_100_megabytes_ends_the_connection_with_1009(small_easel: LiveEasel) -> None:
    async with GatewayClient.connected(small_easel.base_url, small_easel.token, new_session()) as client:
        with contextlib.suppress(ConnectionClosed):
            await client.send('"' + "x" * 100_000_000 + '"')
        code, reason = await client.closed()
        assert code == 1009
        assert (
            reason
            == "A frame has at most 1048576 bytes (EASEL_MAX_FRAME_BYTES); POST /api/rpc takes EASEL_MAX_BODY_BYTES."
        )


@case("R5")
async def test_text_that_is_no_utf_8_ends_the_connection_with_1007(small_easel: LiveEasel) -> None:
    async with GatewayClient.connected(small_easel.base_url, small_easel.token, new_session()) as client:
        await client.socket.send(b'{"type":"req","id":"\xff\xfe"}', text=True)
        assert (await client.closed())[0] == 1007


async def test_more_requests_at_once_than_allowed_get_a_429_and_the_others_their_answers(
    small_easel: LiveEasel,
) -> None:
    async with GatewayClient.connected(small_easel.base_url, small_easel.token, new_session()) as client:
        name = new_session()
        await client.call("canvas.create", canvasId=name)
        # One transaction of somebody else holds up the writer, so that all of these are under way at once.
        held = small_easel.instances[0].opened
        asked = [{"op": "add", "path": f"/k{n}", "value": n} for n in range(8)]
        with _writer_held(held):
            for n, op in enumerate(asked):
                params = {"canvasId": name, "statePatch": [op]}
                await client.send({"type": "req", "id": f"p{n}", "method": "canvas.patch", "params": params})
            early = [await client.stray() for _ in range(4)]
        assert {(res["error"]["code"], res["error"]["retryable"]) for res in early} == {(429, True)}
        assert {res["id"] for res in early} == {"p4", "p5", "p6", "p7"}
        late = [await client.stray() for _ in range(4)]
        assert {res["id"] for res in late} == {"p0", "p1", "p2", "p3"}
        assert all(res["ok"] for res in late)


@contextlib.contextmanager
def _writer_held(database: Any) -> Any:
    """SQLite's one writer is busy until the end of the block."""
    import threading  # noqa: PLC0415

    free, held = threading.Event(), threading.Event()

    def work(_: object) -> None:
        held.set()
        free.wait(20)

    loop = database._writer._loop
    waiting = asyncio.run_coroutine_threadsafe(database.write(work), loop)
    assert held.wait(20)
    try:
        yield
    finally:
        free.set()
        waiting.result(20)


async def test_answers_come_when_they_are_ready_and_not_in_the_order_of_the_questions(
    small_easel: LiveEasel,
) -> None:
    async with GatewayClient.connected(small_easel.base_url, small_easel.token, new_session()) as client:
        name = new_session()
        await client.call("canvas.create", canvasId=name)
        with _writer_held(small_easel.instances[0].opened):
            params = {"canvasId": name, "statePatch": [{"op": "add", "path": "/a", "value": 1}]}
            await client.send({"type": "req", "id": "slow", "method": "canvas.patch", "params": params})
            await client.send({"type": "req", "id": "quick", "method": "tools.list"})
            assert (await client.stray())["id"] == "quick"
            await client.send({"type": "req", "id": "slow", "method": "tools.list"})
            again = await client.stray()
            assert (again["id"], again["error"]["code"]) == ("slow", 400), "that id is still under way"
        assert (await client.stray())["id"] == "slow"


async def test_what_breaks_inside_is_told_by_a_reference_alone(
    small_easel: LiveEasel, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(*_: object, **__: object) -> None:
        raise ZeroDivisionError("the secret of the house")

    monkeypatch.setattr(small_easel.instances[0].opened.canvases, "list_canvases", breaks)
    async with GatewayClient.connected(small_easel.base_url, small_easel.token, new_session()) as client:
        with pytest.raises(Refused) as refused:
            await client.call("canvas.list")
        assert refused.value.code == 500
        assert "secret of the house" not in str(refused.value.error)
        assert refused.value.details["reference"].startswith("ref_")


def test_a_refusal_without_an_id_says_null() -> None:
    with pytest.raises(frames.BadFrame) as bad:
        frames.read("{")
    assert json.loads(frames.refusal(bad.value.id, bad.value.problem))["id"] is None


def test_an_id_is_of_any_text_up_to_its_longest() -> None:
    """What a client calls its request is told back to it, so it has a bound."""
    longest = "ü" * frames.MAX_ID_LENGTH
    assert frames.read(json.dumps({"type": "req", "id": longest, "method": "x"})).id == longest
    with pytest.raises(frames.BadFrame, match="text of 1 to 200 characters") as bad:
        frames.read(json.dumps({"type": "req", "id": longest + "ü", "method": "x"}))
    assert bad.value.id is None, "and is not told back in the refusal either"
