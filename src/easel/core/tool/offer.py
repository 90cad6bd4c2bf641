"""What a node offers: its tools as it declares them when it connects, read strictly. RS-44

A definition decides what a button may do (`readOnlyHint`, `x-shell`), so nothing in it is guessed: a word that is not known and a hint
that is not true or false are refused, with the place. Whether a schema is JSON Schema at all needs a library, and is asked by the host.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from easel.core.stream.payload_limit import light_value
from easel.core.tool.definition import X_SHELL, ToolDefinition
from easel.core.tool.node import full_tool_name
from easel.core.validation import (
    MAX_DEPTH,
    check_members,
    checked_flag,
    checked_list,
    checked_object,
    checked_text,
    is_too_deep,
    refuse,
)
from easel.errors import TooLarge

HINTS = {"readOnlyHint": "read_only", "idempotentHint": "idempotent", "destructiveHint": "destructive"}
# Of the Model Context Protocol's annotations: for people, or of no use to us.
FLAGS = frozenset({*HINTS, "openWorldHint"})
KNOWN_NOTES = FLAGS | {"title"}
MAX_TITLE_LENGTH = 200
KNOWN = frozenset({"name", "description", "inputSchema", "annotations"})
DIALECTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
)
MAX_PARTS = (
    20_000  # of one schema, with every reference written out: so much does checking one value cost at most
)
_ELSEWHERE = (
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveRef",
    "$recursiveAnchor",
    "$vocabulary",
)

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:-]{0,62}[A-Za-z0-9.:-])?")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class OfferLimits:
    tools: int
    tool_bytes: int


def checked_offer(node_id: str, raw: Any, limits: OfferLimits) -> Mapping[str, ToolDefinition]:
    """The tools by their whole names, in the order in which they were declared."""
    declared = checked_list(raw, "tools", most=limits.tools)
    if not declared:
        refuse("tools", "a node offers at least one.")
    tools: dict[str, ToolDefinition] = {}
    for number, one in enumerate(declared):
        definition = _checked(node_id, one, f"tools[{number}]", limits)
        if definition.name in tools:
            refuse(f"tools[{number}].name", "is there already.")
        tools[definition.name] = definition
    return tools


def _checked(node_id: str, raw: Any, at: str, limits: OfferLimits) -> ToolDefinition:
    given = checked_object(raw, at)
    check_members(given, KNOWN, at)
    if is_too_deep(given):
        refuse(at, f"is nested deeper than {MAX_DEPTH} levels.")
    if len(msgspec.json.encode(given)) > limits.tool_bytes:
        raise TooLarge(what=at, limit=limits.tool_bytes)
    if light_value(given)[1]:
        refuse(at, "has Base64 of more than 2 KB in it, which has no place in a definition.")
    name = given.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        refuse(
            f"{at}.name", "is 1 to 64 letters, digits and . _ : - (a letter or digit first, no _ at its end)."
        )
    description = checked_text(
        given.get("description", ""), f"{at}.description", longest=limits.tool_bytes, may_be_empty=True
    )
    schema = checked_object(given.get("inputSchema"), f"{at}.inputSchema")
    check_schema(schema, f"{at}.inputSchema")
    return ToolDefinition(
        full_tool_name(node_id, name),
        description,
        schema,
        **_hints(given.get("annotations", {}), f"{at}.annotations"),
    )


def _hints(raw: Any, at: str) -> dict[str, bool]:
    given = checked_object(raw, at)
    check_members(given, KNOWN_NOTES, at)
    if "title" in given:
        checked_text(given["title"], f"{at}.title", longest=MAX_TITLE_LENGTH, may_be_empty=True)
    hints = {name: checked_flag(value, f"{at}.{name}") for name, value in given.items() if name in FLAGS}
    return {field: hints.get(hint, False) for hint, field in HINTS.items()}


# --- schemas ------------------------------------------------------------------------------------------------------------


def check_schema(schema: Mapping[str, Any], at: str) -> None:
    """That it stands by itself: it refers to nothing elsewhere, never to itself, and checking with it has a bound."""
    dialect = schema.get("$schema", DIALECTS[0])
    if not isinstance(dialect, str) or dialect.removesuffix("#") not in DIALECTS:
        refuse(f"{at}.$schema", f"is one of {', '.join(DIALECTS)}.")
    if schema.get("type") != "object":
        refuse(f"{at}.type", "is `object`: a tool's arguments have names.")
    for part in (one for one in _inside(schema) if isinstance(one, dict)):
        if X_SHELL in part and not isinstance(part[X_SHELL], bool):
            refuse(at, f"{X_SHELL} is true or false.")
        for word in _ELSEWHERE:
            if isinstance(part.get(word), (str, bool)):
                refuse(at, f"{word} is not taken; a schema is whole by itself, with $ref to its own $defs.")
    _Unfolding(schema, at).count(schema)


def parts_of_schema(schema: Mapping[str, Any]) -> int:
    return _Unfolding(schema, "schema").count(schema)


def values_in(value: Any) -> int:
    return 1 + sum(len(part) for part in _inside(value))


class _Unfolding:
    """How many parts a schema has when every reference in it is written out."""

    def __init__(self, root: Mapping[str, Any], at: str) -> None:
        self._root = root
        self._at = at
        self._counts: dict[str, int] = {}  # of the targets of references
        self._open: set[str] = set()

    def count(self, value: Any) -> int:
        total = 0
        for part in _inside(value):
            total += len(part)
            if isinstance(part, dict) and isinstance(part.get("$ref"), str):
                total += self._target(part["$ref"])
            if total > MAX_PARTS:
                refuse(self._at, f"has more than {MAX_PARTS} parts when its references are written out.")
        return total

    def _target(self, reference: str) -> int:
        if reference in self._open:
            refuse(
                self._at,
                f"$ref {reference[:60]!r} leads back to itself; a tool's arguments have a finite shape.",
            )
        if len(self._open) >= MAX_DEPTH:
            refuse(self._at, f"has more than {MAX_DEPTH} references behind one another.")
        if reference not in self._counts:
            self._open.add(reference)
            self._counts[reference] = self.count(self._found(reference))
            self._open.discard(reference)
        return self._counts[reference]

    def _found(self, reference: str) -> Any:
        if not reference.startswith("#/") or "%" in reference:
            refuse(
                self._at,
                f"$ref {reference[:60]!r} leads elsewhere; a schema is whole by itself, with $ref to its own $defs.",
            )
        found: Any = self._root
        for step in reference[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = cast("dict[str, Any]", found)[name]
            elif (
                isinstance(found, list)
                and _INDEX.fullmatch(name)
                and int(name) < len(cast("list[Any]", found))
            ):
                found = cast("list[Any]", found)[int(name)]
            else:
                refuse(self._at, f"$ref {reference[:60]!r} leads to nothing.")
        return found


def _inside(value: Any) -> Iterator[dict[str, Any] | list[Any]]:
    """Every object and list in it, whatever it means: what only looks like a schema is held to the same law."""
    ahead = [value]
    while ahead:
        one = ahead.pop()
        if isinstance(one, dict):
            given = cast("dict[str, Any]", one)
            yield given
            ahead += given.values()
        elif isinstance(one, list):
            items = cast("list[Any]", one)
            yield items
            ahead += items
