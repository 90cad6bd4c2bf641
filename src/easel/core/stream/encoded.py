"""Whether a text carries Base64 over the limit, wherever in it and however it is written. CC-23, RS-35

Owns what we take for Base64 and what not. There is no proof either way: a text of letters and digits may mean anything. So
the shape decides (`look`). A run without a break is Base64 unless it reads as something else (no upper case, hex, a path). A run
broken by white space is Base64 if its lines are too long for words, or if upper case stands where no word has it. What else may
stand between pieces is known to `cut_up`. Lists of digests and identifiers (`identifiers` says what tells them), prose, code and
numbers stay what they are.

Works on bytes with whole-buffer operations and looks closer only where a stretch is long enough, so that it is linear in any
text and quick on ordinary ones.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from easel.core.stream.cut_up import RULE, RULED, Span, cut_up
from easel.core.stream.identifiers import are_identifiers
from easel.core.stream.look import LINE, Look, is_run, is_word, look, table
from easel.core.stream.marker import LIMIT

_WINDOW = 512  # bytes judged at a time: enough for shares to mean something, and any stretch over the limit has three of them
_TOKENS = 2_000  # looked at together to tell a list of identifiers
_BETWEEN = "\x00"  # texts that are stored have none
_PADDED = 12  # bytes that two signs of padding may take, as written
_LEAST = LIMIT - _PADDED  # a shorter stretch cannot be over the limit, even with its padding

# As it may be written inside something else → the same length in the plain alphabet, so that length stays "as written".
_WRITTEN_OTHERWISE = {
    b"%": {b"%2B": b"+++", b"%2b": b"+++", b"%2F": b"///", b"%2f": b"///"}
    | dict.fromkeys((b"%0A", b"%0a", b"%0D", b"%0d", b"%20"), b"   "),
    b"\\": {
        rb"\\n": b"   ",
        rb"\\r": b"   ",
        rb"\n": b"  ",
        rb"\r": b"  ",
        rb"\t": b"  ",
        rb"\/": b"//",
        rb"\"": b'""',
    }
    | {rb"\u002b": b"++++++", rb"\u002B": b"++++++", rb"\u002f": b"//////", rb"\u002F": b"//////"},
    b"&#": {b"&#43;": b"+++++", b"&#x2B;": b"++++++", b"&#47;": b"/////", b"&#x2F;": b"//////"}
    | {b"&#10;": b"     ", b"&#13;": b"     ", b"&#xA;": b"     ", b"&#xD;": b"     "},
    RULED: {RULED: RULE},
}
_PADDING = re.compile(rb"(?:=|%3[Dd]|\\u003[Dd]|&#61;|&#x3D;){0,2}")
_NAMED = re.compile(
    rb"base64,([A-Za-z0-9+/_-]{%d,})" % _LEAST
)  # the end of a data: URL's head: whatever follows is Base64 by its own word
_STANDARD, _URL_SAFE, _EITHER = table(b"+/"), table(b"-_"), table(b"+/-_")


def holds_encoded(text: str) -> bool:
    """More than LIMIT characters of Base64 in one piece, counted as written: line breaks, escapes and padding included."""
    if len(text) <= LIMIT:
        return False
    raw = _plain(text)
    return _is_found(raw) or _is_named(raw) or any(cut_up(raw))


def scattered(texts: Sequence[str]) -> Iterator[dict[int, int]]:
    """Base64 that goes on from text to text, over LIMIT in sum: which of them hold how many characters of it."""
    raw = _plain(_BETWEEN.join(texts))
    starts: list[int] = []
    for run in cut_up(raw):
        starts = starts or [0, *(found.end() for found in re.finditer(_BETWEEN.encode(), raw))]
        weights: dict[int, int] = {}
        for first, last in run:
            at = bisect_right(starts, first) - 1
            weights[at] = weights.get(at, 0) + last - first
        yield weights


def _plain(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    for sign, rows in _WRITTEN_OTHERWISE.items():
        if sign in raw:
            for written, plain in rows.items():
                raw = raw.replace(written, plain)
    return raw


def _is_named(raw: bytes) -> bool:
    return any(
        found.end(1) - found.start(1) + _padding(raw, found.end(1)) > LIMIT for found in _NAMED.finditer(raw)
    )


def _is_found(raw: bytes) -> bool:
    for first, last in _stretches(raw.translate(_EITHER), b"."):
        stretch = raw[first:last]
        for kinds in {stretch.translate(alphabet) for alphabet in (_STANDARD, _URL_SAFE, _EITHER)}:
            for start, end in _stretches(kinds, b"."):
                if _is_encoded(stretch[start:end], kinds[start:end], _padding(raw, first + end)):
                    return True
    return False


def _padding(raw: bytes, at: int) -> int:
    found = _PADDING.match(raw, at)
    return len(found[0]) if found else 0


def _stretches(kinds: bytes, end_sign: bytes) -> Iterator[Span]:
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
        if end - start + (padding if end == size else 0) > LIMIT and is_run(raw[start:end], kinds[start:end]):
            return True
    if b"U" not in kinds:
        return False
    return any(
        _length(raw, kinds, start, end, padding) > LIMIT and not _is_list(raw[start:end])
        for start, end in _broken_runs(raw, kinds)
    )


def _is_list(raw: bytes) -> bool:
    """Whether a broken run is many identifiers or LONG_NAMES, here as there: a run among them is none of them."""
    tokens = raw.split()
    if sum(len(token) for token in tokens if len(token) >= LINE and is_word(token)) * 2 > len(raw):
        return True
    tokens = [token for token in tokens if not is_word(token)]
    blocks = max(1, len(tokens) // _TOKENS)
    return all(
        are_identifiers(tokens[len(tokens) * at // blocks : len(tokens) * (at + 1) // blocks])
        for at in range(blocks)
    )


def _broken_runs(raw: bytes, kinds: bytes) -> Iterator[Span]:
    """Where windows in a row look encoded, with one window more on either side: the run begins and ends somewhere in them."""
    size = len(kinds)
    start, is_proven = -1, False
    for at in range(0, size, _WINDOW):
        here = slice(min(at, max(0, size - _WINDOW)), at + _WINDOW)
        seen = look(raw[here], kinds[here])
        if seen is Look.OTHER:
            if is_proven:
                yield max(0, start - _WINDOW), min(size, at + _WINDOW)
            start, is_proven = -1, False
            continue
        start = at if start < 0 else start
        is_proven = is_proven or seen is Look.ENCODED
    if is_proven:
        yield max(0, start - _WINDOW), size


_TOKEN = re.compile(rb"\S+")
_PLAIN_WORD = re.compile(rb"[A-Z]?[a-z]{1,23}|[A-Z]{2,12}|[0-9]{1,12}|[AI]")


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
    while low < high and _is_beside(
        raw[slice(*tokens[low])], raw[tokens[low][1] : tokens[low + 1][0]], has_lines=has_lines
    ):
        low += 1
    while low < high and _is_beside(
        raw[slice(*tokens[high])], raw[tokens[high - 1][1] : tokens[high][0]], has_lines=has_lines
    ):
        high -= 1
    first, last = tokens[low][0], tokens[high][1]
    return last - first + (padding if last == len(kinds) else 0)


def _is_beside(token: bytes, gap: bytes, *, has_lines: bool) -> bool:
    """Whether the outermost token is not of the run: a word, or something short that only a space divides from long lines."""
    if _PLAIN_WORD.fullmatch(token) and not (len(token) > 1 and token == token[:1] * len(token)):
        return True
    return has_lines and gap == b" " and len(token) < 24
