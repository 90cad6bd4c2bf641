"""Glob and Grep: which files of a place have a name, or a line, that fits. They wait for a disk, so they are called in threads.

Patterns are matched in time that grows with the text alone (RE2), so that none can hang; but a bad one takes ten thousand times as
long as a good one, so there is an end to the time too. Links are not followed, `.git` is left out, and how much is looked at, and
told, has bounds.
"""

import os
import posixpath
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import IO, Any, Protocol

import re2

from easel.sandbox import safe_open as beneath
from easel.sandbox.files import LOOKED_AT, MAX_LINE_LENGTH, Refused, is_binary
from easel.sandbox.workspace import Outside, Workspace

LEFT_OUT = frozenset({".git"})
MAX_FOUND = 1_000  # paths, or lines
MAX_VISITED = 100_000  # entries of folders
MAX_TEXT_BYTES = 100_000  # characters of one answer
MAX_READ_BYTES = 64 * 1024 * 1024  # bytes of all files together
MAX_FILE_BYTES = 8 * 1024 * 1024  # larger ones are passed over, and counted
MAX_DEPTH = 64
MAX_SECONDS = 10.0  # then what was found is told, as cut
PIECE = 64 * 1024  # bytes that are matched at once: between two, there is a look at the time
MAX_PIECE_LENGTH = 256 * 1024  # of a line that is longer; one that is longer than this is taken in pieces too
OVERLAP = 4 * 1024  # of the pieces of a line: what fits is found across them if it is not longer than this
MAX_PATTERN_LENGTH = 1_000
SHOWN = 400  # characters of a line that are shown around what was found

_NEW_LINE = 0x0A
_PLAIN = {"*": "[^/]*", "?": "[^/]"}


class Stop(Protocol):
    """Whoever asked may not want to know any more."""

    def is_set(self) -> bool: ...


