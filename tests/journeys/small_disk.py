"""A small disk that can be filled and freed.

A tmpfs of a few megabytes where this account may mount one. Elsewhere a limit on file sizes, set and removed
from outside, makes every write of the programs fail.
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
        """Fill the disk, so that nothing more fits."""
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
        ):  # the last page of a file has space that does not count as free
            with log.open("ab") as file:
                file.write(b"." * (-log.stat().st_size % PAGE))

    def free(self) -> None:
        self._ballast.unlink()


class Forbidden:
    """Without a disk of our own: the processes of `writers` and their children may write nothing
    until freed.
    """

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
    """Yield a disk. `writers` returns the processes that use it; it is called when the disk is filled and
    freed.
    """
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
