"""The parts of a tool's JSON Schema that describe one place of its arguments.

Owns the walk through a schema: combinations, conditions and references count as alternatives, and nothing is
evaluated. Does not validate: see `host/tools/schema.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

_BRANCHES = ("allOf", "anyOf", "oneOf")
_CONDITIONS = ("then", "else", "not", "if")
_PATTERNS = "patternProperties"
_OTHERS = ("additionalProperties", "unevaluatedProperties")
_ELEMENTS = ("items", "additionalItems", "unevaluatedItems", "contains")
_MAX_ALTERNATIVES = 1_000


def find_schemas(root: Mapping[str, Any], path: Sequence[str | int]) -> list[Mapping[str, Any]]:
    """Return every schema that may apply to the argument at `path`."""
    level = find_alternatives(root, [root])
    for step in path:
        level = find_alternatives(root, [part for schema in level for part in inner_schemas(schema, step)])
    return level


def find_alternatives(root: Mapping[str, Any], schemas: list[Any]) -> list[Mapping[str, Any]]:
    """Return the schemas and every schema that they combine (`allOf`, `if`, …) or reference (`$ref`)."""
    found: dict[int, Mapping[str, Any]] = {}
    waiting = list(schemas)
    while waiting and len(found) < _MAX_ALTERNATIVES:
        candidate = waiting.pop()
        if not isinstance(candidate, Mapping) or id(cast(Any, candidate)) in found:
            continue
        schema = cast("Mapping[str, Any]", candidate)
        found[id(schema)] = schema
        waiting += [branch for name in _BRANCHES for branch in list_of(schema.get(name))]
        waiting += [schema.get(name) for name in _CONDITIONS]
        waiting += members_of(schema.get("dependentSchemas")).values()
        waiting += _resolve_reference(root, schema.get("$ref"))
    return list(found.values())


def _resolve_reference(root: Mapping[str, Any], reference: Any) -> list[Any]:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return []
    target: Any = root
    for part in reference[1:].split("/")[1:]:
        target = members_of(target).get(part.replace("~1", "/").replace("~0", "~"))
    return [target]


def inner_schemas(schema: Mapping[str, Any], step: str | int) -> Iterator[Any]:
    if isinstance(step, int):
        yield from prefix_items(schema)[step : step + 1]
        yield from (schema.get(name) for name in _ELEMENTS)
        return
    yield members_of(schema.get("properties")).get(step)
    yield from members_of(schema.get(_PATTERNS)).values()
    yield from (schema.get(name) for name in _OTHERS)


def describes_others(schema: Mapping[str, Any]) -> bool:
    return any(members_of(schema.get(name)) for name in (_PATTERNS, *_OTHERS))


def prefix_items(schema: Mapping[str, Any]) -> list[Any]:
    """Return the schemas of the first elements; before 2020-12 they were a list in `items`."""
    return list_of(schema.get("prefixItems")) or list_of(schema.get("items"))


def find_containers(value: Any) -> Iterator[dict[str, Any] | list[Any]]:
    """Yield every object and list in the value, including those in `examples` and `default`."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            members = cast("dict[str, Any]", item)
            yield members
            pending += members.values()
        elif isinstance(item, list):
            items = cast("list[Any]", item)
            yield items
            pending += items


def members_of(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def list_of(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
