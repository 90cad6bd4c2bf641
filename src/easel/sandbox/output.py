"""The output of a command: forwarded at once, while its beginning and its end are kept for the result. SB-06

Owns how much output is kept and how omitted output is marked. Invalid UTF-8 is decoded with replacement.
"""

import codecs
from collections import deque
from collections.abc import Callable

import msgspec
import structlog

HEAD_BYTES = 32 * 1024
TAIL_BYTES = 32 * 1024  # errors are usually at the end
# Of the kept text as JSON, where a control character takes six bytes: tool results have a size limit.
MAX_ENCODED_BYTES = 160 * 1024
_CONTINUATION = bytes(range(0x80, 0xC0))  # the bytes of a UTF-8 character after its first one

OnOutput = Callable[[str], object]

log = structlog.get_logger("sandbox")


class Output:
    def __init__(self, on_output: OnOutput | None = None) -> None:
        self.size = 0
        self._on_output = on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self._forward(chunk)
        capacity = HEAD_BYTES - len(self._head)
        self._head += chunk[:capacity]
        if rest := chunk[capacity:] if capacity > 0 else chunk:
            self._tail.append(rest)
            self._tail_size += len(rest)
            while self._tail_size - len(self._tail[0]) >= TAIL_BYTES:
                self._tail_size -= len(self._tail.popleft())

    def close(self) -> None:
        """Forward the last character if it is incomplete."""
        self._forward(b"", final=True)

    def _forward(self, chunk: bytes, *, final: bool = False) -> None:
        """Call `on_output` with the text. If it raises, log that and do not call it again."""
        try:
            if self._on_output is not None and (text := self._decoder.decode(chunk, final)):
                self._on_output(text)
        except Exception:
            log.exception("sandbox.output_not_forwarded")
            self._on_output = None

    def text(self) -> tuple[str, bool]:
        """Return the kept text, and whether output was left out of it."""
        tail = b"".join(self._tail)[-TAIL_BYTES:]
        head = bytes(self._head)
        while True:
            missing = self.size - len(head) - len(tail)
            if missing:
                # No character is split: the decoder drops the incomplete one at the end of the head.
                beginning = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
                end = (tail[:3].lstrip(_CONTINUATION) + tail[3:]).decode(errors="replace")
                text = f"{beginning}\n… [{missing} bytes left out] …\n{end}"
            else:
                text = (head + tail).decode(errors="replace")
            if len(msgspec.json.encode(text)) <= MAX_ENCODED_BYTES:
                return text, missing > 0
            head, tail = head[: len(head) // 2], tail[len(tail) - len(tail) // 2 :]
