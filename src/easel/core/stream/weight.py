"""The growth of a JSON text in the database: Postgres stores numbers without an exponent.

Owns the computation of this growth. As jsonb, `1e308` takes 309 digits and `1e-7` nine characters. An event
is measured by the longer of both forms, with every store.
"""

import re
from collections.abc import Iterable

_NEVER_AN_EXPONENT = frozenset({str, int, bool, type(None)})
# Translation that replaces delimiters of numbers by commas and removes the characters of numbers except `e`:
# `:1.5e-7}` becomes `,e,`. One pass over a text finds numbers with an exponent, faster than a regular
# expression.
_BESIDE, _INSIDE = bytes.maketrans(b":[]}", b",,,,"), b"0123456789.-"
_STRING_OR_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|-?(\d+)(?:\.(\d+))?e(-?\d+)')


def added_by_storing(text: str, parts: Iterable[object]) -> int:
    """Return the bytes that the JSON text of an object grows by when stored. `parts` are its members."""
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
    places = max(0, fraction - exponent)  # digits after the decimal point
    stored = max(1, whole + exponent) + (1 + places if places else 0)
    written = len(number[0]) - number[0].startswith("-")
    return max(0, stored - written)
