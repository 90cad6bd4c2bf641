"""Read, Write and Edit: one file of a place, within bounds. They wait for a disk, so they are called in threads.

Text is UTF-8; what is not is shown with replacement and kept byte for byte by an edit elsewhere in the file.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

from easel.sandbox import safe_open as beneath
from easel.sandbox.workspace import Workspace

MAX_LINES = 2_000
MAX_TEXT_BYTES = 100_000  # characters of one answer
MAX_LINE_LENGTH = 2_000  # characters; what is longer is cut, with a mark
MAX_SCANNED = 64 * 1024 * 1024  # bytes that are passed over to get to a line
COUNTED_AT_ONCE = 64 * 1024  # bytes of those
MAX_EDITED_BYTES = 10 * 1024 * 1024  # bytes of a file that is edited
EDIT_TRIES = 10  # of a file that others write while it is edited
LOOKED_AT = 8_192  # bytes at the beginning that show whether it is text


class Refused(Exception):
    """What was asked cannot be done; the message says why, and what to do."""


def read(place: Workspace, args: Mapping[str, Any]) -> Any:
    first, most = args.get("offset", 1), args.get("limit", MAX_LINES)
    with beneath.opened_file(place, args["path"]) as file:
        if is_binary(file.read(LOOKED_AT)):
            raise Refused(f"{args['path']} is no text.")
        file.seek(0)
        _pass_over(file, first - 1)
        lines: list[str] = []
        room, more = MAX_TEXT_BYTES, False
        while line := next_line(file):
            if len(lines) == most or len(line) > room:
                more = True
                break
            lines.append(line)
            room -= len(line)
    return {
        "path": args["path"],
        "text": "".join(lines),
        "first_line": first,
        "lines": len(lines),
        "more": more,
    }


def write(place: Workspace, args: Mapping[str, Any]) -> Any:
    content = _encoded(args["content"])
    beneath.replace(place, args["path"], content)
    return {"path": args["path"], "bytes": len(content)}


def edit(place: Workspace, args: Mapping[str, Any]) -> Any:
    path, old, new = args["path"], _encoded(args["old_string"]), _encoded(args["new_string"])
    if old == new:
        raise Refused("old_string and new_string are the same.")
    for _ in range(EDIT_TRIES):
        with beneath.held(place, path) as spot:
            with beneath.opened_file(place, path) as file:
                seen = os.fstat(file.fileno())
                content = file.read(MAX_EDITED_BYTES + 1)
            count = _replaceable(path, content, old, new, everywhere=args.get("replace_all", False))
            with suppress(beneath.Changed):
                spot.put(content.replace(old, new), instead_of=seen)
                return {"path": path, "replacements": count}
    raise Refused(
        f"{path} is being written by something else all the time; nothing was changed. Let that come to its end first."
    )


def _replaceable(path: str, content: bytes, old: bytes, new: bytes, *, everywhere: bool) -> int:
    """How often it will be replaced."""
    if len(content) > MAX_EDITED_BYTES:
        raise Refused(f"{path} is larger than {MAX_EDITED_BYTES} bytes.")
    count = content.count(old)
    if count == 0:
        raise Refused(f"old_string is not in {path}; read it again, and mind blanks and line ends.")
    if (
        not everywhere and content.find(old, content.find(old) + 1) >= 0
    ):  # counted are those that do not overlap
        times = f"{count} times" if count > 1 else "more than once, overlapping itself"
        raise Refused(
            f"old_string is in {path} {times}; give more of what stands around it, or set replace_all."
        )
    if len(content) + count * (len(new) - len(old)) > MAX_EDITED_BYTES:
        raise Refused(f"{path} would be larger than {MAX_EDITED_BYTES} bytes.")
    return count


def is_binary(beginning: bytes) -> bool:
    return b"\0" in beginning


def next_line(file: IO[bytes]) -> str:
    """With its end; one that is too long is cut. Empty at the end of the file."""
    line = file.readline(4 * MAX_LINE_LENGTH)
    is_whole, left_out = line.endswith(b"\n"), 0
    while line and not is_whole and (more := file.readline(1024 * 1024)):
        left_out += len(more)
        is_whole = more.endswith(b"\n")
        if left_out > MAX_SCANNED:
            raise Refused("There is a line of more than 64 MB; use Bash to look at a part of it.")
    text = line.decode(errors="replace")
    if left_out or len(text) > MAX_LINE_LENGTH + 1:
        cut = len(line) + left_out - len(text[:MAX_LINE_LENGTH].encode())
        return f"{text[:MAX_LINE_LENGTH]}… [{cut} bytes left out]\n"
    return text


def _pass_over(file: IO[bytes], lines: int) -> None:
    """Counted, and not read one by one: a file may have millions of them."""
    begin = 0
    while lines and (part := file.read(COUNTED_AT_ONCE)):
        here = part.count(b"\n")
        if here >= lines:
            end = -1
            for _ in range(lines):
                end = part.index(b"\n", end + 1)
            file.seek(begin + end + 1)
            return
        lines -= here
        begin += len(part)
        if begin > MAX_SCANNED:
            raise Refused("That line is more than 64 MB into the file; use Bash to look at a part of it.")


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Refused("The text has half of a character (a lone surrogate) in it.") from None
