"""The JSON text of stored data, in a form that every supported database accepts."""

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

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
