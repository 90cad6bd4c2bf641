"""Names and schemas of tools as the providers accept them. Has no provider library.

A tool of a node is called `{nodeId}__{Tool}`, with dots and colons and up to 128 characters; providers take
at most 64 of `a-zA-Z0-9_-`. A wire name is a function of the tool's name alone, so that a name in an old step
stays the same whatever tools are offered later.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

MAX_WIRE_NAME = 64
MAX_SCHEMA_DEPTH = 32
MAX_SCHEMA_PARTS = 5_000  # after references were replaced: a small schema can expand without end
_WIRE_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}")
_HASH_LENGTH = 8

# Gemini: a subset of OpenAPI 3.0, without `additionalProperties` at any depth
_GEMINI_KEYWORDS = frozenset(
    {"type", "description", "enum", "items", "properties", "required", "anyOf"}
    | {"minItems", "maxItems", "minimum", "maximum"}
)
_COMBINATORS = ("allOf", "anyOf", "oneOf")
_NOT_AT_TOP = frozenset({*_COMBINATORS, "enum", "not", "if", "then", "else", "const"})
_SCHEMA_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_SCHEMA_LISTS = frozenset({*_COMBINATORS, "prefixItems"})
_DATA = frozenset({"enum", "const", "default", "examples", "required", "dependentRequired"})


@dataclass(frozen=True, slots=True)
class Dialect:
    """The schema keywords of a provider. `keywords` is None if it takes JSON Schema as it is."""

    keywords: frozenset[str] | None = None


JSON_SCHEMA = Dialect()
GEMINI = Dialect(_GEMINI_KEYWORDS)


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


def to_wire_schema(schema: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Return the schema of a tool's arguments: an object at the top, and only keywords of the dialect."""
    root = dict(schema)
    adapted = _Adapter(root, dialect).adapt(root, depth=0, open_refs=())
    return _as_object(adapted)


def _as_object(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without alternatives at the top, which no provider takes there.

    The properties of all alternatives are offered; the host checks the arguments against the whole schema.
    """
    properties = dict(_members(schema.get("properties")))
    required = list(_items(schema.get("required")))
    for combinator in _COMBINATORS:
        for branch in map(_members, _items(schema.get(combinator))):
            for name, value in _members(branch.get("properties")).items():
                properties.setdefault(name, value)
            if combinator == "allOf":
                required += _items(branch.get("required"))
    rest = {
        key: value
        for key, value in schema.items()
        if key not in _NOT_AT_TOP and key not in ("type", "properties", "required")
    }
    known = [name for name in dict.fromkeys(required) if name in properties]
    return {"type": "object", "properties": properties, **({"required": known} if known else {}), **rest}


class _Adapter:
    def __init__(self, root: dict[str, Any], dialect: Dialect) -> None:
        self._root = root
        self._keywords = dialect.keywords
        self._parts_left = MAX_SCHEMA_PARTS

    def adapt(self, schema: Any, depth: int, open_refs: tuple[str, ...]) -> dict[str, Any]:
        """Return a part of the schema in the dialect. A part that is too deep or endless allows any value."""
        self._parts_left -= 1
        if not isinstance(schema, dict) or depth > MAX_SCHEMA_DEPTH or self._parts_left <= 0:
            return {}
        part = cast("dict[str, Any]", schema)
        if self._keywords is None:
            return self._adapt_members(part, depth, open_refs)
        if isinstance(reference := part.get("$ref"), str):
            if reference in open_refs:
                return {}
            siblings = {key: value for key, value in part.items() if key != "$ref"}
            merged = {**_members(_follow(self._root, reference)), **siblings}
            return self.adapt(merged, depth + 1, (*open_refs, reference))
        adapted = self._adapt_members(_simplify(part), depth, open_refs)
        if "required" in adapted:
            known = [name for name in adapted["required"] if name in adapted.get("properties", {})]
            adapted = {key: value for key, value in adapted.items() if key != "required"}
            if known:
                adapted["required"] = known
        return adapted

    def _adapt_members(self, part: dict[str, Any], depth: int, open_refs: tuple[str, ...]) -> dict[str, Any]:
        adapted: dict[str, Any] = {}
        for key, value in part.items():
            if key.startswith("x-") or (self._keywords is not None and key not in self._keywords):
                continue
            if key in _DATA or (key == "type" and isinstance(value, (str, list))):
                adapted[key] = value
            elif key in _SCHEMA_MAPS and isinstance(value, dict):
                adapted[key] = {
                    name: self._adapt_or_keep(member, depth, open_refs)
                    for name, member in cast("dict[str, Any]", value).items()
                }
            elif key in _SCHEMA_LISTS and isinstance(value, list):
                adapted[key] = [
                    self._adapt_or_keep(member, depth, open_refs) for member in cast("list[Any]", value)
                ]
            elif isinstance(value, dict):
                adapted[key] = self.adapt(value, depth + 1, open_refs)
            else:
                adapted[key] = value
        return adapted

    def _adapt_or_keep(self, member: Any, depth: int, open_refs: tuple[str, ...]) -> Any:
        if isinstance(member, bool) and self._keywords is None:
            return member
        return self.adapt(member, depth + 1, open_refs)


def _simplify(part: dict[str, Any]) -> dict[str, Any]:
    """Express what the subset has in other words: `const`, `oneOf`, `allOf` and a list of types."""
    part = dict(part)
    if "const" in part:
        part["enum"] = [part.pop("const")]
    if "oneOf" in part and "anyOf" not in part:
        part["anyOf"] = part.pop("oneOf")
    for branch in map(_members, _items(part.pop("allOf", None))):
        for key, value in branch.items():
            if key == "properties":
                part["properties"] = {**_members(value), **_members(part.get("properties"))}
            else:
                part.setdefault(key, value)
    if isinstance(kinds := part.get("type"), list):
        types = cast("list[Any]", kinds)
        rest = {key: part.pop(key) for key in ("enum", "items", "properties", "required") if key in part}
        part.pop("type")
        part["anyOf"] = [{"type": kind, **(rest if kind != "null" else {})} for kind in types]
    if "enum" in part:
        # An enum of Gemini is a list of strings with the type string; other values are described instead.
        values = cast("list[Any]", part["enum"])
        if all(isinstance(value, str) for value in values):
            part["type"] = "string"
        else:
            part.pop("enum")
            allowed = ", ".join(str(value) for value in values)
            part["description"] = f"{part.get('description', '')} One of: {allowed}".strip()
    if part.get("type") == "array":
        part.setdefault("items", {})
    return part


def _follow(root: dict[str, Any], reference: str) -> Any:
    """Return the part of the schema that a reference such as `#/$defs/Name` names, or None."""
    if not reference.startswith("#/"):
        return root if reference == "#" else None
    value: Any = root
    for step in reference[2:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(value, dict) or key not in value:
            return None
        value = cast("dict[str, Any]", value)[key]
    return value


def _members(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _items(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
