"""The rules for the positions of values in a shell command, checked when a template is compiled.

A value is the text that replaces a placeholder. It may be an argument, a file name, an assignment, or a word
of `for` or `case`, or a part of one. It must not be part of a program's name, and no program may evaluate it
as code, neither as an argument nor from a pipe or a file that the script writes. A variable that may contain
a value is tainted: the same rules apply to it, and it must be in double quotes. Does not know the syntax of
the shell: the script is parsed already. RS-16, RS-65
"""

import math
import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NoReturn, cast

from easel.core.shell.files import Call, find_run_after_write, outputs
from easel.core.shell.lexer import NAME, Word
from easel.core.shell.parser import Command, Script
from easel.core.shell.programs import (
    ALWAYS_TAINTED,
    COMMAND_OPTION,
    DATA_PROGRAMS,
    ENVIRONMENT_EVALUATORS,
    EVALUATING_MODULES,
    EVALUATING_PROGRAMS,
    EVALUATORS,
    FIND_PROGRAMS,
    IMPLICIT_FOLDERS,
    IMPLICIT_SCRIPTS,
    INTERPRETERS,
    LAUNCHERS,
    OPEN_FILE,
    PROGRAM_SUBCOMMANDS,
    RISKY_OPTIONS,
    RISKY_SUBCOMMANDS,
    SYNTAX_CHANGING_BUILTINS,
    TEST_ARITHMETIC,
    UNSAFE_VARIABLES,
    WRAPPERS,
    after_wrapper,
    file_name,
    folder_name,
    is_own_script,
    program_name,
)

KNOWN_PROGRAMS = DATA_PROGRAMS | LAUNCHERS | EVALUATORS | INTERPRETERS
INNER_PROGRAMS = INTERPRETERS | EVALUATING_PROGRAMS
REMEDY = "put the command into a script and pass the value as its argument"


