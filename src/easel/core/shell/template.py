"""Shell commands with placeholders: every value stays data. RS-16, RS-57

Owns the compilation of a template and the quoting of values. The template of an argument that a shell reads
(`arguments.py`) is compiled when the spec is stored (`compile_template`): the command is parsed as a shell
would parse it, and the spec is invalid if the shell would evaluate a value as code or take it for a program's
name. A slot, the position of a placeholder, is of one of three kinds. For each kind `_quote` has one way to
write any value:

    not quoted      ./deploy {{x}}       ./deploy 'my service'      plain names stay bare: ./deploy api
    single quotes   ./deploy '{{x}}'     ./deploy 'it'\\''s'
    double quotes   ./deploy "v {{x}}"   ./deploy "v "'$HOME'""     closed, then reopened after the value

Inside single quotes no shell, in any locale, gives a meaning to any character but `'`, so no value can become
syntax.

Values are not passed in environment variables, for four reasons. The tool would need an argument for the
environment. A confirmation would show variables instead of the command that runs. Every child process would
inherit the values. And the same parsing would be needed, because a shell splits, globs or evaluates a
variable in exactly the positions that are refused here.

Does not know how programs use their arguments, beyond the lists in `programs.py`: other programs are named in
`unknown_programs`, for a warning to the author. A value that begins with
`-` or `@` could be taken for an option or an argument file. It is refused unless the action sets
`allowOptions`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from easel.core.shell.checker import TemplateChecker
from easel.core.shell.lexer import SAFE, SLOT, Quote, Slot, Word
from easel.core.shell.parser import Script
from easel.core.values.template import Placeholder, Template
from easel.errors import BadInput

MAX_COMMAND_LENGTH = 20_000  # characters of a template
_ACTIVE_IN_DOUBLE = frozenset('"$`\\!')
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # control characters except tab and line end
_HALF_PAIRS = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class CompiledSlot:
    """The quoting of a slot. `before`: the pieces before it in its word, texts and numbers of other slots."""

    quote: Quote
    needs_quoting: bool
    before: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class ShellTemplate:
    """A template whose slots are all safe. Only `compile_template` constructs one."""

    template: Template
    slots: tuple[CompiledSlot, ...]
    allows_options: bool
    unknown_programs: tuple[str, ...] = ()  # which get a value and are not known to take plain data. RS-65

    def fill(self, texts: Sequence[str | None], at: str, *, missing_is_empty: bool) -> str:
        """Return the command with the texts of its placeholders quoted; None is a missing value. RS-57"""
        names = self.template.placeholders
        values: list[str] = []
        for name, text in zip(names, texts, strict=True):
            if text is None and not missing_is_empty:
                raise BadInput(
                    problem=f'{at}: {name} has no value; set it, or set "missing": "empty" in the action.'
                )
            values.append(text or "")
        for name, slot, value in zip(names, self.slots, values, strict=True):
            self._check(name, slot, value, values, at)
        quoted = iter([_quote(slot, value) for slot, value in zip(self.slots, values, strict=True)])
        return "".join(part if isinstance(part, str) else next(quoted) for part in self.template.parts)

    def _check(
        self, name: Placeholder, slot: CompiledSlot, value: str, values: Sequence[str], at: str
    ) -> None:
        if "\0" in value or _HALF_PAIRS.search(value):
            raise BadInput(
                problem=f"{at}: the value of {name} contains a character that a command cannot contain."
            )
        before = "".join(piece if isinstance(piece, str) else values[piece] for piece in slot.before)
        is_option = not before and value.startswith("-")
        is_file = value.startswith("@") and (not before or before.endswith("="))
        if (is_option or is_file) and not self.allows_options:
            what = "an option" if is_option else "a file of arguments"
            raise BadInput(
                problem=f"{at}: the value of {name} begins with {value[0]} and could be taken for {what}; "
                'if that is intended, set "allowOptions": true in the action.'
            )


def _quote(slot: CompiledSlot, value: str) -> str:
    match slot.quote:
        case Quote.SINGLE:
            return value.replace("'", "'\\''")
        case Quote.DOUBLE:
            is_plain = not slot.needs_quoting and _ACTIVE_IN_DOUBLE.isdisjoint(value)
            return value if is_plain else f'"{_single_quoted(value)}"'
        case Quote.NONE:
            is_plain = value and not slot.needs_quoting and SAFE.issuperset(value)
            return value if is_plain else _single_quoted(value)


def _single_quoted(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


# --- compilation --------------------------------------------------------------------------------------------


def compile_template(template: Template, at: str, *, allows_options: bool = False) -> ShellTemplate:
    """Compile a shell template.

    Raises `BadInput` if the shell could take a value for anything but data. RS-16
    """
    try:
        return _compile(template, allows_options)
    except BadInput as problem:
        raise BadInput(problem=f"{at}: {problem.details['problem']}") from None


@lru_cache(maxsize=256)
def _compile(template: Template, allows_options: bool) -> ShellTemplate:
    literal = "".join(part for part in template.parts if isinstance(part, str))
    if len(literal) > MAX_COMMAND_LENGTH:
        raise BadInput(
            problem=f"a command with placeholders must have at most {MAX_COMMAND_LENGTH} characters."
        )
    if control := _CONTROLS.search(literal):
        raise BadInput(
            problem=f"a command with placeholders must not contain control characters such as {control[0]!r}."
        )
    names = [str(name) for name in template.placeholders]
    script = Script("".join(part if isinstance(part, str) else SLOT for part in template.parts), names)
    checker = TemplateChecker(script)
    checker.check()
    slots = {
        slot.number: _to_compiled_slot(word, slot, is_assignment=checker.is_assignment(word))
        for word, slot in _slots(script)
    }
    if unread := [name for number, name in enumerate(names) if number not in slots]:
        raise BadInput(problem=f"{unread[0]} is in a position that is not supported here.")
    for number, slot in slots.items():
        if "".join(map(str, slot.before)) in {"-", "--"} and not allows_options:
            raise BadInput(
                problem=f"{names[number]} is the name of an option; "
                'if that is intended, set "allowOptions": true in the action.'
            )
    return ShellTemplate(
        template,
        tuple(slots[number] for number in range(len(names))),
        allows_options,
        tuple(dict.fromkeys(checker.unknown_programs)),
    )


def _slots(script: Script) -> Iterator[tuple[Word, Slot]]:
    for command in script.commands:
        yield from ((word, slot) for word in (*command.words, *command.redirections) for slot in word.slots)
    for loop in script.loops:
        yield from ((word, slot) for word in loop.words for slot in word.slots)
    yield from ((word, slot) for word in script.compared for slot in word.slots)


def _to_compiled_slot(word: Word, slot: Slot, *, is_assignment: bool) -> CompiledSlot:
    start = word.value_from if is_assignment else 0
    before = word.pieces[start : word.pieces.index(slot.number)]
    return CompiledSlot(slot.quote, slot.needs_quoting, tuple(piece for piece in before if piece is not None))
