"""The rules for passwords: long, and none of those that are guessed first. RS-76

Owns the length, and how a common password or one that is made of the person's name is recognised. Does not
know hashes.
"""

import re
import unicodedata

from easel.core.password.common import LONG, SEQUENCES, WORDS
from easel.errors import BadInput

MIN_LENGTH = 12  # characters
MAX_BYTES = 1_024
MIN_DISTINCT = 5  # characters
MIN_OWN_LENGTH = 8  # characters that remain without the names of the person and of Easel
MIN_NAME_LENGTH = 3  # a shorter name is part of many words

_LETTERS_FOR_SIGNS = str.maketrans("0134578@$!|", "oieastbasil")
_OUTER_SIGNS = re.compile(r"^[\W\d_]+|[\W\d_]+$")
_SIGNS = re.compile(r"[\W_]+")


def normalize_password(password: str) -> str:
    """Return the password as it is hashed: the same for every keyboard that composes its characters."""
    return unicodedata.normalize("NFKC", password)


def is_possible_password(password: str) -> bool:
    """Return whether a text can be a password at all; any other is refused before a hash is computed."""
    return bool(password) and len(password.encode("utf-8", "replace")) <= MAX_BYTES


def check_password(password: str, *names: str | None) -> str:
    """Return the new password of a person with these names, normalized. Raises `BadInput` without it."""
    if not password:
        raise BadInput(problem="The password must not be empty.")
    if len(password.encode("utf-8", "replace")) > MAX_BYTES:
        raise BadInput(problem=f"The password must have at most {MAX_BYTES} bytes.")
    normalized = normalize_password(password)
    if len(normalized) < MIN_LENGTH:
        raise BadInput(problem=f"The password must have at least {MIN_LENGTH} characters.")
    if _is_common(normalized.lower()):
        raise BadInput(problem="This password is one of those that are guessed first; choose another.")
    if _is_made_of(normalized.lower(), names):
        raise BadInput(problem="The password must not be made of your name; choose another.")
    return normalized


def _is_common(text: str) -> bool:
    inner = _OUTER_SIGNS.sub("", text)
    forms = {_SIGNS.sub("", form) for form in (text, inner, inner.translate(_LETTERS_FOR_SIGNS))}
    return (
        len(set(text)) < MIN_DISTINCT
        or text in LONG
        or any(_unit_of(form) in WORDS or form in LONG or _is_sequence(form) for form in forms)
        or _is_sequence(_unit_of(text))
    )


def _unit_of(text: str) -> str:
    """Return the shortest text of which this one is a repetition, such as `abc` of `abcabc`."""
    return text[: (text + text).find(text, 1)]


def _is_sequence(text: str) -> bool:
    return bool(text) and any(text in row or text in row[::-1] for row in SEQUENCES)


def _is_made_of(text: str, names: tuple[str | None, ...]) -> bool:
    """Return whether too little of the text remains without the names and their words."""
    words = {"easel"}
    for name in names:
        lower = unicodedata.normalize("NFKC", name or "").lower()
        words |= {lower, *_SIGNS.split(lower)}
    rest = text
    for word in sorted(words, key=len, reverse=True):
        if len(word) >= MIN_NAME_LENGTH:
            rest = rest.replace(word, "")
    return rest != text and len(rest) < MIN_OWN_LENGTH
