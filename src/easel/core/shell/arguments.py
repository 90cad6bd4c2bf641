"""Which arguments of a tool a shell reads. RS-44, RS-65

A tool marks such an argument with `"x-shell": true` in its schema. Nodes of other projects do not know the
mark, so that an argument with the usual name of a command counts as marked unless its schema has
`"x-shell": false`. Does not know templates.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from easel.core.tool.definition import X_SHELL, ToolDefinition
from easel.core.tool.schemas import (
    find_alternatives,
    inner_schemas,
    known_steps,
    list_of,
    members_of,
    prefix_items,
)

COMMAND_NAMES = frozenset({"command", "cmd", "script", "shell"})
SHELL_TOOLS = frozenset({"bash", "shell", "sh", "exec"})
_MAX_PLACES = 1_000  # that are searched for a command


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
        if key not in seen and len(seen) < _MAX_PLACES:
            seen.add(key)
            waiting += [place.inner(step) for step in known_steps(place.schemas)]
    return len(seen) >= _MAX_PLACES  # too large to search


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
        self.schemas = find_alternatives(tool.schema, schemas)
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
        index = min(step, max((len(prefix_items(schema)) for schema in self.schemas), default=0))
        if index not in self._elements:
            self._elements[index] = self._enter(index)
        return self._elements[index]

    def _enter(self, step: str | int) -> "_Place":
        inner = [part for schema in self.schemas for part in inner_schemas(schema, step)]
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
    arguments = members_of(definition.schema.get("properties"))
    return COMMAND_NAMES.isdisjoint(arguments) and not _has_mark(definition.schema)


def _has_mark(schema: Any) -> bool:
    """Return whether any part of the schema is marked as read by a shell."""
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if members_of(part).get(X_SHELL) is True:
            return True
        waiting += [*members_of(part).values(), *list_of(part)]
    return False


def _items(container: Mapping[str, Any] | list[Any]) -> list[tuple[str | int, Any]]:
    return [*(enumerate(container) if isinstance(container, list) else container.items())]
