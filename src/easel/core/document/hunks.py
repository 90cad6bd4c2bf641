"""The hunks of a unified diff: parsing a patch that a model wrote. RS-18 to RS-20

Accepts what a model gets wrong without changing the meaning: wrong counts, missing file headers, a missing
final newline, an empty line as blank context, one surrounding fence, CRLF throughout. Rejects everything
else with a message of its own. Does not know the document.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from easel.core.document.lines import GUTTER
from easel.core.document.rejection import DEFAULT_ADVICE, Reason, reject, show_line

MAX_PATCH_LINES = 100_000
MAX_HUNKS = 1_000
EXAMPLE = "`@@ -12,3 +12,4 @@`"
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


def parse_patch(patch: str, *, revision_id: str, strips_cr: bool) -> list[Hunk]:
    """Return the hunks of a patch. Raises `PatchRejected` if it is not one unified diff of one file.

    `strips_cr` says that the document has lines and no CRLF: if then every line of the patch ends in CRLF,
    they are those of the argument.
    """
    return _Parser(patch, revision_id, strips_cr=strips_cr).parse()


class _Parser:
    def __init__(self, patch: str, revision_id: str, *, strips_cr: bool) -> None:
        self._revision_id = revision_id
        self._lines = patch.split("\n", MAX_PATCH_LINES + 1)
        if len(self._lines) > MAX_PATCH_LINES + 1:
            count = patch.count("\n")
            self._reject(
                Reason.TOO_LARGE,
                f"The patch has {count} lines; {MAX_PATCH_LINES} is the limit.",
                advice="Split it into several patches.",
            )
        if len(self._lines) > MAX_HUNKS and patch.count("\n@@") > MAX_HUNKS:
            self._reject_hunk_count()
        if not self._lines[-1]:
            self._lines.pop()
        if strips_cr and self._lines and all(line.endswith("\r") for line in self._lines):
            self._lines = [line[:-1] for line in self._lines]
        self._at = 0
        self._end = len(self._lines)

    def parse(self) -> list[Hunk]:
        self._remove_fence()
        self._read_file_header()
        hunks: list[Hunk] = []
        while self._at < self._end:
            if len(hunks) == MAX_HUNKS:
                self._reject_hunk_count()
            hunks.append(self._read_hunk(len(hunks) + 1))
        if not hunks:
            self._reject(
                Reason.NO_HUNKS, f"The patch has no hunk; a hunk begins with a line such as {EXAMPLE}."
            )
        return hunks

    def _remove_fence(self) -> None:
        """Skip blank lines at both ends, and one fence around the patch. RS-19"""
        lines = self._lines
        while self._at < self._end and not lines[self._at].strip():
            self._at += 1
        if self._at == self._end:
            self._reject(Reason.NO_HUNKS, "The patch is empty.")
        if not (opening := _FENCE.fullmatch(lines[self._at].strip())):
            return
        last = self._end - 1
        while not lines[last].strip():
            last -= 1
        closing = lines[last].strip()
        fence = opening[1]
        if last == self._at or closing.strip(fence[0]) or len(closing) < len(fence):
            self._reject(
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
                self._reject_preamble(line)
            self._at += 1
        if names.count("---") > 1 or names.count("+++") > 1:
            self._reject_two_files()

    def _check_path(self, name: str) -> None:
        path = name.partition("\t")[0].strip().strip('"').replace("\\", "/")
        if path != "/dev/null" and (path.startswith("/") or ".." in path.split("/")):
            self._reject(
                Reason.BAD_PATH,
                f"The header names the file {show_line(path)}; a patch edits this document and no file.",
                advice="Omit the lines `---` and `+++`.",
            )

    def _reject_preamble(self, line: str) -> NoReturn:
        if line.startswith("***"):
            self._reject(
                Reason.NOT_UNIFIED_DIFF,
                "`*** Begin Patch` is another format; the patch must be a unified diff with line numbers, "
                f"whose hunks begin with a line such as {EXAMPLE}.",
            )
        if GUTTER.match(line):
            self._reject_gutter(line)
        has_hunks = any(line.startswith("@@") for line in self._lines[self._at : self._end])
        self._reject(
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
            if sign == " " or not sign:
                if not (old_is_terminated and new_is_terminated):
                    self._reject_marker(number)
                content = line[1:]
                old.append(content)
                new.append(content)
            elif sign == "-":
                if line.startswith("--- ") and (len(old), len(new)) == (header.old_count, header.new_count):
                    self._check_second_file()
                if not old_is_terminated:
                    self._reject_marker(number)
                old.append(line[1:])
            elif sign == "+":
                if not new_is_terminated:
                    self._reject_marker(number)
                new.append(line[1:])
            elif line.startswith("@@"):
                break
            elif line.startswith("\\ ") and at > first and not lines[at - 1].startswith("\\"):
                before = lines[at - 1][:1]
                old_is_terminated = old_is_terminated and before == "+"
                new_is_terminated = new_is_terminated and before == "-"
            else:
                self._reject_line(number, line)
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
            if _ABSURD_HEADER.fullmatch(line):
                self._reject(
                    Reason.BAD_HEADER,
                    f"{show_line(line)} has a number that no document has lines for.",
                    hunk=number,
                    patch_line=self._at + 1,
                )
            self._reject(
                Reason.BAD_HEADER,
                f"{show_line(line)} has no line numbers; a hunk must begin with a line such as {EXAMPLE}, "
                "where the first number is the line of the document at which its old text begins.",
                hunk=number,
                patch_line=self._at + 1,
            )
        self._at += 1
        return HunkHeader(*map(int, found.groups("1")))

    def _check_hunk(self, hunk: Hunk) -> None:
        """Reject a hunk that changes nothing or has no address. RS-20"""
        number = hunk.number
        if not hunk.old and not hunk.new:
            self._reject(Reason.NO_CHANGE, "The hunk has no lines.", hunk=number)
        same_end = hunk.old_is_terminated == hunk.new_is_terminated
        if hunk.old == hunk.new and same_end:
            has_changes = any(line[:1] in ("+", "-") for line in hunk.body)
            if all(GUTTER.match(line) for line in hunk.body):
                self._reject_gutter(hunk.body[0], number)
            what = "Its old and new lines are equal" if has_changes else "It has only context lines"
            self._reject(
                Reason.NO_CHANGE,
                f"{what}, so that it changes nothing.",
                hunk=number,
                advice="Remove this hunk, or mark the lines to change with `-` and `+`.",
            )
        if hunk.header.old_start == 0 and hunk.old:
            self._reject(
                Reason.BAD_HEADER,
                "Line 0 does not exist; only a hunk without old lines may begin there.",
                hunk=number,
            )
        if hunk.header.old_count == 0 and hunk.old and all(not line for line in hunk.body if line[:1] != "+"):
            self._reject(
                Reason.BAD_LINE,
                "Its header says that it only inserts, but an empty line counts as blank context.",
                hunk=number,
                advice="Remove the empty line, or write the real line and count in the header.",
            )

    def _check_second_file(self) -> None:
        following = self._lines[self._at + 1 : self._at + 3]
        if len(following) == 2 and following[0].startswith("+++ ") and following[1].startswith("@@"):
            self._reject_two_files()

    def _reject_line(self, number: int, line: str) -> NoReturn:
        if line.startswith("diff --git "):
            self._reject_two_files()
        if line.startswith("*** "):
            self._reject_preamble(line)
        if GUTTER.match(line):
            self._reject_gutter(line, number)
        self._reject(
            Reason.BAD_LINE,
            f"Line {self._at + 1} of the patch, {show_line(line)}, must begin with a space (context), "
            "`-` (old line) or `+` (new line).",
            hunk=number,
            patch_line=self._at + 1,
            advice="Put one of these signs before the whole text of the line, also before `#`, `*`, `-` or "
            "a fence.",
        )

    def _reject_marker(self, number: int) -> NoReturn:
        self._reject(
            Reason.NEWLINE,
            "Only the last old line and the last new line may be followed by `\\ No newline at end of file`.",
            hunk=number,
            patch_line=self._at + 1,
        )

    def _reject_gutter(self, line: str, number: int | None = None) -> NoReturn:
        reject_gutter(line, revision_id=self._revision_id, hunk=number)

    def _reject_two_files(self) -> NoReturn:
        reject_two_files(revision_id=self._revision_id, patch_line=self._at + 1)

    def _reject_hunk_count(self) -> NoReturn:
        self._reject(
            Reason.TOO_LARGE,
            f"The patch has more than {MAX_HUNKS} hunks, which is the limit.",
            advice="Split it into several patches.",
        )

    def _reject(
        self,
        reason: Reason,
        problem: str,
        *,
        hunk: int | None = None,
        patch_line: int | None = None,
        advice: str = DEFAULT_ADVICE,
    ) -> NoReturn:
        reject(
            reason, problem, revision_id=self._revision_id, hunk=hunk, patch_line=patch_line, advice=advice
        )


def reject_gutter(copied: str, *, revision_id: str, hunk: int | None, **details: object) -> NoReturn:
    """Raise the rejection of a line that was copied with its line number."""
    reject(
        Reason.GUTTER,
        f"{show_line(copied)} begins with a line number. The numbers and the tab after them in reads are not "
        "part of the document.",
        revision_id=revision_id,
        hunk=hunk,
        advice="Remove the line numbers from the lines of the patch.",
        **details,
    )


def reject_two_files(*, revision_id: str, hunk: int | None = None, **details: object) -> NoReturn:
    """Raise the rejection of a patch with sections for two files."""
    reject(
        Reason.TWO_FILES,
        "The patch has sections for two files; it must edit one document.",
        revision_id=revision_id,
        hunk=hunk,
        advice="Omit the lines `---` and `+++`, and edit one document with each patch.",
        **details,
    )
