"""The tools Glob and Grep: Glob finds files by path, Grep finds lines of text files.

They block on the disk, so they must be called in threads. Links are not followed, `.git` is skipped, and both
the search and the result have limits. RE2 matches in time linear in the text, but a bad pattern can take ten
thousand times longer than a good one, so a search also has a time limit.
"""

import os
import posixpath
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from threading import Event
from typing import Any

import re2

from easel import fs
from easel.sandbox.files import MAX_LINE_LENGTH, SNIFFED_BYTES, FileToolError, is_binary
from easel.sandbox.safe_open import NotRegularFile, open_file, open_path
from easel.sandbox.workspace import Workspace

SKIPPED_FOLDERS = frozenset({".git"})
MAX_RESULTS = 1_000  # paths of Glob, lines of Grep
MAX_VISITED = 100_000  # files and folders
MAX_TEXT_LENGTH = 100_000  # characters of one result
MAX_READ_BYTES = 64 * 1024 * 1024  # of all files together
MAX_FILE_BYTES = 8 * 1024 * 1024  # larger files are skipped and counted
MAX_DEPTH = 64
MAX_SECONDS = 10.0  # after that, the results so far are returned as truncated
BLOCK_BYTES = 64 * 1024  # matched in one call; the time limit is checked between calls
MAX_BLOCK_BYTES = 256 * 1024  # of a block that is one long line; a longer line is matched in several blocks
OVERLAP_BYTES = 4 * 1024  # between two blocks of one line, so that a match of up to this length is found
MAX_PATTERN_LENGTH = 1_000
EXCERPT_BYTES = 400  # of a long line, around the match

IsOver = Callable[[], bool]

_NEW_LINE = 0x0A
_PLAIN = {"*": "[^/]*", "?": "[^/]"}


def search_deadline(stop: Event) -> IsOver:
    """Return whether a search must end: it was cancelled, or has reached its time limit."""
    deadline = time.monotonic() + MAX_SECONDS
    return lambda: stop.is_set() or time.monotonic() > deadline


class Walk:
    """Iterates over the regular files under a folder in sorted order, as relative paths.

    `was_cut` is set if a limit was reached, so that files are missing. Entries whose name is not UTF-8 cannot
    be named in a tool call, so they are skipped and counted.
    """

    def __init__(self, workspace: Workspace, path: str, is_over: IsOver) -> None:
        self.was_cut = False
        self.skipped_count = 0
        self._workspace = workspace
        self._path = path
        self._is_over = is_over
        self._visited = 0

    def __iter__(self) -> Iterator[str]:
        with open_path(self._workspace, self._path, os.O_RDONLY | os.O_DIRECTORY) as top:
            pending = [""]
            while pending:
                folder = pending.pop()
                inner: list[str] = []
                for name, is_folder in self._entries(top, folder):
                    path = f"{folder}{name}"
                    if not is_folder:
                        yield path
                    elif name not in SKIPPED_FOLDERS:
                        if path.count("/") >= MAX_DEPTH:
                            self.was_cut = True
                        else:
                            inner.append(path + "/")
                pending += reversed(inner)

    def _entries(self, top: int, folder: str) -> list[tuple[str, bool]]:
        """Return the sorted files and subfolders of a folder; none if the folder is gone or unreadable."""
        found: list[tuple[str, bool]] = []
        try:
            opened = fs.open_beneath(top, folder.rstrip("/") or ".", fs.READ_DIRECTORY)
        except (OSError, fs.OutsideDirectory):
            return found
        with fs.closing(opened), os.scandir(opened) as entries:
            for entry in entries:
                self._visited += 1
                if self._visited > MAX_VISITED or self._is_over():
                    self.was_cut = True
                    break
                if not _is_unicode(entry.name):
                    self.skipped_count += 1
                    continue
                with suppress(OSError):
                    mode = entry.stat(follow_symlinks=False).st_mode
                    if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
                        found.append((entry.name, stat.S_ISDIR(mode)))
        return sorted(found)


def glob(workspace: Workspace, args: Mapping[str, Any], stop: Event) -> Any:
    path = args.get("path", ".")
    regex = compile_pattern(glob_to_regex(args["pattern"]))
    walk = Walk(workspace, path, search_deadline(stop))
    paths: list[str] = []
    capacity = MAX_TEXT_LENGTH
    for relative in walk:
        if regex.fullmatch(os.fsencode(relative)) is None:
            continue
        full_path = join_path(path, relative)
        capacity -= len(full_path)
        if len(paths) == MAX_RESULTS or capacity < 0:
            walk.was_cut = True
            break
        paths.append(full_path)
    return {"paths": paths, "truncated": walk.was_cut, "files_skipped": walk.skipped_count}


