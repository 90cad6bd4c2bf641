"""Lexer for shell text with placeholders: finds the commands, their words, and the place of every slot.

A slot is the position of a placeholder; in the text it is one `SLOT` character, NUL, which a command cannot
contain otherwise. A plain value is a part of one word to every shell, so the text may be any shell text: a
slot is refused here only where its value would be a name, or would change what the shell reads after it.
Does not know programs.
"""

import re
from collections.abc import Sequence

from easel.core.shell.words import Expansion, ShellScript, Slot, SyntaxNode, Word, refuse, refuse_slot

SLOT = "\0"
OPAQUE = "\1"  # an expansion, in the text of inner code
MAX_NESTING = 20  # of substitutions
MAX_GROUPS = 100
MAX_ARITHMETIC = 2_000  # characters
NAME = r"[A-Za-z_][A-Za-z0-9_]*"
DOCUMENTS = frozenset({"<<", "<<-"})
INPUTS = DOCUMENTS | {"<", "<<<", "<>", "<&"}
OUTPUTS = frozenset({">", ">>", ">|", "<>", ">&", "&>", "&>>"})
_OPERATOR = re.compile(r"&>>|<<<|<<-|;;&|<<|<&|<>|>>|>&|>\||&>|&&|\|\||\|&|;;|;&|\([ \t]*\)|[<>&|;()\n]")
_LOOPS = dict.fromkeys(("while", "until", "for", "select"), "done")
_GROUP_ENDS = {"{": "}", "if": "fi", "case": "esac", **_LOOPS}
_SKIPPED = frozenset({"then", "else", "elif", "do", "!", "coproc"})
# Words before a command: `time -p`, and the name of a coprocess that is a group.
_PREFIXES = {
    "time": re.compile(r"([ \t]+-p)?(?=[ \t]+[^-\s])"),
    "coproc": re.compile(rf"[ \t]+{NAME}(?=[ \t]*[({{]|[ \t]+(?:if|case|for|select|while|until|\[\[)\s)"),
}
_ENDS_WORD = frozenset(" \t\n;&|<>()")
_RUN = re.compile(r"[^ \t\n;&|<>()'\"\\$`\0={~]+")
_INDEX_END = re.compile(r"[^]\n]{0,200}\]\+?=")
_PARAMETER = re.compile(rf"(?P<sign>[!#]?)(?P<name>{NAME}|[0-9]+|[@*#?$!-])(?P<rest>:?[-=+?]|[#%/^,])?")
_VARIABLE = re.compile(rf"({NAME})|[0-9@*#?$!-]")


def read_script(
    text: str, slots: Sequence[Slot], parent: SyntaxNode | None = None, depth: int = 0
) -> ShellScript:
    """Return the commands of a text. Raises `BadInput` for text that no shell reads."""
    script = ShellScript(root=SyntaxNode(parent, ""))
    _Lexer(text, slots, script, depth).read(script.root)
    return script


