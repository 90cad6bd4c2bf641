"""Applying a patch to a document: strict, all or nothing, byte-exact. RS-17 to RS-22

A hunk is applied at the old start line of its header and nowhere else, and only if its old lines are there
byte for byte. Counts and new starts are derived from the bodies. Does not know leases or stores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from easel.core.document.document import LineRange
from easel.core.document.hunks import Hunk, gutter_rejection, parse_patch, two_files_rejection
from easel.core.document.lines import (
    GUTTER,
    NO_NEWLINE,
    LineEnds,
    is_terminated,
    join_lines,
    line_ends,
    split_lines,
)
from easel.core.document.rejection import (
    Reason,
    Rejection,
    divergent_column,
    explain_signs,
    find_block,
    lines_around,
    name_places,
    show_line,
    visible_part,
)

MAX_PATCH_BYTES = 1024 * 1024
MAX_TEXT_BYTES = 2 * 1024 * 1024  # of the document after the patch

_FEW_LINES = 16  # read beyond those that are skipped, since not all lines have the same length
_USUAL_LINE_LENGTH = 60.0
_MAX_BLOCK = 64 * 1024  # characters
_READ_AGAIN = "Read these lines again with canvas_read_lines and send a corrected patch."


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The document after a patch.

    `old_ranges` has for each hunk the lines of the old text that it names, context included. An insertion
    after line N names none: its range is `(N + 1, N)`. `corrections` name headers that were wrong. RS-18
    `advice` says where to read if the patch may have been cut off. RS-78
    """

    text: str
    applied_hunks: int
    old_ranges: Sequence[LineRange]
    corrections: Sequence[str]
    advice: str | None


def apply_patch(
    text: str,
    patch: str,
    *,
    revision_id: str,
    base_revision_id: str | None = None,
    max_text_bytes: int = MAX_TEXT_BYTES,
) -> Applied:
    """Return the document after the patch. Raises `PatchRejected` unless all of it applies. CT-06, CT-25

    `revision_id` is the revision of the text. A patch that inserts without old lines needs the same one as
    `base_revision_id`, unless the document is empty (RS-21). A document whose lines all end alike stays so.
    """
    try:
        _check_size(patch)
        if base_revision_id not in (None, revision_id):
            raise Rejection(
                Reason.BASE_REVISION,
                f"The patch was made for revision {base_revision_id[:100]}, but the document has changed "
                "since.",
                advice="Read the lines again and make the patch from them. Line numbers may have changed.",
            )
        return _apply(
            text, patch, has_base=base_revision_id is not None or not text, max_text_bytes=max_text_bytes
        )
    except Rejection as rejection:
        raise rejection.to_error(revision_id) from None


def _apply(text: str, patch: str, *, has_base: bool, max_text_bytes: int) -> Applied:
    ends = line_ends(text)
    hunks = parse_patch(patch, strips_cr=bool(text) and ends in (LineEnds.NONE, LineEnds.LF))
    application = _Application(text, has_base=has_base)
    if hunks[-1].is_short and hunks[-1].body[-1].startswith("-"):
        raise application.explain_cut_off(hunks)
    new_text = application.apply(hunks)
    application.check_line_ends(hunks, ends, has_cr="\r" in patch)
    if new_text == text:
        raise Rejection(Reason.NO_CHANGE, "The patch changes nothing.")
    size = len(new_text) if new_text.isascii() else len(new_text.encode("utf-8", "surrogatepass"))
    if size > max_text_bytes and len(new_text) >= len(text):
        raise Rejection(
            Reason.TOO_LARGE,
            f"The document would become larger than the limit of {max_text_bytes} bytes.",
            advice="Shorten the text.",
        )
    return Applied(
        text=new_text,
        applied_hunks=len(hunks),
        old_ranges=[(hunk.start + 1, hunk.start + len(hunk.old)) for hunk in hunks],
        corrections=_corrections(hunks),
        advice=_advise_to_read(patch, hunks),
    )


