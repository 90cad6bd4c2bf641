"""Finding lines of a document: by plain text, or by a regular expression in linear time. CT-21, case C9

Owns matching, the caps of matches and of shown text, and what is a valid query. RE2 takes time linear in the
text, but its factor depends on the pattern: the size of a pattern is limited, and `is_over` is asked between
blocks, because there is no clock here. A line is one match, however often the query occurs in it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import re2

from easel.core.document.document import LineRange
from easel.core.document.lines import count_newlines, shorten, skip_lines
from easel.core.document.sections import Outline
from easel.core.validation import refuse
from easel.errors import BadInput

MAX_QUERY_LENGTH = 1_000
MAX_MATCHES = 100
MAX_SHOWN_WIDTH = 400  # characters of a matched line
MAX_REGEX_SECONDS = 0.15  # for `is_over`
MAX_REGEX_MEMORY = 8 * 1024 * 1024  # bytes, of RE2 for one pattern
MAX_PROGRAM_SIZE = 3_000  # instructions of a compiled pattern
BLOCK_BYTES = 8 * 1024  # matched in one call
OVERLAP_BYTES = 1024  # between two blocks of one long line, so that a match of this length is found

_NEW_LINE = 0x0A


class Match(NamedTuple):
    """A matched line. `section` is the name of its section."""

    line: int
    text: str
    section: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """The matched lines, in order. `is_truncated`: there are more than the cap."""

    matches: Sequence[Match]
    is_truncated: bool


def grep(
    text: str,
    query: str,
    *,
    regex: bool = False,
    within: LineRange | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> Found:
    """Return the lines that contain the query, of the whole text or of the lines `within`.

    The query is plain text unless `regex`. Raises `BadInput` for an invalid query, and when `is_over` returns
    true before a regular expression is done.
    """
    _check_query(query)
    start, end, first = _bounds(text, within)
    find = (
        _find_by_regex(text, query, start, end, is_over) if regex else _find_by_text(text, query, start, end)
    )
    lines: list[tuple[int, str]] = []
    offsets: list[int] = []
    number, counted = first, start
    is_truncated = False
    for line_start, line_end in find:
        if len(lines) == MAX_MATCHES:
            is_truncated = True
            break
        number, counted = number + count_newlines(text, counted, line_start), line_start
        lines.append((number, shorten(text[line_start:line_end], MAX_SHOWN_WIDTH)))
        offsets.append(line_start)
    names = Outline(text).name_each(offsets)
    matches = [Match(*line, name) for line, name in zip(lines, names, strict=True)]
    return Found(matches, is_truncated)


def _check_query(query: str) -> None:
    if not query:
        refuse("query", "must not be empty.")
    if len(query) > MAX_QUERY_LENGTH:
        refuse("query", f"must have at most {MAX_QUERY_LENGTH} characters.")
    if "\n" in query:
        refuse("query", "must be one line; a match never spans two lines.")


def _bounds(text: str, within: LineRange | None) -> tuple[int, int, int]:
    """Return the offsets of the searched lines, and the number of the first."""
    if within is None:
        return 0, len(text), 1
    first, last = max(within[0], 1), within[1]
    start = skip_lines(text, 0, first - 1)
    return start, skip_lines(text, start, last - first + 1), first


def _find_by_text(text: str, query: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the offsets of each line that contains the query."""
    at = text.find(query, start, end)
    while at >= 0:
        line_start = text.rfind("\n", start, at) + 1 or start
        line_end = text.find("\n", at)
        line_end = len(text) if line_end < 0 else line_end
        yield line_start, line_end
        at = text.find(query, line_end + 1, end)


def _find_by_regex(
    text: str, pattern: str, start: int, end: int, is_over: Callable[[], bool]
) -> Iterator[tuple[int, int]]:
    """Yield the offsets of each line that matches. Offsets in the UTF-8 for RE2 are mapped back by line."""
    regex = compile_regex(pattern)
    content = text[start:end].encode("utf-8", "surrogatepass")
    at, line_start, counted = 0, start, 0
    while at < len(content):
        if is_over():
            refuse("query", "the regular expression takes too long; use a simpler one or text.")
        block_end = _block_end(content, at)
        found = regex.search(content, at, block_end)
        # An empty match after the last newline is ignored: there is no line.
        if found is None or (found.start() == len(content) and content[-1] == _NEW_LINE):
            is_line_end = block_end == len(content) or content[block_end - 1] == _NEW_LINE
            at = block_end if is_line_end else block_end - OVERLAP_BYTES
            continue
        first = content.rfind(b"\n", 0, found.start()) + 1
        for _ in range(content.count(b"\n", counted, first)):
            line_start = text.find("\n", line_start) + 1
        counted = first
        line_end = text.find("\n", line_start)
        yield line_start, len(text) if line_end < 0 else line_end
        following = content.find(b"\n", found.start())
        at = len(content) if following < 0 else following + 1


def compile_regex(pattern: str) -> "re2.Regexp":
    """Compile a pattern for matching single lines. Raises `BadInput` if it is invalid or too large."""
    options = re2.Options()
    options.log_errors = False
    options.never_nl = True
    options.never_capture = True
    options.max_mem = MAX_REGEX_MEMORY
    try:
        compiled = re2.compile(f"(?m){pattern}".encode(), options)
    except UnicodeEncodeError:
        raise BadInput(problem="query: must be valid Unicode.") from None
    except re2.error as problem:
        raise BadInput(
            problem=f"query: is not valid RE2 syntax, which has no back-references and no look-around: "
            f"{_error_text(problem)}."
        ) from None
    if compiled.programsize > MAX_PROGRAM_SIZE:
        refuse("query", "the regular expression is too large; use fewer or smaller repetitions.")
    return compiled


def _block_end(content: bytes, at: int) -> int:
    """Return the end of the next block: whole lines, or a part of a long line."""
    if at + BLOCK_BYTES >= len(content):
        return len(content)
    return content.rfind(b"\n", at, at + BLOCK_BYTES) + 1 or at + BLOCK_BYTES


def _error_text(problem: Exception) -> str:
    text = problem.args[0] if problem.args else ""
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
