"""A disk that can be full and be freed again, small enough to fill in a moment.

A tmpfs of a few megabytes where this account may mount one. Elsewhere the same experience by other means: the programs
are no longer allowed to write (a limit on file sizes, set and lifted from outside), so that every write of theirs fails.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from typing import TYPE_CHECKING, Protocol

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CHUNK = 1024 * 1024
PAGE = resource.getpagesize()


class SmallDisk(Protocol):
    folder: Path

    def fill(self) -> None:
        """From now on nothing more fits."""
        ...

    def free(self) -> None: ...


class Tmpfs:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as ballast:
            size = CHUNK
            while size:
                try:
                    written = ballast.write(b"\0" * size)
                except OSError:
                    written = 0
                if not written:
                    size //= 2
        for log in self.folder.rglob(
            "*.log"
        ):  # the last page of a file has room that no longer counts as free
            with log.open("ab") as file:
                file.write(b"." * (-log.stat().st_size % PAGE))

    def free(self) -> None:
        self._ballast.unlink()


class Forbidden:
    """No disk of our own: whoever `writers` names (and their children) may write nothing more until freed."""

    def __init__(self, folder: Path, writers: Callable[[], list[int]]) -> None:
        self.folder = folder
        self._writers = writers

    def fill(self) -> None:
        self._allow(0)

    def free(self) -> None:
        self._allow(resource.RLIM_INFINITY)

    def _allow(self, size: int) -> None:
        for pid in self._writers():
            for one in (process := psutil.Process(pid), *process.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    _, hard = one.rlimit(resource.RLIMIT_FSIZE)
                    one.rlimit(resource.RLIMIT_FSIZE, (size, hard))


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int, writers: Callable[[], list[int]]) -> Iterator[SmallDisk]:
    """`writers` are the processes that use the disk, asked for when it is filled and freed."""
    folder.mkdir(parents=True)
    if not _mount(folder, megabytes):
        yield Forbidden(folder, writers)
        return
    try:
        yield Tmpfs(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _mount(folder: Path, megabytes: int) -> bool:
    options = f"size={megabytes}m,mode=0755,uid={os.geteuid()}"
    try:
        return (
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
                capture_output=True,
                check=False,
            ).returncode
            == 0
        )
    except OSError:
        return False