class Patience:
    """Ends when whoever asked does not want to know any more, or when it took too long."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._until = time.monotonic() + MAX_SECONDS

    def is_set(self) -> bool:
        return self._stop.is_set() or time.monotonic() > self._until


class Walk:
    """The files beneath a folder, in order, each as its path from there. Says whether it had to leave some out.

    Names that are no UTF-8 cannot be told, and so not be asked for either: what has one is passed over, and counted.
    """

    def __init__(self, place: Workspace, path: str, stop: Stop) -> None:
        self.was_cut = False
        self.passed_over = 0
        self._place = place
        self._path = path
        self._stop = stop
        self._visited = 0

    def __iter__(self) -> Iterator[str]:
        with beneath.opened(self._place, self._path, os.O_RDONLY | os.O_DIRECTORY) as top:
            ahead = [""]
            while ahead:
                folder = ahead.pop()
                inner: list[str] = []
                for name, is_folder in self._entries(top, folder):
                    inside = f"{folder}{name}"
                    if not is_folder:
                        yield inside
                    elif name not in LEFT_OUT:
                        if inside.count("/") >= MAX_DEPTH:
                            self.was_cut = True
                        else:
                            inner.append(inside + "/")
                ahead += reversed(inner)

    def _entries(self, top: int, folder: str) -> list[tuple[str, bool]]:
        """Plain files and folders; a folder that went away meanwhile, or is closed to us, has none."""
        found: list[tuple[str, bool]] = []
        try:
            opened = beneath.open_beneath(top, folder or ".", os.O_RDONLY | os.O_DIRECTORY, follow=False)
        except (OSError, Outside):
            return found
        try:
            with os.scandir(opened) as entries:
                for entry in entries:
                    self._visited += 1
                    if self._visited > MAX_VISITED or self._stop.is_set():
                        self.was_cut = True
                        break
                    if not _can_be_told(entry.name):
                        self.passed_over += 1
                        continue
                    with suppress(OSError):
                        mode = entry.stat(follow_symlinks=False).st_mode
                        if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
                            found.append((entry.name, stat.S_ISDIR(mode)))
        finally:
            os.close(opened)
        return sorted(found)


def glob(place: Workspace, args: Mapping[str, Any], stop: Stop) -> Any:
    path = args.get("path", ".")
    fits = compiled(as_expression(args["pattern"]))
    walk = Walk(place, path, Patience(stop))
    paths: list[str] = []
    room = MAX_TEXT_BYTES
    for inside in walk:
        if fits.fullmatch(os.fsencode(inside)) is None:
            continue
        shown = shown_path(path, inside)
        room -= len(shown)
        if len(paths) == MAX_FOUND or room < 0:
            walk.was_cut = True
            break
        paths.append(shown)
    return {"paths": paths, "truncated": walk.was_cut, "files_passed_over": walk.passed_over}


def grep(place: Workspace, args: Mapping[str, Any], stop: Stop) -> Any:
    path, most = args.get("path", "."), args.get("limit", 100)
    fits = compiled(args["pattern"], ignore_case=args.get("ignore_case", False), lines=True)
    names = compiled(as_expression(_anywhere(args["glob"]))) if "glob" in args else None
    stop = Patience(stop)
    walk, passed_over = Walk(place, path, stop), 0
    matches: list[dict[str, Any]] = []
    budget, room = MAX_READ_BYTES, MAX_TEXT_BYTES
    for inside in _one_file(place, path) or walk:
        if names is not None and names.fullmatch(os.fsencode(inside)) is None:
            continue
        whole = posixpath.join(path, inside) if inside else path
        content = _content(place, whole)
        if content is None:
            passed_over += 1
            continue
        budget -= len(content)
        for number, text in _lines(fits, content, stop):
            room -= len(text)
            if len(matches) == most or room < 0:
                walk.was_cut = True
                break
            matches.append(
                {"path": shown_path(path, inside) if inside else path, "line": number, "text": text}
            )
        if walk.was_cut or budget < 0 or stop.is_set():
            walk.was_cut = True
            break
    return {
        "matches": matches,
        "truncated": walk.was_cut,
        "files_passed_over": passed_over + walk.passed_over,
    }


def compiled(expression: str, *, ignore_case: bool = False, lines: bool = False) -> "re2.Regexp":
    """`lines`: it is matched against a whole text, and what fits is within a line."""
    if len(expression) > MAX_PATTERN_LENGTH:
        raise Refused(f"A pattern has at most {MAX_PATTERN_LENGTH} characters.")
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.never_nl = lines
    options.never_capture = True
    try:
        return re2.compile(os.fsencode(f"(?m){expression}" if lines else expression), options)
    except (re2.error, UnicodeEncodeError) as problem:
        raise Refused(f"The pattern cannot be understood: {_said(problem)} (syntax: RE2).") from None


def as_expression(pattern: str) -> str:
    """A glob as an expression over whole paths: `*` and `?` stay within a folder, `**` goes through them, `[…]` and `{a,b}` choose."""
    if pattern.startswith("/"):
        raise Refused("A glob is looked for beneath `path`; leave out the slash at its beginning.")
    parts: list[str] = []
    at, depth = 0, 0
    while at < len(pattern):
        char = pattern[at]
        if pattern.startswith("**/", at):
            parts.append("(?:[^/]+/)*")
            at += 3
            continue
        if pattern.startswith("**", at):
            parts.append(".*")
            at += 2
            continue
        if char == "[" and (end := pattern.find("]", at + 2)) > 0:
            inside = pattern[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            parts.append(f"[{'^/' + inside[1:] if inside[0] in '!^' else inside}]")
            at = end + 1
            continue
        if char == "{" and pattern.find("}", at) > 0:
            parts.append("(?:")
            depth += 1
        elif char == "}" and depth:
            parts.append(")")
            depth -= 1
        elif char == "," and depth:
            parts.append("|")
        else:
            parts.append(_PLAIN.get(char) or re2.escape(char))
        at += 1
    return "(?s)" + "".join(parts)


def _anywhere(pattern: str) -> str:
    """`*.py` means those of every folder when lines are looked for."""
    return pattern if "/" in pattern else f"**/{pattern}"


def shown_path(path: str, inside: str) -> str:
    return posixpath.normpath(posixpath.join(path, inside))


def _can_be_told(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def _one_file(place: Workspace, path: str) -> list[str] | None:
    """Grep may be pointed at a file."""
    with beneath.opened(place, path, os.O_RDONLY | os.O_NONBLOCK) as opened:
        return [""] if stat.S_ISREG(os.fstat(opened).st_mode) else None


def _content(place: Workspace, path: str) -> bytes | None:
    """None: too large, no text, or gone."""
    try:
        with beneath.opened_file(place, path) as file:
            return _text_of(file)
    except (OSError, Outside, beneath.NotAFile):
        return None


def _text_of(file: IO[bytes]) -> bytes | None:
    beginning = file.read(LOOKED_AT)
    if is_binary(beginning):
        return None
    content = beginning + file.read(MAX_FILE_BYTES + 1)
    return None if len(content) > MAX_FILE_BYTES else content


def _lines(fits: "re2.Regexp", content: bytes, stop: Stop) -> Iterator[tuple[int, str]]:
    """Found in the whole and not line by line: a text may have millions of them, and most do not fit."""
    at, number, counted = 0, 1, 0
    while at < len(content) and not stop.is_set():
        end = _piece_end(content, at)
        found = fits.search(content, at, end)
        if found is None or (
            found.start() == len(content) and content[-1] == _NEW_LINE
        ):  # behind the last line end there is no line
            at = end if end == len(content) or content[end - 1] == _NEW_LINE else end - OVERLAP
            continue
        first = content.rfind(b"\n", 0, found.start()) + 1
        last = content.find(b"\n", found.start())
        line = content[first : last if last >= 0 else len(content)]
        number, counted = number + content.count(b"\n", counted, first), first
        yield number, _shown(line, found.start() - first)
        at = first + len(line) + 1


def _piece_end(content: bytes, at: int) -> int:
    """After whole lines, as many as a piece has room for, or else after one."""
    if at + PIECE >= len(content):
        return len(content)
    whole = content.rfind(b"\n", at, at + PIECE) + 1 or content.find(b"\n", at, at + MAX_PIECE_LENGTH) + 1
    return whole or min(at + MAX_PIECE_LENGTH, len(content))


def _shown(line: bytes, at: int) -> str:
    if len(line) <= MAX_LINE_LENGTH:
        return line.decode(errors="replace").rstrip("\r")
    start = max(0, at - SHOWN // 2)
    return f"… {line[start : start + SHOWN].decode(errors='replace')} …"


def _said(problem: Exception) -> str:
    word = problem.args[0] if problem.args else ""
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)
