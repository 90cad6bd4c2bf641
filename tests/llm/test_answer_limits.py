"""Answers of a hostile server: compressed, endless, or faster than they are read."""

import asyncio
import gzip
import itertools
import re
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager

import httpx2
import pytest

from easel.core.run.conversation import Conversation
from easel.errors import ModelFailed
from easel.llm import answer_limits
from easel.llm.answer_limits import MAX_ERROR_BYTES
from easel.llm.build import Models
from easel.llm.errors import BrokenAnswer
from easel.llm.open_responses import RefusedAnswer
from easel.llm.provider_thread import MAX_UNREAD_ITEMS, ProviderThread
from tests.llm.talking import ask, choice_of
from tests.llm.vendors.answers import Answer, Call
from tests.llm.vendors.server import VendorServer

MAX_SENT_BYTES = 64 * 2**20  # then the server gives up
MAX_BUFFERED_BYTES = 16 * 2**20  # of the sockets


class HostileServer:
    """Answers every request with the same bytes, and counts what was taken."""

    def __init__(self, head: bytes, body: Callable[[], Iterable[bytes]]) -> None:
        self.requests: list[bytes] = []
        self.sent_bytes = 0
        self._head, self._body = head, body
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(60)

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            with client:
                self._answer(client)

    def _answer(self, client: socket.socket) -> None:
        try:
            self.requests.append(_read_request(client))
            client.sendall(b"HTTP/1.1 " + self._head + b"\r\nconnection: close\r\n\r\n")
            for chunk in self._body():
                client.sendall(chunk)
                self.sent_bytes += len(chunk)
                if self.sent_bytes > MAX_SENT_BYTES:
                    return
        except OSError:
            pass  # the client closed the connection


def _read_request(client: socket.socket) -> bytes:
    """Read a request with its body: closing a socket with unread bytes would reset the connection."""
    with client.makefile("rb") as lines:
        head = b""
        while (line := lines.readline()) not in (b"\r\n", b""):
            head += line.lower()
        length = re.search(rb"content-length: (\d+)", head)
        return head + lines.read(int(length[1]) if length else 0).lower()


@contextmanager
def hostile(head: bytes, body: Callable[[], Iterable[bytes]]) -> Iterator[HostileServer]:
    server = HostileServer(head, body)
    try:
        yield server
    finally:
        server.close()


STREAM = b"200 OK\r\ncontent-type: text/event-stream"


@pytest.mark.parametrize("status", [b"200 OK", b"500 Broken"])
async def test_compressed_answer_is_refused(provider: str, models: Models, status: bytes):
    head = status + b"\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip"
    with hostile(head, lambda: [gzip.compress(b"data: " + b"a" * 2**20)]) as server:
        with pytest.raises(ModelFailed, match="answer is compressed"):
            await ask(models.build_model(choice_of(provider, server.base_url)), Conversation("Hi"))
        assert len(server.requests) == 1  # it is not repeated


async def test_uncompressed_answer_is_asked_for(provider: str, server: VendorServer, models: Models):
    await ask(models.build_model(choice_of(provider, server.base_url)), Conversation("Hi"))
    assert [headers["accept-encoding"] for headers in server.headers] == ["identity"]


