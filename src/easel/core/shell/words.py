"""The words and commands of a script, as the lexer finds them, and the slots in them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from easel.errors import BadInput


@dataclass(slots=True, eq=False)
class Slot:
    """The position of a placeholder, and what its value must be there."""

    name: str
    quote: str | None = None  # around it: empty, ' or "; None while the slot is not found
    before: str = ""  # the character before it in its word, if that is literal text
    digits: bool = False  # the value must be digits
    excluded: str = ""  # a character that the value must not contain
    end: str = ""  # of its here-document, which no value must complete
    is_inner: bool = False  # in a substitution, in inner code, in a comment: no place for any text
    needs_value: bool = False  # without it, another word would take its place, or be an option


@dataclass(frozen=True, slots=True)
class Expansion:
    """`$name`, `${name…}`, `$(…)`, `<(…)`, an array."""

    name: str = ""
    words: "tuple[Word, ...]" = ()  # inside of the braces
    group: "SyntaxNode | None" = None  # the commands of a substitution
    is_bare: bool = False  # `$name` without braces: a letter behind it would belong to the name


@dataclass(slots=True, eq=False)
class Word:
    """A word without its quotes. In `NAME=…`, `assigns` is the name."""

    pieces: list[str | Slot | Expansion] = field(default_factory=list[str | Slot | Expansion])
    is_quoted: bool = False
    assigns: str | None = None

    def add(self, text: str) -> None:
        if self.pieces and isinstance(self.pieces[-1], str):
            text = str(self.pieces.pop()) + text
        self.pieces.append(text)

    @property
    def slots(self) -> list[Slot]:
        return [piece for piece in self.pieces if isinstance(piece, Slot)]

    @property
    def head(self) -> str:
        """The literal text before the first slot or expansion."""
        return self.pieces[0] if self.pieces and isinstance(self.pieces[0], str) else ""

    @property
    def tail(self) -> str:
        return self.pieces[-1] if self.pieces and isinstance(self.pieces[-1], str) else ""

    @property
    def literal(self) -> str | None:
        """The text of the word, or None if it has slots or expansions."""
        return self.head if len(self.pieces) == bool(self.head) else None

    @property
    def keyword(self) -> str | None:
        return None if self.is_quoted else self.literal


@dataclass(slots=True, eq=False)
class SyntaxNode:
    """A command, or a group of commands: `{ … }`, `( … )`, a loop, a substitution."""

    parent: "SyntaxNode | None" = None
    end: str | None = None  # the word or operator that ends the group; None: a command
    words: list[Word] = field(default_factory=list[Word])
    redirections: list[tuple[str, Word]] = field(default_factory=list[tuple[str, Word]])
    children: list["SyntaxNode"] = field(default_factory=list["SyntaxNode"])
    before: list["SyntaxNode"] = field(default_factory=list["SyntaxNode"])  # in the same pipeline
    after: list["SyntaxNode"] = field(default_factory=list["SyntaxNode"])
    pipeline: list["SyntaxNode"] = field(default_factory=list["SyntaxNode"])  # of the group, being read
    is_captured: bool = False  # a substitution: its output becomes a part of a word

    @property
    def is_open_test(self) -> bool:
        return bool(self.words) and self.words[0].keyword == "[[" and self.words[-1].keyword != "]]"


@dataclass(slots=True)
class ShellScript:
    """All commands of a text, with those of its substitutions."""

    commands: list[SyntaxNode] = field(default_factory=list[SyntaxNode])
    functions: set[str] = field(default_factory=set[str])
    numbers: set[str] = field(default_factory=set[str])  # variables that arithmetic evaluates
    pointers: set[str] = field(default_factory=set[str])  # variables that hold a name: `${!name}`
    assigned: list[tuple[str, Sequence[Word]]] = field(default_factory=list[tuple[str, Sequence[Word]]])
    root: SyntaxNode = field(default_factory=SyntaxNode)


def refuse(problem: str) -> NoReturn:
    raise BadInput(problem=problem)


def refuse_slot(slot: Slot, where: str) -> NoReturn:
    refuse(f"{slot.name} must not be {where}.")
