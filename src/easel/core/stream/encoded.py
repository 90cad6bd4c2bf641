"""Whether a text carries Base64 over the limit, wherever in it and however it is written. CC-23, RS-35

Owns what we take for Base64 and what not. There is no proof either way: a text of letters and digits may mean anything. So
the shape decides. A run without a break is Base64 unless it reads as something else (no upper case, hex, a path). A run
broken by white space is Base64 if its lines are too long for words, or if upper case stands where no word has it. Lists of
digests and identifiers, prose, code and numbers stay what they are.

Works on bytes with whole-buffer operations and looks closer only where a stretch is long enough, so that it is linear in any
text and quick on ordinary ones.
"""

import re
from collections.abc import Iterator
from enum import Enum

from easel.core.stream.marker import LIMIT

LINE = 40  # characters: no word and hardly a name is that long, and whoever wraps Base64 makes its lines longer
_WINDOW = 512  # bytes judged at a time: enough for shares to mean something, and any stretch over the limit has three of them
_PADDED = 12  # bytes that two signs of padding may take, as written
_LEAST = LIMIT - _PADDED  # a shorter stretch cannot be over the limit, even with its padding

# As it may be written inside something else → the same length in the plain alphabet, so that length stays "as written".
_WRITTEN_OTHERWISE = {
    b"%": {b"%2B": b"+++", b"%2b": b"+++", b"%2F": b"///", b"%2f": b"///"}
    | dict.fromkeys((b"%0A", b"%0a", b"%0D", b"%0d", b"%20"), b"   "),
    b"\\": {rb"\\n": b"   ", rb"\\r": b"   ", rb"\n": b"  ", rb"\r": b"  ", rb"\t": b"  ", rb"\/": b"//", rb"\"": b'""'}
    | {rb"\u002b": b"++++++", rb"\u002B": b"++++++", rb"\u002f": b"//////", rb"\u002F": b"//////"},
    b"&#": {b"&#43;": b"+++++", b"&#x2B;": b"++++++", b"&#47;": b"/////", b"&#x2F;": b"//////"}
    | {b"&#10;": b"     ", b"&#13;": b"     ", b"&#xA;": b"     ", b"&#xD;": b"     "},
}
_PADDING = re.compile(rb"(?:=|%3[Dd]|\\u003[Dd]|&#61;|&#x3D;){0,2}")
# Between two long strings of a list or of a sum that stand in the text: `…", "…`, `…' + '…`.
_BETWEEN_STRINGS = re.compile(rb"""["'`](?<=[A-Za-z0-9+/_-]{40}.)[\s"'`,+]{1,40}(?=[A-Za-z0-9+/_-]{40})""")
_NAMED = re.compile(rb"base64,([A-Za-z0-9+/_-]{%d,})" % _LEAST)  # the end of a data: URL's head: whatever follows is Base64 by its own word


def _table(symbols: bytes) -> bytes:
    """Every byte as the kind that it is: U upper case, l lower case, d digit, s symbol, a space, or a dot for what ends a run."""
    kinds = bytearray(b"." * 256)
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


_STANDARD, _URL_SAFE, _EITHER = _table(b"+/"), _table(b"-_"), _table(b"+/-_")


def holds_encoded(text: str) -> bool:
    """More than LIMIT characters of Base64 in one piece, counted as written: line breaks, escapes and padding included."""
    if len(text) <= LIMIT:
        return False
    raw = text.encode("utf-8", "surrogatepass")
    for sign, rows in _WRITTEN_OTHERWISE.items():
        if sign in raw:
            for written, plain in rows.items():
                raw = raw.replace(written, plain)
    if _is_found(raw) or _is_named(raw):
        return True
    if _BETWEEN_STRINGS.search(raw) is None:
        return False
    return _is_found(_BETWEEN_STRINGS.sub(lambda found: b" " * len(found[0]), raw))


def _is_named(raw: bytes) -> bool:
    return any(found.end(1) - found.start(1) + _padding(raw, found.end(1)) > LIMIT for found in _NAMED.finditer(raw))


def _is_found(raw: bytes) -> bool:
    for first, last in _stretches(raw.translate(_EITHER), b"."):
        stretch = raw[first:last]
        standard, url_safe = stretch.translate(_STANDARD), stretch.translate(_URL_SAFE)
        for kinds in (standard,) if standard == url_safe else (standard, url_safe):
            for start, end in _stretches(kinds, b"."):
                if _is_encoded(stretch[start:end], kinds[start:end], _padding(raw, first + end)):
                    return True
    return False


def _padding(raw: bytes, at: int) -> int:
    found = _PADDING.match(raw, at)
    return len(found[0]) if found else 0


def _stretches(kinds: bytes, end_sign: bytes) -> Iterator[tuple[int, int]]:
    """Where no `end_sign` stands for at least _LEAST bytes. Looks at every _LEAST-th byte only: no such stretch fits between."""
    at, floor = _LEAST - 1, 0
    while at < len(kinds):
        start = kinds.rfind(end_sign, floor, at + 1) + 1 or floor
        end = kinds.find(end_sign, at)
        end = len(kinds) if end < 0 else end
        if end - start >= _LEAST:
            yield start, end
        floor = max(end, at + 1)
        at = max(end + _LEAST, at + _LEAST)


