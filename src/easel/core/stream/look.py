"""What a stretch of letters and digits looks like: Base64, something that may be, or something else. CC-23

Owns the statistics. There is no proof either way, since a text of letters and digits may mean anything; so shares decide: how
many capitals stand where no word has one, how long tokens are, which characters never occur. Works on bytes with
whole-buffer operations.
"""

import re
from enum import Enum

from easel.core.stream.marker import LIMIT

_WORD = re.compile(
    rb"(?:[A-Z]?[a-z]{2,24}+(?![a-z])|[A-Z]{2,16}+(?![A-Z])|[0-9]{1,16}+(?![0-9])|[-_/+]++)++|[A-Za-z]"
)
LINE = (
    40  # characters: no word and hardly a name is that long, and whoever wraps Base64 makes its lines longer
)


def table(symbols: bytes, *, other: bytes = b".") -> bytes:
    """Every byte as the kind that it is: U upper case, l lower case, d digit, s symbol, a space, or `other`."""
    kinds = bytearray(other * 256)
    for kind, members in (
        (b"U", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        (b"l", b"abcdefghijklmnopqrstuvwxyz"),
        (b"d", b"0123456789"),
        (b"s", symbols),
        (b" ", b" \t\r\n\v\f"),
    ):
        for member in members:
            kinds[member] = kind[0]
    return bytes(kinds)


EVERYWHERE = table(b"+/-_", other=b" ")  # for tokens of either alphabet, whatever stands between them


class Look(Enum):
    ENCODED = "encoded"
    POSSIBLE = (
        "possible"  # nothing speaks for Base64 but much of it may look so: joins what is, proves nothing
    )
    OTHER = "other"


def is_word(token: bytes) -> bool:
    """A word or some of them joined, as in names: `camelCase`, `snake_case`, `HTTPServer2`, `src/easel`."""
    return _WORD.fullmatch(token) is not None and (len(token) < 3 or token != token[:1] * len(token))


def is_run(raw: bytes, kinds: bytes) -> bool:
    """Whether a run without a break reads as Base64 rather than as something else."""
    return b"U" in kinds and not is_hex(raw, kinds) and not is_wordy(raw, kinds)


def is_hex(raw: bytes, kinds: bytes) -> bool:
    """Upper-case hex, which has many digits; Base64 of sparse bytes may keep to these letters too, but has few."""
    raw = raw.removeprefix(b"0x")
    return kinds.count(b"d") * 4 >= len(raw) and not raw.translate(None, b"0123456789ABCDEF-_+/ \t\r\n\v\f")


def is_nearly_hex(raw: bytes) -> bool:
    """Hex with something at each number, as `\\u00E4` or `0x7F` has."""
    size = len(raw) - raw.count(b" ")
    digits = size - len(raw.translate(None, b"0123456789 "))
    return digits * 4 >= size and len(raw.translate(None, b"0123456789ABCDEFabcdef ")) * 4 < size


def is_wordy(raw: bytes, kinds: bytes) -> bool:
    """A path, a slug or many names: lower case in the main, divided or of many letters, with capitals only where words begin."""
    size = len(kinds)
    if kinds.count(b"l") * 10 < size * 4 or _odd_capitals(b" " + kinds) * 33 > size:
        return False
    return kinds.count(b"s") * 25 >= size or len(set(raw[:LIMIT])) > 12


def _odd_capitals(kinds: bytes) -> int:
    """Capitals after a small letter or digit that begin no word: `camelCase` has none, Base64 one in five characters."""
    words = kinds.count(b"Ull") - kinds.count(b" Ull") - kinds.count(b"sUll") - kinds.count(b"UUll")
    return kinds.count(b"lU") + kinds.count(b"dU") - words


def is_mixed(kinds: bytes, *, diluted: int = 1) -> bool:
    """Capitals, small letters, digits and signs without an order; `diluted` so many times by something else."""
    upper, lower, others = kinds.count(b"U"), kinds.count(b"l"), kinds.count(b"d") + kinds.count(b"s")
    size = (upper + lower + others) // diluted
    return _odd_capitals(kinds) * 14 >= size and min(upper, lower) * 12 >= size and others * 30 >= size


def look(raw: bytes, kinds: bytes) -> Look:
    """Of a window of tokens: long ones are judged by their letters, short ones by capitals where no word has them."""
    kinds = b" " + kinds
    upper = kinds.count(b"U")
    size = len(kinds) - kinds.count(b" ")
    if size * 16 < len(kinds):
        return Look.POSSIBLE  # hardly anything there
    tokens = sum(kinds.count(start) for start in (b" U", b" l", b" d", b" s"))
    if size >= LINE * max(1, tokens - 1):  # the first and the last may be cut
        if is_wordy(raw, kinds):
            return Look.OTHER
        return Look.POSSIBLE if upper * 20 < size or is_hex(raw, kinds) else Look.ENCODED
    if is_mixed(kinds):
        return Look.ENCODED
    if upper * 5 >= size and size * 2 >= 15 * tokens and (raw.count(b"A") * 2 >= size or len(set(raw)) <= 6):
        return Look.ENCODED  # of zeros, or of ever the same few bytes: AAAA, QUJD
    return Look.OTHER
