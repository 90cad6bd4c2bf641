"""Where a value may stand in a shell command: the law that a template is held to when it is stored.

A value may be (part of) an argument, of a file name, of an assignment, of a word that `for` or `case` looks at. It may not be (part
of) a program's name, nor stand where it would be read as a program once more. A variable that a value was assigned to is
treated like the value itself, and has to stand in double quotes.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NoReturn

from easel.core.shell.lexer import NAME, Word
from easel.core.shell.parser import Command, Script
from easel.core.shell.programs import (
    ALWAYS_TAINTED,
    EVALUATORS,
    FIND_PROGRAMS,
    INTERPRETERS,
    REREADERS,
    STANDARD_INPUT,
    TEST_ARITHMETIC,
    UNSAFE_VARIABLES,
    WRAPPERS,
    after_wrapper,
    program_name,
)


class TemplateChecker:
    """Holds a script to the law, or refuses it."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._tainted = self._reached()
        self._assignments: set[int] = set()
        self._first_pipe = self._first_pipe_behind_a_value()

    def is_assignment(self, word: Word) -> bool:
        """Whether a word was found to set a variable: its value begins after the `=`."""
        return id(word) in self._assignments

    def check(self) -> None:
        for use in self._script.uses:
            if not use.is_plain and self._is_tainted(use.name):
                self._script.refuse(
                    f'${use.name} may hold the value of a placeholder; write it as "${use.name}", and only as an argument.'
                )
        for loop in self._script.loops:
            self._check_variable(loop.name, loop.words)
        # A bare word could be a keyword where these stand.
        for word in (*self._script.compared, *(word for loop in self._script.loops for word in loop.words)):
            for hole in word.holes:
                hole.is_glued = True
        for command in self._script.commands:
            self._check_command(command)

    # --- what carries a value ---------------------------------------------------------------------------------------

    def _is_tainted(self, name: str) -> bool:
        return name in self._tainted or name in ALWAYS_TAINTED

    def _carries(self, word: Word) -> bool:
        return bool(word.holes) or any(self._is_tainted(use.name) for use in word.uses)

    def _reached(self) -> frozenset[str]:
        """The variables that a value reaches: by assignment, by a loop, by `read`, and from there by further assignments."""
        targets: dict[str, set[str]] = {}  # from a variable to those that are set from it
        waiting = {name for command in self._script.commands for name in _names_read(command)}
        for name, words in self._script_assignments():
            if any(word.holes for word in words):
                waiting.add(name)
            for use in (use for word in words for use in word.uses):
                targets.setdefault(use.name, set()).add(name)
        waiting |= {name for always in ALWAYS_TAINTED for name in targets.get(always, ())}
        reached: set[str] = set()
        while waiting:
            name = waiting.pop()
            reached.add(name)
            waiting |= targets.get(name, set()) - reached
        return frozenset(reached)

    def _script_assignments(self) -> Iterator[tuple[str, Sequence[Word]]]:
        for command in self._script.commands:
            yield from ((word.assigns, (word,)) for word in command.words if word.assigns)
        yield from ((loop.name, loop.words) for loop in self._script.loops)

    def _first_pipe_behind_a_value(self) -> float:
        """Where a value could first have gone through a pipe."""
        words = [
            word for command in self._script.commands for word in (*command.words, *command.redirections)
        ]
        values = [hole.position for word in words for hole in word.holes]
        values += [use.position for use in self._script.uses if use.name in self._tainted]
        first = min(values, default=math.inf)
        return min((pipe for pipe in self._script.pipes if pipe > first), default=math.inf)

    def _refuse(self, words: Sequence[Word], where: str) -> NoReturn:
        """Names the placeholder, or the variable that carries it."""
        for word in words:
            if word.holes:
                self._script.refuse_hole(where, word.holes[0].number)
            for use in word.uses:
                if self._is_tainted(use.name):
                    self._script.refuse(
                        f"${use.name}, which may hold the value of a placeholder, stands {where}."
                    )
        raise AssertionError(where)

    # --- commands ---------------------------------------------------------------------------------------------------

    def _check_command(self, command: Command) -> None:
        words = command.words
        while words and words[0].assigns:
            self._check_assignment(words[0])
            words = words[1:]
        if not words:
            return
        words = self._unwrapped(words, command.redirections)
        if not words:
            return
        name = program_name(words[0])
        if name in REREADERS:
            self._script.refuse(
                f"`{name}` changes how the rest of the command is read, so it has no place beside placeholders."
            )
        given = [word for word in (*words[1:], *command.redirections) if self._carries(word)]
        if self._evaluates(name, words):
            self._check_evaluator(name or "", command, words, given)
        elif given:
            self._check_arguments(name, words, given)

    def _check_assignment(self, word: Word) -> None:
        self._assignments.add(id(word))
        self._check_variable(word.assigns or "", [word])

    def _check_variable(self, name: str, words: Sequence[Word]) -> None:
        if UNSAFE_VARIABLES.fullmatch(name) and any(map(self._carries, words)):
            self._refuse(
                words, f"in the variable {name}, which chooses what is run or is evaluated by the shell"
            )

    def _unwrapped(self, words: tuple[Word, ...], redirections: tuple[Word, ...]) -> tuple[Word, ...]:
        """The command without `sudo`, `env`, `timeout` and their like."""
        while words:
            if self._carries(words[0]):
                self._refuse(words[:1], "where a command's name belongs, and no value may become a command")
            name = program_name(words[0])
            given = [word for word in (*words[1:], *redirections) if self._carries(word)]
            if name is None and given:
                self._refuse(
                    given, "behind a program that only the shell can tell; write the program's name out"
                )
            if name is None or name not in WRAPPERS:
                break
            inner = after_wrapper(WRAPPERS[name], words)
            if inner is None and not given:
                break
            if inner is None:
                self._refuse(given, f"behind an option of `{name}` that is not understood here")
            for word in words[: len(words) - len(inner)]:
                if word.assigns:
                    self._check_assignment(word)
            words = inner
        return words

    # --- programs that evaluate -------------------------------------------------------------------------------------

    def _evaluates(self, name: str | None, words: tuple[Word, ...]) -> bool:
        """Whether a program takes its arguments or its input for a program."""
        if name not in INTERPRETERS:
            return (
                name in EVALUATORS or name in WRAPPERS
            )  # one that is left here has an option that may start a shell
        if name == "python" and len(words) > 2 and words[1].literal == "-m" and words[2].literal:
            return False
        script = words[1].literal if len(words) > 1 else None
        return not script or script.startswith("-") or script in STANDARD_INPUT

    def _check_evaluator(
        self, name: str, command: Command, words: tuple[Word, ...], given: Sequence[Word]
    ) -> None:
        if given:
            how = "; name a script file right after it" if name in INTERPRETERS else ""
            self._refuse(given, f"among the arguments of `{name}`, which evaluates them once more{how}")
        if name != "read" and command.position >= self._first_pipe:
            self._script.refuse(
                f"`{name}` comes behind a pipe, through which the value of a placeholder could reach it as a command."
            )
        for word in words[1:]:
            text = "".join(piece for piece in word.pieces if isinstance(piece, str))
            if ("$" in text or "`" in text) and not self._tainted.isdisjoint(re.findall(NAME, text)):
                self._script.refuse(
                    f"`{name}` evaluates a text that names a variable which may hold the value of a placeholder."
                )

    # --- programs that do not ---------------------------------------------------------------------------------------

    def _check_arguments(self, name: str | None, words: tuple[Word, ...], given: Sequence[Word]) -> None:
        literals = [word.literal for word in words]
        last = max((index for index, word in enumerate(words) if self._carries(word)), default=0)
        for index, literal in enumerate(literals[1 : max(last - 1, 1)], 1):
            program = program_name(words[index]) if literal else None
            if program in INTERPRETERS and (literals[index + 1] or "").startswith("-"):
                self._refuse(given, f"among the arguments of `{program}`, which evaluates them once more")
        match name:
            case "test" | "[":
                if sign := next((one for one in literals if one in TEST_ARITHMETIC), None):
                    self._refuse(
                        given, f"beside {sign}, where some shells evaluate it; compare with = instead"
                    )
            case "find":
                start = next(
                    (index for index, one in enumerate(literals) if one in FIND_PROGRAMS), len(words)
                )
                if behind := [word for word in words[start:] if self._carries(word)]:
                    self._refuse(behind, f"behind {literals[start]} of `find`, which runs it")
            case "printf":
                if "-v" in literals or any(
                    map(self._carries, words[1:3] if "--" in literals else words[1:2])
                ):
                    self._refuse(
                        given,
                        "where `printf` has its format or a variable; give it a literal format such as '%s\\n'",
                    )
            case "export" | "readonly":
                self._check_exports(name, words)
            case _:
                pass

    def _check_exports(self, name: str, words: tuple[Word, ...]) -> None:
        for word in words[1:]:
            if word.assigns:
                self._check_assignment(word)
            elif self._carries(word):
                self._refuse([word], f"where `{name}` has the name of a variable")


def _names_read(command: Command) -> Iterator[str]:
    """The variables that `read` sets, from whatever comes through its input."""
    if command.words and program_name(command.words[0]) == "read":
        yield from (
            word.literal for word in command.words[1:] if word.literal and not word.literal.startswith("-")
        )
