"""The sections of a Markdown document: headings as addresses of lines. RS-46, CT-04

Owns headings (`#` to `######`, and a single line underlined with `==` or `--`), the lines of a section, and
its name. Headings in code fences, comments and front matter are text. Reads the text only: nothing is written
into it (CT-62). List items are in `list_items`.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from easel.core.document.lines import count_lines
from easel.core.validation import quote_value
from easel.errors import BadInput

MAX_LISTED_HEADINGS = 30  # in an error

_HASH_HEADING = re.compile(r" {0,3}(#{1,6})(?![^ \t\r])")
_UNDERLINE = re.compile(r"(={2,}|-{2,})[ \t\r]*")
_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})(.*?)\r?")
_NOT_PARAGRAPH = re.compile(r"[ \t]*$| {0,3}(?:#{1,6}[ \t]|[>|<]|[-+*=_~`]|[0-9]{1,9}[.)][ \t])| {4}|\t")
_COMMENT, _COMMENT_END = "<!--", "-->"
_UNDERLINES = ("\n==", "\n--")
_MAX_MISSES = 200
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
    """The headings of one text.

    Lines are found by their first signs with `str.find`, because reading each line takes ten times as long.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._skipped = _SkippedParts(text)

    @cached_property
    def sections(self) -> Sequence[Section]:
        """All sections, in order."""
        line_count = count_lines(self._text)
        return [self._section(at, line_count) for at in range(len(self._headings))]

    def section_of(self, line: int) -> Section | None:
        """Return the innermost section of a line, None before the first heading."""
        at = bisect_right(self._first_lines, line)
        return self.sections[at - 1] if at else None

    def name_of(self, line: int) -> str | None:
        """Return the name of the innermost section of a line, such as `## Steps`."""
        at = bisect_right(self._first_lines, line)
        return self._headings[at - 1].name if at else None

    def name_each(self, offsets: Sequence[int]) -> list[str | None]:
        """Return the names for the ascending offsets of some lines, without reading the whole text."""
        names: list[str | None] = []
        name, start = None, 0
        for offset in offsets:
            if heading := self._last_heading(start, offset):
                name, start = heading.name, heading.offset
            names.append(name)
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
    def _headings(self) -> Sequence[_Heading]:
        text = self._text
        offsets = {0} if text[:4].lstrip(" ").startswith("#") else set[int]()
        at = text.find("#")
        while at >= 0:
            offsets.add(text.rfind("\n", 0, at) + 1)
            end = text.find("\n", at)
            at = text.find("#", end) if end >= 0 else -1
        for token in _UNDERLINES:
            at = text.find(token)
            while at >= 0:
                offsets.add(at + 1)
                at = text.find(token, at + 1)
        return [heading for offset in sorted(offsets) if (heading := self._read_heading(offset))]

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

    def _last_heading(self, start: int, line: int) -> _Heading | None:
        """Return the last heading that begins at an offset from `start` up to that of the line."""
        text = self._text
        end = text.find("\n", line)
        end = len(text) if end < 0 else end
        found: _Heading | None = None
        at = text.rfind("#", start, end)
        while at >= 0:
            at = text.rfind("\n", 0, at) + 1
            if found := self._read_heading(at):
                break
            at = text.rfind("#", start, at) if at else -1
        lower = found.offset if found else start
        after = text.find("\n", end + 1)
        for token in _UNDERLINES:
            at = text.rfind(token, lower, len(text) if after < 0 else after)
            while at >= 0:
                heading = self._read_heading(at + 1)
                if (
                    heading
                    and lower <= heading.offset <= line
                    and (not found or found.offset < heading.offset)
                ):
                    found = heading
                    break
                at = text.rfind(token, lower, at)
        return found

    def _read_heading(self, offset: int) -> _Heading | None:
        """Return the heading whose line of signs begins at the offset, or None if there is none."""
        text = self._text
        if text[offset : offset + 1] not in ("#", " ", "=", "-") or self._skipped.contains(offset):
            return None
        end = text.find("\n", offset)
        line = text[offset:] if end < 0 else text[offset:end]
        if parsed := _parse_hash_heading(line):
            return _Heading(*parsed, offset, 1)
        if not (found := _UNDERLINE.fullmatch(line)) or offset == 0:
            return None
        start = text.rfind("\n", 0, offset - 1) + 1
        title = text[start : offset - 1]
        if _NOT_PARAGRAPH.match(title) or self._skipped.contains(start):
            return None
        if start:
            before = text[text.rfind("\n", 0, start - 1) + 1 : start - 1]
            if before.strip() and not _HASH_HEADING.match(before):
                return None  # the last line of a longer paragraph, or of another block
        return _Heading(1 if found[1][0] == "=" else 2, title.strip(), start, 2)


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


