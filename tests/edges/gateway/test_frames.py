"""Invalid, oversized and too many frames: each gets an error response and affects no other request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import ConnectionClosed

from easel.edges import socket
from easel.edges.gateway import frames
from tests.edges.http.live import new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.edges.http.live import LiveEasel

DEEP = 100_000  # Python 3.14 parses 5,000 levels
BAD: list[tuple[str | bytes, str | None]] = [
    # frame, id of the error response
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
        '{"type":"req","id":"7","method":"tools.list","params":' + '{"a":' * DEEP + "1" + "}" * DEEP + "}",
        None,
    ),
]


@rule("CV-01")
@case("R5")
@pytest.mark.parametrize("frame, id_", BAD, ids=[str(row[0])[:50] for row in BAD])
async def test_invalid_frame_gets_a_400_and_the_connection_stays_open(
    small_easel: LiveEasel, frame: str | bytes, id_: str | None
) -> None:
    """Bug 13 of GSV: malformed JSON or an unknown frame type got no response."""
    async with GatewayClient.connected(small_easel.base_url, small_easel.token, new_session()) as client:
        await client.send(frame)
        res = await client.stray()
        assert (res["ok"], res["id"], res["error"]["code"]) == (False, id_, 400)
        assert (await client.call("tools.list"))["tools"]


@rule("CV-01")
@case("R5")
async def test_deeply_nested_frame_does_not_end_the_connection(small_easel: LiveEasel) -> None:
    """Parsers accept different depths; a frame between two of them must not end the connection."""
    async with GatewayClient.connected(small_easel.base_url, small_easel.token, new_session()) as client:
        for depth in (*range(400, 1_100, 7), *range(960, 1_000)):
            await client.send(
                '{"type":"req","id":"7","method":"canvas.get","params":{"canvasId":'
                + "[" * depth
                + '":"'
                + "]" * depth
                + "}}"
            )
            res = await client.stray()
            assert (res["ok"], res["error"]["code"]) == (False, 400), depth
        assert (await client.call("tools.list"))["tools"]


@case("R5")
async def test_invalid_frame_before_connect_gets_a_400(small_easel: LiveEasel) -> None:
    async with GatewayClient.open(small_easel.base_url, None) as client:
        await client.send("{")
        assert (await client.stray())["error"]["code"] == 400


@case("R5")
async def test_frame_of_100_megabytes_closes_the_connection_with_1009(small_easel: LiveEasel) -> None:
    async with GatewayClient.connected(small_easel.base_url, small_easel.token, new_session()) as client:
        with contextlib.suppress(ConnectionClosed):
            await client.send('"' + "x" * 100_000_000 + '"')
        code, reason = await client.closed()
        assert code == 1009
        assert "at most 1048576 bytes (EASEL_MAX_FRAME_BYTES)" in (reason or "")
        assert "EASEL_MAX_BODY_BYTES" in (reason or "")


@case("R5")
async def test_invalid_utf_8_closes_the_connection_with_1007(small_easel: LiveEasel) -> None:
    async with GatewayClient.connected(small_easel.base_url, small_easel.token, new_session()) as client:
        await client.socket.send(b'{"type":"req","id":"\xff\xfe"}', text=True)
        assert (await client.closed())[0] == 1007


async def test_requests_over_the_limit_get_a_429_and_the_others_complete(
    small_easel: LiveEasel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "MAX_REQUESTS", 4)
    async with GatewayClient.connected(small_easel.base_url, small_easel.token, new_session()) as client:
        name = new_session()
        await client.call("canvas.create", canvasId=name)
        # The writer is blocked, so that all requests are running at the same time.
        operations = [{"op": "add", "path": f"/k{n}", "value": n} for n in range(8)]
        with blocked_writer(small_easel.instances[0].opened):
            for n, op in enumerate(operations):
                params = {"canvasId": name, "statePatch": [op]}
                await client.send({"type": "req", "id": f"p{n}", "method": "canvas.patch", "params": params})
            refused = [await client.stray() for _ in range(4)]
        assert {(res["error"]["code"], res["error"]["retryable"]) for res in refused} == {(429, True)}
        assert {res["id"] for res in refused} == {"p4", "p5", "p6", "p7"}
        completed = [await client.stray() for _ in range(4)]
        assert {res["id"] for res in completed} == {"p0", "p1", "p2", "p3"}
        assert all(res["ok"] for res in completed)


@contextlib.contextmanager
def blocked_writer(database: Any) -> Iterator[None]:
    """Keep the only writer of SQLite busy until the end of the block."""
    release, started = threading.Event(), threading.Event()

    def work(_: object) -> None:
        started.set()
        release.wait(20)

    loop = database._writer._loop
    waiting = asyncio.run_coroutine_threadsafe(database.write(work), loop)
    assert started.wait(20)
    try:
        yield
    finally:
        release.set()
        waiting.result(20)


async def test_responses_are_sent_in_the_order_of_completion(
    small_easel: LiveEasel,
) -> None:
    async with GatewayClient.connected(small_easel.base_url, small_easel.token, new_session()) as client:
        name = new_session()
        await client.call("canvas.create", canvasId=name)
        with blocked_writer(small_easel.instances[0].opened):
            params = {"canvasId": name, "statePatch": [{"op": "add", "path": "/a", "value": 1}]}
            await client.send({"type": "req", "id": "slow", "method": "canvas.patch", "params": params})
            await client.send({"type": "req", "id": "quick", "method": "tools.list"})
            assert (await client.stray())["id"] == "quick"
            await client.send({"type": "req", "id": "slow", "method": "tools.list"})
            duplicate = await client.stray()
            assert (duplicate["id"], duplicate["error"]["code"]) == ("slow", 400), (
                "the request with this id is still running"
            )
        assert (await client.stray())["id"] == "slow"


async def test_internal_error_is_answered_with_a_reference_only(
    small_easel: LiveEasel, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("the secret of the house")

    monkeypatch.setattr(small_easel.instances[0].opened.canvases, "list_canvases", fail)
    async with GatewayClient.connected(small_easel.base_url, small_easel.token, new_session()) as client:
        with pytest.raises(Refused) as refused:
            await client.call("canvas.list")
        assert refused.value.code == 500
        assert "secret of the house" not in str(refused.value.error)
        assert refused.value.details["reference"].startswith("ref_")


def test_error_response_of_a_frame_without_id_has_a_null_id() -> None:
    with pytest.raises(frames.BadFrame) as bad:
        frames.parse("{")
    assert json.loads(frames.error_response(bad.value.id, bad.value.problem))["id"] is None


def test_request_id_is_any_text_up_to_the_maximum_length() -> None:
    """The id is repeated in the response, so it has a maximum."""
    longest = "ü" * frames.MAX_ID_LENGTH
    assert frames.parse(json.dumps({"type": "req", "id": longest, "method": "x"})).id == longest
    with pytest.raises(frames.BadFrame, match="text of 1 to 200 characters") as bad:
        frames.parse(json.dumps({"type": "req", "id": longest + "ü", "method": "x"}))
    assert bad.value.id is None, "a longer id is not repeated in the error response"
