"""Event data as the JSON text that is stored, in one form that every database takes."""

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

_encode = msgspec.json.Encoder().encode
_HALF_PAIRS = re.compile("[\ud800-\udfff]")


def to_json(data: Any) -> str:
    """Compact JSON. What no database and no browser can carry (NUL, half a surrogate pair) becomes U+FFFD."""
    try:
        text = _encode(data)
    except UnicodeEncodeError:
        text = _encode(_storable(data))
    if b"\\u0000" in text:
        text = _encode(_storable(data))
    return text.decode()


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return _HALF_PAIRS.sub("\ufffd", value.replace("\x00", "\ufffd"))
    if isinstance(value, Mapping):
        return {_storable(key): _storable(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_storable(item) for item in cast("list[Any]", value)]
    return value