ENDLESS = {
    "line": ("MAX_EVENT_BYTES", 2 * 2**20, b"a" * 65_536, "event of the answer is longer than 2 MB"),
    "list": ("MAX_EVENT_ITEMS", 200_000, b"[]," * 20_000, "event of the answer has more than 200000 items"),
    "event": ("MAX_EVENT_LINES", 1_000, b"data: a\n" * 8_192, "event of the answer has more than 1000 lines"),
    "answer": ("MAX_ANSWER_BYTES", 2**20, b"\r\n" * 32_768, "the answer is longer than 1 MB"),
    "empty lines": ("MAX_ANSWER_LINES", 100_000, b"\n" * 65_536, "the answer has more than 100000 lines"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", ENDLESS)
async def test_endless_answer_is_refused(
    provider: str, models: Models, case: str, monkeypatch: pytest.MonkeyPatch
):
    name, value, block, message = ENDLESS[case]
    monkeypatch.setattr(answer_limits, name, value)
    with hostile(STREAM, lambda: itertools.repeat(block)) as server:
        with pytest.raises(ModelFailed, match=message):
            await ask(models.build_model(choice_of(provider, server.base_url)), Conversation("Hi"))
        assert len(server.requests) == 1
        assert server.sent_bytes < 4 * 2**20 + MAX_BUFFERED_BYTES


LONG = {
    "text": Answer(text="word " * 100),
    "thoughts": Answer(thinking="word " * 100, text="Hello."),
    "arguments": Answer(calls=(Call("gsv__Clock", {"zone": "word " * 100}),)),
}


@pytest.mark.parametrize("kind", LONG)
async def test_answer_of_which_too_much_would_be_kept_is_refused(
    provider: str, server: VendorServer, models: Models, kind: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(answer_limits, "MAX_KEPT_BYTES", 400)
    server.answers += [LONG[kind]] * 2
    model = models.build_model(choice_of(provider, server.base_url))
    with pytest.raises(ModelFailed, match="MB of text and calls"):
        await ask(model, Conversation("Hi"))
    assert len(server.requests) == 1
    monkeypatch.setattr(answer_limits, "MAX_KEPT_BYTES", 4_000)
    assert await ask(model, Conversation("Hi"))


async def test_long_answer_is_asked_for_again_while_the_others_keep_too_much(
    provider: str, server: VendorServer, models: Models, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(answer_limits, "MAX_OWN_BYTES", 400)
    monkeypatch.setattr(answer_limits, "MAX_SHARED_BYTES", 50)
    server.answers += [LONG["text"]] * 3
    model = models.build_model(choice_of(provider, server.base_url))
    with pytest.raises(ModelFailed, match=r"too many long answers at once.* \(after 3 attempts\)"):
        await ask(model, Conversation("Hi"))
    assert len(server.requests) == 3


def test_answers_share_what_they_keep_beyond_their_own_and_give_it_back():
    kept = answer_limits.KeptBytes()
    most = answer_limits.MAX_KEPT_BYTES
    with kept.of_answer() as one, kept.of_answer() as another:
        one(most)
        another(most)
        with kept.of_answer() as third:
            third(answer_limits.MAX_OWN_BYTES)  # a short answer is never refused
            with pytest.raises(BrokenAnswer):
                third(answer_limits.MAX_SHARED_BYTES - 2 * most + 2 * answer_limits.MAX_OWN_BYTES + 1)
        with pytest.raises(RefusedAnswer):
            one(1)
    with kept.of_answer() as one, kept.of_answer() as another:
        one(most)
        another(most)


async def test_body_of_an_error_is_read_to_its_limit(provider: str, models: Models):
    with hostile(b"500 Broken", lambda: itertools.repeat(b"a" * 65_536)) as server:
        with pytest.raises(ModelFailed, match=r"unavailable \(HTTP 500\)"):
            await ask(models.build_model(choice_of(provider, server.base_url)), Conversation("Hi"))
        assert len(server.requests) == 3
        assert server.sent_bytes < 3 * (MAX_ERROR_BYTES + MAX_BUFFERED_BYTES)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_are_told_apart_however_they_are_cut(end: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(answer_limits, "MAX_EVENT_BYTES", 10)
    monkeypatch.setattr(answer_limits, "MAX_EVENT_LINES", 2)
    event = b"data:" + end + b"12345" + end + end
    for size in range(1, 40):
        _read(event * 5, size)
        with pytest.raises(RefusedAnswer, match="is longer"):
            _read(event * 5 + b"data:" + end + b"123456", size)
        with pytest.raises(RefusedAnswer, match="lines"):
            _read(event * 5 + (b"1" + end) * 3, size)


def _read(body: bytes, size: int) -> None:
    counted = answer_limits.AnswerSize()
    for start in range(0, len(body), size):
        counted.add(body[start : start + size])


async def test_stream_that_is_read_in_part_is_closed_with_its_answer():
    closed = list[str]()

    class Pieces(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"piece"
            finally:
                closed.append("generator")

        async def aclose(self) -> None:
            closed.append("stream")

    response = httpx2.Response(200, stream=Pieces(), request=httpx2.Request("POST", "http://127.0.0.1"))
    await answer_limits.limit_answer(response)
    pieces = response.aiter_raw()
    assert await anext(pieces) == b"piece"
    await response.aclose()
    assert closed == ["generator", "stream"]
    await pieces.aclose()


async def test_refusal_by_the_content_filter_is_not_repeated(
    provider: str, server: VendorServer, models: Models
):
    server.answers += [Answer(is_filtered=True)] * 3
    with pytest.raises(ModelFailed, match="content filter"):
        await ask(models.build_model(choice_of(provider, server.base_url)), Conversation("Hi"))
    assert len(server.requests) == 1


async def test_producer_waits_while_many_items_are_unread():
    thread = ProviderThread()
    produced: list[int] = []
    count = 3 * MAX_UNREAD_ITEMS

    async def produce(send: Callable[[int], Awaitable[None]]) -> None:
        for number in range(count):
            produced.append(number)
            await send(number)

    async def pass_turn() -> int:
        return len(produced)

    items = thread.stream(produce)
    assert await anext(items) == 0
    # The thread is free for others, and the producer has come as far as it can.
    before = await thread.run(pass_turn())
    assert before <= MAX_UNREAD_ITEMS + 2
    assert [item async for item in items] == list(range(1, count))
    await thread.close()


async def test_waiting_producer_is_ended_with_its_reader():
    thread = ProviderThread()
    ended = threading.Event()

    async def produce(send: Callable[[int], Awaitable[None]]) -> None:
        try:
            for number in itertools.count():
                await send(number)
        finally:
            ended.set()

    items = thread.stream(produce)
    await anext(items)
    await items.aclose()
    assert await asyncio.to_thread(ended.wait, 30)
    await thread.close()
