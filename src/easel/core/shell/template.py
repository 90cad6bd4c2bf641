"""Values in shell commands: a value is data, whatever is in it. RS-16, RS-57

A tool marks an argument that a shell will read with `"x-shell": true` in its schema. Such a template is understood once, when
the spec is stored (`understood`): every placeholder's place is found by reading the command as a shell would, and a place where
the shell would evaluate the value again, or take it for a program's name, makes the spec invalid. What remains are three
kinds of places, and in each of them there is one exact way to write any text (`_written`):

    not quoted      ./deploy {{x}}       ./deploy 'my service'      plain names stay bare: ./deploy api
    single quotes   ./deploy '{{x}}'     ./deploy 'it'\\''s'
    double quotes   ./deploy "v {{x}}"   ./deploy "v "'$HOME'""     closed and opened again around what is not plain there

Inside of single quotes no shell, in no locale, gives any character but `'` a meaning, so no value can become syntax.

Why not through the environment: the tool would need an argument for that, the person who confirms would see a command with
holes instead of the one that runs, every program that is started would inherit the values, and the reading above would be needed
all the same, since a variable is split, globbed or evaluated in just the places that are refused here.

What a program does with its arguments is not ours to know, beyond the lists in `shell_programs.py`; but a value that begins with
`-`, or with `@`, could be taken for an option or a file of arguments, and is refused unless the action says `allowOptions`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from easel.core.shell.checker import TemplateChecker
from easel.core.shell.lexer import HOLE, SAFE, Hole, Quote, Word
from easel.core.shell.parser import Script
from easel.core.tool.definition import X_SHELL
from easel.core.values.template import Placeholder, Template
from easel.errors import BadInput

MAX_COMMAND_LENGTH = 20_000  # characters of a template
_ACTIVE_IN_DOUBLE = frozenset('"$`\\!')
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # all but tab and line end
_HALF_PAIRS = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a value goes, and what of its word comes before it: text, or the number of another placeholder."""

    quote: Quote
    is_glued: bool
    before: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class ShellTemplate:
    """A command that was understood; only `understood` makes one."""

    template: Template
    places: tuple[Slot, ...]
    allows_options: bool

    def filled(self, texts: Sequence[str | None], at: str, *, missing_is_empty: bool) -> str:
        """The command with its values; none is a value that is missing. RS-57"""
        names = self.template.placeholders
        values: list[str] = []
        for name, text in zip(names, texts, strict=True):
            if text is None and not missing_is_empty:
                raise BadInput(
                    problem=f'{at}: {name} has no value; set it, or let the action say "missing": "empty".'
                )
            values.append(text or "")
        for name, place, value in zip(names, self.places, values, strict=True):
            self._check(name, place, value, values, at)
        written = iter([_written(place, value) for place, value in zip(self.places, values, strict=True)])
        return "".join(part if isinstance(part, str) else next(written) for part in self.template.parts)

    def _check(self, name: Placeholder, place: Slot, value: str, values: Sequence[str], at: str) -> None:
        if "\0" in value or _HALF_PAIRS.search(value):
            raise BadInput(problem=f"{at}: the value of {name} has a character that no command can hold.")
        before = "".join(piece if isinstance(piece, str) else values[piece] for piece in place.before)
        is_option = not before and value.startswith("-")
        is_file = value.startswith("@") and (not before or before.endswith("="))
        if (is_option or is_file) and not self.allows_options:
            what = "an option" if is_option else "a file of arguments"
            raise BadInput(
                problem=f"{at}: the value of {name} begins with {value[0]} and could be taken for {what}; "
                'if that is meant, let the action say "allowOptions": true.'
            )


def _written(place: Slot, value: str) -> str:
    match place.quote:
        case Quote.SINGLE:
            return value.replace("'", "'\\''")
        case Quote.DOUBLE:
            is_plain = not place.is_glued and _ACTIVE_IN_DOUBLE.isdisjoint(value)
            return value if is_plain else f'"{_single_quoted(value)}"'
        case Quote.NONE:
            is_plain = value and not place.is_glued and SAFE.issuperset(value)
            return value if is_plain else _single_quoted(value)


