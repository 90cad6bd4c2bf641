"""Calls: a program with its arguments, the commands that it may start, and the arguments that are code. RS-71

Does not know which places are forbidden.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from easel.core.shell import rules
from easel.core.shell.words import Expansion, Slot, SyntaxNode, Word

Piece = str | Slot | Expansion
_VERSION = re.compile(r"(python|pypy|perl|ruby|lua|php|tclsh|node)[0-9.]+")


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """A program and its arguments. A command that a launcher starts is a call of its own."""

    name: str
    words: Sequence[Word]
    node: SyntaxNode
    is_fed: bool  # a program appends its input to the arguments
    starts: Sequence[Sequence[Word]]  # the commands that it may start

    @property
    def rule(self) -> rules.Rule:
        return rules.rule_of(self.name)


def program_name(word: Word) -> str:
    """Return the program's name: `bash` for /usr/bin/bash and "$HOME"/bin/bash; empty if it is not known."""
    if len(word.pieces) == 1 and isinstance(word.pieces[0], Expansion) and word.pieces[0].words:
        return program_name(word.pieces[0].words[0])  # of ${PYTHON:-python3}
    if word.literal is None and "/" not in word.tail:
        return ""
    name = word.tail.rpartition("/")[2]
    return found[1] if (found := _VERSION.fullmatch(name)) else name


def find_started(name: str, words: Sequence[Word]) -> Iterator[Sequence[Word]]:
    """Yield the words of each command that a program may start."""
    rule, start = rules.rule_of(name), 1
    if name in {"find", "fd"}:
        yield from (words[at + 1 :] for at, word in enumerate(words) if is_named(word, rule["files"]))
    if "launch" not in rule:
        return
    if verbs := rule["verbs"]:
        start = next((at + 1 for at, word in enumerate(words) if is_named(word, verbs)), len(words))
    waiting, seen = [(start, int(rule.text("launch")))], set[tuple[int, int]]()
    while waiting:
        place = index, operands = waiting.pop()
        if index >= len(words) or place in seen:
            continue
        seen.add(place)
        word = words[index]
        if word.head.startswith("-") and word.head != "-":
            takes = is_named(word, rule["take"])
            is_known = (
                takes
                or is_named(word, rules.FLAGS | {"--"})
                or "=" in word.head
                or word.head[:2] in rule["take"]
            )
            # An option that is not known may take a value or not.
            waiting += [(index + 2, operands)] if takes or not is_known else []
            waiting += [(index + 1, operands)] if not takes else []
        elif word.assigns or operands or word.head == "-":
            waiting.append((index + 1, operands - (not word.assigns and word.head != "-")))
        else:
            yield words[index:]


def find_code(call: ProgramCall) -> Iterator[Sequence[Piece]]:
    """Yield the pieces of each argument that is code."""
    rule, words = call.rule, call.words
    letters = rule.text("code")
    cluster = re.compile(rf"-[A-Za-z]*[{letters}]") if letters else rules.CODE_OPTION
    glued = re.compile(rf"-[A-Za-z0-9]*?[{letters}]" if letters else r"-[ce](?=$|[^=]*[^\w./:=,@+-])")
    for previous, word in pairwise(words) if "nocode" not in rule else ():
        option, (head, has_value, value) = previous.literal or "", word.head.partition("=")
        if (
            cluster.fullmatch(option)
            or (option[:2] == "--" and rules.CODE_OPTION.fullmatch(option))
            or option in rules.CODE_COMMANDS
            or ("plus" in rule and word.head.startswith("+"))
        ):
            yield word.pieces
        elif has_value and head[:2] == "--" and rules.CODE_OPTION.fullmatch(head):
            yield [value, *word.pieces[1:]]
        elif len(word.pieces) > 1 and word.head[:2] not in rule["skip"] and (found := glued.match(word.head)):
            yield [word.head[found.end() :], *word.pieces[1:]]
    names_code = any(is_named(word, rule["files"]) or cluster.fullmatch(word.literal or "") for word in words)
    if rule["operand"] and not names_code:
        operands, skipped = list[Word](), 0
        for word in words[1:]:
            if skipped or (word.head.startswith("-") and word.head != "-"):
                is_pair = is_named(word, {"--arg", "--argjson", "--slurpfile", "--rawfile"})
                skipped = skipped - 1 if skipped else 2 if is_pair else int(is_named(word, rule["skip"]))
            else:
                operands.append(word)
        first = 1 if call.name in {"sqlite", "sqlite3", "duckdb"} else 0
        yield from (word.pieces for word in operands[first : int(rule.text("operand")) + 1])


def letters_of(option: str) -> list[str]:
    """Return each option of a cluster such as `-ae`."""
    return [f"-{letter}" for letter in option[1:]] if re.fullmatch("-[A-Za-z]+", option) else []


def is_named(word: Word, names: Collection[str]) -> bool:
    return word.literal in names
