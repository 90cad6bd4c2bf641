"""The guard of a throw-away Postgres: `postgres_guard.py FOLDER DATA_FOLDER`, with a pipe from the launcher
as its input.

Owns the clean-up after a killed launcher: the closed pipe shows that the launcher has ended, for whatever
reason, kill -9 included. The guard then stops that one server and removes its folder. Standard library only,
so that it starts quickly and stays small.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll until the condition holds. Returns whether it did in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        threading.Event().wait(0.01)
    return True


def command_of(pid: int) -> str:
    """Return the command line of a process, empty if it has ended."""
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    return subprocess.run(
        ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout


def postmaster_of(data_folder: Path) -> int | None:
    """Return the process that serves this data folder. Its command line is checked: an old pid file may name
    another process.
    """
    try:
        pid = int((data_folder / "postmaster.pid").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return pid if str(data_folder) in command_of(pid) else None


def remove(folder: Path) -> None:
    """Empty and remove a folder; a mount point stays, empty."""
    for _ in range(3):  # a process that is ending may still write a file
        for entry in folder.iterdir() if folder.is_dir() else ():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
        if not folder.exists() or not any(folder.iterdir()):
            return


def guard(folder: Path, data_folder: Path) -> None:
    """Wait until the launcher closes the pipe, then stop its server and remove its folder."""
    sys.stdin.buffer.read()
    if not folder.exists():
        return
    if pid := postmaster_of(data_folder):
        for end, seconds in ((signal.SIGQUIT, 10), (signal.SIGKILL, 10)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, end)
            if wait_until(lambda: not command_of(pid), seconds):
                break
    remove(data_folder)
    remove(folder)


if __name__ == "__main__":
    guard(Path(sys.argv[1]), Path(sys.argv[2]))
