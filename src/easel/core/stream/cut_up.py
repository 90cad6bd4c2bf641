"""Base64 that was cut up: pieces with other things between them, in a text or over the strings of a value. CC-23

Owns how pieces are told from what stands between them. Windows that look encoded when all that is no letter or digit is taken for
a space are looked at closely. What recurs there (`chunk`, `x +=`, `<br>`, line numbers) is glue. What is left has to look
encoded, with few kinds of glue between or in long pieces, and to be no list of `identifiers`. A piece that ends in its padding
or begins with a known head is a whole and ends a run. The length of a run is that of its pieces alone.

Linear in the text: each window is judged once, each token of a likely stretch once.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from easel.core.stream.identifiers import HEAD, are_identifiers, ends_whole
from easel.core.stream.look import EVERYWHERE, LINE, Look, is_mixed, is_nearly_hex, is_run, is_word, look
from easel.core.stream.marker import LIMIT

_WINDOW = 512  # bytes judged at a time
_BLOCK = 32 * LIMIT  # bytes looked at closely at a time
_MAX_GLUE_LENGTH = 16  # characters of a token that is no piece
_MAX_BETWEEN_LENGTH = 64  # characters between two pieces that are compared
_KINDS_BETWEEN = (
    3  # so few ways to divide one piece from the next: brackets around pairs of them, commas in those
)
_WHOLE, _VARIED = (
    128,
    44,
)  # characters and how many different: by chance, or in the lines of a monotonous text, this does not come again
_ALIKE = bytes.maketrans(
    b"123456789\0", b"000000000 "
)  # one number is as good as another, and what divides two strings is a space
# What stands around the names of keys and certificates is of the alphabet, and yet it is none of theirs.
RULED, RULE = b"-----", b"\x01" * 5
_TOKEN = re.compile(rb"([A-Za-z0-9+/_-]+)")

Span = tuple[int, int]


def cut_up(raw: bytes) -> Iterator[list[Span]]:
    """The pieces of each run that is over LIMIT."""
    for start, end in _likely(raw):
        at = start
        while end - at > LIMIT:
            stop = _token_end(raw, at + _BLOCK) if end - at > _BLOCK + LIMIT else end
            yield from _runs(raw[at:stop], at)
            at = stop


def _token_end(raw: bytes, at: int) -> int:
    found = _TOKEN.match(raw, at)
    return found.end() if found else at


# --- where to look closely --------------------------------------------------------------------------------------------


def _likely(raw: bytes) -> Iterator[Span]:
    """Where windows in a row look encoded, with one window more on either side."""
    kinds = raw.translate(EVERYWHERE)
    size = len(kinds)
    start = -1
    for at in range(0, size, _WINDOW):
        if _is_likely(raw, kinds, at):
            start = at if start < 0 else start
        elif start >= 0:
            yield max(0, start - _WINDOW), min(size, at + _WINDOW)
            start = -1
    if start >= 0:
        yield max(0, start - _WINDOW), size


def _is_likely(raw: bytes, kinds: bytes, at: int) -> bool:
    if kinds.count(b"U", at, at + _WINDOW) < _WINDOW // 30:
        return False
    here = slice(min(at, max(0, len(kinds) - _WINDOW)), at + _WINDOW)
    seen = kinds[here]
    if is_mixed(seen, diluted=2):
        return True
    tokens = seen.split()
    size = sum(map(len, tokens))
    if size * 9 < len(tokens) * 10:  # nearly every letter stands alone
        return is_mixed(b"".join(tokens))
    long = sum(len(token) for token in tokens if len(token) >= LINE)
    return long * 2 >= size or look(raw[here], seen) is Look.ENCODED


# --- what is there ----------------------------------------------------------------------------------------------------


def _runs(raw: bytes, offset: int) -> Iterator[list[Span]]:
    parts = _TOKEN.split(raw)
    tokens, gaps = parts[1::2], parts[::2]
    chosen = _chosen(tokens, gaps)
    if not chosen:
        return
    ends = list(accumulate(map(len, parts)))[1::2]
    run: list[Span] = []
    size = 0
    for at, goes_on in _with_ends(tokens, gaps, chosen):
        length = len(tokens[at])
        if not goes_on:
            if size > LIMIT:
                yield run
            run, size = [], 0
        run.append((offset + ends[at] - length, offset + ends[at]))
        size += length
    if size > LIMIT:
        yield run


def _chosen(tokens: list[bytes], gaps: list[bytes]) -> list[int]:
    """Which tokens are pieces of Base64; none, if it is something else that looks odd."""
    if sum(len(token) == 1 for token in tokens) * 10 >= len(tokens) * 9:
        letters = b"".join(tokens)
        return (
            list(range(len(tokens)))
            if len(set(letters)) >= 32 and is_mixed(letters.translate(EVERYWHERE))
            else []
        )
    reading = _read(tokens, gaps)
    size = sum(len(tokens[at]) for at in reading.odd)
    are_long = sum(len(tokens[at]) for at in reading.odd if len(tokens[at]) >= LINE) * 4 >= size * 3
    chosen = (
        [at for at in reading.odd if len(tokens[at]) >= LINE or at in reading.rests]
        if are_long
        else reading.odd
    )
    found = [tokens[at] for at in chosen]
    size = sum(map(len, found))
    if size <= LIMIT or size < reading.words or size < 3 * len(found):
        return []
    extent = sum(map(len, tokens[chosen[0] : chosen[-1] + 1])) + sum(
        map(len, gaps[chosen[0] + 1 : chosen[-1] + 1])
    )
    are_regular = (
        sum(times for _, times in reading.between.most_common(_KINDS_BETWEEN)) * 20
        >= reading.between.total() * 17
    )
    if not (are_regular and size * 6 >= extent) and not (are_long and size * 2 >= extent):
        return []
    whole = b" ".join(found)
    if (
        look(whole, whole.translate(EVERYWHERE)) is not Look.ENCODED
        or is_nearly_hex(whole)
        or are_identifiers(found)
    ):
        return []
    return chosen


@dataclass(slots=True)
class _Reading:
    odd: list[int] = field(default_factory=list[int])  # tokens that are neither glue nor words
    rests: set[int] = field(
        default_factory=set[int]
    )  # short ones of these that follow a long one, as the end of a text does
    words: int = 0  # characters in words
    between: Counter[bytes] = field(
        default_factory=Counter[bytes]
    )  # what stands between tokens that are no glue, digits as 0


def _read(tokens: list[bytes], gaps: list[bytes]) -> _Reading:
    plains = [token.translate(_ALIKE) for token in tokens]
    glue = _glue(plains)
    reading = _Reading()
    between: Counter[bytes] = Counter()
    gap, gap_before, is_after_long = b"", b"", False
    for at, plain in enumerate(plains):
        is_glue = plain in glue
        if len(gap) < _MAX_BETWEEN_LENGTH:
            gap += gaps[at] + plain if is_glue else gaps[at]
        if is_glue:
            continue
        between[gap] += 1
        size = len(plain)
        is_long, token = size >= LINE, tokens[at]
        if (
            is_after_long
            and not is_long
            and (_spaced(gap) == _spaced(gap_before) != b"" or not is_word(token))
        ):
            reading.rests.add(at)
            reading.odd.append(at)
        elif is_word(token) or (is_long and not is_run(token, token.translate(EVERYWHERE))):
            reading.words += size
        else:
            reading.odd.append(at)
        gap, gap_before, is_after_long = b"", gap, is_long
    for gap, times in between.items():
        reading.between[_spaced(gap)] += times
    return reading


def _spaced(gap: bytes) -> bytes:
    return b" ".join(gap[:_MAX_BETWEEN_LENGTH].translate(_ALIKE).split())


def _glue(plains: list[bytes]) -> set[bytes]:
    """Tokens that recur, with any digits in them, and all numbers."""
    times = Counter(plain for plain in plains if len(plain) <= _MAX_GLUE_LENGTH)
    often = max(3, len(plains) // 20)
    return {plain for plain, count in times.items() if count >= often or not plain.strip(b"0")}


def _with_ends(tokens: list[bytes], gaps: list[bytes], chosen: list[int]) -> Iterator[tuple[int, bool]]:
    """Each piece, and whether it goes on from the one before: not after padding, nor with a head of its own, nor a second time."""
    padded = [at for at in chosen if gaps[at + 1].startswith(b"=") and gaps[at + 1].strip(b"=")]
    right = {at for at in padded if ends_whole(tokens[at], 2 if gaps[at + 1].startswith(b"==") else 1)}
    ended = right if len(right) * 10 >= len(padded) * 9 else set[int]()
    heads = {at for at in chosen if HEAD.match(tokens[at])}
    if len(heads) * 3 < len(chosen) or len({tokens[at] for at in heads}) * 2 <= len(heads):
        heads = set[int]()
    seen: set[bytes] = set()
    goes_on = True
    for at in chosen:
        token = tokens[at]
        if token[:LINE] in seen:
            continue  # the same again, or as much of it as there was room for
        if len(token) >= _WHOLE and len(set(token)) >= _VARIED:
            seen.add(token[:LINE])
        is_named = gaps[at].endswith(b"base64,") or (
            gaps[at].rstrip() == RULE != gaps[at] and at > 0 and is_word(tokens[at - 1])
        )
        yield at, goes_on and at not in heads and not is_named
        goes_on = at not in ended