class _SkippedParts:
    """The parts of a text in which nothing is a heading: code fences, comments and front matter."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._add(0, _front_matter_end(text))
        openings = self._openings()
        for number, offset in enumerate(openings):
            if self._ends and offset < self._ends[-1]:
                continue
            fence = _FENCE.fullmatch(self._line(offset))
            if fence is None:
                closing = text.find(_COMMENT_END, offset)
                self._add(offset, len(text) if closing < 0 else closing)
            elif fence[2][0] == "~" or "`" not in fence[3]:
                is_in_item = len(fence[1].expandtabs(4)) > _MAX_FENCE_INDENT
                following = (
                    self._lines_after(offset)
                    if is_in_item
                    else map(openings.__getitem__, range(number + 1, len(openings)))
                )
                self._add(offset, self._fence_end(fence[2], following, is_in_item=is_in_item))

    def contains(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset)
        return at > 0 and offset < self._ends[at - 1]

    def _add(self, start: int, end: int) -> None:
        if end > start:
            self._starts.append(start)
            self._ends.append(end)

    def _openings(self) -> list[int]:
        """Return the offsets of all lines that begin with a fence or a comment."""
        text = self._text
        offsets: list[int] = []
        for sign, token in (("`", "```"), ("~", "~~~"), ("<", _COMMENT)):
            sought, misses = sign, 0
            at = text.find(sought)
            while at >= 0:
                start = text.rfind("\n", 0, at) + 1
                if text.startswith(token, at) and not text[start:at].strip(" \t"):
                    offsets.append(start)
                else:
                    misses += 1
                    # A single sign is found faster than a token, unless it is frequent in the text.
                    sought = token if misses > _MAX_MISSES else sign
                end = text.find("\n", at)
                at = text.find(sought, end) if end >= 0 else -1
        return sorted(offsets)

    def _fence_end(self, fence: str, following: Iterable[int], *, is_in_item: bool) -> int:
        """Return the offset of the end of the closing fence among the following lines, else of the text.

        A fence that is indented more is in a list item and ends with it, at a line without indentation.
        """
        for offset in following:
            line = self._line(offset)
            if is_in_item and line[:1] not in (" ", "\t", "\r", ""):
                return offset
            closing = _FENCE.fullmatch(line)
            if closing and closing[2].startswith(fence) and not closing[3].strip(" \t"):
                return offset + len(line)
        return len(self._text)

    def _lines_after(self, offset: int) -> Iterator[int]:
        """Yield the offsets of the lines after that of the offset."""
        at = self._text.find("\n", offset) + 1
        while at:
            yield at
            at = self._text.find("\n", at) + 1

    def _line(self, offset: int) -> str:
        end = self._text.find("\n", offset)
        return self._text[offset:] if end < 0 else self._text[offset:end]


def _front_matter_end(text: str) -> int:
    """Return the offset after a block of metadata between two lines `---` at the top; 0 without one."""
    if not text.startswith(("---\n", "---\r\n")):
        return 0
    closing = re.compile(r"\n---[ \t]*\r?(?:\n|\Z)").search(text, 3)
    return closing.end() if closing else 0
