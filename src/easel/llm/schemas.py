"""Names and schemas of tools as the providers accept them. Has no provider library.

A tool of a node is called `{nodeId}__{Tool}`, with dots and colons and up to 128 characters; providers take
at most 64 of `a-zA-Z0-9_-`. A wire name is a function of the tool's name alone, so that a name in an old step
stays the same whatever tools are offered later.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

MAX_WIRE_NAME = 64
_WIRE_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}")
_HASH_LENGTH = 8

_COMBINATORS = ("allOf", "anyOf", "oneOf")
_NOT_AT_TOP = frozenset({*_COMBINATORS, "enum", "not", "if", "then", "else", "const"})
_SCHEMA_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_DATA = frozenset({"enum", "const", "default", "examples", "required", "dependentRequired"})


def to_wire_name(tool: str) -> str:
    """Return the tool's name for a provider: the name itself if it fits, else a shortened one with a hash."""
    if _WIRE_NAME.fullmatch(tool):
        return tool
    digest = hashlib.sha256(tool.encode()).hexdigest()[:_HASH_LENGTH]
    readable = re.sub(r"[^a-zA-Z0-9_-]", "_", tool)
    if not readable[:1].isalpha():
        readable = f"t_{readable}"
    return f"{readable[: MAX_WIRE_NAME - _HASH_LENGTH - 1]}_{digest}"


def tool_names(tools: Iterable[str]) -> dict[str, str]:
    """Return the tools' names by wire name."""
    return {to_wire_name(tool): tool for tool in tools}


def to_wire_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments for a provider: an object at the top, without our `x-` members.

    No provider takes alternatives at the top, so the properties of all of them are offered. The host checks
    the arguments against the whole schema.
    """
    adapted = _without_marks(dict(schema))
    properties = dict(_members(adapted.get("properties")))
    required = list(_items(adapted.get("required")))
    for combinator in _COMBINATORS:
        for branch in map(_members, _items(adapted.get(combinator))):
            for name, value in _members(branch.get("properties")).items():
                properties.setdefault(name, value)
            if combinator == "allOf":
                required += _items(branch.get("required"))
    rest = {
        key: value
        for key, value in adapted.items()
        if key not in _NOT_AT_TOP and key not in ("type", "properties", "required")
    }
    known = [name for name in dict.fromkeys(required) if name in properties]
    return {"type": "object", "properties": properties, **({"required": known} if known else {}), **rest}


def _without_marks(schema: Any) -> Any:
    """Return a part of a schema without the keywords that begin with `x-`, which are for the host."""
    if isinstance(schema, list):
        return [_without_marks(part) for part in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    adapted: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", schema).items():
        if key in _DATA:
            adapted[key] = value
        elif key in _SCHEMA_MAPS:
            adapted[key] = {name: _without_marks(part) for name, part in _members(value).items()}
        elif not key.startswith("x-"):
            adapted[key] = _without_marks(value)
    return adapted


def _members(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _items(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
