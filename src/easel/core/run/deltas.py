"""How fast a stream of small pieces becomes events: often enough to feel live, seldom enough to stay cheap.

Owns the size of a delta, and what is held back: Base64 that is being said waits until it has ended, so that over 2 KB of it become
one event, whose text is moved to an artifact as any other. CC-23
"""

import msgspec

from easel.core.stream.encoded_parts import encoded_end, encoded_parts

DELTA_BYTES = 1_500  # with its ids a delta stays under the 2 KB that an event may have (RS-35)
DELTA_SECONDS = 0.05  # nobody reads faster
HELD_CHARACTERS = 262_144  # of Base64 that goes on and on; then it goes out in several
HELD_SECONDS = 2.0  # without a new word: perhaps there will be none for long
_CONTEXT = 256  # characters that tell what the next ones are

_encode = msgspec.json.Encoder().encode
# What takes more in JSON than in plain text: a piece is measured as it will be stored.
_ESCAPED = {chr(code): 6 for code in range(32)} | dict.fromkeys('"\\\b\f\n\r\t', 2)


def pieces(text: str, most: int = DELTA_BYTES) -> list[str]:
    """The text in order, cut between characters, each piece at most `most` bytes as JSON writes it."""
    if len(text) * 6 <= most:
        return [text] if text else []
    if len(text) <= most and _size(text) <= most:
        return [text]
    found: list[str] = []
    start = size = 0
    for index, char in enumerate(text):
        width = _ESCAPED.get(char) or len(char.encode("utf-8", "surrogatepass"))
        if size + width > most:
            found.append(text[start:index])
            start, size = index, 0
        size += width
    found.append(text[start:])
    return found


def _size(text: str) -> int:
    try:
        return len(_encode(text)) - 2
    except UnicodeEncodeError:  # half a pair, which is counted one by one
        return 6 * len(text)


class Flow:
    """What is being said, on its way into the log."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self._held_size = 0
        self._before = ""  # the end of what was said up to now

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def tell(self, text: str, *, is_end: bool = False) -> list[str]:
        """The deltas that the next words make, in order: all that there is, but for Base64 that may go on."""
        context = self._before + text
        start = (
            len(context) if is_end or self._held_size + len(text) > HELD_CHARACTERS else encoded_end(context)
        )
        self._before = "" if is_end else context[-_CONTEXT:]
        if start == len(context):
            whole = "".join([*self._held, text])
            self._held, self._held_size = [], 0
            return _told(whole)
        kept = 0 if self._held else max(0, start - len(context) + len(text))
        self._held.append(text[kept:])
        self._held_size += len(text) - kept
        return _told(text[:kept])


def _told(text: str) -> list[str]:
    found: list[str] = []
    told = 0
    for start, end in encoded_parts(text):
        found += [*pieces(text[told:start]), text[start:end]]
        told = end
    return found + pieces(text[told:])


def shortened(reason: str, most: int = 1_000) -> str:
    """Why a run failed, in so many characters: its beginning and its end, for a person to read and every table to hold."""
    if len(reason) <= most:
        return reason
    left_out = len(reason) - most
    return f"{reason[: most * 2 // 3]} … {left_out} characters left out … {reason[-most // 3 :]}"
