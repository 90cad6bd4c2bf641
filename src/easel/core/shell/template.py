"""Shell commands with placeholders: their values, and how these are inserted. RS-16, RS-57, RS-71

A value is plain and inserted as it is: no shell sees anything in it but a part of one word. A placeholder
that the action names in `text` takes any text, which reaches the command as a variable of its environment.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from easel.core.shell.checker import Checker
from easel.core.shell.lexer import SLOT, read_script
from easel.core.shell.plain import PLAIN, find_plain_problem, is_number
from easel.core.shell.words import Slot
from easel.core.values.template import Placeholder, Template
from easel.errors import BadInput

MAX_COMMAND_LENGTH = 20_000  # characters of a template
MAX_TEXT_BYTES = 100_000  # the kernel limits a variable of the environment to 128 KiB
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # control characters except tab and line end


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of an action for its placeholders, such as `input.note`. RS-71"""

    texts: tuple[str, ...] = ()  # that take any text
    options: tuple[str, ...] = ()  # whose values may begin with `-`
    missing_is_empty: bool = False

    def variable_of(self, name: Placeholder) -> str | None:
        """Return the variable for the text of a placeholder."""
        return f"EASEL_TEXT_{self.texts.index(name.key) + 1}" if name.key in self.texts else None


@dataclass(frozen=True, slots=True)
class ShellTemplate:
    """A template whose slots are in places for values. Only `compile_template` constructs one."""

    template: Template
    slots: tuple[Slot, ...]
    terms: Terms
    is_command: bool = True  # False: the tool makes a command of it

    @classmethod
    def of_word(cls, template: Template, terms: Terms) -> "ShellTemplate":
        """Return a template whose text is a word of a command that a tool makes: its places are not known."""
        before = ["", *(part[-1:] if isinstance(part, str) else "" for part in template.parts)]
        slots = (
            Slot(str(part), "'", before[index])
            for index, part in enumerate(template.parts)
            if isinstance(part, Placeholder)
        )
        return cls(template, tuple(slots), terms, is_command=False)

    def fill(self, texts: Sequence[str | None], at: str) -> tuple[str, Mapping[str, str]]:
        """Return the command and the variables with any text. None is a missing value. RS-57"""
        filled, variables = list[str](), dict[str, str]()
        remaining = iter(zip(self.slots, texts, strict=True))
        for part in self.template.parts:
            if isinstance(part, str):
                filled.append(part)
                continue
            slot, value = next(remaining)
            if value is None and not self.terms.missing_is_empty:
                raise BadInput(
                    problem=f'{at}: {part} has no value; set it, or set "missing": "empty" in the action.'
                )
            variable = self.terms.variable_of(part)
            if problem := self.find_problem(slot, value or "", part):
                raise BadInput(problem=f"{at}: the value of {part} {problem}")
            if variable:
                variables[variable] = value or ""
                filled.append(f"${{{variable}}}" if slot.quote == '"' else _in_quotes(slot, variable))
            else:
                filled.append(value or ("''" if not slot.quote and not slot.is_inner else ""))
        return "".join(filled), variables

    def find_problem(self, slot: Slot, value: str, name: Placeholder) -> str | None:
        """Return why a value must not be in a slot, for people, or None."""
        may_be_option = name.key in self.terms.options
        if self.terms.variable_of(name):
            return _find_text_problem(slot, value, may_be_option=may_be_option)
        if not value and self.terms.missing_is_empty:
            return (
                "must not be empty here, where another word would take its place."
                if slot.needs_value
                else None
            )
        if slot.digits:
            return None if is_number(value) else "must be digits here, where a program reads it as code."
        problem = find_plain_problem(value, may_assign=bool(slot.before.strip()), may_be_option=may_be_option)
        if slot.excluded and slot.excluded in value:
            problem = f"has a {slot.excluded}, which would end the expression"
        if value and slot.end.endswith(value):
            problem = f"would end the here-document at {slot.end}"
        if problem is None:
            return None
        remedy = (
            f'if the action needs any text there, name it in "text": ["{name.key}"]'
            if self.is_command
            else 'if no shell reads this argument, let a person name it in "toolPolicy": {"data": …}'
        )
        return f"{problem}: it must be plain ({PLAIN}). Change the value, or, {remedy}{_option_hint(value)}."


def _find_text_problem(slot: Slot, value: str, *, may_be_option: bool) -> str | None:
    size = len(value.encode("utf-8", "replace"))
    if "\0" in value or value.encode("utf-8", "ignore").decode() != value:
        return "contains a character that a command cannot contain."
    if size > MAX_TEXT_BYTES:
        return f"has {size} bytes; a command takes at most {MAX_TEXT_BYTES}."
    if slot.before == "/" and ".." in value.split("/"):
        return "has a segment .. of a path, which would leave the folder before it."
    if value.startswith("-") and not slot.before and not may_be_option:
        return "begins with - and could be taken for an option" + _option_hint(value) + "."
    return None


def _option_hint(value: str) -> str:
    return '; if an option is intended, name it in "allowOptions"' if value.startswith("-") else ""


def _in_quotes(slot: Slot, variable: str) -> str:
    quote = slot.quote or ""
    return f'{quote}"${{{variable}}}"{quote}'


@lru_cache(maxsize=256)
def compile_template(template: Template, at: str, terms: Terms | None = None) -> ShellTemplate:
    """Compile a shell template. Raises `BadInput` if a value would choose a program or be code. RS-71"""
    terms = terms or Terms()
    try:
        return ShellTemplate(template, _find_slots(template, terms), terms)
    except BadInput as problem:
        raise BadInput(problem=f"{at}: {problem.details['problem']}") from None


def _find_slots(template: Template, terms: Terms) -> tuple[Slot, ...]:
    literal = "".join(part for part in template.parts if isinstance(part, str))
    if len(literal) > MAX_COMMAND_LENGTH:
        raise BadInput(
            problem=f"a command with placeholders must have at most {MAX_COMMAND_LENGTH} characters."
        )
    if control := _CONTROLS.search(literal):
        raise BadInput(
            problem=f"a command with placeholders must not contain control characters such as {control[0]!r}."
        )
    names = template.placeholders
    slots = [Slot(str(name)) for name in names]
    script = read_script("".join(part if isinstance(part, str) else SLOT for part in template.parts), slots)
    texts = {slot for slot, name in zip(slots, names, strict=True) if terms.variable_of(name)}
    options = {slot for slot, name in zip(slots, names, strict=True) if name.key in terms.options}
    Checker(script, slots, texts, options).check()
    if unread := next((slot for slot in slots if slot.quote is None), None):
        raise BadInput(problem=f"{unread.name} is in a position that is not supported here.")
    return tuple(slots)