def grep(workspace: Workspace, args: Mapping[str, Any], stop: Event) -> Any:
    path, limit = args.get("path", "."), args.get("limit", 100)
    regex = compile_pattern(args["pattern"], ignore_case=args.get("ignore_case", False), lines=True)
    names = None
    if glob_pattern := args.get("glob"):  # `*.py` matches in every folder, as users of Grep expect
        names = compile_pattern(glob_to_regex(glob_pattern if "/" in glob_pattern else f"**/{glob_pattern}"))
    is_over = search_deadline(stop)
    walk, skipped_count = Walk(workspace, path, is_over), 0
    matches: list[dict[str, Any]] = []
    readable, capacity = MAX_READ_BYTES, MAX_TEXT_LENGTH
    for relative in _single_file(workspace, path) or walk:
        if names is not None and names.fullmatch(os.fsencode(relative)) is None:
            continue
        content = _read_text(workspace, posixpath.join(path, relative) if relative else path)
        if content is None:
            skipped_count += 1
            continue
        readable -= len(content)
        for number, text in _matching_lines(regex, content, is_over):
            capacity -= len(text)
            if len(matches) == limit or capacity < 0:
                walk.was_cut = True
                break
            matches.append(
                {"path": join_path(path, relative) if relative else path, "line": number, "text": text}
            )
        if walk.was_cut or readable < 0 or is_over():
            walk.was_cut = True
            break
    return {
        "matches": matches,
        "truncated": walk.was_cut,
        "files_skipped": skipped_count + walk.skipped_count,
    }


def compile_pattern(expression: str, *, ignore_case: bool = False, lines: bool = False) -> "re2.Regexp":
    """Compile an RE2 expression. Raises `FileToolError` if it is invalid.

    With `lines`, the expression is for searching a text of many lines, and no match spans two lines.
    """
    if len(expression) > MAX_PATTERN_LENGTH:
        raise FileToolError(f"A pattern must have at most {MAX_PATTERN_LENGTH} characters.")
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.never_nl = lines
    options.never_capture = True
    try:
        return re2.compile(os.fsencode(f"(?m){expression}" if lines else expression), options)
    except (re2.error, UnicodeEncodeError) as problem:
        raise FileToolError(f"The pattern is not valid RE2 syntax: {_error_text(problem)}.") from None


def glob_to_regex(pattern: str) -> str:
    """Translate a glob to a regular expression for a whole relative path. Only `**` crosses folders."""
    if pattern.startswith("/"):
        raise FileToolError("A glob must be relative to `path`; remove the slash at its beginning.")
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
            choices = pattern[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            parts.append(f"[{'^/' + choices[1:] if choices[0] in '!^' else choices}]")
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


def join_path(path: str, relative: str) -> str:
    return posixpath.normpath(posixpath.join(path, relative))


def _is_unicode(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def _single_file(workspace: Workspace, path: str) -> list[str] | None:
    """Return one empty relative path if `path` is a regular file, otherwise None."""
    with open_path(workspace, path, os.O_RDONLY | os.O_NONBLOCK) as opened:
        return [""] if stat.S_ISREG(os.fstat(opened).st_mode) else None


def _read_text(workspace: Workspace, path: str) -> bytes | None:
    """Return the content of a text file, None if the file is too large, binary or unreadable."""
    try:
        with open_file(workspace, path) as file:
            beginning = file.read(SNIFFED_BYTES)
            content = beginning if is_binary(beginning) else beginning + file.read(MAX_FILE_BYTES + 1)
    except (OSError, fs.OutsideDirectory, NotRegularFile):
        return None
    return None if is_binary(beginning) or len(content) > MAX_FILE_BYTES else content


def _matching_lines(regex: "re2.Regexp", content: bytes, is_over: IsOver) -> Iterator[tuple[int, str]]:
    """Yield number and text of each matching line.

    Searches blocks of many lines at once, because most lines do not match.
    """
    at, number, counted = 0, 1, 0
    while at < len(content) and not is_over():
        end = _block_end(content, at)
        found = regex.search(content, at, end)
        # An empty match after the last line end is ignored: there is no line.
        if found is None or (found.start() == len(content) and content[-1] == _NEW_LINE):
            at = end if end == len(content) or content[end - 1] == _NEW_LINE else end - OVERLAP_BYTES
            continue
        first = content.rfind(b"\n", 0, found.start()) + 1
        last = content.find(b"\n", found.start())
        line = content[first : last if last >= 0 else len(content)]
        number, counted = number + content.count(b"\n", counted, first), first
        yield number, _excerpt(line, found.start() - first)
        at = first + len(line) + 1


def _block_end(content: bytes, at: int) -> int:
    """Return the end of the next block: several whole lines, one long line, or a part of a longer line."""
    if at + BLOCK_BYTES >= len(content):
        return len(content)
    line_end = (
        content.rfind(b"\n", at, at + BLOCK_BYTES) + 1 or content.find(b"\n", at, at + MAX_BLOCK_BYTES) + 1
    )
    return line_end or min(at + MAX_BLOCK_BYTES, len(content))


def _excerpt(line: bytes, at: int) -> str:
    if len(line) <= MAX_LINE_LENGTH:
        return line.decode(errors="replace").rstrip("\r")
    start = max(0, at - EXCERPT_BYTES // 2)
    return f"… {line[start : start + EXCERPT_BYTES].decode(errors='replace')} …"


def _error_text(problem: Exception) -> str:
    text = problem.args[0] if problem.args else ""
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
