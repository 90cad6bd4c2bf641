"""The sections of a Markdown document: headings as addresses of lines. RS-46, CT-04

Owns headings (`#` to `######`, and a single line underlined with `==` or `--`), the lines of a section, and
its name. Headings in code fences, comments and front matter are text. Reads the text only: nothing is written
into it (CT-62). List items are in `list_items`.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from easel.core.document.lines import count_lines
from easel.core.validation import quote_value
from easel.errors import BadInput

MAX_LISTED_HEADINGS = 30  # in an error

_HASH_HEADING = re.compile(r" {0,3}(#{1,6})(?![^ \t\r])")
# The following match the newline before a line, which is found much faster than the beginning of a line.
_HASH_LINE = re.compile(r"\n {0,3}#{1,6}(?![^ \t\r\n])")
_TITLE = re.compile(
    r"\n(?![ \t\r]*(?:\n|\Z)| {0,3}(?:#{1,6}[ \t\r\n]|[>|<]|[-+*=_~`]|[0-9]{1,9}[.)][ \t])| {4}|\t)"
    r"[^\n]++\n(?:==++|--++)[ \t\r]*+(?=\n|\Z)"
)
_BEFORE_TITLE = re.compile(rf"\n(?:[^\S\n]*+| {{0,3}}#{{1,6}}(?:[ \t\r][^\n]*+)?+)(?={_TITLE.pattern})")
_OPENING = re.compile(r"\n([ \t]*+)(?:(`{3,}+|~{3,}+)([^\n]*+)|<!--)")
_NOT_INDENTED = re.compile(r"\n(?![ \t\r\n]|\Z)")
_OPENINGS = ("```", "~~~", "<!--")
_COMMENT_END = "-->"
_MAX_FENCE_INDENT = 3  # outside of a list item
# Characters that are read at once. A single character is found 100 times as fast as a regular expression
# reads, so that only the parts of a text with the signs of a heading or an opening are matched.
_BLOCK = 2_048
_OPENING_BLOCK = 128


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with the lines up to the next heading of its level or above; `own_last` ends before any
    heading.
    """

    level: int
    title: str
    first: int  # line of the heading
    last: int
    own_last: int
    content_first: int  # line after the heading

    @property
    def name(self) -> str:
        return f"{'#' * self.level} {self.title}"


class _Heading(NamedTuple):
    level: int
    title: str
    offset: int
    line_count: int  # 2 if underlined

    @property
    def name(self) -> str:
        return f"{'#' * self.level} {self.title}"


