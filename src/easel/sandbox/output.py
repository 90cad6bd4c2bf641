"""What a command says: told on as it comes, and of it a beginning and an end kept for the result. SB-06

Owns how much is kept and how what is missing is marked. Output that is no text is decoded with replacement.
"""

import codecs
from collections import deque
from collections.abc import Callable

import msgspec
import structlog

HEAD_BYTES = 32 * 1024
TAIL_BYTES = 32 * 1024  # the end is where errors stand
MAX_ENCODED = (
    160 * 1024
)  # as JSON: control characters are six bytes each there, and a result has a limit of its own

Hear = Callable[[str], None]

log = structlog.get_logger("sandbox")


class Output:
    def __init__(self, hear: Hear | None = None) -> None:
        self.size = 0
        self._on_notification = hear
        self._telling = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self._tell(chunk)
        room = HEAD_BYTES - len(self._head)
        self._head += chunk[:room]
        if rest := chunk[room:] if room > 0 else chunk:
            self._tail.append(rest)
            self._tail_size += len(rest)
            while self._tail_size - len(self._tail[0]) >= TAIL_BYTES:
                self._tail_size -= len(self._tail.popleft())

    def close(self) -> None:
        """The last character may have been waiting for its other bytes."""
        self._tell(b"", final=True)

    def _tell(self, chunk: bytes, *, final: bool = False) -> None:
        """Whoever does not want to hear any more does not stop the command from saying it."""
        try:
            if self._on_notification is not None and (text := self._telling.decode(chunk, final)):
                self._on_notification(text)
        except Exception:
            log.exception("sandbox.not_heard")
            self._on_notification = None

    def text(self) -> tuple[str, bool]:
        """What is kept, and whether something was left out."""
        tail = b"".join(self._tail)[-TAIL_BYTES:]
        head = bytes(self._head)
        while True:
            missing = self.size - len(head) - len(tail)
            mark = f"\n… [{missing} bytes left out] …\n" if missing else ""
            if missing:
                whole = (
                    _to_character_end(head).decode(errors="replace")
                    + mark
                    + _from_character_start(tail).decode(errors="replace")
                )
            else:
                whole = (head + tail).decode(errors="replace")
            if len(msgspec.json.encode(whole)) <= MAX_ENCODED:
                return whole, missing > 0
            head, tail = head[: len(head) // 2], tail[len(tail) - len(tail) // 2 :]


def _to_character_end(data: bytes) -> bytes:
    """Without the beginning of a character whose rest was left out."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needs = 2 if byte >> 5 == 0b110 else 3 if byte >> 4 == 0b1110 else 4 if byte >> 3 == 0b11110 else 1
        return data[:-back] if needs > back else data
    return data


def _from_character_start(data: bytes) -> bytes:
    for start in range(min(4, len(data))):
        if data[start] & 0xC0 != 0x80:
            return data[start:]
    return data
