"""Which arguments of a tool a shell reads. RS-44, RS-65

A tool marks such an argument with `"x-shell": true` in its schema. Nodes of other projects do not know the
mark, so that an argument with the usual name of a command counts as marked unless its schema has
`"x-shell": false`. Does not know templates.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from easel.core.tool.definition import X_SHELL, ToolDefinition

COMMAND_NAMES = frozenset({"command", "cmd", "script", "shell"})
SHELL_TOOLS = frozenset({"bash", "shell", "sh", "exec"})


def is_shell(definition: ToolDefinition, path: Sequence[str | int]) -> bool:
    """Return whether a shell reads the text argument at `path`, under any interpretation of the schema."""
    return _find_place(definition, path).is_shell


def find_shell_texts(
    definition: ToolDefinition, tree: Any, path: Sequence[str | int] = ()
) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every text that a shell reads in a value, which is the argument at `path`."""
    waiting = [(tree, tuple(path), _find_place(definition, path))]
    while waiting:
        value, at, place = waiting.pop()
        if isinstance(value, str):
            if place.is_shell:
                yield at
        elif isinstance(value, (Mapping, list)):
            steps = _items(cast("Mapping[str, Any] | list[Any]", value))
            waiting += [(item, (*at, step), place.inner(step)) for step, item in reversed(steps)]


def may_contain_shell(definition: ToolDefinition, path: Sequence[str | int]) -> bool:
    """Return whether a shell reads the argument at `path`, or a part of it that the schema names."""
    waiting = [_find_place(definition, path)]
    seen: set[tuple[frozenset[int], frozenset[bool], bool]] = set()
    while waiting:
        place = waiting.pop()
        if place.is_shell:
            return True
        key = (frozenset(map(id, place.schemas)), place.marks, place.is_named)
        if key not in seen and len(seen) < _MAX_ALTERNATIVES:
            seen.add(key)
            waiting += [place.inner(step) for step in _known_steps(place.schemas)]
    return len(seen) >= _MAX_ALTERNATIVES  # too large to search


@dataclass(frozen=True, slots=True)
class _Tool:
    schema: Mapping[str, Any]
    reads_every_argument: bool


class _Place:
    """A place in the arguments of a tool: the schemas that may apply, and the marks on the way to it."""

    def __init__(
        self,
        tool: "_Tool",
        schemas: list[Any],
        marks: frozenset[bool] = frozenset(),
        *,
        is_named: bool = False,
    ) -> None:
        self._tool = tool
        self.schemas = _alternatives(tool.schema, schemas)
        own = {schema[X_SHELL] for schema in self.schemas if isinstance(schema.get(X_SHELL), bool)}
        self.marks = marks | own
        self.is_named = is_named  # the place counts as a command unless a mark says otherwise
        self._elements: dict[int, _Place] = {}

    @property
    def is_shell(self) -> bool:
        return True in self.marks if self.marks else self.is_named

    def inner(self, step: str | int) -> "_Place":
        """Return the place of a member or of an element."""
        if isinstance(step, str):
            return self._enter(step)
        # Elements after those of the longest `prefixItems` have the same schemas.
        index = min(step, max((len(_prefix_items(schema)) for schema in self.schemas), default=0))
        if index not in self._elements:
            self._elements[index] = self._enter(index)
        return self._elements[index]

    def _enter(self, step: str | int) -> "_Place":
        inner = [part for schema in self.schemas for part in _inner(schema, step)]
        is_named = step in COMMAND_NAMES or self._tool.reads_every_argument
        return _Place(self._tool, inner, self.marks, is_named=is_named)


def _find_place(definition: ToolDefinition, path: Sequence[str | int]) -> _Place:
    place = _Place(_Tool(definition.schema, _reads_every_argument(definition)), [definition.schema])
    for step in path:
        place = place.inner(step)
    return place


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


_BRANCHES = ("allOf", "anyOf", "oneOf")
_CONDITIONS = ("then", "else", "not", "if")
_PATTERNS = "patternProperties"
_OTHERS = ("additionalProperties", "unevaluatedProperties")
_ELEMENTS = ("items", "additionalItems", "unevaluatedItems", "contains")
_OTHER = "\0"  # a member that no schema names
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
        waiting += _members(schema.get("dependentSchemas")).values()
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
        yield from _prefix_items(schema)[step : step + 1]
        yield from (schema.get(name) for name in _ELEMENTS)
        return
    yield _members(schema.get("properties")).get(step)
    yield from _members(schema.get(_PATTERNS)).values()
    yield from (schema.get(name) for name in _OTHERS)


def _items(container: Mapping[str, Any] | list[Any]) -> list[tuple[str | int, Any]]:
    return [*(enumerate(container) if isinstance(container, list) else container.items())]


def _known_steps(schemas: list[Mapping[str, Any]]) -> set[str | int]:
    """Return the steps to the members and elements that the schemas describe, and to one that none names."""
    names = {name for schema in schemas for name in _members(schema.get("properties"))}
    prefix_length = max((len(_prefix_items(schema)) for schema in schemas), default=0)
    others: set[str | int] = {_OTHER} if any(_describes_others(schema) for schema in schemas) else set()
    elements = any(_members(schema.get(name)) for schema in schemas for name in _ELEMENTS)
    return {*names, *range(prefix_length + elements), *others}


def _describes_others(schema: Mapping[str, Any]) -> bool:
    return any(_members(schema.get(name)) for name in (_PATTERNS, *_OTHERS))


def _prefix_items(schema: Mapping[str, Any]) -> list[Any]:
    """Return the schemas of the first elements; before 2020-12 they were a list in `items`."""
    return _list(schema.get("prefixItems")) or _list(schema.get("items"))


def _members(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
