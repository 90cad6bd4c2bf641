"""The strict chat client is strict and resumes."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.support.chat import Chat, ChatFollower, ChatRefused, Complaint, heard_in
from tests.support.sse import ContractBroken, Event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from websockets.http11 import Request, Response


def wire(number: int, kind: str = "message.delta", visibility: str = "public", **changes: object) -> str:
    envelope: dict[str, object] = {
        "seq": number,
        "type": kind,
        "ts": "2026-11-01T00:00:00Z",
        "data": {"visibility": visibility},
    }
    return json.dumps(envelope | changes)


COMPLAINT = json.dumps({"type": "error", "error": {"code": 400, "name": "BAD_INPUT", "message": "No."}})

BREACHES = [
    # says                             frame                                        with debug
    ("binary",                         b"{}",                                       False),
    ("no envelope",                    "[]",                                        False),
    ("extra key",                      wire(1, more=1),                             False),
    ("no visibility",                  wire(1, data={}),                            False),
    ("no zone",                        wire(1, ts="2026-11-01T00:00:00"),           False),
    ("before the first",               wire(0),                                     False),
    ("state",                          wire(1, "whiteboard.write"),                 True),
    ("the end of a run",               wire(1, "done"),                             True),
    ("a picture",                      wire(1, "canvas.snapshot"),                  True),
    ("something of the system",        wire(1, "run.failed", "system"),             True),
    ("a thought without debug",        wire(1, "reasoning.delta", "internal"),      False),
    ("a thought that says it is none", wire(1, "reasoning.delta"),                  True),
    ("a message that says it is none", wire(1, "message.delta", "internal"),        True),
    ("an error without a name",        '{"type":"error","error":{"code":400}}',     False),
]  # fmt: skip


@pytest.mark.parametrize("frame, debug", [row[1:] for row in BREACHES], ids=[row[0] for row in BREACHES])
def test_broken_contract_is_raised(frame: str | bytes, debug: bool) -> None:
    with pytest.raises(ContractBroken):
        heard_in(frame, debug=debug)


def test_valid_frames_are_parsed() -> None:
    assert isinstance(heard_in(wire(1), debug=False), Event)
    assert isinstance(heard_in(wire(1, "step.completed", "internal"), debug=True), Event)
    assert heard_in(COMPLAINT, debug=False) == Complaint(400, "BAD_INPUT", "No.", {})


class FakeServer:
    """Sends each connection the next prepared frames and closes with their code, or refuses it; keeps
    requests and messages.
    """

    def __init__(self, *scenes: tuple[list[str], int] | int) -> None:
        self.asked: list[dict[str, str]] = []
        self.said: list[str | bytes] = []
        self._scenes = list(scenes)

    def refuse(self, connection: ServerConnection, request: Request) -> Response | None:
        self.asked.append(
            {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        )
        scene = self._scenes[0]
        if isinstance(scene, int):
            self._scenes.pop(0)
            return connection.respond(
                scene, json.dumps({"error": {"code": scene, "name": "NO", "message": "No."}})
            )  # type: ignore[arg-type]
        return None

    async def play(self, connection: ServerConnection) -> None:
        scene = self._scenes.pop(0)
        assert not isinstance(scene, int)
        frames, close_code = scene
        for frame in frames:
            await connection.send(frame)
        if close_code == 0:
            with contextlib.suppress(ConnectionClosed):
                async for frame in connection:
                    self.said.append(frame)
                    await connection.send(wire(100 + len(self.said)))
        elif close_code < 0:
            connection.transport.abort()
        else:
            await connection.close(close_code)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        async with serve(self.play, "127.0.0.1", 0, process_request=self.refuse) as server:
            yield f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


async def test_follower_resumes_after_its_last_event_however_the_connection_ended() -> None:
    left = FakeServer(([wire(1), wire(3)], -1), 503, ([wire(7)], 1012))
    right = FakeServer(([COMPLAINT, wire(5)], 1012), ([wire(6)], 1001), ([wire(9, "message.completed")], 0))
    async with left.listening() as first, right.listening() as second:
        follower = ChatFollower([first, second], "main", "token")
        last = await follower.read_until(lambda event: event.type == "message.completed", within=30)
        await follower.close()
    assert last.seq == 9
    assert [event.seq for event in follower.events] == [1, 3, 5, 6, 7, 9]
    assert left.asked == [{}, {"last_event_id": "5"}, {"last_event_id": "6"}]
    assert right.asked == [{"last_event_id": "3"}, {"last_event_id": "5"}, {"last_event_id": "7"}]
    assert (follower.connected, follower.refused) == (5, 1)


@pytest.mark.parametrize("frames", [[wire(2), wire(2)], [wire(2), wire(1)]])
async def test_sequence_numbers_must_rise(frames: list[str]) -> None:
    async with FakeServer((frames, 0)).listening() as url:
        follower = ChatFollower([url], "main", "token")
        with pytest.raises(ContractBroken):
            await follower.read_until(lambda _: False, within=30)


async def test_viewer_of_internal_events_must_see_every_number() -> None:
    async with FakeServer(([wire(1), wire(3)], 0)).listening() as url:
        follower = ChatFollower([url], "main", "token", debug=True)
        with pytest.raises(ContractBroken):
            await follower.read_until(lambda _: False, within=30)


async def test_refusal_is_raised_with_its_error() -> None:
    async with FakeServer(410).listening() as url:
        with pytest.raises(ChatRefused) as refused:
            async with Chat.open(url, "main", "token", after=9):
                pass
    assert (refused.value.status, refused.value.error["name"]) == (410, "NO")
    async with FakeServer(410).listening() as url:
        with pytest.raises(ChatRefused):
            await ChatFollower([url], "main", "token").read_until(lambda _: True, within=30)


async def test_closed_port_is_not_a_refusal() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound here, so that no other process listens on it
        with pytest.raises(OSError):
            async with Chat.open(f"http://127.0.0.1:{nobody.getsockname()[1]}", "main", "token"):
                pass


async def test_sent_message_arrives() -> None:
    server = FakeServer(([wire(1)], 0))
    async with server.listening() as url, Chat.open(url, "main", "token") as chat:
        assert isinstance(await chat.hear(), Event)
        await chat.say("hello", "a key")
        await chat.say("hello")
        await chat.cancel()
        assert [(await chat.hear()).seq for _ in range(3)] == [101, 102, 103]  # type: ignore[union-attr]
    assert [json.loads(frame) for frame in server.said] == [
        {"type": "message", "text": "hello", "idempotency_key": "a key"},
        {"type": "message", "text": "hello"},
        {"type": "cancel"},
    ]
