"""Limits of a provider's answer: what is read of it on the wire, and what is kept of it.

A user can name any server as the base URL, and all requests share one thread and the memory of the host. A
wire has up to 70 bytes for each byte that is kept. Imported only with a provider's library.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import aclosing, contextmanager

import httpx2

from easel.llm.errors import BrokenAnswer
from easel.llm.open_responses import RefusedAnswer

MAX_KEPT_BYTES = 4 * 2**20  # text, thoughts, arguments and signatures of an answer
MAX_OWN_BYTES = 256 * 2**10  # of these, what an answer may keep however much the others keep
MAX_SHARED_BYTES = 8 * 2**20  # what all answers in flight keep beyond their own
MAX_ANSWER_BYTES = 64 * 2**20
MAX_ANSWER_LINES = 1_000_000  # each costs the SDKs about a microsecond, also an empty one
MAX_EVENT_BYTES = 2 * 2**20  # the SDKs join the pieces of a server-sent event before they read it
MAX_EVENT_LINES = 1_000
MAX_EVENT_ITEMS = 200_000  # `[`, `{` and `,`: two bytes on the wire can be an object of 60
MAX_ERROR_BYTES = 64 * 2**10  # the rest of the body is not read
_LINE_END = re.compile(rb"\r\n|\n|\r")
_Body = AsyncGenerator[bytes, None]


async def request_plain_answer(request: httpx2.Request) -> None:
    """Ask for an answer without compression: a hook of the HTTP client."""
    request.headers["accept-encoding"] = "identity"


class KeptBytes:
    """The bytes that are kept of the answers in flight of this process."""

    def __init__(self) -> None:
        self._shared_count = 0

    @contextmanager
    def of_answer(self) -> Generator[Callable[[int], None]]:
        """Yield a function that counts bytes of one answer, and raises an error if they are too many."""
        count = shared = 0

        def add(more: int) -> None:
            nonlocal count, shared
            count += more
            if count > MAX_KEPT_BYTES:
                raise RefusedAnswer(
                    f"the answer has more than {MAX_KEPT_BYTES // 2**20} MB of text and calls."
                )
            taken = max(0, count - MAX_OWN_BYTES) - shared
            if self._shared_count + taken > MAX_SHARED_BYTES:
                raise BrokenAnswer("this host receives too many long answers at once; try again later.")
            shared += taken
            self._shared_count += taken

        try:
            yield add
        finally:
            self._shared_count -= shared


KEPT_BYTES = KeptBytes()


async def limit_answer(response: httpx2.Response) -> None:
    """Limit what is read of a response: a hook of the HTTP client. Raises `RefusedAnswer`."""
    if response.is_redirect:
        raise RefusedAnswer(
            f"it answers with a redirect (HTTP {response.status_code}), which is not followed; set the base "
            "URL to the address that it leads to."
        )
    if response.is_success and response.headers.get("content-type", "").startswith("text/html"):
        raise RefusedAnswer("it answers with a web page, which no API does; check the base URL.")
    # A few bytes of a compressed answer can become gigabytes.
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise RefusedAnswer("the answer is compressed, which was not asked for.")
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Limited(response.stream, _within_limits if response.is_success else _beginning)


class _Limited(httpx2.AsyncByteStream):
    """A stream within limits. Its generators are closed with it, and not by the garbage collector."""

    def __init__(self, stream: httpx2.AsyncByteStream, limit: Callable[[_Body], _Body]) -> None:
        self._stream = stream
        self._limit = limit
        self._pieces: _Body | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._pieces = self._limit(_read(self._stream))
        return self._pieces

    async def aclose(self) -> None:
        if self._pieces is not None:
            await self._pieces.aclose()
        await self._stream.aclose()


async def _read(stream: httpx2.AsyncByteStream) -> _Body:
    pieces = aiter(stream)
    try:
        async for piece in pieces:
            yield piece
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


async def _beginning(body: _Body) -> _Body:
    left = MAX_ERROR_BYTES
    async with aclosing(body):
        async for chunk in body:
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                break


async def _within_limits(body: _Body) -> _Body:
    size = AnswerSize()
    async with aclosing(body):
        async for chunk in body:
            size.add(chunk)
            yield chunk


class AnswerSize:
    """The size of an answer and of the server-sent event that is being received. An empty line ends it."""

    def __init__(self) -> None:
        self._byte_count = 0
        self._line_count = 0
        self._event_bytes = 0
        self._event_lines = 0
        self._event_items = 0
        self._line_bytes = 0  # of the last line, which has no end yet
        self._ends_with_return = False

    def add(self, chunk: bytes) -> None:
        """Count a chunk. Raises `RefusedAnswer` if the answer or an event is too long."""
        self._byte_count += len(chunk)
        if self._byte_count > MAX_ANSWER_BYTES:
            raise RefusedAnswer(f"the answer is longer than {MAX_ANSWER_BYTES // 2**20} MB.")
        if self._ends_with_return and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # the second half of a line end that was counted
            self._ends_with_return = False
        if not chunk:
            return
        self._ends_with_return = chunk.endswith(b"\r")
        first, *others = _LINE_END.split(chunk)
        self._line_count += len(others)
        if self._line_count > MAX_ANSWER_LINES:
            raise RefusedAnswer(f"the answer has more than {MAX_ANSWER_LINES} lines.")
        self._extend_line(first)
        for line in others:
            self._end_line()
            self._extend_line(line)

    def _extend_line(self, text: bytes) -> None:
        self._line_bytes += len(text)
        self._event_bytes += len(text)
        self._event_items += sum(map(text.count, (b"[", b"{", b",")))
        if self._event_items > MAX_EVENT_ITEMS:
            raise RefusedAnswer(f"an event of the answer has more than {MAX_EVENT_ITEMS} items.")
        if self._event_bytes > MAX_EVENT_BYTES:
            raise RefusedAnswer(f"an event of the answer is longer than {MAX_EVENT_BYTES // 2**20} MB.")

    def _end_line(self) -> None:
        self._event_lines += 1
        if self._line_bytes == 0:
            self._event_bytes = self._event_lines = self._event_items = 0
        if self._event_lines > MAX_EVENT_LINES:
            raise RefusedAnswer(f"an event of the answer has more than {MAX_EVENT_LINES} lines.")
        self._line_bytes = 0
