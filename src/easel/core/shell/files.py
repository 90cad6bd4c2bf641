"""The files that a script writes and those that it runs: no file may be both. RS-65

A value that is written to a file becomes a command when the same script runs, sources or evaluates that file.
Files are compared by the last component of their paths, because the script may change its folder. The order
of the commands does not count: in a loop a later command may be executed first. Does not know quoting.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from easel.core.shell.lexer import Word
from easel.core.shell.parser import Command
from easel.core.shell.programs import (
    COPYING_PROGRAMS,
    FILE_EVALUATORS,
    INTERPRETERS,
    READING_PROGRAMS,
    WRITING_PROGRAMS,
    file_name,
    is_own_script,
    program_name,
)

_PATTERN = re.compile(r"\S*[*?\[{]\S*")  # a word that the shell may replace by the names of files
SCRIPT_RUNNERS = frozenset({"deno", "bun", "go"})  # they run files that follow a subcommand
DEVICES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A command without its assignments and wrappers: `words` begin with the program, if there is one.

    `carries_value`: a word, a redirection or the pipe before it may contain a value.
    """

    command: Command
    name: str | None
    words: tuple[Word, ...]
    carries_value: bool


def outputs(call: Call) -> list[Word]:
    """Return the files that a call certainly writes."""
    targets = [target for target in call.command.outputs if target.literal not in DEVICES]
    if call.name in WRITING_PROGRAMS:
        targets += [word for word in call.words[1:] if not (word.literal or "").startswith("-")]
    return targets


def find_run_after_write(calls: Sequence[Call], is_chosen_by_value: Callable[[Word], bool]) -> str | None:
    """Describe a file that one call runs and another may have written, or return None."""
    writers = _find_writers(calls)
    with_outputs = [call for call in calls if outputs(call)]
    with_chosen_outputs = [call for call in with_outputs if any(map(is_chosen_by_value, outputs(call)))]
    for call in calls:
        for word in _files_that_run(call):
            if word.literal is None and _has_other(with_outputs, call):
                return "it runs what the shell computes, and writes a file"
            name = file_name(word) or word.tail
            if _PATTERN.fullmatch(name) and _has_other(with_outputs, call):
                return f"it runs the files that match `{name}`, and writes a file"
            if name and _has_other(writers.get(name, ()), call):
                return f"it runs `{name}`, and may have written it"
            if _has_other(with_chosen_outputs, call):
                return f"it runs `{name}`, and a placeholder chooses the name of a file that it writes"
    return None


def _has_other(calls: Sequence[Call], call: Call) -> bool:
    return any(other is not call for other in calls[:2])  # a call is listed once


def _files_that_run(call: Call) -> Iterator[Word]:
    """Yield the words that name a file which the call runs."""
    if not call.words:
        return
    program, arguments = call.words[0], call.words[1:]
    if is_own_script(program) or call.name is None:
        yield program
    elif call.name in SCRIPT_RUNNERS:
        yield from arguments
    elif call.name in FILE_EVALUATORS:
        yield from _evaluated(call.name, (*arguments, *call.command.redirections))
    elif call.name in INTERPRETERS:
        yield from (*arguments[:1], *call.command.redirections)
        if arguments and (arguments[0].literal or "-").startswith("-"):
            yield from arguments[1:]
    else:
        for before, word in pairwise(arguments):
            if before.literal and program_name(before) in INTERPRETERS:
                yield word
        if any(word.literal and program_name(word) in INTERPRETERS for word in arguments):
            yield from call.command.redirections


def _evaluated(name: str, words: Sequence[Word]) -> Iterator[Word]:
    # Programs such as `ssh` have computed arguments that are no files.
    yield from (word for word in words if word.literal is not None or name in {"eval", ".", "source"})


def _find_writers(calls: Sequence[Call]) -> dict[str, list[Call]]:
    """Return the calls that may write each file. A copy of a written file is written, too."""
    writers: dict[str, list[Call]] = {}
    for call in calls:
        for name in {*_names(outputs(call)), *_mentioned(call)}:
            writers.setdefault(name, []).append(call)
    copies = [(call, set(_names(call.words[1:]))) for call in calls if call.name in COPYING_PROGRAMS]
    waiting = list(writers)
    while waiting:
        name = waiting.pop()
        for call, names in [copy for copy in copies if name in copy[1]]:
            copies.remove((call, names))
            for copied in names:
                writers.setdefault(copied, []).append(call)
            waiting += names
    return writers


def _mentioned(call: Call) -> set[str]:
    """Return the file names among the arguments of a call that may write a value to them."""
    if not call.carries_value or call.name in READING_PROGRAMS:
        return set()
    return set(_names(call.words[2:] if call.name in INTERPRETERS else call.words[1:]))


def _names(words: Sequence[Word]) -> Iterator[str]:
    yield from (name for word in words if (name := file_name(word)))
