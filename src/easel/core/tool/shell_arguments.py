"""Which texts in the arguments of a tool a shell reads. RS-44, RS-71

A tool marks such an argument with `"x-shell": true` in its schema. Nodes of other projects do not know the
mark: of a tool that looks like a shell by a word of its name, its description or an argument, every text
counts, unless its schema says `"x-shell": false`. Does not know templates.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, cast

from easel.core.tool.definition import X_SHELL, ToolDefinition
from easel.core.tool.node import RESERVED, split_tool_name
from easel.core.tool.schemas import (
    find_alternatives,
    find_containers,
    inner_schemas,
    members_of,
    prefix_items,
)

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ArgumentPath = tuple[str | int, ...]


def words_of(text: str) -> set[str]:
    """Return the words of a name or a sentence, in small letters: of `runShellScript` run, shell, script."""
    return {word.lower() for word in _WORD.findall(text)}


SHELL_WORDS = words_of(
    "ash bash cli cmd cmdline cmds command commandline commands console dash exec execute fish ksh "
    "powershell pwsh script scripts sh shell shells ssh sudo terminal tmux tty zsh"
)
# Names of arguments that are a command of such a tool; the others are words of one.
COMMAND_WORDS = SHELL_WORDS | words_of("args argv code input line lines program run stdin")
NAME_WORDS = SHELL_WORDS | words_of("process subprocess repl")


class Reading(StrEnum):
    """How a shell reads a text."""

    DATA = "data"  # not at all
    WORD = "word"  # probably as a part of a command, which the tool makes
    ARGUMENTS = "arguments"  # as a command, or, in a list, as a word of one
    COMMAND = "command"


class ShellArguments:
    """The texts of a tool that a shell reads. `shell` and `data` are arguments of which a person says so."""

    def __init__(
        self, definition: ToolDefinition, shell: Collection[str] = (), data: Collection[str] = ()
    ) -> None:
        self._definition = definition
        self._shell = shell
        self._data = data
        self._places: dict[_ArgumentPath, tuple[list[Mapping[str, Any]], frozenset[bool]]] = {}
        parts = [part for part in find_containers(definition.schema) if isinstance(part, dict)]
        self._prefix_length = max(len(prefix_items(part)) for part in parts)
        node_id, name = split_tool_name(definition.name)
        arguments = (name for part in parts for name in members_of(part.get("properties")))
        names = {word for text in (name or node_id, *arguments) for word in words_of(text)}
        is_shell = names & NAME_WORDS or SHELL_WORDS.intersection(words_of(definition.description))
        self._looks_like_shell = bool(is_shell) and node_id not in RESERVED

    def read(self, path: Sequence[str | int]) -> Reading:
        """Return how a shell reads a text at this path, under any interpretation of the schema."""
        if path and path[0] in self._data:
            return Reading.DATA
        # Elements after those of the longest `prefixItems` have the same schemas.
        steps = tuple(min(step, self._prefix_length) if isinstance(step, int) else step for step in path)
        marks = self._find(steps)[1]
        if True in marks or (path and path[0] in self._shell):
            return Reading.COMMAND
        if marks or not self._looks_like_shell:
            return Reading.DATA
        names = (step for step in path if isinstance(step, str))
        is_command = any(not COMMAND_WORDS.isdisjoint(words_of(name)) for name in names)
        return Reading.ARGUMENTS if is_command else Reading.WORD

    def find_texts(self, tree: Any, path: Sequence[str | int] = ()) -> Iterator[_ArgumentPath]:
        """Yield the path of every text that a shell reads in a value, which is the argument at `path`."""
        if isinstance(tree, str):
            if self.read(path) is not Reading.DATA:
                yield tuple(path)
        elif isinstance(tree, list):
            for index, item in enumerate(cast("list[Any]", tree)):
                yield from self.find_texts(item, (*path, index))
        else:
            for name, item in members_of(tree).items():
                yield from self.find_texts(item, (*path, name))

    def _find(self, path: _ArgumentPath) -> tuple[list[Mapping[str, Any]], frozenset[bool]]:
        """Return the schemas that may apply at a path, and the marks on the way to it."""
        if path not in self._places:
            root = self._definition.schema
            schemas, marks = self._find(path[:-1]) if path else ([root], frozenset[bool]())
            if path:
                schemas = [part for schema in schemas for part in inner_schemas(schema, path[-1])]
            found = find_alternatives(root, list[Any](schemas))
            own = {schema[X_SHELL] for schema in found if isinstance(schema.get(X_SHELL), bool)}
            self._places[path] = found, marks | own
        return self._places[path]
