"""Lexer for shell commands with placeholders: finds the words, and the quoting of every slot.

A slot is the position of a placeholder. In the text it is one `SLOT` character, NUL, which a command cannot
contain otherwise. Owns the lexical rules. Accepts only syntax that dash, bash and similar shells read alike,
because a slot that is quoted in one shell and unquoted in another is not safe. Does not know programs.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NoReturn

from easel.errors import BadInput

SLOT = "\0"
MAX_NESTING = 20
NAME = r"[A-Za-z_][A-Za-z0-9_]*"
BLANKS = " \t"
ENDS_WORD = " \t\n;&|<>()"
# Characters without a special meaning in any shell, at any position of a word.
SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@+-")

# Longest first, so that `<<-` is not read as `<<`.
OPERATORS = (
    *("<<<", "<<-", "&>>", ";;&", "<<", "<&", "<>", ">>", ">&", ">|", "&>", "&&", "||", "|&", ";;", ";&"),
    *"<>&|;()",
)
_NAME = re.compile(NAME)
_PARAMETER = re.compile(
    rf"#?(?P<name>{NAME}|[0-9]+|[@*#?$!-])(?P<rest>(?::?[-=+?]|##?|%%?)[^'\"\\$`{{}}\n\0<>()&|;]*)?"
)
_ARITHMETIC = re.compile(r"[A-Za-z0-9_$+\-*/%<>=!&|^~?:,() \t]")
_SPECIAL = "@*#?$!-0123456789"
_LITERAL_AFTER_DOLLAR = " \t\n/.,;:%)|&"  # a `$` before one of these is a literal `$`
_NEIGHBOURS = SAFE | set("=,'\"") | {SLOT}


class Quote(StrEnum):
    NONE = "none"
    SINGLE = "single"
    DOUBLE = "double"


@dataclass(slots=True, eq=False)
class Slot:
    """The position of a placeholder. `needs_quoting`: a bare value would combine with the text beside it."""

    number: int
    position: int
    quote: Quote
    needs_quoting: bool


@dataclass(frozen=True, slots=True)
class VariableUse:
    """A variable that is read. `is_plain`: as `"$name"`, which is neither split nor evaluated."""

    name: str
    position: int
    is_plain: bool


@dataclass(slots=True, eq=False)
class Word:
    """A word of a command.

    `pieces` is the text without quotes: a string is literal text, an int the number of a slot, None an
    expansion. In `NAME=…`, `assigns` is the name and `value_from` the index of the value's first piece.
    """

    position: int
    pieces: list[str | int | None] = field(default_factory=list[str | int | None])
    slots: list[Slot] = field(default_factory=list[Slot])
    uses: list[VariableUse] = field(default_factory=list[VariableUse])
    is_quoted: bool = False
    assigns: str | None = None
    value_from: int = 0
    # Those of the characters `{`, `}`, `[`, `=` and `~` that are unquoted; `~` only before the first `/`.
    signs: set[str] = field(default_factory=set[str])
    # Where the last `$name` without braces ends: an unquoted value there could become part of the name.
    name_ends_at: int = -1

    @property
    def literal(self) -> str | None:
        """The text of the word without quotes, or None if the word has slots or expansions."""
        return (
            "".join(map(str, self.pieces)) if all(isinstance(piece, str) for piece in self.pieces) else None
        )

    @property
    def keyword(self) -> str | None:
        return None if self.is_quoted else self.literal

    @property
    def tail(self) -> str:
        """The literal text after the last slot or expansion."""
        for index in range(len(self.pieces) - 1, -1, -1):
            if not isinstance(self.pieces[index], str):
                return "".join(map(str, self.pieces[index + 1 :]))
        return self.literal or ""


@dataclass(frozen=True, slots=True)
class HereDocument:
    end: str
    is_literal: bool
    strips_tabs: bool


class Lexer:
    """Reads a command token by token. The subclass parses the commands in `$(…)`: `_parse_substitution`."""

    def __init__(self, text: str, names: list[str]) -> None:
        self._text = text
        self._names = names  # the placeholders in the order of their slots, for messages
        self._pos = 0
        self._slot_count = 0
        self._pushed_back: Word | str | None = None
        self._pending_documents: list[HereDocument] = []
        self.depth = 0  # nesting of `$(…)` at the current position
        self.uses: list[VariableUse] = []

    def refuse(self, problem: str) -> NoReturn:
        raise BadInput(problem=problem)

    def refuse_slot(self, where: str, number: int | None = None) -> NoReturn:
        name = self._names[self._slot_count if number is None else number]
        self.refuse(f"{name} must not be {where}.")

    def _parse_substitution(self) -> None:
        raise NotImplementedError

    # --- tokens ---------------------------------------------------------------------------------------------

    def next_token(self) -> Word | str:
        """Return the next word, operator or line end; an empty string at the end of the command."""
        if (pushed := self._pushed_back) is not None:
            self._pushed_back = None
            return pushed
        self._skip_blanks()
        if self._pos >= len(self._text):
            if self._pending_documents:
                self.refuse("a here-document has no end.")
            return ""
        if self._text[self._pos] == "\n":
            self._pos += 1
            self._skip_here_documents()
            return "\n"
        if self._text.startswith(("<(", ">("), self._pos):
            self.refuse("a process substitution, <(…) or >(…), is not supported here; use a pipe or a file.")
        for operator in OPERATORS:
            if self._text.startswith(operator, self._pos):
                self._pos += len(operator)
                return operator
        return self._read_word()

    def push_back(self, next_token: Word | str) -> None:
        self._pushed_back = next_token

    def follows(self, text: str) -> bool:
        return self._text.startswith(text, self._pos)

    def _skip_blanks(self) -> None:
        while self._pos < len(self._text):
            char = self._text[self._pos]
            if char in BLANKS:
                self._pos += 1
            elif char == "\\" and self._text.startswith("\\\n", self._pos):
                if self._pos and self._text[self._pos - 1] not in " \t\n":
                    self.refuse("a line is continued inside a word; put a blank before the backslash.")
                self._pos += 2
            elif char == "#":
                self._skip_comment()
            else:
                return

    def _skip_comment(self) -> None:
        if self.depth:
            self.refuse("a comment inside $(…) is not supported here; leave it out.")
        end = self._text.find("\n", self._pos)
        end = len(self._text) if end < 0 else end
        if SLOT in self._text[self._pos : end]:
            self.refuse_slot("in a comment, because a value with a line end would end the comment")
        self._pos = end

    # --- here-documents -------------------------------------------------------------------------------------

    def expect_here_document(self, *, strips_tabs: bool) -> None:
        end = self.next_token()
        if self.depth:
            self.refuse("a here-document inside $(…) is not supported here.")
        if (
            not isinstance(end, Word)
            or end.literal is None
            or not re.fullmatch(r"[A-Za-z0-9_.-]+", end.literal)
        ):
            self.refuse("the end of a here-document must be a plain word, such as EOF.")
        self._pending_documents.append(HereDocument(end.literal, end.is_quoted, strips_tabs))

    def _skip_here_documents(self) -> None:
        for document in self._pending_documents:
            self._skip_here_document(document)
        self._pending_documents.clear()

    def _skip_here_document(self, document: HereDocument) -> None:
        while self._pos < len(self._text):
            start, end = self._pos, self._text.find("\n", self._pos)
            line = self._text[start : end if end >= 0 else len(self._text)]
            self._pos += len(line) + 1
            if (line.lstrip("\t") if document.strips_tabs else line) == document.end:
                return
            if SLOT in line:
                self.refuse_slot("in a here-document, whose text the shell evaluates again")
            if not document.is_literal and ("\\" in line or "`" in line or "$(" in line):
                self.refuse(
                    "a here-document with backslashes or substitutions is not supported here; "
                    "quote its end: <<'EOF'."
                )
            self.uses += [
                VariableUse(match[1], start, is_plain=False)
                for match in re.finditer(rf"\$\{{?({NAME})", line)
            ]
        self.refuse(f"a here-document has no end: there is no line {document.end}.")

    # --- words ----------------------------------------------------------------------------------------------

    def _read_word(self) -> Word | str:
        word = Word(self._pos)
        while self._pos < len(self._text) and (char := self._text[self._pos]) not in ENDS_WORD:
            match char:
                case "'":
                    self._read_single_quotes(word)
                case '"':
                    self._read_double_quotes(word)
                case "\\":
                    self._read_escape(word)
                case "$":
                    self._read_dollar(word, Quote.NONE)
                case "`":
                    self._read_backticks(word)
                case _ if char == SLOT:
                    self._read_slot(word, Quote.NONE)
                case _:
                    self._read_plain(word, char)
        return self._finish_word(word)

    def _finish_word(self, word: Word) -> Word | str:
        if word.slots and (signs := word.signs & set("{}[")):
            self.refuse_slot(
                f"in a word with an unquoted {min(signs)}, which the shell expands; quote the {min(signs)}",
                word.slots[0].number,
            )
        if self._text[self._pos : self._pos + 1] in {"<", ">"}:
            if (word.keyword or "").isdecimal():
                return self.next_token()  # the number is a file descriptor and part of the redirection
            for slot in word.slots:
                slot.needs_quoting = True
        self.uses += word.uses
        return word

    def _read_plain(self, word: Word, char: str) -> None:
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

    def _read_slot(self, word: Word, quote: Quote) -> None:
        if self.depth:
            self.refuse_slot("in $(…), which the shell evaluates again")
        if self._pending_documents:
            self.refuse_slot("after << on the same line; put it before the <<")
        if quote is Quote.NONE and "~" in word.signs:
            self.refuse_slot("right after ~, which the shell expands to a home folder")
        before = self._text[self._pos - 1] if self._pos > word.position else SLOT
        after = self._text[self._pos + 1 : self._pos + 2]
        needs_quoting = word.name_ends_at == self._pos
        if quote is Quote.NONE:
            needs_quoting |= before not in _NEIGHBOURS or not (
                after in _NEIGHBOURS or not after or after in ENDS_WORD
            )
        word.slots.append(Slot(self._slot_count, self._pos, quote, needs_quoting))
        word.pieces.append(self._slot_count)
        self._slot_count += 1
        self._pos += 1

    def _read_single_quotes(self, word: Word) -> None:
        end = self._text.find("'", self._pos + 1)
        if end < 0:
            self.refuse("a ' is not closed.")
        word.is_quoted = True
        self._pos += 1
        while self._pos < end:
            if self._text[self._pos] == SLOT:
                self._read_slot(word, Quote.SINGLE)
            else:
                word.pieces.append(self._text[self._pos])
                self._pos += 1
        self._pos = end + 1

    def _read_double_quotes(self, word: Word) -> None:
        word.is_quoted = True
        self._pos += 1
        while self._pos < len(self._text):
            match char := self._text[self._pos]:
                case '"':
                    self._pos += 1
                    return
                case "\\":
                    self._read_escape(word, is_in_double=True)
                case "$":
                    self._read_dollar(word, Quote.DOUBLE)
                case "`":
                    self._read_backticks(word)
                case _ if char == SLOT:
                    self._read_slot(word, Quote.DOUBLE)
                case _:
                    word.pieces.append(char)
                    self._pos += 1
        self.refuse('a " is not closed.')

    def _read_escape(self, word: Word, *, is_in_double: bool = False) -> None:
        after = self._text[self._pos + 1 : self._pos + 2]
        if after == SLOT:
            self.refuse_slot("right after a backslash")
        if after in {"\n", ""}:
            self.refuse("a line is continued inside a word; put a blank before the backslash.")
        if is_in_double and after not in '$`"\\':
            word.pieces.append("\\")
        word.is_quoted = True
        word.pieces.append(after)
        self._pos += 2

    # --- expansions -----------------------------------------------------------------------------------------

    def _read_dollar(self, word: Word, quote: Quote) -> None:
        after = self._text[self._pos + 1 : self._pos + 2]
        if after == SLOT:
            self.refuse_slot("right after a $")
        if self.follows("$(("):
            self._read_arithmetic(word)
        elif after == "(":
            self._pos += 2
            word.pieces.append(None)
            self._parse_substitution()
        elif after == "{":
            self._read_parameter(word, quote)
        elif name := _NAME.match(self._text, self._pos + 1):
            self._pos = name.end()
            self._add_use(word, name[0], is_plain=quote is Quote.DOUBLE)
        elif after and after in _SPECIAL:
            self._pos += 2
            self._add_use(word, after, is_plain=quote is Quote.DOUBLE)
        elif not after or after in _LITERAL_AFTER_DOLLAR or (after == '"' and quote is Quote.DOUBLE):
            word.pieces.append("$")
            self._pos += 1
        else:
            self.refuse(f"${after} is not supported here; write \\$ for a dollar sign.")

    def _add_use(self, word: Word, name: str, *, is_plain: bool) -> None:
        word.name_ends_at = self._pos
        word.uses.append(VariableUse(name, self._pos, is_plain=is_plain and not self.depth))
        word.pieces.append(None)

    def _read_parameter(self, word: Word, quote: Quote) -> None:
        end = self._text.find("}", self._pos)
        body = self._text[self._pos + 2 : end if end >= 0 else len(self._text)]
        if SLOT in body:
            self.refuse_slot("in ${…}, which the shell evaluates again")
        read = _PARAMETER.fullmatch(body) if end >= 0 else None
        if read is None:
            self.refuse(f"${{{body}}} is not supported here; set a variable first, or use a script.")
        self._pos = end + 1
        word.uses.append(
            VariableUse(
                read["name"],
                end,
                is_plain=quote is Quote.DOUBLE and not read["rest"] and body[0] != "#" and not self.depth,
            )
        )
        word.pieces.append(None)

    def _read_arithmetic(self, word: Word) -> None:
        start, open_brackets = self._pos, 0
        self._pos += 3
        while not (open_brackets == 0 and self.follows("))")):
            char = self._text[self._pos : self._pos + 1]
            if char == SLOT:
                self.refuse_slot("in arithmetic, which the shell evaluates again")
            if not char or not _ARITHMETIC.fullmatch(char) or (char == ")" and not open_brackets):
                self.refuse("$((…)) may contain only names, numbers and operators here.")
            open_brackets += (char == "(") - (char == ")")
            self._pos += 1
        word.uses += [
            VariableUse(name[0], start, is_plain=False)
            for name in _NAME.finditer(self._text, start, self._pos)
        ]
        word.pieces.append(None)
        self._pos += 2

    def _read_backticks(self, word: Word) -> None:
        end = self._text.find("`", self._pos + 1)
        body = self._text[self._pos + 1 : end if end >= 0 else len(self._text)]
        if SLOT in body:
            self.refuse_slot("in backticks, which the shell evaluates again")
        if end < 0 or any(sign in body for sign in ("\\", "'", '"', "#", "$(", "<<")):
            self.refuse("backticks with quotes, comments or substitutions are not supported here; use $(…).")
        word.uses += [
            VariableUse(name[1], self._pos, is_plain=False) for name in re.finditer(rf"\$\{{?({NAME})", body)
        ]
        word.pieces.append(None)
        self._pos = end + 1