class Outline:
    """The headings of one text. A text of 1 MB takes below 0.2 s, also a hostile one.

    The names of some lines need only the headings right before them, and the code fences before the last.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def sections(self) -> Sequence[Section]:
        """All sections, in order."""
        line_count = count_lines(self._text)
        return [self._section(at, line_count) for at in range(len(self._headings))]

    def name_of(self, line: int) -> str | None:
        """Return the name of the innermost section of a line of the text, such as `## Steps`."""
        offset = 0
        for _ in range(line - 1):
            offset = self._text.find("\n", offset) + 1
        return self.name_each([offset])[0]

    def name_each(self, offsets: Sequence[int]) -> list[str | None]:
        """Return the names for the offsets of some lines, which must be in order."""
        if not offsets:
            return []
        blocks = _Blocks(self._padded, list(_find_skipped(self._padded, last=offsets[-1])))
        names: list[str | None] = []
        name, heading, named_block = None, -1, 0
        for offset in offsets:
            found = blocks.find_heading(offset, first_block=named_block)
            if found is not None and found != heading:
                name, heading = self._read_heading(found).name, found
            names.append(name)
            named_block = offset // _BLOCK
        return names

    def find(self, name: str) -> Section:
        """Return the section by its heading, `Steps` or `## Steps`. Raises `BadInput` unless there is one."""
        wanted = name.strip()
        level, title = _parse_hash_heading(wanted) or (None, wanted)
        matching = [
            section
            for section in self.sections
            if section.title == title and (level is None or section.level == level)
        ]
        if len(matching) == 1:
            return matching[0]
        if not matching:
            raise BadInput(
                problem=f"section: there is no heading {quote_value(wanted)}. {self._list_headings()}"
            )
        places = ", ".join(str(section.first) for section in matching[:MAX_LISTED_HEADINGS])
        raise BadInput(
            problem=f"section: the heading {quote_value(wanted)} occurs at lines {places}; read by line "
            "numbers, or name its level, such as `## Steps`."
        )

    def _list_headings(self) -> str:
        if not self.sections:
            return "The document has no headings; read by line numbers."
        names = [f"{section.first}: {section.name[:80]}" for section in self.sections[:MAX_LISTED_HEADINGS]]
        more = "" if len(self.sections) <= MAX_LISTED_HEADINGS else "; and more"
        return f"Its headings by line are: {'; '.join(names)}{more}."

    @cached_property
    def _padded(self) -> str:
        """The text with a newline before every line, which is at the offset of the line."""
        return "\n" + self._text

    @cached_property
    def _headings(self) -> Sequence[_Heading]:
        offsets = _find_heading_lines(self._padded, 0, len(self._padded))
        skipped = _find_skipped(self._padded, last=len(self._padded))
        return [self._read_heading(offset) for offset in _remove_skipped(offsets, skipped)]

    @cached_property
    def _first_lines(self) -> Sequence[int]:
        lines: list[int] = []
        number, counted = 1, 0
        for heading in self._headings:
            number += self._text.count("\n", counted, heading.offset)
            counted = heading.offset
            lines.append(number)
        return lines

    def _section(self, at: int, line_count: int) -> Section:
        headings, lines = self._headings, self._first_lines
        heading, last = headings[at], line_count
        for other in range(at + 1, len(headings)):
            if headings[other].level <= heading.level:
                last = lines[other] - 1
                break
        own_last = lines[at + 1] - 1 if at + 1 < len(lines) else line_count
        return Section(
            heading.level, heading.title, lines[at], last, own_last, lines[at] + heading.line_count
        )

    def _read_heading(self, offset: int) -> _Heading:
        """Return the heading that begins at the offset."""
        line = _line_at(self._text, offset)
        if parsed := _parse_hash_heading(line):
            return _Heading(*parsed, offset, 1)
        is_first_level = self._text[offset + len(line) + 1] == "="
        return _Heading(1 if is_first_level else 2, line.strip(), offset, 2)


def _line_at(text: str, offset: int) -> str:
    end = text.find("\n", offset)
    return text[offset:] if end < 0 else text[offset:end]


def _parse_hash_heading(line: str) -> tuple[int, str] | None:
    """Return the level and the title of a heading such as `## Steps ##`, or None."""
    found = _HASH_HEADING.match(line)
    if found is None:
        return None
    title = line[found.end() :].strip(" \t\r")
    without_closing = title.rstrip("#")
    if not without_closing or without_closing[-1] in " \t":
        title = without_closing.rstrip(" \t")
    return len(found[1]), title


class _Blocks:
    """The headings of the blocks of a text. A block has the lines that begin in it, and is read once."""

    def __init__(self, padded: str, skipped: Sequence[tuple[int, int]]) -> None:
        self._padded = padded
        self._skipped = skipped
        self._headings: dict[int, list[int]] = {}

    def find_heading(self, offset: int, *, first_block: int) -> int | None:
        """Return the last heading up to the line at the offset, None if no block from the first has one."""
        block = offset // _BLOCK
        headings = self._read(block)
        count = bisect_right(headings, offset)
        while not count and block > first_block:
            block -= 1
            headings = self._read(block)
            count = len(headings)
        return headings[count - 1] if count else None

    def _read(self, block: int) -> list[int]:
        if (known := self._headings.get(block)) is not None:
            return known
        start, end = block * _BLOCK, (block + 1) * _BLOCK
        headings = _find_heading_lines(self._padded, start, end)
        if headings:
            first = max(0, bisect_left(self._skipped, (start,)) - 1)  # it may end in this block
            headings = _remove_skipped(headings, self._skipped[first : bisect_left(self._skipped, (end,))])
        self._headings[block] = headings
        return headings


def _find_heading_lines(padded: str, start: int, end: int) -> list[int]:
    """Return the offsets of the headings that begin from `start` to `end`, also of those in code."""
    first = padded.find("\n", start, end)
    if first < 0:
        return []
    last_end = _line_end(padded, end)
    hashes: list[int] = []
    if (sign := padded.find("#", first, last_end)) >= 0:
        line, last_line_end = (
            padded.rfind("\n", 0, sign),
            _line_end(padded, padded.rfind("#", sign, last_end)),
        )
        hashes = [found.start() for found in _HASH_LINE.finditer(padded, line, last_line_end)]
    if not (_has_underline(padded, "=", first, last_end) or _has_underline(padded, "-", first, last_end)):
        return hashes
    titles = [first] if first == 0 and _TITLE.match(padded) else []
    before = max(0, padded.rfind("\n", 0, first))
    underline_end = _line_end(padded, last_end + 1)
    titles += [found.end() for found in _BEFORE_TITLE.finditer(padded, before, underline_end)]
    return sorted(hashes + titles)


def _has_underline(padded: str, sign: str, first: int, last: int) -> bool:
    """Return whether a line that begins up to `last` may be an underline."""
    end = last + 3
    return padded.find(sign, first, end) >= 0 and padded.find(f"\n{sign}{sign}", first, end) >= 0


def _line_end(padded: str, at: int) -> int:
    end = padded.find("\n", at)
    return len(padded) if end < 0 else end


def _remove_skipped(offsets: list[int], skipped: Iterable[tuple[int, int]]) -> list[int]:
    """Return the ascending offsets that are in none of the skipped parts."""
    kept: list[int] = []
    at = 0
    for start, end in skipped:
        first = bisect_left(offsets, start, at)
        if first > at:
            kept += offsets[at:first]
        at = bisect_left(offsets, end, first)
    return kept + offsets[at:]


def _find_skipped(padded: str, *, last: int) -> Iterator[tuple[int, int]]:
    """Yield the offsets of the parts in which nothing is a heading: front matter, code fences and comments.

    A fence that is indented more is in a list item and ends with it, at a line without indentation. Parts
    that begin after `last` are ignored.
    """
    end = _front_matter_end(padded)
    if end:
        yield 0, end
    fence, start = "", 0  # the open fence, and its offset
    item_end = 0
    for found in _find_openings(padded):
        offset = found.start()
        indent, signs, rest = found.groups()
        if fence and offset >= end:  # the list item has ended, and its fence with it
            yield start, end
            fence = ""
        if offset > last:
            break
        if fence:
            if signs and signs.startswith(fence) and (not rest or not rest.strip(" \t\r")):
                end = found.end() - 1
                yield start, end
                fence = ""
        elif offset < end:
            continue
        elif signs is None:
            closing = padded.find(_COMMENT_END, offset + 1)
            end = len(padded) if closing < 0 else closing - 1
            yield offset, end
        elif not rest or signs[0] == "~" or "`" not in rest:
            fence, start, end = signs, offset, len(padded)
            if indent and len(indent.expandtabs(4)) > _MAX_FENCE_INDENT:
                end = item_end = _item_end(padded, found.end()) if item_end <= offset else item_end
    if fence:
        yield start, end


def _find_openings(padded: str) -> Iterator[re.Match[str]]:
    """Yield the lines that may open or close a code fence or open a comment."""
    places = [(_find_token(padded, token, 0), token) for token in _OPENINGS]
    places = [place for place in places if place[0] >= 0]
    heapify(places)  # the next place of each token
    while places:
        first = places[0][0]
        end = _line_end(padded, first + _OPENING_BLOCK)
        yield from _OPENING.finditer(padded, padded.rfind("\n", 0, first), end)
        while places and places[0][0] < end:
            token = places[0][1]
            if (at := _find_token(padded, token, end)) < 0:
                heappop(places)
            else:
                heapreplace(places, (at, token))


def _find_token(text: str, token: str, at: int) -> int:
    """Return what `str.find` returns, much faster in the parts where the first character is rare."""
    while (at := text.find(token[0], at)) >= 0:
        found = text.find(token, at, at + _BLOCK)
        if found >= 0:
            return found
        at += _BLOCK - len(token) + 1
    return -1


def _item_end(padded: str, at: int) -> int:
    """Return the offset of the next line without indentation, else of the end."""
    found = _NOT_INDENTED.search(padded, at)
    return found.start() if found else len(padded)


def _front_matter_end(padded: str) -> int:
    """Return the offset after a block of metadata between two lines `---` at the top; 0 without one."""
    if not padded.startswith(("\n---\n", "\n---\r\n")):
        return 0
    closing = re.compile(r"\n---[ \t]*\r?(?=\n|\Z)").search(padded, 4)
    return closing.end() if closing else 0
