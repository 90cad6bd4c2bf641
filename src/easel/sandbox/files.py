"""The tools Read, Write and Edit: each works on one file of a workspace, within limits.

They block on the disk, so they must be called in threads. Text is UTF-8. Read shows invalid bytes as
replacement characters; Edit keeps the invalid bytes outside of the replaced text.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

from easel.sandbox.safe_open import FileChanged, lock_path, open_file, replace_file
from easel.sandbox.workspace import Workspace

MAX_LINES = 2_000
MAX_TEXT_LENGTH = 100_000  # characters of one Read result
MAX_LINE_LENGTH = 2_000  # characters; a longer line is cut and marked
MAX_SKIPPED_BYTES = 64 * 1024 * 1024  # before the first returned line, and of the cut part of a line
SKIP_BLOCK_BYTES = 64 * 1024
MAX_EDITED_BYTES = 10 * 1024 * 1024  # size of a file, both before and after an edit
MAX_EDIT_ATTEMPTS = 10  # at a file that another program changes at the same time
SNIFFED_BYTES = 8_192  # read from the start of a file to detect binary files


class FileToolError(Exception):
    """A tool call failed; the message gives the reason and a remedy."""


def read(workspace: Workspace, args: Mapping[str, Any]) -> Any:
    first, limit = args.get("offset", 1), args.get("limit", MAX_LINES)
    with open_file(workspace, args["path"]) as file:
        if is_binary(file.read(SNIFFED_BYTES)):
            raise FileToolError(f"{args['path']} is not a text file.")
        file.seek(0)
        _skip_lines(file, first - 1)
        lines: list[str] = []
        capacity, more = MAX_TEXT_LENGTH, False
        while line := next_line(file):
            if len(lines) == limit or len(line) > capacity:
                more = True
                break
            lines.append(line)
            capacity -= len(line)
    return {
        "path": args["path"],
        "text": "".join(lines),
        "first_line": first,
        "lines": len(lines),
        "more": more,
    }


def write(workspace: Workspace, args: Mapping[str, Any]) -> Any:
    content = _encode(args["content"])
    replace_file(workspace, args["path"], content)
    return {"path": args["path"], "bytes": len(content)}


def edit(workspace: Workspace, args: Mapping[str, Any]) -> Any:
    path, old, new = args["path"], _encode(args["old_string"]), _encode(args["new_string"])
    if old == new:
        raise FileToolError("old_string and new_string must differ.")
    for _ in range(MAX_EDIT_ATTEMPTS):
        with lock_path(workspace, path) as locked:
            with open_file(workspace, path) as file:
                status = os.fstat(file.fileno())
                content = file.read(MAX_EDITED_BYTES + 1)
            count = _count_replacements(path, content, old, new, replace_all=args.get("replace_all", False))
            with suppress(FileChanged):
                locked.write(content.replace(old, new), expected=status)
                return {"path": path, "replacements": count}
    raise FileToolError(
        f"{path} is being written by another program all the time; nothing was changed. "
        "Try again when that program has ended."
    )


def _count_replacements(path: str, content: bytes, old: bytes, new: bytes, *, replace_all: bool) -> int:
    """Return how many replacements an edit makes. Raises `FileToolError` if the edit is not allowed."""
    if len(content) > MAX_EDITED_BYTES:
        raise FileToolError(f"{path} is larger than {MAX_EDITED_BYTES} bytes.")
    count = content.count(old)
    if count == 0:
        raise FileToolError(
            f"old_string is not in {path}; read the file again, and compare white space and line ends."
        )
    # `bytes.count` does not count overlapping occurrences, so a second one is searched for.
    if not replace_all and content.find(old, content.find(old) + 1) >= 0:
        times = f"{count} times" if count > 1 else "more than once, overlapping itself"
        raise FileToolError(
            f"old_string is in {path} {times}; include more of the text around it, or set replace_all."
        )
    if len(content) + count * (len(new) - len(old)) > MAX_EDITED_BYTES:
        raise FileToolError(f"{path} would be larger than {MAX_EDITED_BYTES} bytes.")
    return count


def is_binary(beginning: bytes) -> bool:
    return b"\0" in beginning


def next_line(file: IO[bytes]) -> str:
    """Return the next line with its line end; a long line is cut. Returns "" at the end of the file."""
    line = file.readline(4 * MAX_LINE_LENGTH)
    is_complete, left_out = line.endswith(b"\n"), 0
    while line and not is_complete and (more := file.readline(1024 * 1024)):
        left_out += len(more)
        is_complete = more.endswith(b"\n")
        if left_out > MAX_SKIPPED_BYTES:
            raise FileToolError("The file has a line of more than 64 MB; use Bash to read a part of it.")
    text = line.decode(errors="replace")
    if left_out or len(text) > MAX_LINE_LENGTH + 1:
        cut = len(line) + left_out - len(text[:MAX_LINE_LENGTH].encode())
        return f"{text[:MAX_LINE_LENGTH]}… [{cut} bytes left out]\n"
    return text


def _skip_lines(file: IO[bytes], lines: int) -> None:
    """Skip this many lines. Counts line ends per block: a file may have millions of lines."""
    start = 0
    while lines and (block := file.read(SKIP_BLOCK_BYTES)):
        count = block.count(b"\n")
        if count >= lines:
            end = -1
            for _ in range(lines):
                end = block.index(b"\n", end + 1)
            file.seek(start + end + 1)
            return
        lines -= count
        start += len(block)
        if start > MAX_SKIPPED_BYTES:
            raise FileToolError(
                "The line starts after more than 64 MB of the file; use Bash to read a part of it."
            )


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise FileToolError("The text must be valid Unicode; it has a lone surrogate.") from None
