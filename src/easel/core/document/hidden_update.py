"""Hidden updates: messages that give a model the changes of a document, its text, or the advice to read it.

Owns the exact form. CT-51, RS-23 A fence is longer than every run of backticks inside, so that no line of a
document ends it. Does not know conversations or who made a change.
"""

import re
from collections.abc import Sequence

from easel.core.document.diff import make_diff
from easel.core.document.lines import is_terminated
from easel.ids import CanvasId

DIFF_HEADER = "Canvas update (do not display to user). Apply this diff to your internal canvas state:"
TEXT_HEADER = "Canvas text (do not display to user). Replace your internal state of canvas {} with this text:"
READ_AGAIN = (
    "Canvas update (do not display to user). These documents changed by more than fits here: {}. "
    "Read each with canvas_check_out and canvas_read_lines before you use or edit it."
)
NO_NEWLINE_NOTE = "The text has no newline at its end."

_MIN_FENCE = 3
_BACKTICKS = re.compile("`+")


def format_diff_update(old: str, new: str, canvas_id: CanvasId | None = None) -> str | None:
    """Return the hidden update for a change of the text, or None if nothing has changed. CT-53, CT-54

    `canvas_id` names the document in the file header of the diff, if it is not the session's newest one.
    """
    diff = make_diff(old, new)
    if diff and canvas_id is not None:
        diff = f"--- {canvas_id}\n+++ {canvas_id}\n{diff}"
    return f"{DIFF_HEADER}\n{_enclose('diff', diff)}" if diff else None


def format_text_update(text: str, canvas_id: CanvasId) -> str:
    """Return the hidden update with the whole text, in place of earlier updates that are not sent."""
    header = TEXT_HEADER.format(canvas_id)
    if is_terminated(text):
        return f"{header}\n{_enclose('markdown', text)}"
    return f"{header}\n{_enclose('markdown', text + chr(10))}\n{NO_NEWLINE_NOTE}"


def format_read_again(canvas_ids: Sequence[CanvasId], *, has_more: bool = False) -> str:
    """Return the hidden update in place of texts that do not fit. `has_more`: there are older documents."""
    names = ", ".join(canvas_ids)
    return READ_AGAIN.format(f"{names}, and all older ones of this session" if has_more else names)


def _enclose(language: str, content: str) -> str:
    """Return the content, which is empty or ends with a newline, inside a fence. RS-23"""
    longest = max((len(run) for run in _BACKTICKS.findall(content)), default=0)
    fence = "`" * max(_MIN_FENCE, longest + 1)
    return f"{fence}{language}\n{content}{fence}"
