"""The hunks of a unified diff: parsing a patch that a model wrote. RS-18 to RS-20

Accepts what a model gets wrong without changing the meaning: wrong counts, missing file headers, a missing
final newline, an empty line as blank context, one surrounding fence, CRLF throughout. Rejects everything
else with a message of its own. Does not know the document.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from easel.core.document.lines import GUTTER, NO_NEWLINE
from easel.core.document.rejection import Reason, Rejection, show_line

MAX_PATCH_LINES = 100_000
MAX_HUNKS = 1_000
EXAMPLE = "`@@ -12,3 +12,4 @@`"
_SPLIT = "Split it into several patches."
_NUMBERS = r"@@ ?-({0})(?:,({0}))? \+({0})(?:,({0}))? ?@@(?:[ \t].*)?"
_HEADER = re.compile(_NUMBERS.format("[0-9]{1,7}"))
_ABSURD_HEADER = re.compile(_NUMBERS.format("[0-9]+"))
_FENCE = re.compile(r"(`{3,}|~{3,})[^`]*")
# Lines of git and of other tools before the first hunk.
_PREAMBLE = re.compile(
    r"(?:diff |index |Index: |={5,}|(?:old|new|deleted|new file|deleted file) mode |(?:dis)?similarity )"
)


class HunkHeader(NamedTuple):
    """The numbers of a hunk's header as the patch claims them. Only `old_start` is trusted."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int


class Hunk(NamedTuple):
    """One hunk. `old` and `new` are its lines before and after, derived from the body."""

    number: int
    header: HunkHeader
    start: int  # index of the first old line; of the line after the address for an insertion. RS-21
    body: Sequence[str]  # as sent
    old: Sequence[str]
    new: Sequence[str]
    old_is_terminated: bool = True  # False: the last old line has no newline
    new_is_terminated: bool = True

    @property
    def is_short(self) -> bool:
        """Whether both sides have fewer lines than the header says."""
        return len(self.old) < self.header.old_count and len(self.new) < self.header.new_count

    @property
    def is_insertion(self) -> bool:
        return not self.old

    def format_header(self, shift: int) -> str:
        """Return the right header, if the hunks before this one added `shift` lines."""
        return format_header(self.start, len(self.old), self.start + shift, len(self.new))


def format_header(old_start: int, old_count: int, new_start: int, new_count: int) -> str:
    """Return the header of a hunk by the indexes of its lines. A side without lines names the line before."""

    def side(start: int, count: int) -> str:
        if count == 1:
            return f"{start + 1}"
        return f"{start + 1 if count else start},{count}"

    return f"@@ -{side(old_start, old_count)} +{side(new_start, new_count)} @@"


def parse_patch(patch: str, *, strips_cr: bool) -> list[Hunk]:
    """Return the hunks of a patch. Raises `Rejection` if it is not one unified diff of one file.

    `strips_cr` says that the document has lines and no CRLF: if then every line of the patch ends in CRLF,
    they are those of the argument.
    """
    return _Parser(patch, strips_cr=strips_cr).parse()


