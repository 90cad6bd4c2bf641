"""The lines of a document, as reads, grep, patches and sections count them. Case C10

A line ends at "\\n" and nowhere else: "\\r", "\\x0b", U+2028 and a byte order mark are ordinary characters of
a line, so that a document with CRLF keeps each "\\r". Lines are numbered from 1. The empty text has no lines,
and the last line of a text may lack its newline. Does not know Markdown.
"""

import re
from collections.abc import Sequence
from enum import StrEnum

from easel.core.document.document import LineRange

GUTTER_WIDTH = 6  # columns of a line number; a tab separates it from the line
_SAMPLE = 2_048  # characters from which the length of the lines is estimated
NO_NEWLINE = "\\ No newline at end of file"

# A line number as `format_numbered` writes it, and as other tools do, at the beginning of a copied line.
GUTTER = re.compile(r"[ \t]*[0-9]{1,7}(?:\t|→|:[ \t]|[ \t]*\|[ \t]?)")


class LineEnds(StrEnum):
    """How the lines of a text end."""

    NONE = "none"  # no line ends
    LF = "LF"
    CRLF = "CRLF"
    MIXED = "mixed"


def split_lines(text: str) -> list[str]:
    """Return the lines without their newlines."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def join_lines(lines: Sequence[str], *, is_terminated: bool) -> str:
    """Return the text of these lines, the last with a newline if `is_terminated`."""
    return "\n".join(lines) + ("\n" if lines and is_terminated else "")


def is_terminated(text: str) -> bool:
    """Return whether no newline is missing at the end. The empty text lacks none."""
    return not text or text.endswith("\n")


def count_lines(text: str) -> int:
    return text.count("\n") + (not is_terminated(text))


def skip_lines(text: str, start: int, count: int) -> int:
    """Return the offset after `count` lines from the one at `start`, at most the end of the text."""
    for _ in range(count):
        end = text.find("\n", start)
        if end < 0:
            return len(text)
        start = end + 1
    return start


def count_newlines(text: str, start: int, end: int) -> int:
    """Return the number of newlines between two offsets, in half the time of `str.count` if they are far.

    `str.count` compares character by character, `str.replace` does not. So most of the newlines, by the
    length of the first lines, are replaced in a copy, and only those after them are counted.
    """
    if end - start < 2 * _SAMPLE:
        return text.count("\n", start, end)
    block = text[start:end]
    most = block.count("\n", 0, _SAMPLE) * len(block) // _SAMPLE * 7 // 8
    rest = block.replace("\n", " ", most).find("\n")
    return block.count("\n") if rest < 0 else most + block.count("\n", rest)


def line_ends(text: str) -> LineEnds:
    """Return how the lines end. A last line without a newline does not count."""
    if "\n" not in text:
        return LineEnds.NONE
    crlf_count = text.count("\r\n") if "\r" in text else 0
    if not crlf_count:
        return LineEnds.LF
    return LineEnds.CRLF if crlf_count == text.count("\n") else LineEnds.MIXED


def format_numbered(text: str, first: int = 1, last: int | None = None) -> str:
    """Return the lines from `first` to `last` behind their numbers, such as `    12<tab>a line`.

    Numbers outside of the text are ignored. A missing last newline is marked as in a unified diff, so that a
    reader of the last line knows it.
    """
    return format_lines(split_lines(text), first, last, is_terminated=is_terminated(text))


def format_lines(
    lines: Sequence[str],
    first: int = 1,
    last: int | None = None,
    *,
    is_terminated: bool = True,
    max_width: int | None = None,
) -> str:
    """Return the numbered form of some lines of a document that has these lines. Shortens longer ones."""
    first, last = max(first, 1), len(lines) if last is None else min(last, len(lines))
    numbered = [
        f"{number:>{GUTTER_WIDTH}}\t{shorten(line, max_width)}"
        for number, line in enumerate(lines[first - 1 : last], first)
    ]
    if numbered and last == len(lines) and not is_terminated:
        numbered.append(NO_NEWLINE)
    return "\n".join(numbered)


def shorten(line: str, max_width: int | None) -> str:
    """Return the line with an ellipsis and the number of omitted characters if it is longer."""
    if max_width is None or len(line) <= max_width:
        return line
    return f"{line[:max_width]}… ({len(line) - max_width} more characters)"


def clamp(first: int, last: int, line_count: int) -> LineRange | None:
    """Return the part of a range that the document has, or None if it has none of it."""
    first, last = max(first, 1), min(last, line_count)
    return (first, last) if first <= last else None