class _Lexer:
    def __init__(self, text: str, slots: Sequence[Slot], script: ShellScript, depth: int) -> None:
        positions = (index for index, char in enumerate(text) if char == SLOT)
        self._slots = dict(zip(positions, slots, strict=True))
        self._text = text
        self._pos = 0
        self._script = script
        self._documents: list[tuple[Word, Word, bool]] = []  # end, body, whether tabs are stripped
        self._depth = depth
        self._in_backticks = False
        self._is_piped = False  # the next command reads a pipe, also on a later line

    # --- commands -------------------------------------------------------------------------------------------

    def read(self, outer: SyntaxNode) -> None:
        """Read the commands of a group up to its end."""
        self._enter()
        around = [outer]
        node: SyntaxNode | None = None  # what words and redirections belong to
        in_pattern = False
        while around:
            if len(around) > MAX_GROUPS:
                refuse(f"the command has more than {MAX_GROUPS} groups in one another.")
            group, lexeme = around[-1], self._next()
            key = lexeme if isinstance(lexeme, str) else lexeme.keyword
            if in_pattern and key not in {"esac", ""}:
                in_pattern = key != ")"
                if isinstance(lexeme, Word) and lexeme.slots and not (lexeme.is_quoted or lexeme.head):
                    refuse_slot(lexeme.slots[0], "the beginning of a pattern without quotes")
            elif node and node.end is None and isinstance(lexeme, Word):
                if key == "do" and len(node.words) == 2 and node.words[0].keyword in {"for", "select"}:
                    node = None
                    continue
                node.words.append(lexeme)
                if key == "in" and node.words[0].keyword == "case" and len(node.words) == 3:
                    node, in_pattern = None, True
            elif node and node.is_open_test and lexeme != "":
                pass  # `&&`, `(`, `<` and line ends inside of [[ … ]]
            elif key == group.end and (lexeme == key or key):
                around.pop()
                node, in_pattern = group, False
            elif lexeme == "":
                refuse(f"the command ends before {group.end}.")
            elif isinstance(lexeme, Word):
                node = self._start(around, lexeme, key)
            else:
                in_pattern = group.end == "esac" and lexeme in {";;", ";&", ";;&"}
                node = self._read_operator(around, node, lexeme)
        self._depth -= 1

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            refuse(f"the command is nested deeper than {MAX_NESTING} levels.")

    def _read_operator(
        self, around: list[SyntaxNode], node: SyntaxNode | None, operator: str
    ) -> SyntaxNode | None:
        """Return what the words after an operator belong to, if that is known."""
        if operator in INPUTS | OUTPUTS:
            node = node or self._add_command(around[-1])
            self._read_redirection(node, operator)
            return node
        if operator == "(":
            if not (self._text.startswith("(", self._pos) and self._skip_arithmetic("))", self._pos + 1)):
                around.append(self._add(around[-1], ")"))
            return None
        if operator[-1] == ")" and len(operator) > 1:  # `name ()`, or `function name ()`
            self._name_function(around[-1], node)
            return None
        if operator == ")":
            refuse("there is a ) too many.")
        if operator in {"|", "|&"}:
            self._is_piped = True
        elif operator != "\n" or not self._is_piped:
            around[-1].pipeline = []
        return None

    def _start(self, around: list[SyntaxNode], word: Word, key: str | None) -> SyntaxNode | None:
        """Start a command or a group with its first word."""
        if key in _GROUP_ENDS:
            around.append(self._add(around[-1], _GROUP_ENDS[key]))
            return None if key not in {"for", "select", "case"} else self._add_command(around[-1], word)
        prefix = _PREFIXES[key].match(self._text, self._pos) if key in _PREFIXES else None
        if prefix or key in _SKIPPED:
            self._pos = prefix.end() if prefix else self._pos
            return None
        if key == "function":
            name = self._next()
            self._name_function(None, SyntaxNode(words=[name] if isinstance(name, Word) else []))
            return None
        return self._add_command(around[-1], word)

    def _add_command(self, group: SyntaxNode, *words: Word) -> SyntaxNode:
        node = self._add(group, None)
        node.words += words
        self._script.commands.append(node)
        return node

    def _add(self, group: SyntaxNode, end: str | None) -> SyntaxNode:
        node, self._is_piped = SyntaxNode(group, end, before=group.pipeline.copy()), False
        for before in group.pipeline:
            before.after.append(node)
        group.pipeline.append(node)
        group.children.append(node)
        return node

    def _name_function(self, group: SyntaxNode | None, node: SyntaxNode | None) -> None:
        for word in node.words[:1] if node else ():
            if word.slots:
                refuse_slot(word.slots[0], "the name of a function")
            self._script.functions.add(word.literal or "")
        if group and node:
            self._script.commands.remove(node)
            group.pipeline = []

    def _read_redirection(self, node: SyntaxNode, operator: str) -> None:
        target = self._next()
        if not isinstance(target, Word):
            refuse(f"there must be a word after {operator}.")
        if operator in DOCUMENTS:
            self._documents.append((target, target := Word(), operator == "<<-"))
        for slot in target.slots if operator in {">&", "<&"} else ():
            slot.digits = True
        node.redirections.append((operator, target))

    # --- tokens ---------------------------------------------------------------------------------------------

    def _next(self) -> Word | str:
        """Return the next word, operator or line end; an empty string at the end of the text."""
        while blank := re.compile(r"[ \t]+|\\\n|#[^\n]*").match(self._text, self._pos):
            self._place(self._pos, blank.end())
            self._pos = blank.end()
        if self._pos >= len(self._text):
            self._read_documents()
            return ""
        if self._in_backticks and self._text[self._pos] == "`":
            self._pos += 1
            return "`"
        operator = _OPERATOR.match(self._text, self._pos)
        if operator is None or self._text.startswith(("<(", ">("), self._pos):
            return self._read_word()
        self._pos = operator.end()
        if operator[0] == "\n":
            self._read_documents()
        return operator[0]

    def _place(self, start: int, end: int, *, digits: bool = False) -> None:
        """Mark the slots between two positions, which are no part of a word."""
        for position, slot in self._slots.items():
            if start <= position < end:
                slot.quote, slot.is_inner, slot.digits = slot.quote or "", True, slot.digits or digits

    def _read_documents(self) -> None:
        documents, self._documents = self._documents, []
        for end, body, strips_tabs in documents:
            if end.literal is None:
                refuse("the end of a here-document must be literal.")
            tabs = r"\t*" if strips_tabs else ""
            last = re.compile(rf"(?m)^{tabs}{re.escape(end.literal)}$").search(self._text, self._pos)
            if last is None:
                refuse(f"a here-document has no end: there is no line {end.literal}.")
            while self._pos < last.start():
                self._read_text(body, "'" if end.is_quoted else '"')
            self._pos = last.end() + 1
            for slot in body.slots:
                slot.is_inner, slot.end = True, end.literal

    # --- words ----------------------------------------------------------------------------------------------

    def _read_word(self) -> Word | str:
        word, has_brace = Word(), False
        while self._pos < len(self._text):
            char = self._text[self._pos]
            if not word.pieces and self._text.startswith(("<(", ">("), self._pos):
                self._pos += 1
                self._read_substitution(word, ")")
            elif char == "(" and word.tail.endswith(("=", "@", "?", "*", "+", "!")):
                self._pos += 1
                self._read_parentheses(word)
            elif char in _ENDS_WORD or (char == "`" and self._in_backticks):
                break
            elif char in "'\"":
                word.is_quoted = True
                self._read_quoted(word, char)
            elif run := _RUN.match(self._text, self._pos):
                word.add(run[0])
                self._pos = run.end()
            else:
                if char == "=" and word.assigns is None and not word.is_quoted:
                    name = re.fullmatch(rf"({NAME})(\[[^]]*\])?\+?", word.literal or "")
                    word.assigns = name[1] if name else None
                    self._script.numbers.update(re.findall(NAME, name[2] or "") if name else ())
                has_brace |= char == "{"
                self._read_text(word, "")
        for slot in word.slots if has_brace else ():
            slot.digits = True  # a comma would make it several words
        return self._end_word(word)

    def _end_word(self, word: Word) -> Word | str:
        if re.fullmatch(rf"{NAME}\[[^]]*", word.literal or "") and _INDEX_END.match(self._text, self._pos):
            refuse("an index with blanks must be in quotes.")
        if self._text[self._pos : self._pos + 1] in {"<", ">"} and not word.is_quoted:
            if re.fullmatch(rf"[0-9]+|\{{{NAME}\}}", word.literal or ""):
                return self._next()  # the descriptor of a redirection
            if word.slots and not "".join(p for p in word.pieces if isinstance(p, str)).strip("0123456789"):
                refuse_slot(word.slots[0], "right before < or >, where digits would be a descriptor")
        return word

    def _read_text(self, word: Word, quote: str) -> None:
        """Read one character, slot or expansion. `quote`: the quotes around it."""
        char = self._text[self._pos]
        after = self._text[self._pos + 1 : self._pos + 2]
        if char == SLOT:
            self._read_slot(word, quote)
        elif quote == "'" or char not in "\\$`" or (quote == "$'" and char != "\\"):
            word.add(char)
            self._pos += 1
        elif char == "$":
            self._read_dollar(word, quote)
        elif char == "`":
            self._read_substitution(word, "`")
        elif after == SLOT:
            refuse_slot(self._slots[self._pos + 1], "right after a backslash")
        else:
            word.is_quoted |= not quote
            if after != "\n":
                word.add(after if not quote or after in '$`"\\' else "\\" + after)
            self._pos += 2

    def _read_slot(self, word: Word, quote: str) -> None:
        slot = self._slots[self._pos]
        last = word.pieces[-1] if word.pieces else None
        if isinstance(last, Expansion) and last.is_bare:
            refuse_slot(slot, f"right after ${last.name}, as a part of that name; write ${{{last.name}}}")
        if not quote and self._text[self._pos - 1 : self._pos] == "~":
            refuse_slot(slot, "right after ~, which the shell expands to a home folder")
        slot.quote = quote[-1:] if slot.quote is None else slot.quote
        slot.before = last[-1:] if isinstance(last, str) else ""
        word.pieces.append(slot)
        self._pos += 1

    def _read_quoted(self, word: Word, quote: str) -> None:
        self._pos += 1
        while self._pos < len(self._text) and self._text[self._pos] != quote[-1]:
            self._read_text(word, quote)
        if self._pos >= len(self._text):
            refuse(f"a {quote} is not closed.")
        self._pos += 1

    def _read_parentheses(self, word: Word) -> None:
        """Read the elements of an array, or the patterns of `@(…)`."""
        self._enter()
        inner: list[Word] = []
        while (lexeme := self._next()) != ")":
            if lexeme == "":
                refuse("a ( is not closed.")
            inner += [lexeme] if isinstance(lexeme, Word) else []
        for item in inner:
            if item.head.startswith("["):  # an index
                self._add_numbers(item)
                for slot in item.slots:
                    slot.digits = True
        word.pieces.append(Expansion(words=tuple(inner)))
        self._depth -= 1

    # --- expansions -----------------------------------------------------------------------------------------

    def _read_dollar(self, word: Word, quote: str) -> None:
        after = self._text[self._pos + 1 : self._pos + 2]
        if after == SLOT:
            refuse_slot(self._slots[self._pos + 1], "right after a $, as a name")
        is_double = self._text.startswith("((", self._pos + 1)
        if (is_double and self._skip_arithmetic("))", self._pos + 3)) or (
            after == "[" and self._skip_arithmetic("]", self._pos + 2)
        ):
            word.pieces.append(Expansion())
        elif after == "(":
            self._pos += 1
            self._read_substitution(word, ")")
        elif after == "{":
            self._read_parameter(word, quote)
        elif after in {"'", '"'} and not quote:
            self._pos += 1
            word.is_quoted = True
            self._read_quoted(word, after if after == '"' else "$'")
        elif found := _VARIABLE.match(self._text, self._pos + 1):
            self._pos = found.end()
            word.pieces.append(Expansion(found[0], is_bare=bool(found[1])))
        else:
            word.add("$")
            self._pos += 1

    def _read_substitution(self, word: Word, end: str) -> None:
        self._pos += 1
        start = self._pos
        group = SyntaxNode(self._script.root, end, is_captured=True)
        before = self._documents, self._in_backticks
        self._documents, self._in_backticks = [], end == "`"
        self.read(group)
        self._documents, self._in_backticks = before
        text = self._text[start : self._pos - 1]
        if end == "`" and ("`" in text or (SLOT in text and re.search(r"\\[$\\]", text))):
            refuse("a substitution in backticks has a ` or \\ inside; write $(…).")
        word.pieces.append(Expansion(group=group))

    def _read_parameter(self, word: Word, quote: str) -> None:
        self._enter()
        self._pos += 2
        found = _PARAMETER.match(self._text, self._pos)
        if found is None and self._text.startswith(SLOT, self._pos):
            refuse_slot(self._slots[self._pos], "the name of a variable")
        self._pos = found.end() if found else self._pos
        inner = Word()
        while self._pos < len(self._text) and self._text[self._pos] != "}":
            char = self._text[self._pos]
            if char == '"' or (char == "'" and not quote):
                self._read_quoted(inner, char)
            else:
                self._read_text(inner, quote)
        if self._pos >= len(self._text):
            refuse("a ${ is not closed.")
        self._pos += 1
        for slot in inner.slots:
            slot.is_inner = True
            slot.digits |= found is None or not found["rest"]  # an index or an offset is arithmetic
        if found and not found["rest"]:
            self._add_numbers(inner)
        if found and found["rest"] in {"=", ":="}:
            self._script.assigned.append((found["name"], [inner]))
        if found and found["sign"] == "!":
            self._script.pointers.add(found["name"])
        word.pieces.append(Expansion(found["name"] if found else "", (inner,)))
        self._depth -= 1

    def _add_numbers(self, word: Word) -> None:
        names = (
            part if isinstance(part, str) else part.name for part in word.pieces if not isinstance(part, Slot)
        )
        self._script.numbers.update(re.findall(NAME, " ".join(names)))

    def _skip_arithmetic(self, end: str, start: int) -> bool:
        """Skip an arithmetic expression. Returns False if the text is none."""
        depth = 0
        for index in range(start, len(self._text)):
            if not depth and self._text.startswith(end, index):
                self._place(start, index, digits=True)
                self._script.numbers.update(re.findall(rf"{NAME}|\$[0-9@*]", self._text[start:index]))
                self._pos = index + len(end)
                return True
            if index - start > MAX_ARITHMETIC:
                refuse(f"an arithmetic expression must have at most {MAX_ARITHMETIC} characters.")
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(self._text[index], 0)
            if depth < 0:
                return False
        return False
