"""Values in the code of a program: they must be digits outside of its own quotes or /…/. RS-71

Owns the search for quotes in code of any language. It errs in one direction only: a slot that may be outside
takes digits.
"""

import re
from collections.abc import Sequence

from easel.core.shell import rules
from easel.core.shell.lexer import SLOT
from easel.core.shell.words import Slot

_REGEX_FOLLOWS = re.compile(r"(?:^|[(,=~!&|{};:?\n]|\b(?:if|and|or|not|s|g)|[%0-9$]s?)\s*$")
# Before a quote whose content runs, or names a program that does.
_RUNS = re.compile(
    r"(?i)(?:(?<![a-z])(?:system|exec|popen|spawn|shell|eval|require|import|include|load(?!s)|getoutput|"
    r"program)\w*|(?<![a-z])(?:do(?:file)?|source|run|call)|\\[i!]\w*)\s*[\[(]*\s*$"
)
_PIPES = re.compile(r"(?<!\|)\|&?\s*$")
_IS_PIPED = re.compile(r'[^"]*"\s*\|&?\s*getline')
_RUNNING_FLAGS = re.compile(r"/[a-zA-Z0-9]{0,9}[ewW][a-zA-Z0-9]{0,9}\s*(?:$|[;}\n])|/[a-zA-Z0-9]{0,9}[ew]\s")


def check_quotes(text: str, slots: Sequence[Slot], *, program: str) -> None:
    """Require digits of the slots of code that may be outside of its own quotes or /…/."""
    has_regex = program in rules.SLASH_PROGRAMS and not _RUNNING_FLAGS.search(text)
    quote, start, parts, is_unclear, position = "", 0, 0, False, -1
    remaining = iter(slots)
    while (position := position + 1) < len(text):
        char = text[position]
        if char == SLOT:
            slot = next(remaining)
            slot.is_inner, slot.excluded = True, "/" if quote == "/" else ""
            has_code = quote != "/" and rules.CODE_IN_STRING.search(text, start, position)
            before = text[max(0, start - 101) : start - 1] if start == position and quote != "/" else ""
            has_code = has_code or _RUNS.search(before)
            if program.endswith("awk"):
                has_code = has_code or _PIPES.search(before) or _IS_PIPED.match(text, position)
            slot.digits |= not quote or is_unclear or bool(has_code)
        elif quote and char == "\\":
            position += 1
            is_unclear |= text[position : position + 1] in {SLOT, "'", '"'}  # in SQL it escapes nothing
            position -= text[position : position + 1] == SLOT
        elif quote:
            parts -= char == quote
            quote, start = (quote, start) if char != quote else (quote if parts else "", position + 1)
        elif rules.UNCLEAR.match(text, position):
            is_unclear = True
        elif char in "'\"" and program not in {"sed", "gsed"}:
            quote, start, parts = char, position + 1, 1
        elif char == "/" and has_regex:
            before = text[max(0, position - 100) : position]
            is_unclear |= not _REGEX_FOLLOWS.search(before)
            quote, start, parts = "/", position + 1, 2 if re.search(r"(?:^|[^\w$]|[%0-9$])s$", before) else 1
