"""Where Base64 stands in a text that is told as it comes: what to tell in one piece, and what to wait for. CC-23

Owns the borders between Base64 and the words around it, as far as their look shows them. Whether it is Base64 is for
`encoded` to say.
"""

import re

from easel.core.stream.cut_up import Span
from easel.core.stream.encoded import holds_encoded
from easel.core.stream.look import EVERYWHERE, Look, is_word, look

_STEP = 256  # characters judged at a time
_FEWEST = 128  # of which anything can be said
_WORD, _WORDS = re.compile(r"[A-Za-z][a-z]*[.,:;!?]?"), 4
_ODD = re.compile(r"[A-Za-z0-9+/_-]{8,}=*")


def encoded_parts(text: str) -> list[Span]:
    """The parts of a text that hold Base64 over the limit, with as little of the rest as the look of it allows."""
    if not holds_encoded(text):
        return []
    parts: list[Span] = []
    start = -1
    for at in range(0, len(text) + _STEP, _STEP):
        if _looks_encoded(text[at : at + _STEP]):
            start = at if start < 0 else start
        elif start >= 0:
            begin, end = _trimmed(text, max(0, start - _STEP), at + _STEP)
            begin = max(begin, parts[-1][1] if parts else 0)
            if holds_encoded(text[begin:end]):
                parts.append((begin, end))
            start = -1
    return parts or [(0, len(text))]


def encoded_end(text: str) -> int:
    """Where Base64 begins that the text ends in and that may go on; the end of the text, if it does not look so."""
    at = len(text)
    while at > 0 and _looks_encoded(text[max(0, at - _STEP) : at]):
        at = max(0, at - _STEP)
    if at == len(text) or all(map(_WORD.fullmatch, text[-_STEP:].split()[-_WORDS:])):
        return len(text)  # four words in a row are no Base64, however small its pieces
    return _trimmed(text, max(0, at - _STEP), len(text))[0]


def _looks_encoded(text: str) -> bool:
    if len(text) < _FEWEST:
        return False
    raw = text.encode("utf-8", "surrogatepass")
    kinds = raw.translate(EVERYWHERE)
    return kinds.count(b"U") * 20 >= len(kinds) - kinds.count(b" ") and look(raw, kinds) is Look.ENCODED


def _trimmed(text: str, start: int, end: int) -> Span:
    """Without the words before and behind, if there is anything but words."""
    before = _odd(text, start, start + 3 * _STEP)
    start = before[0][0] if before else start
    behind = _odd(text, max(start, end - 3 * _STEP), end)
    return start, behind[-1][1] if behind else min(end, len(text))


def _odd(text: str, start: int, end: int) -> list[Span]:
    return [
        found.span()
        for found in _ODD.finditer(text, start, end)
        if not is_word(found[0].rstrip("=").encode())
    ]
