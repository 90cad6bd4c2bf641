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
                text = (
                    _to_character_end(head).decode(errors="replace")
                    + f"\n… [{missing} bytes left out] …\n"
                    + _from_character_start(tail).decode(errors="replace")
                )
            else:
                text = (head + tail).decode(errors="replace")
            if len(msgspec.json.encode(text)) <= MAX_ENCODED_BYTES:
                return text, missing > 0
            head, tail = head[: len(head) // 2], tail[len(tail) - len(tail) // 2 :]


def _to_character_end(data: bytes) -> bytes:
    """Drop an incomplete character at the end."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 2 if byte >> 5 == 0b110 else 3 if byte >> 4 == 0b1110 else 4 if byte >> 3 == 0b11110 else 1
        return data[:-back] if length > back else data
    return data


def _from_character_start(data: bytes) -> bytes:
    for start in range(min(4, len(data))):
        if data[start] & 0xC0 != 0x80:
            return data[start:]
    return data
