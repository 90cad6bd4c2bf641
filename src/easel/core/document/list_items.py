"""The list items of a section: an item is addressed by its number within its section. RS-46, CT-04

Owns where an item of the outermost list begins and ends. Items in nested lists belong to their outer item.
Does not know headings: the caller passes the lines of one section.
"""

import re
from collections.abc import Sequence

from easel.core.document.document import LineRange
from easel.core.document.sections import Section
from easel.core.validation import refuse

_ITEM = re.compile(r"( {0,3})([-+*]|([0-9]{1,9})[.)])([ \t]+|\r?$)")
_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t\r]*")
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")


def find_item(lines: Sequence[str], section: Section | None, number: int) -> LineRange:
    """Return the lines of the item with this number, counted from 1. Raises `BadInput` if there is none.

    Without a section the items of the whole document count.
    """
    first, last = (1, len(lines)) if section is None else (section.content_first, section.own_last)
    items = find_items(lines[first - 1 : last])
    if not 1 <= number <= len(items):
        where = "The document" if section is None else f"The section `{section.name[:80]}`"
        refuse("item", f"{where} has {len(items)} list items; the first has number 1.")
    start, end = items[number - 1]
    return (first + start - 1, first + end - 1)


def find_items(lines: Sequence[str]) -> list[LineRange]:
    """Return the lines of each item of the outermost lists, relative to the first of these lines."""
    items: list[LineRange] = []
    content_indent = 0  # of the open item; 0 without one
    was_blank, fence = True, ""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            was_blank = True
            continue
        indent = _indent(line)
        if content_indent and indent >= content_indent:
            fence = _next_fence(fence, line)
            items[-1] = (items[-1][0], number)
        elif fence and not content_indent:
            fence = _next_fence(fence, line)
        elif (found := _ITEM.match(line)) and _starts_item(
            found, line, is_first=not content_indent and not was_blank
        ):
            items.append((number, number))
            content_indent = _content_indent(found, line)
            fence = _next_fence("", line[found.end() :])
        elif content_indent and not was_blank and not _FENCE.match(line) and not _RULE.fullmatch(line):
            items[-1] = (items[-1][0], number)  # a lazy continuation of the item's paragraph
        else:
            content_indent = 0
            fence = _next_fence("", line)
        was_blank = False
    return items


def _starts_item(found: re.Match[str], line: str, *, is_first: bool) -> bool:
    """Return whether the line is an item; `is_first`: it follows a paragraph that is in no list."""
    if _RULE.fullmatch(line):
        return False
    return not (is_first and found[3] is not None and int(found[3]) != 1)


def _content_indent(found: re.Match[str], line: str) -> int:
    """Return the column at which the text of the item begins."""
    marker_end = len(found[1]) + len(found[2])
    width = len(line[: found.end()].expandtabs(4)) - marker_end
    return marker_end + (width if 1 <= width <= 4 and line[found.end() :].strip() else 1)


def _next_fence(fence: str, line: str) -> str:
    """Return the fence that is open after the line, empty for none."""
    found = _FENCE.match(line)
    if not found:
        return fence
    if not fence:
        return found[1]
    return "" if found[1].startswith(fence) and not line[found.end() :].strip() else fence


def _indent(line: str) -> int:
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip(" "))