class TemplateChecker:
    """Checks the slots and variables of one script. `check` raises `BadInput` for the first violation."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._tainted = self._find_tainted_variables()
        self._assignments: set[int] = set()
        self._first_pipe = self._first_pipe_after_value()
        # Programs that received a value and are in none of the lists.
        self.unknown_programs: list[str] = []

    def is_assignment(self, word: Word) -> bool:
        """Return whether a word assigns a variable, so that its value begins after the `=`."""
        return id(word) in self._assignments

    def check(self) -> None:
        for use in self._script.uses:
            if not use.is_plain and self._is_tainted(use.name):
                self._script.refuse(
                    f"${use.name} may contain the value of a placeholder; "
                    f'write it as "${use.name}", and only as an argument.'
                )
        for loop in self._script.loops:
            self._check_variable(loop.name, loop.words)
        # An unquoted value could be read as a keyword in these positions.
        for word in (*self._script.compared, *(word for loop in self._script.loops for word in loop.words)):
            for slot in word.slots:
                slot.needs_quoting = True
        calls = [self._to_call(command) for command in self._script.commands]
        for call in calls:
            self._check_call(call)
        self._check_files(calls)

    # --- tainted words and variables ------------------------------------------------------------------------

    def _is_tainted(self, name: str) -> bool:
        return name in self._tainted or name in ALWAYS_TAINTED

    def _carries_value(self, word: Word) -> bool:
        return bool(word.slots) or any(self._is_tainted(use.name) for use in word.uses)

    def _find_tainted_variables(self) -> frozenset[str]:
        """Return the variables that may contain a value: assigned directly, or copied from a variable."""
        targets: dict[str, set[str]] = {}  # variable -> the variables that are assigned from it
        waiting = {name for command in self._script.commands for name in _names_read(command)}
        for name, words in self._script_assignments():
            if any(word.slots for word in words):
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

    def _first_pipe_after_value(self) -> float:
        """Return the position of the first pipe after a value or tainted variable, or infinity.

        A value in a redirection of a group or of `exec` reaches commands at any position: -1.
        """
        for command in self._script.commands:
            is_shared = not command.words or program_name(command.words[0]) == "exec"
            if is_shared and any(map(self._carries_value, command.redirections)):
                return -1
        words = [
            word for command in self._script.commands for word in (*command.words, *command.redirections)
        ]
        values = [slot.position for word in words for slot in word.slots]
        values += [use.position for use in self._script.uses if use.name in self._tainted]
        first = min(values, default=math.inf)
        return min((pipe for pipe in self._script.pipes if pipe > first), default=math.inf)

    def _is_first_after_pipe(self, command: Command) -> bool:
        """Return whether a command reads from a pipe after a value."""
        pipe = max((pipe for pipe in self._script.pipes if pipe <= command.position), default=-1)
        return pipe >= self._first_pipe and not any(
            pipe <= other.position < command.position for other in self._script.commands
        )

    def _refuse(self, words: Sequence[Word], where: str) -> NoReturn:
        """Raise `BadInput` that names the first placeholder or tainted variable in the words."""
        for word in words:
            if word.slots:
                self._script.refuse_slot(where, word.slots[0].number)
            for use in word.uses:
                if self._is_tainted(use.name):
                    self._script.refuse(
                        f"${use.name}, which may contain the value of a placeholder, must not be {where}."
                    )
        raise AssertionError(where)

    # --- commands -------------------------------------------------------------------------------------------

    def _to_call(self, command: Command) -> Call:
        """Check the assignments and wrappers of a command. Returns the call without them."""
        words = command.words
        while words and words[0].assigns:
            self._check_assignment(words[0])
            words = words[1:]
        words = self._unwrap(words, command.redirections)
        carries_value = command.position >= self._first_pipe or any(
            map(self._carries_value, (*words, *command.redirections))
        )
        return Call(command, program_name(words[0]) if words else None, words, carries_value)

    def _check_call(self, call: Call) -> None:
        name, words = call.name, call.words
        if not words:
            return
        if name in SYNTAX_CHANGING_BUILTINS:
            self._script.refuse(
                f"`{name}` changes how the rest of the command is read; "
                "a command with placeholders must not use it."
            )
        tainted_words = self._tainted_words(words[1:], call.command)
        if self._evaluates(name, words):
            self._check_evaluator(name or "", call.command, words, tainted_words)
        elif call.carries_value:
            self._check_inner_programs(call)
        if name in ENVIRONMENT_EVALUATORS and self._tainted:
            self._script.refuse(
                f"`{name}` could run a variable that may contain the value of a placeholder; {REMEDY}."
            )
        if tainted_words:
            self._check_options(name, words)
            self._check_arguments(name, words, tainted_words)
        is_known = name is None or name in KNOWN_PROGRAMS or is_own_script(words[0])
        if not is_known and (tainted_words or self._is_first_after_pipe(call.command)):
            self.unknown_programs.append(name or "")

    def _tainted_words(self, words: Sequence[Word], command: Command) -> list[Word]:
        return [word for word in (*words, *command.redirections) if self._carries_value(word)]

    def _check_assignment(self, word: Word) -> None:
        self._assignments.add(id(word))
        self._check_variable(word.assigns or "", [word])

    def _check_variable(self, name: str, words: Sequence[Word]) -> None:
        if UNSAFE_VARIABLES.fullmatch(name) and any(map(self._carries_value, words)):
            self._refuse(
                words, f"in the variable {name}, which selects a program or is evaluated by the shell"
            )

    def _unwrap(self, words: tuple[Word, ...], redirections: tuple[Word, ...]) -> tuple[Word, ...]:
        """Return the command without `sudo`, `env`, `timeout` and other wrappers."""
        while words:
            if self._carries_value(words[0]):
                self._refuse(words[:1], "where a command's name belongs")
            name = program_name(words[0])
            tainted_words = [word for word in (*words[1:], *redirections) if self._carries_value(word)]
            if name is None and tainted_words:
                self._refuse(
                    tainted_words,
                    "an argument of a program that the shell computes; write the program's name out",
                )
            if name is None or name not in WRAPPERS:
                break
            inner = after_wrapper(WRAPPERS[name], words)
            if inner is None and not tainted_words:
                break
            if inner is None:
                self._refuse(
                    tainted_words, f"after an option of `{name}` that is not supported here; {REMEDY}"
                )
            for word in words[: len(words) - len(inner)]:
                if word.assigns:
                    self._check_assignment(word)
            words = inner
        return words

    # --- programs that evaluate -----------------------------------------------------------------------------

    def _evaluates(self, name: str | None, words: tuple[Word, ...]) -> bool:
        """Return whether a program evaluates its arguments or its standard input as code."""
        if name not in INTERPRETERS:
            # A wrapper that `_unwrap` did not remove has an unknown option, which may start a shell.
            return name in EVALUATORS or name in WRAPPERS
        if name == "python" and len(words) > 2 and words[1].literal == "-m" and words[2].literal:
            return words[2].literal.partition(".")[0] in EVALUATING_MODULES
        if len(words) < 2 or not words[1].literal or words[1].literal.startswith("-"):
            return True
        return OPEN_FILE.fullmatch(file_name(words[1]) or "") is not None

    def _check_evaluator(
        self, name: str, command: Command, words: tuple[Word, ...], tainted_words: Sequence[Word]
    ) -> None:
        if tainted_words:
            self._refuse(
                tainted_words, f"among the arguments of `{name}`, which evaluates them again; {REMEDY}"
            )
        if name != "read" and command.position >= self._first_pipe:
            self._script.refuse(
                f"`{name}` must not follow a pipe "
                f"through which it could read the value of a placeholder as a command; {REMEDY}."
            )
        for word in words[1:]:
            text = "".join(piece for piece in word.pieces if isinstance(piece, str))
            if ("$" in text or "`" in text) and not self._tainted.isdisjoint(re.findall(NAME, text)):
                self._script.refuse(
                    f"`{name}` evaluates a text with a variable that may contain the value of a placeholder."
                )

    # --- programs that run another program ------------------------------------------------------------------

    def _check_inner_programs(self, call: Call) -> None:
        """Refuse a value for a shell among the arguments of a program, as in `docker exec web sh`. RS-65"""
        if call.name in DATA_PROGRAMS or call.name in INTERPRETERS:
            return
        reads_pipe = call.command.position >= self._first_pipe
        for index, word in enumerate(call.words[1:], 1):
            program = program_name(word) if word.literal else None
            is_entrypoint = call.words[index - 1].literal == "--entrypoint"
            if (word.literal or "").startswith("--entrypoint="):
                program, is_entrypoint = file_name(word), True
            if program not in INNER_PROGRAMS:
                continue
            if not is_entrypoint and not self._evaluates(program, call.words[index : index + 3]):
                continue
            # A script of the author may have a word such as `node` for its own use.
            if is_own_script(call.words[0]) and not _has_option(call.words[index : index + 2]):
                continue
            if tainted_words := self._tainted_words(call.words[index:], call.command):
                self._refuse(
                    tainted_words, f"among the arguments of `{program}`, which evaluates them again; {REMEDY}"
                )
            if reads_pipe:
                self._script.refuse(
                    f"`{program}` must not follow a pipe "
                    f"through which it could read the value of a placeholder as a command; {REMEDY}."
                )

    def _check_options(self, name: str | None, words: tuple[Word, ...]) -> None:
        """Refuse a value in an option, or after a subcommand, that is run as a command. RS-65"""
        risky = RISKY_OPTIONS.get(name or "", frozenset())
        if name not in KNOWN_PROGRAMS and not is_own_script(words[0]):
            risky |= {"-c"}
        subcommands = RISKY_SUBCOMMANDS.get(name or "", frozenset())
        for index, word in enumerate(words[1:], 1):
            text = _start(word)
            option = text.partition("=")[0]
            # Most programs accept the beginning of a long option: `tar --to-com=`.
            is_begun = len(option) > 4 and any(name.startswith(option) for name in risky)
            is_risky = option in risky or is_begun or COMMAND_OPTION.fullmatch(option)
            is_joined = text[:2] in risky and not text.startswith("--")
            where = words[index : index + 2] if is_risky else words[index : index + 1] if is_joined else ()
            if word.literal in subcommands:
                where = words[index:]
            if word.literal in PROGRAM_SUBCOMMANDS.get(name or "", ()):
                operands = [word for word in words[index + 1 :] if not _start(word).startswith("-")]
                where = operands[:1]
            if tainted_words := [word for word in where if self._carries_value(word)]:
                self._refuse(tainted_words, f"after `{option[:40]}` of `{name}`, which may run it; {REMEDY}")

    def _check_files(self, calls: Sequence[Call]) -> None:
        """Refuse a script that runs a file which it may have written with a value. RS-65"""
        for call in calls:
            for target in outputs(call):
                if file_name(target) in IMPLICIT_SCRIPTS or folder_name(target) in IMPLICIT_FOLDERS:
                    self._script.refuse(
                        f"a command with placeholders must not write `{file_name(target)}`, "
                        f"which other programs run; {REMEDY}."
                    )
        if problem := find_run_after_write(calls, self._carries_value):
            self._script.refuse(
                f"the command could run the value of a placeholder from a file: {problem}; {REMEDY}."
            )

    # --- other programs -------------------------------------------------------------------------------------

    def _check_arguments(
        self, name: str | None, words: tuple[Word, ...], tainted_words: Sequence[Word]
    ) -> None:
        literals = [word.literal for word in words]
        match name:
            case "test" | "[":
                if sign := next((literal for literal in literals if literal in TEST_ARITHMETIC), None):
                    self._refuse(
                        tainted_words,
                        f"an operand of {sign}, which some shells evaluate; compare with = instead",
                    )
            case "find":
                start = next(
                    (index for index, literal in enumerate(literals) if literal in FIND_PROGRAMS), len(words)
                )
                if arguments := [word for word in words[start:] if self._carries_value(word)]:
                    self._refuse(arguments, f"after {literals[start]} of `find`, which runs it")
            case "printf":
                if any((literal or "").startswith("-v") for literal in literals[1:2]) or any(
                    map(self._carries_value, words[1:3] if "--" in literals else words[1:2])
                ):
                    self._refuse(
                        tainted_words,
                        "the format or a variable of `printf`; use a literal format such as '%s\\n'",
                    )
            case "export" | "readonly":
                self._check_exports(name, words)
            case _:
                pass

    def _check_exports(self, name: str, words: tuple[Word, ...]) -> None:
        for word in words[1:]:
            if word.assigns:
                self._check_assignment(word)
            elif self._carries_value(word):
                self._refuse([word], f"a variable name for `{name}`")


def _start(word: Word) -> str:
    """Return the literal text before the first slot or expansion of a word."""
    return "".join(cast(str, piece) for piece in takewhile(_is_text, word.pieces))


def _is_text(piece: str | int | None) -> bool:
    return isinstance(piece, str)


def _has_option(words: Sequence[Word]) -> bool:
    return len(words) > 1 and (words[1].literal or "").startswith("-")


def _names_read(command: Command) -> Iterator[str]:
    """Yield the variables that `read` sets from its input."""
    if command.words and program_name(command.words[0]) == "read":
        yield from (
            word.literal for word in command.words[1:] if word.literal and not word.literal.startswith("-")
        )
