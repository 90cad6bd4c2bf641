"""Reads hidden updates back, so that tests see that no content ends a fence."""

from __future__ import annotations

import re
from dataclasses import dataclass

from easel.core.document.hidden_update import DIFF_HEADER, NO_NEWLINE_NOTE, TEXT_HEADER
from easel.ids import CanvasId

_FILE_HEADER = re.compile(r"--- (.+)\n\+\+\+ \1\n")
_TEXT_HEADER = re.compile(re.escape(TEXT_HEADER).replace(r"\{\}", "(.+)"))
_OPENING = re.compile(r"(`{3,})(diff|markdown)")


@dataclass(frozen=True, slots=True)
class DiffUpdate:
    diff: str
    canvas_id: CanvasId | None = None  # None: the session's newest document


@dataclass(frozen=True, slots=True)
class TextUpdate:
    text: str
    canvas_id: CanvasId


def parse_update(message: str) -> DiffUpdate | TextUpdate | None:
    """Return the content of a hidden update byte for byte, or None if the message is none. Case P2"""
    header, _, rest = message.partition("\n")
    opening, _, content = rest.partition("\n")
    found = _OPENING.fullmatch(opening)
    if found is None:
        return None
    ends_without_newline = content.endswith(f"\n{NO_NEWLINE_NOTE}")
    if ends_without_newline:
        content = content.removesuffix(f"\n{NO_NEWLINE_NOTE}")
    if not content.endswith(found[1]):
        return None
    content = content.removesuffix(found[1])
    if found[2] == "diff" and header == DIFF_HEADER:
        named = _FILE_HEADER.match(content)  # no hunk starts like this
        return (
            DiffUpdate(content) if named is None else DiffUpdate(content[named.end() :], CanvasId(named[1]))
        )
    if found[2] == "markdown" and (named := _TEXT_HEADER.fullmatch(header)):
        return TextUpdate(content[:-1] if ends_without_newline else content, CanvasId(named[1]))
    return None
