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
_COMMENT, _COMMENT_END = "<!--", "-->"
_OPENINGS = ("```", "~~~", _COMMENT)
_MAX_FENCE_INDENT = 3  # outside of a list item


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


@dataclass(frozen=True, slots=True)
class _Heading:
    level: int
    title: str
    offset: int
    line_count: int  # 2 if underlined

    @property
    def name(self) -> str:
        return f"{'#' * self.level} {self.title}"


class Outline:
    """The headings of one text, found in one pass. A text of 1 MB takes below 0.2 s, also a hostile one."""

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
        """Return the names for the offsets of some lines."""
        starts = self._offsets
        names: list[str | None] = []
        for offset in offsets:
            at = bisect_right(starts, offset)
            names.append(self._read_heading(starts[at - 1]).name if at else None)
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
    def _offsets(self) -> Sequence[int]:
        """The offsets at which headings begin, in order."""
        text = "\n" + self._text  # so that a newline is before every line, at the offset of the line
        hashes = [found.start() for found in _HASH_LINE.finditer(text)] if "#" in text else []
        if not any(sign in text and f"\n{sign}{sign}" in text for sign in "=-"):
            return _remove_skipped(hashes, _find_skipped(self._text))
        titles = [found.end() for found in _BEFORE_TITLE.finditer(text)]
        if _TITLE.match(text):
            titles.append(0)
        return _remove_skipped(sorted(hashes + titles), _find_skipped(self._text))

    @cached_property
    def _headings(self) -> Sequence[_Heading]:
        return [self._read_heading(offset) for offset in self._offsets]

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


def _find_skipped(text: str) -> Iterator[tuple[int, int]]:
    """Yield the offsets of the parts in which nothing is a heading: front matter, code fences and comments.

    A fence that is indented more is in a list item and ends with it, at a line without indentation.
    """
    end = _front_matter_end(text)
    if end:
        yield 0, end
    if not any(token in text for token in _OPENINGS):
        return
    padded = "\n" + text
    fence, start = "", 0  # the open fence, and its offset
    item_end = 0
    for found in _OPENING.finditer(padded):
        offset = found.start()
        indent, signs, rest = found.groups()
        if fence and offset >= end:  # the list item has ended, and its fence with it
            yield start, end
            fence = ""
        if fence:
            if signs and signs.startswith(fence) and (not rest or not rest.strip(" \t\r")):
                end = found.end() - 1
                yield start, end
                fence = ""
        elif offset < end:
            continue
        elif signs is None:
            closing = text.find(_COMMENT_END, offset)
            end = len(text) if closing < 0 else closing
            yield offset, end
        elif not rest or signs[0] == "~" or "`" not in rest:
            fence, start, end = signs, offset, len(padded)
            if indent and len(indent.expandtabs(4)) > _MAX_FENCE_INDENT:
                end = item_end = _item_end(padded, found.end()) if item_end <= offset else item_end
    if fence:
        yield start, end


def _item_end(padded: str, at: int) -> int:
    """Return the offset of the next line without indentation, else of the end."""
    found = _NOT_INDENTED.search(padded, at)
    return found.start() if found else len(padded)


def _front_matter_end(text: str) -> int:
    """Return the offset after a block of metadata between two lines `---` at the top; 0 without one."""
    if not text.startswith(("---\n", "---\r\n")):
        return 0
    closing = re.compile(r"\n---[ \t]*\r?(?:\n|\Z)").search(text, 3)
    return closing.end() if closing else 0