def _advise_to_read(patch: str, hunks: Sequence[Hunk]) -> str | None:
    """Return where to read after a patch that may have been cut off, but applied. RS-78"""
    last = hunks[-1]
    if last.is_short:
        problem = "its last hunk has fewer lines than its header says"
    elif patch.endswith(f"\n{last.body[-1]}"):
        problem = "its last line has no newline"
    else:
        return None
    end = last.start + _shift_of(hunks[:-1]) + len(last.new)
    return f"The patch may have been cut off: {problem}. Read around line {end} with canvas_read_lines."


def _shift_of(hunks: Sequence[Hunk]) -> int:
    """Return how many lines these hunks add."""
    return sum(len(hunk.new) - len(hunk.old) for hunk in hunks)


def _check_size(patch: str) -> None:
    """Reject a patch that is too large before anything of it is copied. Case C8"""
    try:
        is_too_large = len(patch) > MAX_PATCH_BYTES or len(patch.encode()) > MAX_PATCH_BYTES
    except UnicodeEncodeError:
        problem = "The patch must be valid Unicode; it has a lone surrogate."
        raise Rejection(Reason.BAD_CHARACTERS, problem) from None
    if is_too_large:
        raise Rejection(
            Reason.TOO_LARGE,
            f"The patch is larger than the limit of {MAX_PATCH_BYTES} bytes.",
            advice="Split it into several patches with few lines of context.",
        )
    if "\x00" in patch:
        raise Rejection(Reason.BAD_CHARACTERS, "A document must not contain the character U+0000.")


def _corrections(hunks: Sequence[Hunk]) -> list[str]:
    corrections: list[str] = []
    shift = 0
    for hunk in hunks:
        claimed = hunk.header
        new_start = hunk.start + shift + bool(hunk.new)
        if claimed != (claimed.old_start, len(hunk.old), new_start, len(hunk.new)):
            corrections.append(f"Hunk {hunk.number}: the header was read as `{hunk.format_header(shift)}`.")
        shift += len(hunk.new) - len(hunk.old)
    return corrections


