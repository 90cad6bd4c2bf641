"""Which arguments of a tool a shell reads. RS-44, RS-65

A tool marks such an argument with `"x-shell": true` in its schema. Nodes of other projects do not know the
mark, so that an argument with the usual name of a command counts as marked unless its schema has
`"x-shell": false`. Does not know templates.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from easel.core.tool.definition import X_SHELL, ToolDefinition

COMMAND_NAMES = frozenset({"command", "cmd", "script", "shell"})
SHELL_TOOLS = frozenset({"bash", "shell", "sh", "exec"})


def is_shell(definition: ToolDefinition, path: Sequence[str | int]) -> bool:
    """Return whether a shell reads the text argument at `path`, under any interpretation of the schema."""
    marks = {
        subschema[X_SHELL]
        for depth in range(len(path) + 1)
        for subschema in _schemas(definition.schema, path[:depth])
        if isinstance(subschema.get(X_SHELL), bool)
    }
    if True in marks or False in marks:
        return True in marks
    return bool(path) and (path[-1] in COMMAND_NAMES or _reads_every_argument(definition))


def _reads_every_argument(definition: ToolDefinition) -> bool:
    """Return whether the tool is a shell by its name, and no argument is known to be the command."""
    name = definition.name.rpartition("__")[2].lower()
    if name not in SHELL_TOOLS:
        return False
    arguments = _members(definition.schema.get("properties"))
    return COMMAND_NAMES.isdisjoint(arguments) and not _has_mark(definition.schema)


def _has_mark(schema: Any) -> bool:
    """Return whether any part of the schema is marked as read by a shell."""
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if _members(part).get(X_SHELL) is True:
            return True
        waiting += [*_members(part).values(), *_list(part)]
    return False


def _schemas(root: Mapping[str, Any], path: Sequence[str | int]) -> list[Mapping[str, Any]]:
    level = _alternatives(root, [root])
    for step in path:
        level = _alternatives(root, [inner for schema in level for inner in _inner(schema, step)])
    return level


_BRANCHES = ("allOf", "anyOf", "oneOf")
_CONDITIONS = ("then", "else", "not", "if")
_MAX_ALTERNATIVES = 1_000


def _alternatives(root: Mapping[str, Any], schemas: list[Any]) -> list[Mapping[str, Any]]:
    """Return the schemas and every schema that they combine (`allOf`, `if`, …) or reference (`$ref`)."""
    found: dict[int, Mapping[str, Any]] = {}
    waiting = list(schemas)
    while waiting and len(found) < _MAX_ALTERNATIVES:
        candidate = waiting.pop()
        if not isinstance(candidate, Mapping) or id(cast(Any, candidate)) in found:
            continue
        schema = cast("Mapping[str, Any]", candidate)
        found[id(schema)] = schema
        waiting += [branch for name in _BRANCHES for branch in _list(schema.get(name))]
        waiting += [schema.get(name) for name in _CONDITIONS]
        waiting += _resolve_reference(root, schema.get("$ref"))
    return list(found.values())


def _resolve_reference(root: Mapping[str, Any], reference: Any) -> list[Any]:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return []
    target: Any = root
    for part in reference[1:].split("/")[1:]:
        target = _members(target).get(part.replace("~1", "/").replace("~0", "~"))
    return [target]


def _inner(schema: Mapping[str, Any], step: str | int) -> Iterator[Any]:
    if isinstance(step, int):
        yield from _list(schema.get("prefixItems"))[step : step + 1]
        yield schema.get("items")
        return
    yield _members(schema.get("properties")).get(step)
    yield from _members(schema.get("patternProperties")).values()
    yield schema.get("additionalProperties")
    yield schema.get("unevaluatedProperties")


def _members(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
