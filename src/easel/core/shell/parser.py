"""The commands of a shell script: which words make one command, and which of them is its program.

Owns the grammatical half of reading a command that has placeholders: lists, pipelines, `if`, `while`, `until`, `for`, `case`,
groups, substitutions and redirections. It need not notice every mistake that a shell would notice, since a shell that notices
one runs nothing; what it must never do is take for a plain word what is more than that.
"""

import re
from dataclasses import dataclass

from easel.core.shell.lexer import MAX_NESTING, NAME, Word, Words

SEPARATORS = frozenset({"\n", ";", "&", "&&", "||", "|", "|&"})
PIPES = frozenset({"|", "|&"})
REDIRECTIONS = frozenset({"<<<", "<<", "<<-", "<&", "<>", ">>", ">&", ">|", "&>", "&>>", "<", ">"})
GOES_ON = frozenset({"if", "elif", "then", "else", "while", "until", "do", "{", "!"})  # a command follows
ENDS = frozenset({"fi", "done", "}"})
NOT_UNDERSTOOD = frozenset({"function", "select", "coproc", "[[", "in", "esac"})
ENDS_OF_CASE = frozenset({";;", ";&", ";;&"})


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command; without a program, the redirections of a group or the words that `case` compares."""

    position: int
    words: tuple[Word, ...]
    redirections: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """`for name in words`"""

    name: str
    words: tuple[Word, ...]


class Script(Words):
    """A whole command, read once when it is made."""

    def __init__(self, text: str, names: list[str]) -> None:
        super().__init__(text, names)
        self.commands: list[Command] = []
        self.loops: list[Loop] = []
        self.compared: list[Word] = []  # what `case` looks at
        self.pipes: list[int] = []
        self._nesting = 0
        self._list(frozenset({""}))

    def _list(self, ends: frozenset[str]) -> str:
        """Commands up to one of these ends, and which one it was."""
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            self.refuse(f"commands are nested deeper than {MAX_NESTING} levels.")
        while True:
            lexeme = self.token()
            keyword = lexeme if isinstance(lexeme, str) else lexeme.keyword
            if keyword is not None and keyword in ends:
                self._nesting -= 1
                return keyword
            if isinstance(lexeme, Word):
                self._command(lexeme)
            elif lexeme in PIPES:
                self.pipes.append(self._pos)
            elif lexeme == "(":
                self._group()
            elif lexeme in REDIRECTIONS:
                self.push_back(lexeme)
                self._simple([])
            elif lexeme not in SEPARATORS:
                self.refuse(
                    "the command ends too early: something is not closed."
                    if not lexeme
                    else f"{lexeme} is not understood here."
                )

    def _command(self, first: Word) -> None:
        match first.keyword:
            case "for":
                self._for()
            case "case":
                self._case()
            case keyword if keyword in GOES_ON:
                pass
            case keyword if keyword in ENDS:
                self._redirections_of_group()
            case keyword if keyword in NOT_UNDERSTOOD:
                self.refuse(f"`{keyword}` is not understood here; use a script.")
            case _:
                self._simple([first])

    def _simple(self, words: list[Word]) -> None:
        position = words[0].position if words else self._pos
        redirections: list[Word] = []
        while True:
            lexeme = self.token()
            if isinstance(lexeme, Word):
                words.append(lexeme)
            elif lexeme in REDIRECTIONS:
                self._redirection(lexeme, redirections)
            elif lexeme == "(":
                self.refuse(
                    "a ( after a word (a function, an array or a pattern) is not understood here; use a script."
                )
            else:
                self.push_back(lexeme)
                break
        self.commands.append(Command(position, tuple(words), tuple(redirections)))

    def _redirection(self, operator: str, into: list[Word]) -> None:
        if operator in {"<<", "<<-"}:
            self.await_here_document(strips_tabs=operator == "<<-")
            return
        target = self.token()
        if not isinstance(target, Word):
            self.refuse(f"{operator} needs a file name.")
        if operator in {"<&", ">&"} and target.holes:
            self.refuse_hole("where the number of a file descriptor belongs", target.holes[0].number)
        into.append(target)

    # --- compound commands ------------------------------------------------------------------------------------------

    def _group(self) -> None:
        if self.follows("("):
            self.refuse("((…)) is not understood here; use a script.")
        self._list(frozenset({")"}))
        self._redirections_of_group()

    def _substitution(self) -> None:
        self.depth += 1
        self._list(frozenset({")"}))
        self.depth -= 1

    def _redirections_of_group(self) -> None:
        redirections: list[Word] = []
        while (lexeme := self.token()) in REDIRECTIONS and isinstance(lexeme, str):
            self._redirection(lexeme, redirections)
        if isinstance(lexeme, Word) and lexeme.keyword not in GOES_ON | ENDS | {"esac"}:
            self.refuse("a word after the end of a group is not understood here.")
        self.push_back(lexeme)
        self.commands.append(Command(self._pos, (), tuple(redirections)))

    def _for(self) -> None:
        name = self.token()
        if not isinstance(name, Word) or not re.fullmatch(NAME, name.keyword or ""):
            self.refuse("`for` needs the name of a variable.")
        words: list[Word] = []
        lexeme = self._after_lines()
        if isinstance(lexeme, Word) and lexeme.keyword == "in":
            while isinstance(lexeme := self.token(), Word):
                words.append(lexeme)
            if lexeme not in {";", "\n"}:
                self.refuse("the words of `for` end with ; or a line end.")
        else:
            self.push_back(lexeme)
        self.loops.append(Loop(name.keyword or "", tuple(words)))

    def _case(self) -> None:
        if self.depth:
            self.refuse("`case` inside of $(…) is not understood here.")
        subject = self.token()
        into = self._after_lines()
        if not isinstance(subject, Word) or not isinstance(into, Word) or into.keyword != "in":
            self.refuse("`case` is followed by a word and `in`.")
        self.compared.append(subject)
        while True:
            lexeme = self._after_lines()
            if isinstance(lexeme, Word) and lexeme.keyword == "esac":
                break
            self._patterns(self.token() if lexeme == "(" else lexeme)
            if self._list(ENDS_OF_CASE | {"esac"}) == "esac":
                break
        self._redirections_of_group()

    def _patterns(self, lexeme: Word | str) -> None:
        while isinstance(lexeme, Word):
            self.compared.append(lexeme)
            lexeme = self.token()
            if lexeme == ")":
                return
            if lexeme != "|":
                break
            lexeme = self.token()
        self.refuse("the patterns of `case` are words with | between them and ) at their end.")

    def _after_lines(self) -> Word | str:
        while (lexeme := self.token()) == "\n":
            pass
        return lexeme