def _single_quoted(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


# --- understanding ------------------------------------------------------------------------------------------------------


def compile_template(template: Template, at: str, *, allows_options: bool = False) -> ShellTemplate:
    """Refuses a template in which a value could become more than data, and says where. RS-16"""
    try:
        return _understood(template, allows_options)
    except BadInput as problem:
        raise BadInput(problem=f"{at}: {problem.details['problem']}") from None


@lru_cache(maxsize=256)
def _understood(template: Template, allows_options: bool) -> ShellTemplate:
    literal = "".join(part for part in template.parts if isinstance(part, str))
    if len(literal) > MAX_COMMAND_LENGTH:
        raise BadInput(
            problem=f"a command with placeholders has at most {MAX_COMMAND_LENGTH} characters; put it into a script."
        )
    if control := _CONTROLS.search(literal):
        raise BadInput(
            problem=f"a command with placeholders has no control characters such as {control[0]!r}."
        )
    names = [str(name) for name in template.placeholders]
    script = Script("".join(part if isinstance(part, str) else HOLE for part in template.parts), names)
    law = TemplateChecker(script)
    law.check()
    places = {
        hole.number: _place(word, hole, is_assignment=law.is_assignment(word))
        for word, hole in _holes(script)
    }
    if lost := [name for number, name in enumerate(names) if number not in places]:
        raise BadInput(problem=f"{lost[0]} stands where no value is understood.")
    for number, place in places.items():
        if "".join(map(str, place.before)) in {"-", "--"} and not allows_options:
            raise BadInput(
                problem=f'{names[number]} is an option of its own; let the action say "allowOptions": true if that is meant.'
            )
    return ShellTemplate(template, tuple(places[number] for number in range(len(names))), allows_options)


def _holes(script: Script) -> Iterator[tuple[Word, Hole]]:
    for command in script.commands:
        yield from ((word, hole) for word in (*command.words, *command.redirections) for hole in word.holes)
    for loop in script.loops:
        yield from ((word, hole) for word in loop.words for hole in word.holes)
    yield from ((word, hole) for word in script.compared for hole in word.holes)


def _place(word: Word, hole: Hole, *, is_assignment: bool) -> Slot:
    start = word.value_from if is_assignment else 0
    before = word.pieces[start : word.pieces.index(hole.number)]
    return Slot(hole.quote, hole.is_glued, tuple(piece for piece in before if piece is not None))


# --- which arguments a shell reads --------------------------------------------------------------------------------------


def is_shell(schema: Mapping[str, Any], path: Sequence[str | int]) -> bool:
    """Whether the argument at a path is one that a shell will read, in any way that the schema can be understood. RS-44"""
    return any(
        one.get(X_SHELL) is True for depth in range(len(path) + 1) for one in _schemas(schema, path[:depth])
    )


def _schemas(root: Mapping[str, Any], path: Sequence[str | int]) -> list[Mapping[str, Any]]:
    level = _alternatives(root, [root])
    for step in path:
        level = _alternatives(root, [inner for one in level for inner in _inner(one, step)])
    return level


_BRANCHES = ("allOf", "anyOf", "oneOf")
_CONDITIONS = ("then", "else", "not", "if")
_MAX_ALTERNATIVES = 1_000


def _alternatives(root: Mapping[str, Any], schemas: list[Any]) -> list[Mapping[str, Any]]:
    """The schemas, with all that they combine or refer to."""
    found: dict[int, Mapping[str, Any]] = {}
    waiting = list(schemas)
    while waiting and len(found) < _MAX_ALTERNATIVES:
        one = waiting.pop()
        if not isinstance(one, Mapping) or id(cast(Any, one)) in found:
            continue
        schema = cast("Mapping[str, Any]", one)
        found[id(schema)] = schema
        waiting += [branch for name in _BRANCHES for branch in _list(schema.get(name))]
        waiting += [schema.get(name) for name in _CONDITIONS]
        waiting += _referred(root, schema.get("$ref"))
    return list(found.values())


def _referred(root: Mapping[str, Any], reference: Any) -> list[Any]:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return []
    here: Any = root
    for part in reference[1:].split("/")[1:]:
        here = _members(here).get(part.replace("~1", "/").replace("~0", "~"))
    return [here]


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
