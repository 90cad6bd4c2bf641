"""The sections of a Markdown document: headings as addresses of lines. RS-46, CT-04

Owns headings (`#` to `######`, and a single line underlined with `==` or `--`), the lines of a section, and
its name. Headings in code fences, comments and front matter are text. Reads the text only: nothing is written
into it (CT-62). List items are in `list_items`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from easel.core.document.lines import count_lines, skip_lines
from easel.core.validation import quote_value, refuse

MAX_LISTED_HEADINGS = 30  # in an error

_HASH_HEADING = re.compile(r" {0,3}(#{1,6})(?![^ \t\r])")
# The following match the newline before a line, which is found much faster than the beginning of a line.
_SIGN = re.compile(  # a line that may be a heading, underline one, or open or close a part without headings
    r"\n(?=[ \t#`~<=]|--)"  # excludes most lines, fast
    r"(?: {0,3}#{1,6}(?![^ \t\r\n])|[ \t]*+(?:(?P<fence>```|~~~)|(?P<comment><!--))|(?P<underline>==|--))"
)
_TITLE = re.compile(
    r"\n(?![ \t\r]*(?:\n|\Z)| {0,3}(?:#{1,6}[ \t\r\n]|[>|<]|[-+*=_~`]|[0-9]{1,9}[.)][ \t])| {4}|\t)"
    r"[^\n]++\n(?:==++|--++)[ \t\r]*+(?=\n|\Z)"
)
_BEFORE_TITLE = re.compile(r"\n(?:[^\S\n]*+| {0,3}#{1,6}(?:[ \t\r][^\n]*+)?+)\n")
_OPENING = re.compile(r"\n([ \t]*+)(`{3,}+(?![^\n`]*+`)|~{3,}+)")
_CLOSING = re.compile(r"\n[ \t]*+(`{3,}+|~{3,}+)[ \t\r]*+(?=\n|\Z)")
_NOT_INDENTED = re.compile(r"\n(?![ \t\r\n]|\Z)")
_FRONT_MATTER_END = re.compile(r"\n---[ \t]*\r?(?=\n|\Z)")
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
        return _format_name(self.level, self.title)


class Outline:
    """The headings of one text. A text of 1 MB takes below 0.2 s, also a hostile one."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def sections(self) -> Sequence[Section]:
        """All sections, in order."""
        headings: list[tuple[int, int, str, int]] = []
        first, counted = 1, 0
        for offset in _find_headings(self._text):
            first, counted = first + self._text.count("\n", counted, offset), offset
            headings.append((first, *self._parse_heading(offset)))
        line_count = count_lines(self._text)
        sections: list[Section] = []
        for at, (first, level, title, height) in enumerate(headings):
            following = range(at + 1, len(headings))
            last = next((headings[nth][0] - 1 for nth in following if headings[nth][1] <= level), line_count)
            own_last = headings[at + 1][0] - 1 if following else line_count
            sections.append(Section(level, title, first, last, own_last, first + height))
        return sections

    def name_of(self, line: int) -> str | None:
        """Return the name of the innermost section of a line of the text, such as `## Steps`."""
        return self.name_each([skip_lines(self._text, 0, line - 1)])[0]

    def name_each(self, offsets: Sequence[int]) -> list[str | None]:
        """Return the names for the offsets of some lines, which must be in order."""
        if not offsets:
            return []
        headings = _find_headings(self._text)
        names: list[str | None] = []
        name, following = None, next(headings, None)
        for offset in offsets:
            heading = None
            while following is not None and following <= offset:
                heading, following = following, next(headings, None)
            if heading is not None:
                name = _format_name(*self._parse_heading(heading)[:2])
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
            refuse("section", f"there is no heading {quote_value(wanted)}. {self._list_headings()}")
        places = ", ".join(str(section.first) for section in matching[:MAX_LISTED_HEADINGS])
        return refuse(
            "section",
            f"the heading {quote_value(wanted)} occurs at lines {places}; read by line "
            "numbers, or name its level, such as `## Steps`.",
        )

    def _list_headings(self) -> str:
        if not self.sections:
            return "The document has no headings; read by line numbers."
        names = [f"{section.first}: {section.name[:80]}" for section in self.sections[:MAX_LISTED_HEADINGS]]
        more = "" if len(self.sections) <= MAX_LISTED_HEADINGS else "; and more"
        return f"Its headings by line are: {'; '.join(names)}{more}."

    def _parse_heading(self, offset: int) -> tuple[int, str, int]:
        """Return level, title and number of lines of the heading at the offset."""
        end = self._text.find("\n", offset)
        line = self._text[offset:] if end < 0 else self._text[offset:end]
        if parsed := _parse_hash_heading(line):
            return (*parsed, 1)
        return 1 if self._text[end + 1] == "=" else 2, line.strip(), 2


def _format_name(level: int, title: str) -> str:
    return f"{'#' * level} {title}"


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


def _find_headings(text: str) -> Iterator[int]:
    """Yield the offsets of all headings, in order.

    Nothing is a heading in front matter, code fences and comments. A fence that is indented more is in a list
    item and ends with it, at a line without indentation.
    """
    padded = "\n" + text  # with a newline before every line, at the offset that the line has in the text
    end = _front_matter_end(padded)  # of the part without headings
    fence, item_end = "", 0
    for found in _SIGN.finditer(padded):
        offset, kind = found.start(), found.lastgroup
        if fence and offset >= end:  # the list item has ended, and its fence with it
            fence = ""
        if fence:
            if kind == "fence" and _closes(fence, padded, offset):
                fence, end = "", offset
        elif offset < end:
            continue
        elif kind is None:
            yield offset
        elif kind == "underline":
            title = padded.rfind("\n", 0, offset)
            if title >= end and _TITLE.match(padded, title) and _is_after_break(padded, title):
                yield title
        elif kind == "comment":
            closing = padded.find("-->", offset)
            end = len(padded) if closing < 0 else closing
        elif opening := _OPENING.match(padded, offset):
            fence, end = opening[2], len(padded)
            if len(opening[1].expandtabs(4)) > _MAX_FENCE_INDENT:
                end = item_end = _item_end(padded, opening.end()) if item_end <= offset else item_end


def _front_matter_end(padded: str) -> int:
    """Return the offset after a block of metadata between two lines `---` at the top; 0 without one."""
    is_open = padded.startswith(("\n---\n", "\n---\r\n"))
    closing = _FRONT_MATTER_END.search(padded, 4) if is_open else None
    return closing.end() if closing else 0


def _closes(fence: str, padded: str, offset: int) -> bool:
    found = _CLOSING.match(padded, offset)
    return found is not None and found[1].startswith(fence)


def _item_end(padded: str, at: int) -> int:
    """Return the offset of the next line without indentation, else of the end."""
    found = _NOT_INDENTED.search(padded, at)
    return found.start() if found else len(padded)


def _is_after_break(padded: str, title: int) -> bool:
    """Return whether a title is the first line, or follows a blank line or a heading."""
    return title == 0 or _BEFORE_TITLE.match(padded, padded.rfind("\n", 0, title)) is not None
