"""The JSON text of stored data, in a form that every supported database accepts."""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from easel.errors import BadInput

_encode = msgspec.json.Encoder().encode
_HALF_PAIRS = re.compile("[\ud800-\udfff]")


def to_json(data: Any) -> str:
    """Return compact JSON. Replaces NUL and half surrogate pairs, which databases refuse, by U+FFFD."""
    try:
        text = _encode(data)
    except UnicodeEncodeError:
        text = _encode(_replace_unstorable(data))
    if b"\\u0000" in text:
        text = _encode(_replace_unstorable(data))
    return text.decode()


def to_storable_text(text: str) -> str:
    """Return the text for a text column, with the characters replaced that `to_json` replaces too."""
    return _HALF_PAIRS.sub("\ufffd", text.replace("\x00", "\ufffd"))


def _replace_unstorable(value: Any) -> Any:
    if isinstance(value, str):
        return to_storable_text(value)
    if isinstance(value, Mapping):
        return {
            _replace_unstorable(key): _replace_unstorable(item)
            for key, item in cast("Mapping[Any, Any]", value).items()
        }
    if isinstance(value, (list, tuple)):
        return [_replace_unstorable(item) for item in cast("list[Any]", value)]
    return value


def refuse_duplicate_keys(text: bytes | str) -> None:
    """Raise `BadInput` if an object has the same key twice: two readers could use different values."""
    # Numbers are not converted: only keys are checked, and the conversion of a long number is slow.
    json.loads(text, object_pairs_hook=_check_pairs, parse_int=len, parse_float=len)


def _check_pairs(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) != len({key for key, _ in pairs}):
        raise BadInput(problem="The JSON has the same key twice in one object.")
