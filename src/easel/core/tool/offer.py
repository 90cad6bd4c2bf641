"""The tools that a node declares when it connects, parsed strictly. RS-44

A definition decides how an action is confirmed and quoted (`readOnlyHint`, `x-shell`), so parsing is strict:
unknown members, and hints that are neither true nor false, are refused. Does not check whether a schema is
valid JSON Schema: the host does, because this needs a library.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from easel.core.stream.payload_limit import offload_large_values
from easel.core.tool.definition import X_SHELL, ToolDefinition
from easel.core.tool.node import full_tool_name
from easel.core.tool.schemas import find_containers
from easel.core.validation import (
    MAX_DEPTH,
    check_members,
    is_too_deep,
    refuse,
    require_flag,
    require_list,
    require_object,
    require_text,
)
from easel.core.values.paths import MISSING, get_at
from easel.errors import TooLarge

HINTS = {"readOnlyHint": "read_only", "idempotentHint": "idempotent", "destructiveHint": "destructive"}
# Annotations of the Model Context Protocol; `openWorldHint` and `title` are accepted and not used.
FLAGS = frozenset({*HINTS, "openWorldHint"})
ANNOTATIONS = FLAGS | {"title"}
MAX_TITLE_LENGTH = 200
MEMBERS = frozenset({"name", "description", "inputSchema", "annotations"})
DIALECTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
)
MAX_SCHEMA_PARTS = 20_000  # with every $ref expanded; limits the cost of validating arguments
_REFERENCES_OUTSIDE = (
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveRef",
    "$recursiveAnchor",
    "$vocabulary",
)

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:-]{0,62}[A-Za-z0-9.:-])?")


@dataclass(frozen=True, slots=True)
class OfferLimits:
    tools: int = 200  # all are in the prompt of a model
    tool_bytes: int = 65_536  # of one definition


DEFAULT_LIMITS = OfferLimits()


def parse_offer(node_id: str, raw: Any, limits: OfferLimits) -> Mapping[str, ToolDefinition]:
    """Return the tools by full name, in the order in which they were declared."""
    declared = require_list(raw, "tools", max_items=limits.tools)
    if not declared:
        refuse("tools", "must have at least one entry.")
    tools: dict[str, ToolDefinition] = {}
    for number, tool in enumerate(declared):
        definition = _parse_tool(node_id, tool, f"tools[{number}]", limits)
        if definition.name in tools:
            refuse(f"tools[{number}].name", "is a duplicate.")
        tools[definition.name] = definition
    return tools


def _parse_tool(node_id: str, raw: Any, at: str, limits: OfferLimits) -> ToolDefinition:
    declared = require_object(raw, at)
    check_members(declared, MEMBERS, at)
    if is_too_deep(declared):
        refuse(at, f"is nested deeper than {MAX_DEPTH} levels.")
    if len(msgspec.json.encode(declared)) > limits.tool_bytes:
        raise TooLarge(what=at, limit=limits.tool_bytes)
    if offload_large_values(declared)[1]:
        refuse(at, "must not contain Base64 over 2 KB.")
    name = declared.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        refuse(
            f"{at}.name",
            "must be 1 to 64 letters, digits and . _ : - (a letter or digit first, no _ at its end).",
        )
    description = require_text(
        declared.get("description", ""), f"{at}.description", max_length=limits.tool_bytes, may_be_empty=True
    )
    schema = require_object(declared.get("inputSchema"), f"{at}.inputSchema")
    check_schema(schema, f"{at}.inputSchema")
    hints = _parse_hints(declared.get("annotations", {}), f"{at}.annotations")
    return ToolDefinition(full_tool_name(node_id, name), description, schema, **hints)


def _parse_hints(raw: Any, at: str) -> dict[str, bool]:
    annotations = require_object(raw, at)
    check_members(annotations, ANNOTATIONS, at)
    if "title" in annotations:
        require_text(annotations["title"], f"{at}.title", max_length=MAX_TITLE_LENGTH, may_be_empty=True)
    hints = {
        name: require_flag(value, f"{at}.{name}") for name, value in annotations.items() if name in FLAGS
    }
    return {field: hints.get(hint, False) for hint, field in HINTS.items()}


# --- schemas ------------------------------------------------------------------------------------------------


def check_schema(schema: Mapping[str, Any], at: str) -> None:
    """Raise `BadInput` for a schema with external or recursive references, or with too many parts."""
    dialect = schema.get("$schema", DIALECTS[0])
    if not isinstance(dialect, str) or dialect.removesuffix("#") not in DIALECTS:
        refuse(f"{at}.$schema", f"must be one of {', '.join(DIALECTS)}.")
    if schema.get("type") != "object":
        refuse(f"{at}.type", "must be `object`: a tool's arguments have names.")
    for part in (container for container in find_containers(schema) if isinstance(container, dict)):
        if X_SHELL in part and not isinstance(part[X_SHELL], bool):
            refuse(at, f"{X_SHELL} must be true or false.")
        for word in _REFERENCES_OUTSIDE:
            if isinstance(part.get(word), (str, bool)):
                refuse(at, f"{word} is not supported; a schema may only use $ref to its own $defs.")
    _PartCounter(schema, at).count(schema)


def count_schema_parts(schema: Mapping[str, Any]) -> int:
    """Return how many parts the schema has when every $ref is expanded."""
    return _PartCounter(schema, "schema").count(schema)


def count_values(value: Any) -> int:
    """Return the number of values in a JSON value, including the value itself."""
    return 1 + sum(len(container) for container in find_containers(value))


class _PartCounter:
    """Counts the parts of a schema with every $ref expanded. Raises `BadInput` for an unresolvable $ref."""

    def __init__(self, root: Mapping[str, Any], at: str) -> None:
        self._root = root
        self._at = at
        self._counts: dict[str, int] = {}  # by $ref
        self._open: set[str] = set()  # $refs that are being expanded

    def count(self, value: Any) -> int:
        total = 0
        for container in find_containers(value):
            total += len(container)
            if isinstance(container, dict) and isinstance(container.get("$ref"), str):
                total += self._count_target(container["$ref"])
            if total > MAX_SCHEMA_PARTS:
                refuse(self._at, f"has more than {MAX_SCHEMA_PARTS} parts when its references are expanded.")
        return total

    def _count_target(self, reference: str) -> int:
        if reference in self._open:
            refuse(self._at, f"$ref {reference[:60]!r} refers to itself; a schema must be finite.")
        if len(self._open) >= MAX_DEPTH:
            refuse(self._at, f"has a chain of more than {MAX_DEPTH} references.")
        if reference not in self._counts:
            self._open.add(reference)
            self._counts[reference] = self.count(self._resolve(reference))
            self._open.discard(reference)
        return self._counts[reference]

    def _resolve(self, reference: str) -> Any:
        if not reference.startswith("#/") or "%" in reference:
            refuse(
                self._at,
                f"$ref {reference[:60]!r} refers outside the schema; it must refer to its own $defs.",
            )
        steps = (step.replace("~1", "/").replace("~0", "~") for step in reference[2:].split("/"))
        found = get_at(self._root, list(steps))
        if found is MISSING:
            refuse(self._at, f"$ref {reference[:60]!r} refers to nothing.")
        return found