class _Application:
    def __init__(self, text: str, *, has_base: bool) -> None:
        self._text = text
        self._is_terminated = is_terminated(text)
        self._has_base = has_base
        self._line_length = _USUAL_LINE_LENGTH

    @cached_property
    def _lines(self) -> list[str]:
        """The lines, for a rejection: applying does not need to split the text."""
        return split_lines(self._text)

    def apply(self, hunks: Sequence[Hunk]) -> str:
        """Return the new text. Every hunk is compared with the old text before it is used."""
        text = self._text
        parts: list[str] = []
        done = line = 0  # the offset up to which the text is used, and the lines before it
        unterminated: Hunk | None = None  # the hunk that says that its last new line has no newline
        for hunk in hunks:
            if hunk.start < line:
                raise self._at_line(
                    hunk.header.old_start,
                    hunk,
                    Reason.ORDER,
                    f"It begins at line {hunk.header.old_start}, which is not after the lines of the hunk "
                    "before.",
                    advice="Sort the hunks by line and let none overlap. All line numbers are those before "
                    "it.",
                )
            offset = self._skip_lines(done, hunk.start - line)
            old = join_lines(hunk.old, is_terminated=hunk.old_is_terminated)
            if hunk.is_insertion:
                self._check_insertion(hunk, offset)
            if offset is None or not text.startswith(old, offset):
                raise self._explain_old_text(hunk)
            if not hunk.old_is_terminated and offset + len(old) < len(text):
                raise self._explain_old_text(hunk)
            if unterminated is not None and (offset > done or hunk.new):
                raise self._explain_new_newline(unterminated)
            if not hunk.new_is_terminated:
                unterminated = hunk
            parts += (text[done:offset], join_lines(hunk.new, is_terminated=hunk.new_is_terminated))
            done, line = offset + len(old), hunk.start + len(hunk.old)
        if unterminated is not None and done < len(text):
            raise self._explain_new_newline(unterminated)
        parts.append(text[done:])
        return "".join(parts)

    def _skip_lines(self, start: int, count: int) -> int | None:
        """Return the offset after `count` lines from the one at `start`, None if there are fewer.

        Reads a block that probably has these lines, by the length of the lines before, and replaces the
        newlines before the wanted one in it: this is three times as fast as `str.count`, which compares
        character by character, and five times as fast as splitting the text.
        """
        if not count:
            return start
        text, offset, remaining = self._text, start, count
        while offset < len(text):
            size = int((remaining + _FEW_LINES) * self._line_length) + 1
            block = text[offset : offset + min(size, _MAX_BLOCK)]
            end = block.replace("\n", " ", remaining - 1).find("\n")
            if end >= 0:
                offset += end + 1
                self._line_length = (offset - start) / count
                return offset
            offset, remaining = offset + len(block), remaining - block.count("\n")
            self._line_length *= 2  # so that one long line does not need many blocks
        return len(text) if remaining == 1 and start < len(text) and not self._is_terminated else None

    def check_line_ends(self, hunks: Sequence[Hunk], ends: LineEnds, *, has_cr: bool) -> None:
        """Reject new lines that end otherwise than the lines of the document. Case C6"""
        if ends is LineEnds.MIXED or (ends is LineEnds.LF and not has_cr):
            return
        for hunk in hunks:
            terminated = hunk.new if hunk.new_is_terminated else hunk.new[:-1]
            crlf_count = sum(line.endswith("\r") for line in terminated)
            if ends is LineEnds.NONE and terminated:
                ends = LineEnds.CRLF if crlf_count == len(terminated) else LineEnds.LF
            if crlf_count != (len(terminated) if ends is LineEnds.CRLF else 0):
                raise Rejection(
                    Reason.LINE_ENDS,
                    f"Its lines must end with {ends}, as those of the document do.",
                    hunk=hunk.number,
                    advice=f"End every line of the hunk with {ends}.",
                )

    def _check_insertion(self, hunk: Hunk, offset: int | None) -> None:
        if not self._has_base:
            raise Rejection(
                Reason.NEEDS_BASE_REVISION,
                "It inserts lines without old lines, so that only `base_revision_id` can show that its line "
                "number is right.",
                hunk=hunk.number,
                advice="Add base_revision_id, or a context line before or after the new lines.",
            )
        if offset is None:
            number = hunk.header.old_start
            raise self._at_line(
                number,
                hunk,
                Reason.PAST_END,
                f"It inserts after line {number}, but the document has only {len(self._lines)} lines.",
                advice=_READ_AGAIN,
            )
        if offset == len(self._text) and not self._is_terminated:
            raise self._explain_missing_marker(hunk)

    def explain_cut_off(self, hunks: Sequence[Hunk]) -> Rejection:
        """Return the rejection of a patch that ends within the old lines of its last hunk. RS-78"""
        hunk = hunks[-1]
        offset = self._matching_count(hunk)
        number = hunk.start + offset + 1
        differs = f" Line {number} of the document differs from the patch." if offset < len(hunk.old) else ""
        places = find_block(self._text, hunk.old, near=hunk.header.old_start) if differs else []
        return self._at_line(
            number,
            hunk,
            Reason.CUT_OFF,
            "It ends with an old line, and has fewer lines than its header says: the patch was cut off."
            f"{differs}",
            name_places(places),
            advice="Send the whole patch. If this hunk is complete, its header must be "
            f"`{hunk.format_header(_shift_of(hunks[:-1]))}`.",
            found_at=places,
        )

    def _matching_count(self, hunk: Hunk) -> int:
        """Return how many of the first old lines of the hunk are at its address."""
        there = self._lines[hunk.start : hunk.start + len(hunk.old)]
        pairs = zip(hunk.old, there, strict=False)
        return next((nth for nth, (old, line) in enumerate(pairs) if old != line), len(there))

    def _explain_old_text(self, hunk: Hunk) -> Rejection:
        """Return the rejection of a hunk whose old lines, or else their last newline, are not there."""
        if self._lines[hunk.start : hunk.start + len(hunk.old)] != hunk.old:
            return self._explain_mismatch(hunk)
        if hunk.old_is_terminated:
            return self._explain_missing_marker(hunk)
        return self._explain_newline(
            hunk, f"`{NO_NEWLINE}` follows an old line that has a newline at its end.", "Remove that marker."
        )

    def _explain_missing_marker(self, hunk: Hunk) -> Rejection:
        return self._explain_newline(
            hunk,
            "The last line of the document has no newline at its end.",
            f"Include that line as an old line, with `{NO_NEWLINE}` in the next line of the patch.",
        )

    def _explain_new_newline(self, hunk: Hunk) -> Rejection:
        return self._explain_newline(
            hunk,
            f"`{NO_NEWLINE}` follows a new line that is not the last of the document.",
            "Remove that marker.",
        )

    def _explain_newline(self, hunk: Hunk, problem: str, advice: str) -> Rejection:
        return self._at_line(len(self._lines), hunk, Reason.NEWLINE, problem, advice=advice)

    def _explain_mismatch(self, hunk: Hunk) -> Rejection:
        """Name the first divergent line of a hunk, the lines there, and where its text occurs. RS-22"""
        offset = self._matching_count(hunk)
        number, expected = hunk.start + offset + 1, hunk.old[offset]
        is_past_end = number > len(self._lines)
        actual = None if is_past_end else self._lines[number - 1]
        sent = _old_lines_of(hunk)[offset]
        there = {"line": number, "lines": self._around(number)}
        if sent.startswith("--- ") and hunk.body[-1].startswith("+++ "):
            return two_files_rejection(hunk.number, **there)
        if GUTTER.match(expected) and (actual is None or not GUTTER.match(actual)):
            return gutter_rejection(expected, hunk.number, **there)
        column = 0 if actual is None else divergent_column(expected, actual)
        wanted = visible_part(expected, column)
        found = "" if actual is None else visible_part(actual, column)
        named = "the end of the document" if actual is None else f"`{found}`"
        places = find_block(self._text, hunk.old, near=hunk.header.old_start)
        hint = _mismatch_hint(hunk, sent, expected, actual)
        return self._at_line(
            number,
            hunk,
            Reason.PAST_END if is_past_end else Reason.MISMATCH,
            f"Line {number} of the document differs from the patch. Expected by the patch: `{wanted}`; "
            f"actual: {named}{explain_signs(wanted, found)}.",
            f"{hint}{name_places(places)}",
            advice=_READ_AGAIN,
            expected=wanted,
            actual=None if actual is None else found,
            found_at=places,
            hint=hint.strip(),
        )

    def _at_line(
        self, number: int, hunk: Hunk, reason: Reason, problem: str, more: str = "", **details: Any
    ) -> Rejection:
        """Return the rejection of a hunk with the lines around this one; `more` is the text after them."""
        around = self._around(number)
        text = f"{problem} The lines there:\n{around}\n{more}"
        return Rejection(reason, text, hunk=hunk.number, line=number, lines=around, **details)

    def _around(self, number: int) -> str:
        return lines_around(self._lines, number, is_terminated=self._is_terminated)


def _old_lines_of(hunk: Hunk) -> list[str]:
    """Return the old lines of a hunk as they were sent, with their signs."""
    return [line for line in hunk.body if line[:1] in ("", " ", "-")]


def _mismatch_hint(hunk: Hunk, sent: str, expected: str, actual: str | None) -> str:
    """Return a sentence about a common mistake that explains the difference, with a space at its end."""
    if actual is not None and sent == actual and sent[:1] == "-":
        return (
            f"The document's line itself begins with `-`: write {show_line('-' + actual)} to delete it, "
            f"or {show_line(' ' + actual)} to keep it. "
        )
    if actual is not None and sent == actual:
        return "The sign before the line is missing: write a space before the whole line to keep it. "
    if actual is not None and expected.rstrip("\r") == actual.rstrip("\r"):
        end = "CRLF" if actual.endswith("\r") else "LF"
        return f"The lines of the document end with {end} there, and those of the patch do not. "
    if not sent and not any(_old_lines_of(hunk)[-1:]):
        return "An empty line at the end of a hunk counts as a blank context line; remove it. "
    return ""