def _is_encoded(raw: bytes, kinds: bytes, padding: int) -> bool:
    """A stretch of one alphabet and white space: a run without a break in it, or the whole, broken as it is."""
    size = len(kinds)
    for start, end in _stretches(kinds, b" "):
        if end - start + (padding if end == size else 0) > LIMIT and _is_run(raw[start:end], kinds[start:end]):
            return True
    if b"U" not in kinds:
        return False
    return any(_length(raw, kinds, start, end, padding) > LIMIT for start, end in _broken_runs(raw, kinds))


class _Look(Enum):
    ENCODED = "encoded"
    POSSIBLE = "possible"  # nothing speaks for Base64 but much of it may look so: joins what is, proves nothing
    OTHER = "other"


def _is_run(raw: bytes, kinds: bytes) -> bool:
    return b"U" in kinds and not _is_hex(raw, kinds) and not _is_wordy(raw, kinds)


def _is_hex(raw: bytes, kinds: bytes) -> bool:
    """Upper-case hex, which has many digits; Base64 of sparse bytes may keep to these letters too, but has few."""
    raw = raw.removeprefix(b"0x")
    return kinds.count(b"d") * 4 >= len(raw) and not raw.translate(None, b"0123456789ABCDEF-_+/ \t\r\n\v\f")


def _is_wordy(raw: bytes, kinds: bytes) -> bool:
    """A path, a slug or many names: lower case in the main, divided or of many letters, with capitals only where words begin."""
    size = len(kinds)
    if kinds.count(b"l") * 10 < size * 4 or _odd_capitals(b" " + kinds) * 33 > size:
        return False
    return kinds.count(b"s") * 25 >= size or len(set(raw[:LIMIT])) > 12


def _odd_capitals(kinds: bytes) -> int:
    """Capitals after a small letter or digit that begin no word: `camelCase` has none, Base64 one in five characters."""
    words = kinds.count(b"Ull") - kinds.count(b" Ull") - kinds.count(b"sUll") - kinds.count(b"UUll")
    return kinds.count(b"lU") + kinds.count(b"dU") - words


def _look(raw: bytes, kinds: bytes) -> _Look:
    kinds = b" " + kinds
    upper, lower, digits, symbols = (kinds.count(kind) for kind in (b"U", b"l", b"d", b"s"))
    size = upper + lower + digits + symbols
    tokens = sum(kinds.count(start) for start in (b" U", b" l", b" d", b" s"))
    if size >= LINE * max(1, tokens - 1):  # the first and the last may be cut
        if _is_wordy(raw, kinds):
            return _Look.OTHER
        return _Look.POSSIBLE if upper * 20 < size or _is_hex(raw, kinds) else _Look.ENCODED
    if _odd_capitals(kinds) * 14 >= size and min(upper, lower) * 12 >= size and (digits + symbols) * 30 >= size:
        return _Look.ENCODED
    if upper * 5 >= size and size * 2 >= 15 * tokens and (raw.count(b"A") * 2 >= size or len(set(raw)) <= 6):
        return _Look.ENCODED  # of zeros, or of ever the same few bytes: AAAA, QUJD
    return _Look.OTHER


def _broken_runs(raw: bytes, kinds: bytes) -> Iterator[tuple[int, int]]:
    """Where windows in a row look encoded, with one window more on either side: the run begins and ends somewhere in them."""
    size = len(kinds)
    start, is_proven = -1, False
    for at in range(0, size, _WINDOW):
        here = slice(min(at, max(0, size - _WINDOW)), at + _WINDOW)
        look = _look(raw[here], kinds[here])
        if look is _Look.OTHER:
            if is_proven:
                yield max(0, start - _WINDOW), min(size, at + _WINDOW)
            start, is_proven = -1, False
            continue
        start = at if start < 0 else start
        is_proven = is_proven or look is _Look.ENCODED
    if is_proven:
        yield max(0, start - _WINDOW), size


_TOKEN = re.compile(rb"\S+")
_WORD = re.compile(rb"[A-Z]?[a-z]{1,23}|[A-Z]{2,12}|[0-9]{1,12}|[AI]")


def _length(raw: bytes, kinds: bytes, start: int, end: int, padding: int) -> int:
    """From the first to the last token that is no ordinary word beside the run, with the padding if it ends there."""
    if end - start > 4 * LIMIT:
        return end - start  # no words beside it make this one short
    start = kinds.rfind(b" ", 0, start) + 1 if start else 0
    after = kinds.find(b" ", end)
    end = len(kinds) if after < 0 else after
    tokens = [found.span() for found in _TOKEN.finditer(raw, start, end)]
    has_lines = any(last - first >= LINE for first, last in tokens)
    low, high = 0, len(tokens) - 1
    while low < high and _is_beside(raw[slice(*tokens[low])], raw[tokens[low][1] : tokens[low + 1][0]], has_lines=has_lines):
        low += 1
    while low < high and _is_beside(raw[slice(*tokens[high])], raw[tokens[high - 1][1] : tokens[high][0]], has_lines=has_lines):
        high -= 1
    first, last = tokens[low][0], tokens[high][1]
    return last - first + (padding if last == len(kinds) else 0)


def _is_beside(token: bytes, gap: bytes, *, has_lines: bool) -> bool:
    """Whether the outermost token is not of the run: a word, or something short that only a space divides from long lines."""
    if _WORD.fullmatch(token) and not (len(token) > 1 and token == token[:1] * len(token)):
        return True
    return has_lines and gap == b" " and len(token) < 24
