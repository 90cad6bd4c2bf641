"""What a JSON text takes when it is stored: every byte as written, but for numbers with an exponent.

Owns that one difference. A database that keeps numbers as decimals writes `1e308` out in 309 digits and `1e-7` in nine
characters, and so it is read back, by whichever store: an event is weighed as the longest of them writes it. Pure.
"""

import re
from collections.abc import Iterable

_NEVER_AN_EXPONENT = frozenset({str, int, bool, type(None)})
# All that may stand beside a number becomes a comma and all that is in one goes, but for the `e`: `:1.5e-7}` is `,e,`. One
# pass without a branch, which costs an ordinary event less than any search for a digit beside an `e`.
_BESIDE, _INSIDE = bytes.maketrans(b":[]}", b",,,,"), b"0123456789.-"
_STRING_OR_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|-?(\d+)(?:\.(\d+))?e(-?\d+)')


def added_by_storing(text: str, parts: Iterable[object]) -> int:
    """How many bytes longer the JSON text of an object with these parts is when it is read back."""
    if _NEVER_AN_EXPONENT.issuperset(map(type, parts)) or b",e," not in text.encode().translate(
        _BESIDE, _INSIDE
    ):
        return 0
    return sum(_added(found) for found in _STRING_OR_NUMBER.finditer(text) if found[3])


def added_to_number(written: bytes) -> int:
    found = _STRING_OR_NUMBER.fullmatch(written.decode()) if b"e" in written else None
    return _added(found) if found else 0


def _added(number: re.Match[str]) -> int:
    whole, fraction, exponent = len(number[1]), len(number[2] or ""), int(number[3])
    places = max(0, fraction - exponent)  # behind the point
    stored = max(1, whole + exponent) + (1 + places if places else 0)
    written = len(number[0]) - number[0].startswith("-")
    return max(0, stored - written)