class _Parser:
    def __init__(self, patch: str, *, strips_cr: bool) -> None:
        self._lines = patch.split("\n", MAX_PATCH_LINES + 1)
        if len(self._lines) > MAX_PATCH_LINES + 1:
            count = patch.count("\n")
            raise Rejection(
                Reason.TOO_LARGE,
                f"The patch has {count} lines; {MAX_PATCH_LINES} is the limit.",
                advice=_SPLIT,
            )
        if not self._lines[-1]:
            self._lines.pop()
        if strips_cr and self._lines and all(line.endswith("\r") for line in self._lines):
            self._lines = [line[:-1] for line in self._lines]
        self._at: int = 0
        self._end: int = len(self._lines)

    def parse(self) -> list[Hunk]:
        self._remove_fence()
        self._read_file_header()
        hunks: list[Hunk] = []
        while self._at < self._end:
            if len(hunks) == MAX_HUNKS:
                raise Rejection(
                    Reason.TOO_LARGE,
                    f"The patch has more than {MAX_HUNKS} hunks, which is the limit.",
                    advice=_SPLIT,
                )
            hunks.append(self._read_hunk(len(hunks) + 1))
        if not hunks:
            raise Rejection(
                Reason.NO_HUNKS, f"The patch has no hunk; a hunk begins with a line such as {EXAMPLE}."
            )
        return hunks

    def _remove_fence(self) -> None:
        """Skip blank lines at both ends, and one fence around the patch. RS-19"""
        lines = self._lines
        while self._at < self._end and not lines[self._at].strip():
            self._at += 1
        if self._at == self._end:
            raise Rejection(Reason.NO_HUNKS, "The patch is empty.")
        if not (opening := _FENCE.fullmatch(lines[self._at].strip())):
            return
        last = self._end - 1
        while not lines[last].strip():
            last -= 1
        closing = lines[last].strip()
        fence = opening[1]
        if last == self._at or closing.strip(fence[0]) or len(closing) < len(fence):
            raise Rejection(
                Reason.NOT_UNIFIED_DIFF,
                f"The patch begins with the fence {show_line(fence)} and does not end with one.",
                advice="Send the whole patch, without a fence.",
            )
        self._at, self._end = self._at + 1, last

    def _read_file_header(self) -> None:
        """Skip the lines before the first hunk. The names of files have no meaning, but must be harmless."""
        names: list[str] = []
        while self._at < self._end:
            line = self._lines[self._at].rstrip("\r")
            if line.startswith("@@"):
                break
            if line.startswith(("--- ", "+++ ")):
                names.append(line[:3])
                self._check_path(line[4:])
            elif line.strip() and not _PREAMBLE.match(line):
                raise self._explain_preamble(line)
            self._at += 1
        if names.count("---") > 1 or names.count("+++") > 1:
            raise two_files_rejection(patch_line=self._at + 1)

    def _check_path(self, name: str) -> None:
        path = name.partition("\t")[0].strip().strip('"').replace("\\", "/")
        if path != "/dev/null" and (path.startswith("/") or ".." in path.split("/")):
            raise Rejection(
                Reason.BAD_PATH,
                f"The header names the file {show_line(path)}; a patch edits this document and no file.",
                advice="Omit the lines `---` and `+++`.",
            )

    def _explain_preamble(self, line: str) -> Rejection:
        """Return the rejection of a line that is not part of a unified diff."""
        if line.startswith("***"):
            return Rejection(
                Reason.NOT_UNIFIED_DIFF,
                "`*** Begin Patch` is another format; the patch must be a unified diff with line numbers, "
                f"whose hunks begin with a line such as {EXAMPLE}.",
            )
        if GUTTER.match(line):
            return gutter_rejection(line)
        has_hunks = any(line.startswith("@@") for line in self._lines[self._at : self._end])
        return Rejection(
            Reason.NOT_UNIFIED_DIFF if has_hunks else Reason.NO_HUNKS,
            f"Line {self._at + 1} of the patch, {show_line(line)}, is not part of a unified diff, "
            f"whose hunks begin with a line such as {EXAMPLE}.",
            patch_line=self._at + 1,
            advice="Send the unified diff alone, without other text.",
        )

    def _read_hunk(self, number: int) -> Hunk:
        """Read a header and the lines up to the next one."""
        header = self._read_header(number)
        lines, first = self._lines, self._at
        old: list[str] = []
        new: list[str] = []
        old_is_terminated = new_is_terminated = True
        for at in range(first, self._end):
            self._at = at
            line = lines[at]
            sign = line[:1]
            if sign in ("", " ", "-", "+"):
                is_old, is_new = sign != "+", sign != "-"
                if line.startswith("--- ") and (len(old), len(new)) == (header.old_count, header.new_count):
                    self._check_second_file()
                if (is_old and not old_is_terminated) or (is_new and not new_is_terminated):
                    raise Rejection(
                        Reason.NEWLINE,
                        f"Only the last old line and the last new line may be followed by `{NO_NEWLINE}`.",
                        hunk=number,
                        patch_line=at + 1,
                    )
                if is_old:
                    old.append(line[1:])
                if is_new:
                    new.append(line[1:])
            elif line.startswith("@@"):
                break
            elif line.startswith("\\ ") and at > first and not lines[at - 1].startswith("\\"):
                before = lines[at - 1][:1]
                old_is_terminated = old_is_terminated and before == "+"
                new_is_terminated = new_is_terminated and before == "-"
            else:
                raise self._explain_line(number, line)
        else:
            self._at = self._end
        hunk = Hunk(
            number=number,
            header=header,
            start=header.old_start - 1 if old else header.old_start,
            body=lines[first : self._at],
            old=old,
            new=new,
            old_is_terminated=old_is_terminated,
            new_is_terminated=new_is_terminated,
        )
        self._check_hunk(hunk)
        return hunk

    def _read_header(self, number: int) -> HunkHeader:
        line = self._lines[self._at].rstrip("\r")
        found = _HEADER.fullmatch(line)
        if found is None:
            problem = (
                "has a number that no document has lines for."
                if _ABSURD_HEADER.fullmatch(line)
                else f"has no line numbers; a hunk must begin with a line such as {EXAMPLE}, where the first "
                "number is the line of the document at which its old text begins."
            )
            raise Rejection(
                Reason.BAD_HEADER, f"{show_line(line)} {problem}", hunk=number, patch_line=self._at + 1
            )
        self._at += 1
        return HunkHeader(*map(int, found.groups("1")))

    def _check_hunk(self, hunk: Hunk) -> None:
        """Reject a hunk that changes nothing or has no address. RS-20"""
        number = hunk.number
        if not hunk.old and not hunk.new:
            raise Rejection(Reason.NO_CHANGE, "The hunk has no lines.", hunk=number)
        same_end = hunk.old_is_terminated == hunk.new_is_terminated
        if hunk.old == hunk.new and same_end:
            has_changes = any(line[:1] in ("+", "-") for line in hunk.body)
            if all(GUTTER.match(line) for line in hunk.body):
                raise gutter_rejection(hunk.body[0], number)
            what = "Its old and new lines are equal" if has_changes else "It has only context lines"
            raise Rejection(
                Reason.NO_CHANGE,
                f"{what}, so that it changes nothing.",
                hunk=number,
                advice="Remove this hunk, or mark the lines to change with `-` and `+`.",
            )
        if hunk.header.old_start == 0 and hunk.old:
            raise Rejection(
                Reason.BAD_HEADER,
                "Line 0 does not exist; only a hunk without old lines may begin there.",
                hunk=number,
            )
        if hunk.header.old_count == 0 and hunk.old and all(not line for line in hunk.body if line[:1] != "+"):
            raise Rejection(
                Reason.BAD_LINE,
                "Its header says that it only inserts, but an empty line counts as blank context.",
                hunk=number,
                advice="Remove the empty line, or write the real line and count in the header.",
            )

    def _check_second_file(self) -> None:
        following = self._lines[self._at + 1 : self._at + 3]
        if len(following) == 2 and following[0].startswith("+++ ") and following[1].startswith("@@"):
            raise two_files_rejection(patch_line=self._at + 1)

    def _explain_line(self, number: int, line: str) -> Rejection:
        """Return the rejection of a line of a hunk that has no sign."""
        if line.startswith("diff --git "):
            return two_files_rejection(patch_line=self._at + 1)
        if line.startswith("*** "):
            return self._explain_preamble(line)
        if GUTTER.match(line):
            return gutter_rejection(line, number)
        return Rejection(
            Reason.BAD_LINE,
            f"Line {self._at + 1} of the patch, {show_line(line)}, must begin with a space (context), "
            "`-` (old line) or `+` (new line).",
            hunk=number,
            patch_line=self._at + 1,
            advice="Put one of these signs before the whole text of the line, also before `#`, `*`, `-` or "
            "a fence.",
        )


def gutter_rejection(copied: str, hunk: int | None = None, **details: object) -> Rejection:
    """Return the rejection of a line that was copied with its line number."""
    return Rejection(
        Reason.GUTTER,
        f"{show_line(copied)} begins with a line number. The numbers and the tab after them in reads are not "
        "part of the document.",
        hunk=hunk,
        advice="Remove the line numbers from the lines of the patch.",
        **details,
    )


def two_files_rejection(hunk: int | None = None, **details: object) -> Rejection:
    """Return the rejection of a patch with sections for two files."""
    return Rejection(
        Reason.TWO_FILES,
        "The patch has sections for two files; it must edit one document.",
        advice="Omit the lines `---` and `+++`, and edit one document with each patch.",
        hunk=hunk,
        **details,
    )
