"""The alphabet of plain values: in it no shell sees anything but a part of one word. RS-71"""

import unicodedata

MAX_LENGTH = 1_024
_PUNCTUATION = frozenset("_.:/@+,=-")
_NOT_FIRST = "-+/@=,"
# Letters that look like an operator of a shell (clicks), or like nothing (fillers).
_MISLEADING = frozenset("ǀǁǂǃ\u115f\u1160\u3164\uffa0")
_SEGMENT_ENDS = str.maketrans(":=,", "///")
PLAIN = "letters, digits and _ . : / @ + , = -"


def find_plain_problem(value: str, *, may_assign: bool = False, may_be_option: bool = False) -> str | None:
    """Return the reason why a value is not plain, or None.

    `may_assign`: literal text of its word is before it, so that `=` is no assignment.
    """
    if not 0 < len(value) <= MAX_LENGTH:
        return f"must have 1 to {MAX_LENGTH} characters" if value else "is empty"
    for text in (value, unicodedata.normalize("NFKC", value)):
        if (at := _find_foreign(text)) is not None:
            return f"has the character {text[at]!r}" if text is value else "reads like another text"
    if value[0] in _NOT_FIRST and not (value[0] == "-" and may_be_option):
        return f"begins with {value[0]}"
    if {".", ".."} & set(value.translate(_SEGMENT_ENDS).split("/")):
        return "has a segment . or .. of a path"
    if "=" in value and not may_assign:
        return "has a = and no literal text before it"
    return None


def is_number(value: str) -> bool:
    return value.isascii() and value.isdecimal() and len(value) <= MAX_LENGTH


def _find_foreign(text: str) -> int | None:
    """Return the index of the first character that is outside the alphabet."""
    after_letter = False
    for index, char in enumerate(text):
        kind = unicodedata.category(char)
        if kind[0] == "L" and kind != "Lm" and char not in _MISLEADING:
            after_letter = True
        elif kind[0] != "M" or not after_letter:
            after_letter = False
            if char not in _PUNCTUATION and not (char.isascii() and char.isdigit()):
                return index
    return None
