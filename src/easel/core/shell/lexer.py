"""The words of a shell command: where one begins and ends, how each part of it is quoted, and where values stand in it.

Owns the lexical half of reading a command that has placeholders. A placeholder is one `HOLE` character in the text, which can
stand for nothing else, since no command holds a NUL. Only what dash, bash and their kin read alike is understood; all else is
refused, because a place that one shell sees inside of quotes and another outside of them is safe in neither.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NoReturn

from easel.errors import BadInput

HOLE = "\0"
MAX_NESTING = 20
NAME = r"[A-Za-z_][A-Za-z0-9_]*"
BLANKS = " \t"
ENDS_WORD = " \t\n;&|<>()"
SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@+-")
"""Characters that mean nothing to any shell, wherever they stand in a word."""

OPERATORS = (
    "<<<",
    "<<-",
    "&>>",
    ";;&",
    "<<",
    "<&",
    "<>",
    ">>",
    ">&",
    ">|",
    "&>",
    "&&",
    "||",
    "|&",
    ";;",
    ";&",
    *"<>&|;()",
)  # longest first
_NAME = re.compile(NAME)
_PARAMETER = re.compile(
    rf"#?(?P<name>{NAME}|[0-9]+|[@*#?$!-])(?P<rest>(?::?[-=+?]|##?|%%?)[^'\"\\$`{{}}\n\0<>()&|;]*)?"
)
_ARITHMETIC = re.compile(r"[A-Za-z0-9_$+\-*/%<>=!&|^~?:,() \t]")
_SPECIAL = "@*#?$!-0123456789"
_STAYS_AFTER_DOLLAR = " \t\n/.,;:%)|&"  # a `$` before these is a `$`
_NEIGHBOURS = SAFE | set("=,'\"") | {HOLE}


class Quote(StrEnum):
    NONE = "none"
    SINGLE = "single"
    DOUBLE = "double"


@dataclass(slots=True, eq=False)
class Hole:
    """A place for a value. `is_glued`: something beside it would join with a value that is not quoted."""

    number: int
    position: int
    quote: Quote
    is_glued: bool


@dataclass(frozen=True, slots=True)
class Use:
    """A variable that is read. Plain is `"$name"`: its text and nothing else, never split, never evaluated."""

    name: str
    position: int
    is_plain: bool


@dataclass(slots=True, eq=False)
class Word:
    """`pieces` is its text without quotes; a number is a hole, none an expansion. `value_from`: where the value of `NAME=…` begins."""

    position: int
    pieces: list[str | int | None] = field(default_factory=list[str | int | None])
    holes: list[Hole] = field(default_factory=list[Hole])
    uses: list[Use] = field(default_factory=list[Use])
    is_quoted: bool = False
    assigns: str | None = None
    value_from: int = 0
    signs: set[str] = field(
        default_factory=set[str]
    )  # the unquoted ones of `{`, `}`, `[`, `=`, and `~` before a `/`
    name_ends_at: int = (
        -1
    )  # where the last `$name` without braces ends: a value right there would lengthen the name

    @property
    def literal(self) -> str | None:
        """The whole text, where the shell would add nothing to it."""
        return (
            "".join(map(str, self.pieces)) if all(isinstance(piece, str) for piece in self.pieces) else None
        )

    @property
    def keyword(self) -> str | None:
        return None if self.is_quoted else self.literal

    @property
    def tail(self) -> str:
        """The text after the last thing that is not text."""
        for index in range(len(self.pieces) - 1, -1, -1):
            if not isinstance(self.pieces[index], str):
                return "".join(map(str, self.pieces[index + 1 :]))
        return self.literal or ""


@dataclass(frozen=True, slots=True)
class HereDocument:
    end: str
    is_literal: bool
    strips_tabs: bool


class Words:
    """Reads a command word by word. What stands inside of `$(…)` is the grammar's to read: `_substitution`."""

    def __init__(self, text: str, names: list[str]) -> None:
        self._text = text
        self._names = names  # of the placeholders, in order
        self._pos = 0
        self._hole_count = 0
        self._pushed: Word | str | None = None
        self._awaited: list[HereDocument] = []
        self.depth = 0  # of substitutions around this place
        self.uses: list[Use] = []

    def refuse(self, problem: str) -> NoReturn:
        raise BadInput(problem=problem)

    def refuse_hole(self, where: str, number: int | None = None) -> NoReturn:
        name = self._names[self._hole_count if number is None else number]
        self.refuse(f"{name} stands {where}.")

    def _substitution(self) -> None:
        raise NotImplementedError

    # --- tokens -----------------------------------------------------------------------------------------------------

    def token(self) -> Word | str:
        """The next word, operator or line end; the empty text at the end."""
        if (pushed := self._pushed) is not None:
            self._pushed = None
            return pushed
        self._skip_blanks()
        if self._pos >= len(self._text):
            if self._awaited:
                self.refuse("a here-document has no end.")
            return ""
        if self._text[self._pos] == "\n":
            self._pos += 1
            self._skip_here_documents()
            return "\n"
        if self._text.startswith(("<(", ">("), self._pos):
            self.refuse("a process substitution, <(…) or >(…), is not understood here; use a pipe or a file.")
        for operator in OPERATORS:
            if self._text.startswith(operator, self._pos):
                self._pos += len(operator)
                return operator
        return self._word()

    def push_back(self, token: Word | str) -> None:
        self._pushed = token

    def follows(self, text: str) -> bool:
        return self._text.startswith(text, self._pos)

    def _skip_blanks(self) -> None:
        while self._pos < len(self._text):
            char = self._text[self._pos]
            if char in BLANKS:
                self._pos += 1
            elif char == "\\" and self._text.startswith("\\\n", self._pos):
                if self._pos and self._text[self._pos - 1] not in " \t\n":
                    self.refuse("a line is continued inside of a word; put a blank before the backslash.")
                self._pos += 2
            elif char == "#":
                self._skip_comment()
            else:
                return

    def _skip_comment(self) -> None:
        if self.depth:
            self.refuse("a comment inside of $(…) is not understood here; leave it out.")
        end = self._text.find("\n", self._pos)
        end = len(self._text) if end < 0 else end
        if HOLE in self._text[self._pos : end]:
            self.refuse_hole("in a comment, which a value with a line end would leave")
        self._pos = end

    # --- here-documents ---------------------------------------------------------------------------------------------

    def await_here_document(self, *, strips_tabs: bool) -> None:
        end = self.token()
        if self.depth:
            self.refuse("a here-document inside of $(…) is not understood here.")
        if (
            not isinstance(end, Word)
            or end.literal is None
            or not re.fullmatch(r"[A-Za-z0-9_.-]+", end.literal)
        ):
            self.refuse("the end of a here-document is a plain word, such as EOF.")
        self._awaited.append(HereDocument(end.literal, end.is_quoted, strips_tabs))

    def _skip_here_documents(self) -> None:
        for document in self._awaited:
            self._skip_here_document(document)
        self._awaited.clear()

    def _skip_here_document(self, document: HereDocument) -> None:
        while self._pos < len(self._text):
            start, end = self._pos, self._text.find("\n", self._pos)
            line = self._text[start : end if end >= 0 else len(self._text)]
            self._pos += len(line) + 1
            if (line.lstrip("\t") if document.strips_tabs else line) == document.end:
                return
            if HOLE in line:
                self.refuse_hole("in a here-document, whose text the shell would evaluate again")
            if not document.is_literal and ("\\" in line or "`" in line or "$(" in line):
                self.refuse(
                    "a here-document with backslashes or substitutions is not understood here; quote its end: <<'EOF'."
                )
            self.uses += [
                Use(found[1], start, is_plain=False) for found in re.finditer(rf"\$\{{?({NAME})", line)
            ]
        self.refuse(f"a here-document has no end: there is no line {document.end}.")

    # --- words ------------------------------------------------------------------------------------------------------

    def _word(self) -> Word | str:
        word = Word(self._pos)
        while self._pos < len(self._text) and (char := self._text[self._pos]) not in ENDS_WORD:
            match char:
                case "'":
                    self._single(word)
                case '"':
                    self._double(word)
                case "\\":
                    self._escaped(word)
                case "$":
                    self._dollar(word, Quote.NONE)
                case "`":
                    self._backticks(word)
                case _ if char == HOLE:
                    self._hole(word, Quote.NONE)
                case _:
                    self._plain(word, char)
        return self._ended(word)

    def _ended(self, word: Word) -> Word | str:
        if word.holes and (signs := word.signs & set("{}[")):
            self.refuse_hole(
                f"in a word with an unquoted {min(signs)}, where the shell makes words out of it; quote it",
                word.holes[0].number,
            )
        if self._text[self._pos : self._pos + 1] in {"<", ">"}:
            if (word.keyword or "").isdecimal():
                return self.token()  # a number right before `>` is part of it
            for hole in word.holes:
                hole.is_glued = True
        self.uses += word.uses
        return word

    def _plain(self, word: Word, char: str) -> None:
        if (
            char == "="
            and "=" not in word.signs
            and not word.is_quoted
            and _NAME.fullmatch(word.literal or "")
        ):
            word.assigns, word.value_from = word.literal, len(word.pieces) + 1
        if char in "{}[~=":
            word.signs.add(char)
        elif char == "/":
            word.signs.discard("~")
        word.pieces.append(char)
        self._pos += 1

    def _hole(self, word: Word, quote: Quote) -> None:
        if self.depth:
            self.refuse_hole("in $(…), which the shell evaluates once more")
        if self._awaited:
            self.refuse_hole("behind << on the same line; put it before the <<")
        if quote is Quote.NONE and "~" in word.signs:
            self.refuse_hole("right after ~, where the shell puts a home folder")
        before = self._text[self._pos - 1] if self._pos > word.position else HOLE
        after = self._text[self._pos + 1 : self._pos + 2]
        is_glued = word.name_ends_at == self._pos
        if quote is Quote.NONE:
            is_glued |= before not in _NEIGHBOURS or not (
                after in _NEIGHBOURS or not after or after in ENDS_WORD
            )
        word.holes.append(Hole(self._hole_count, self._pos, quote, is_glued))
        word.pieces.append(self._hole_count)
        self._hole_count += 1
        self._pos += 1

    def _single(self, word: Word) -> None:
        end = self._text.find("'", self._pos + 1)
        if end < 0:
            self.refuse("a ' is not closed.")
        word.is_quoted = True
        self._pos += 1
        while self._pos < end:
            if self._text[self._pos] == HOLE:
                self._hole(word, Quote.SINGLE)
            else:
                word.pieces.append(self._text[self._pos])
                self._pos += 1
        self._pos = end + 1

    def _double(self, word: Word) -> None:
        word.is_quoted = True
        self._pos += 1
        while self._pos < len(self._text):
            match char := self._text[self._pos]:
                case '"':
                    self._pos += 1
                    return
                case "\\":
                    self._escaped(word, is_in_double=True)
                case "$":
                    self._dollar(word, Quote.DOUBLE)
                case "`":
                    self._backticks(word)
                case _ if char == HOLE:
                    self._hole(word, Quote.DOUBLE)
                case _:
                    word.pieces.append(char)
                    self._pos += 1
        self.refuse('a " is not closed.')

    def _escaped(self, word: Word, *, is_in_double: bool = False) -> None:
        after = self._text[self._pos + 1 : self._pos + 2]
        if after == HOLE:
            self.refuse_hole("right after a backslash")
        if after in {"\n", ""}:
            self.refuse("a line is continued inside of a word; put a blank before the backslash.")
        if is_in_double and after not in '$`"\\':
            word.pieces.append("\\")
        word.is_quoted = True
        word.pieces.append(after)
        self._pos += 2

    # --- expansions -------------------------------------------------------------------------------------------------

    def _dollar(self, word: Word, quote: Quote) -> None:
        after = self._text[self._pos + 1 : self._pos + 2]
        if after == HOLE:
            self.refuse_hole("right after a $")
        if self.follows("$(("):
            self._arithmetic(word)
        elif after == "(":
            self._pos += 2
            word.pieces.append(None)
            self._substitution()
        elif after == "{":
            self._parameter(word, quote)
        elif name := _NAME.match(self._text, self._pos + 1):
            self._pos = name.end()
            self._used(word, name[0], is_plain=quote is Quote.DOUBLE)
        elif after and after in _SPECIAL:
            self._pos += 2
            self._used(word, after, is_plain=quote is Quote.DOUBLE)
        elif not after or after in _STAYS_AFTER_DOLLAR or (after == '"' and quote is Quote.DOUBLE):
            word.pieces.append("$")
            self._pos += 1
        else:
            self.refuse(f"${after} is not understood here; write \\$ for a dollar sign.")

    def _used(self, word: Word, name: str, *, is_plain: bool) -> None:
        word.name_ends_at = self._pos
        word.uses.append(Use(name, self._pos, is_plain=is_plain and not self.depth))
        word.pieces.append(None)

    def _parameter(self, word: Word, quote: Quote) -> None:
        end = self._text.find("}", self._pos)
        body = self._text[self._pos + 2 : end if end >= 0 else len(self._text)]
        if HOLE in body:
            self.refuse_hole("in ${…}, which the shell evaluates once more")
        read = _PARAMETER.fullmatch(body) if end >= 0 else None
        if read is None:
            self.refuse(f"${{{body}}} is not understood here; set a variable first, or use a script.")
        self._pos = end + 1
        word.uses.append(
            Use(
                read["name"],
                end,
                is_plain=quote is Quote.DOUBLE and not read["rest"] and body[0] != "#" and not self.depth,
            )
        )
        word.pieces.append(None)

    def _arithmetic(self, word: Word) -> None:
        start, open_brackets = self._pos, 0
        self._pos += 3
        while not (open_brackets == 0 and self.follows("))")):
            char = self._text[self._pos : self._pos + 1]
            if char == HOLE:
                self.refuse_hole("in arithmetic, which the shell evaluates once more")
            if not char or not _ARITHMETIC.fullmatch(char) or (char == ")" and not open_brackets):
                self.refuse("$((…)) with anything but names, numbers and signs is not understood here.")
            open_brackets += (char == "(") - (char == ")")
            self._pos += 1
        word.uses += [
            Use(name[0], start, is_plain=False) for name in _NAME.finditer(self._text, start, self._pos)
        ]
        word.pieces.append(None)
        self._pos += 2

    def _backticks(self, word: Word) -> None:
        end = self._text.find("`", self._pos + 1)
        body = self._text[self._pos + 1 : end if end >= 0 else len(self._text)]
        if HOLE in body:
            self.refuse_hole("in backticks, which the shell evaluates once more")
        if end < 0 or any(sign in body for sign in ("\\", "'", '"', "#", "$(", "<<")):
            self.refuse(
                "backticks with quotes, comments or substitutions in them are not understood here; use $(…)."
            )
        word.uses += [
            Use(name[1], self._pos, is_plain=False) for name in re.finditer(rf"\$\{{?({NAME})", body)
        ]
        word.pieces.append(None)
        self._pos = end + 1
