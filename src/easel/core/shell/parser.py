"""Parser for shell commands with placeholders: groups the words of a script into simple commands.

Owns the grammar: lists, pipelines, `if`, `while`, `until`, `for`, `case`, groups, substitutions and
redirections. Not every syntax error is reported, because the shell does not run a command with a syntax
error. But syntax must never be parsed as a plain word. Does not know which programs are safe.
"""

import re
from dataclasses import dataclass

from easel.core.shell.lexer import MAX_NESTING, NAME, Lexer, Word

SEPARATORS = frozenset({"\n", ";", "&", "&&", "||", "|", "|&"})
PIPES = frozenset({"|", "|&"})
OUTPUTS = frozenset({"<>", ">>", ">&", ">|", "&>", "&>>", ">"})
REDIRECTIONS = OUTPUTS | {"<<<", "<<", "<<-", "<&", "<"}
COMMAND_FOLLOWS = frozenset({"if", "elif", "then", "else", "while", "until", "do", "{", "!"})
CLOSING_KEYWORDS = frozenset({"fi", "done", "}"})
UNSUPPORTED_KEYWORDS = frozenset({"function", "select", "coproc", "[[", "in", "esac"})
CASE_BRANCH_ENDS = frozenset({";;", ";&", ";;&"})
_FILE_DESCRIPTOR = re.compile(r"[0-9]+-?|-")
Redirection = tuple[str, Word]  # operator and target


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command. Without words it has only the redirections of a group or compound command.

    `redirections` are the targets of all redirections, `outputs` of those that write a file.
    """

    position: int
    words: tuple[Word, ...]
    redirections: tuple[Word, ...] = ()
    outputs: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """The head of a loop, `for name in words`."""

    name: str
    words: tuple[Word, ...]


class Script(Lexer):
    """A parsed script. The constructor parses the complete text."""

    def __init__(self, text: str, names: list[str]) -> None:
        super().__init__(text, names)
        self.commands: list[Command] = []
        self.loops: list[Loop] = []
        self.compared: list[Word] = []  # the subjects and patterns of `case`
        self.pipes: list[int] = []  # positions
        self._nesting = 0
        self._parse_list(frozenset({""}))

    def _parse_list(self, ends: frozenset[str]) -> str:
        """Parse commands up to one of the tokens `ends`. Returns the token that was found."""
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            self.refuse(f"commands are nested deeper than {MAX_NESTING} levels.")
        while True:
            lexeme = self.next_token()
            keyword = lexeme if isinstance(lexeme, str) else lexeme.keyword
            if keyword is not None and keyword in ends:
                self._nesting -= 1
                return keyword
            if isinstance(lexeme, Word):
                self._parse_command(lexeme)
            elif lexeme in PIPES:
                self.pipes.append(self._pos)
            elif lexeme == "(":
                self._parse_group()
            elif lexeme in REDIRECTIONS:
                self.push_back(lexeme)
                self._parse_simple_command([])
            elif lexeme not in SEPARATORS:
                self.refuse(
                    "the command ends too early: something is not closed."
                    if not lexeme
                    else f"{lexeme} is not supported here."
                )

    def _parse_command(self, first: Word) -> None:
        match first.keyword:
            case "for":
                self._parse_for()
            case "case":
                self._parse_case()
            case keyword if keyword in COMMAND_FOLLOWS:
                pass
            case keyword if keyword in CLOSING_KEYWORDS:
                self._parse_group_redirections()
            case keyword if keyword in UNSUPPORTED_KEYWORDS:
                self.refuse(f"`{keyword}` is not supported here; use a script.")
            case _:
                self._parse_simple_command([first])

    def _parse_simple_command(self, words: list[Word]) -> None:
        position = words[0].position if words else self._pos
        redirections: list[Redirection] = []
        while True:
            lexeme = self.next_token()
            if isinstance(lexeme, Word):
                words.append(lexeme)
            elif lexeme in REDIRECTIONS:
                self._parse_redirection(lexeme, redirections)
            elif lexeme == "(":
                self.refuse(
                    "a ( after a word (a function, an array or a pattern) is not supported; use a script."
                )
            else:
                self.push_back(lexeme)
                break
        self._add_command(position, words, redirections)

    def _add_command(self, position: int, words: list[Word], redirections: list[Redirection]) -> None:
        targets = tuple(target for _, target in redirections)
        outputs = tuple(
            target
            for operator, target in redirections
            if operator in OUTPUTS
            and not (operator == ">&" and _FILE_DESCRIPTOR.fullmatch(target.literal or ""))
        )
        self.commands.append(Command(position, tuple(words), targets, outputs))

    def _parse_redirection(self, operator: str, into: list[Redirection]) -> None:
        if operator in {"<<", "<<-"}:
            self.expect_here_document(strips_tabs=operator == "<<-")
            return
        target = self.next_token()
        if not isinstance(target, Word):
            self.refuse(f"{operator} needs a file name.")
        if operator in {"<&", ">&"} and target.slots:
            self.refuse_slot("where the number of a file descriptor belongs", target.slots[0].number)
        into.append((operator, target))

    # --- compound commands ----------------------------------------------------------------------------------

    def _parse_group(self) -> None:
        if self.follows("("):
            self.refuse("((…)) is not supported here; use a script.")
        self._parse_list(frozenset({")"}))
        self._parse_group_redirections()

    def _parse_substitution(self) -> None:
        self.depth += 1
        self._parse_list(frozenset({")"}))
        self.depth -= 1

    def _parse_group_redirections(self) -> None:
        redirections: list[Redirection] = []
        while (lexeme := self.next_token()) in REDIRECTIONS and isinstance(lexeme, str):
            self._parse_redirection(lexeme, redirections)
        if isinstance(lexeme, Word) and lexeme.keyword not in COMMAND_FOLLOWS | CLOSING_KEYWORDS | {"esac"}:
            self.refuse("a word after the end of a group is not supported here.")
        self.push_back(lexeme)
        self._add_command(self._pos, [], redirections)

    def _parse_for(self) -> None:
        name = self.next_token()
        if not isinstance(name, Word) or not re.fullmatch(NAME, name.keyword or ""):
            self.refuse("`for` needs the name of a variable.")
        words: list[Word] = []
        lexeme = self._next_after_newlines()
        if isinstance(lexeme, Word) and lexeme.keyword == "in":
            while isinstance(lexeme := self.next_token(), Word):
                words.append(lexeme)
            if lexeme not in {";", "\n"}:
                self.refuse("the words of `for` must end with ; or a line end.")
        else:
            self.push_back(lexeme)
        self.loops.append(Loop(name.keyword or "", tuple(words)))

    def _parse_case(self) -> None:
        if self.depth:
            self.refuse("`case` inside $(…) is not supported here.")
        subject = self.next_token()
        into = self._next_after_newlines()
        if not isinstance(subject, Word) or not isinstance(into, Word) or into.keyword != "in":
            self.refuse("`case` must be followed by a word and `in`.")
        self.compared.append(subject)
        while True:
            lexeme = self._next_after_newlines()
            if isinstance(lexeme, Word) and lexeme.keyword == "esac":
                break
            self._parse_patterns(self.next_token() if lexeme == "(" else lexeme)
            if self._parse_list(CASE_BRANCH_ENDS | {"esac"}) == "esac":
                break
        self._parse_group_redirections()

    def _parse_patterns(self, lexeme: Word | str) -> None:
        while isinstance(lexeme, Word):
            self.compared.append(lexeme)
            lexeme = self.next_token()
            if lexeme == ")":
                return
            if lexeme != "|":
                break
            lexeme = self.next_token()
        self.refuse("the patterns of `case` must be words separated by | and ended by ).")

    def _next_after_newlines(self) -> Word | str:
        while (lexeme := self.next_token()) == "\n":
            pass
        return lexeme
