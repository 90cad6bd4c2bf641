"""The rejection of a patch: its reason, the lines there, and what to do next. RS-22

Owns the wording. A `Rejection` becomes a `PatchRejected`, whose details a tool returns to the model, once the
revision of the document is known. Does not decide what is rejected.
"""

from collections.abc import Sequence
from enum import StrEnum

from easel.core.document.lines import format_lines
from easel.errors import PatchRejected

CONTEXT_LINES = 3  # shown before and after the first divergent line
MAX_SHOWN_WIDTH = 160  # characters of a line in a rejection
MAX_PLACES = 8  # other places of a hunk's old text that are named
MAX_SEARCHED_PLACES = 1_000

_VISIBLE = str.maketrans(
    {
        " ": "·",
        "\t": "⇥",
        "\r": "␍",
        "\x0b": "␋",
        "\x0c": "␌",
        "\u00a0": "⍽",
        "\u200b": "<U+200B>",
        "\u2028": "<U+2028>",
        "\u2029": "<U+2029>",
        "\ufeff": "<U+FEFF>",
    }
)
_LEGEND = {"·": "· is a space", "⇥": "⇥ a tab", "␍": "␍ a carriage return", "⍽": "⍽ a no-break space"}


class Reason(StrEnum):
    """Why a patch was rejected; the member `reason` of the details."""

    BAD_ARGUMENTS = "bad_arguments"
    TOO_LARGE = "too_large"
    BAD_CHARACTERS = "bad_characters"
    BASE_REVISION = "base_revision"
    NEEDS_BASE_REVISION = "needs_base_revision"
    NO_HUNKS = "no_hunks"
    NOT_UNIFIED_DIFF = "not_unified_diff"
    BAD_HEADER = "bad_header"
    BAD_LINE = "bad_line"
    BAD_PATH = "bad_path"
    CUT_OFF = "cut_off"
    TWO_FILES = "two_files"
    GUTTER = "gutter"
    NO_CHANGE = "no_change"
    ORDER = "order"
    PAST_END = "past_end"
    MISMATCH = "mismatch"
    NEWLINE = "newline"
    LINE_ENDS = "line_ends"
    NOT_INSPECTED = "not_inspected"


class Rejection(Exception):
    """A patch is rejected. `hunk` is the number of the hunk, from 1."""

    def __init__(
        self,
        reason: Reason,
        problem: str,
        *,
        advice: str = "Correct the patch and send it again.",
        hunk: int | None = None,
        **details: object,
    ) -> None:
        super().__init__(problem)
        self._problem = problem if hunk is None else f"Hunk {hunk}: {problem}"
        self._advice = advice
        known = {"reason": str(reason), "next": advice, "hunk": hunk, **details}
        self._details = {name: value for name, value in known.items() if value not in (None, [], "")}

    def to_error(self, revision_id: str) -> PatchRejected:
        """Return the error for a document of this revision; its `problem` is the whole rejection."""
        problem = (
            f"{self._problem} Nothing was changed; the current revision_id is {revision_id}. {self._advice}"
        )
        return PatchRejected(problem=problem, revision_id=revision_id, **self._details)


def visible_part(line: str, column: int = 0) -> str:
    """Return the part of a line around a column, with visible white space."""
    start = max(0, column - MAX_SHOWN_WIDTH // 2) if len(line) > MAX_SHOWN_WIDTH else 0
    part = line[start : start + MAX_SHOWN_WIDTH]
    before, after = "…" if start else "", "…" if start + len(part) < len(line) else ""
    return f"{before}{part.translate(_VISIBLE)}{after}"


def show_line(line: str) -> str:
    """Return the visible part of a line, quoted for a message."""
    return f"`{visible_part(line)}`"


def explain_signs(*shown: str) -> str:
    """Return which sign means which white space, for those that occur."""
    used = [meaning for sign, meaning in _LEGEND.items() if any(sign in text for text in shown)]
    return f" ({', '.join(used)})" if used else ""


def divergent_column(expected: str, actual: str) -> int:
    """Return the index of the first character that differs."""
    for column, (one, other) in enumerate(zip(expected, actual, strict=False)):
        if one != other:
            return column
    return min(len(expected), len(actual))


def lines_around(lines: Sequence[str], number: int, *, is_terminated: bool) -> str:
    """Return the numbered lines around a line; the last ones if it is past the end."""
    number = min(number, len(lines) + 1)
    return format_lines(
        lines,
        number - CONTEXT_LINES,
        number + CONTEXT_LINES,
        is_terminated=is_terminated,
        max_width=MAX_SHOWN_WIDTH,
    )


def find_block(text: str, block: Sequence[str], *, near: int) -> list[int]:
    """Return the lines at which these lines occur in the text, those nearest to the line `near`.

    Only a hint: nothing is applied there. RS-18
    """
    if not block:
        return []
    sought, inside = "\n" + "\n".join(block) + "\n", f"\n{text}\n"
    places: list[int] = []
    at, number, counted = inside.find(sought), 1, 0
    while at >= 0 and len(places) < MAX_SEARCHED_PLACES:
        number, counted = number + inside.count("\n", counted, at), at
        places.append(number)
        at = inside.find(sought, at + 1)
    return sorted(sorted(places, key=lambda place: abs(place - near))[:MAX_PLACES])


def name_places(places: Sequence[int]) -> str:
    """Return the sentence that names the other places of a hunk's old text."""
    if not places:
        return ""
    numbers = ", ".join(map(str, places))
    where = f"at line {numbers}" if len(places) == 1 else f"at lines {numbers}"
    return f"The old text of this hunk occurs {where}, but it is applied only at the line in its header."
