"""Open files of a workspace so that no link and no `..` leads out of the workspace. SB-19

This holds even if a command changes the path at the same time. Owns the locks between edits in this process,
and the check that a file is unchanged before it is replaced. `easel.fs` implements the path walk and the
atomic write.
"""

import errno
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import IO
from weakref import WeakValueDictionary

from easel import fs
from easel.sandbox.workspace import Workspace

LOCK_SECONDS = 10.0  # maximum wait for another edit of the same file
# If one of these fields differs, the file was replaced or written to.
_IDENTITY_FIELDS = ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")

# One lock per device, directory and file name; it exists while an edit holds it or waits for it.
_locks: "WeakValueDictionary[tuple[int, int, str], Lock]" = WeakValueDictionary()
_locks_guard = Lock()


class FileChanged(Exception):
    """A file was changed after it was read."""


class NotRegularFile(Exception):
    """The path names a link, a pipe or a device instead of a regular file."""


@contextmanager
def open_path(workspace: Workspace, path: str, flags: int) -> Generator[int]:
    """Open a path of the workspace. Raises OSError, or `OutsideDirectory` if it leaves the workspace."""
    root, relative = workspace.find(path)
    with fs.closing(os.open(root.folder, fs.ENTER_DIRECTORY)) as top:
        descriptor = fs.open_beneath(top, relative, flags, follow_symlinks=True)
    with fs.closing(descriptor):
        yield descriptor


@contextmanager
def open_file(workspace: Workspace, path: str) -> Generator[IO[bytes]]:
    """Open a regular file for reading. Raises `NotRegularFile` for a pipe or device, without blocking."""
    with open_path(workspace, path, os.O_RDONLY | os.O_NONBLOCK) as descriptor:
        _check_regular(os.fstat(descriptor))
        with os.fdopen(os.dup(descriptor), "rb") as file:
            yield file


def replace_file(workspace: Workspace, path: str, content: bytes) -> None:
    """Write a file atomically; missing parent directories are created."""
    with lock_path(workspace, path, create=True) as locked:
        locked.write(content)


@contextmanager
def lock_path(workspace: Workspace, path: str, *, create: bool = False) -> Generator["LockedPath"]:
    """Lock a file against other edits, even by another path to it. `create` makes missing directories."""
    root, relative = workspace.find(path)
    *parents, name = relative.split("/")
    if name == ".":
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    with fs.closing(os.open(root.folder, fs.ENTER_DIRECTORY)) as top:
        if create:
            _create_directories(top, parents, workspace.owner)
        directory = _open_directory(top, parents)
    with fs.closing(directory), _lock(directory, name):
        yield LockedPath(directory, name, workspace.owner)


@dataclass(frozen=True, slots=True)
class LockedPath:
    """A name in an open directory, locked against the other edits of this process."""

    directory: int
    name: str
    owner: int | None

    def write(self, content: bytes, *, expected: os.stat_result | None = None) -> None:
        """Replace the file atomically. Raises `FileChanged` if its status differs from `expected`."""
        existing = _stat_file(self.name, self.directory)
        mode = stat.S_IMODE(existing.st_mode) & 0o777 if existing else 0o644
        with fs.write_atomically(self.directory, self.name, mode=mode, sync=False) as file:
            if self.owner is not None:
                os.fchown(file.fileno(), self.owner, self.owner)
            elif existing is not None and existing.st_uid != os.geteuid():
                # A node that runs as root must not change the owner of a file.
                os.fchown(file.fileno(), existing.st_uid, existing.st_gid)
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            # Other programs take no lock, so their changes are detected by a check just before the rename.
            if expected is not None and not _is_unchanged(expected, _stat_file(self.name, self.directory)):
                raise FileChanged


@contextmanager
def _lock(directory: int, name: str) -> Generator[None]:
    identity = os.fstat(directory)
    with _locks_guard:
        lock = _locks.setdefault((identity.st_dev, identity.st_ino, name), Lock())
    if not lock.acquire(timeout=LOCK_SECONDS):
        raise OSError(errno.EBUSY, f"it is still being changed by other calls after {LOCK_SECONDS:g} s")
    try:
        yield
    finally:
        lock.release()


def _open_directory(top: int, names: Sequence[str]) -> int:
    return fs.open_beneath(top, "/".join(names) or ".", fs.ENTER_DIRECTORY, follow_symlinks=True)


def _create_directories(top: int, names: Sequence[str], owner: int | None) -> None:
    for depth, name in enumerate(names):
        with suppress(FileNotFoundError), fs.closing(_open_directory(top, names[: depth + 1])):
            continue
        with fs.closing(_open_directory(top, names[:depth])) as parent, suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=parent)
            if owner is not None:
                os.chown(name, owner, owner, dir_fd=parent, follow_symlinks=False)


def _stat_file(name: str, directory: int) -> os.stat_result | None:
    """Return the status of the regular file with this name, None if the name does not exist."""
    try:
        return _check_regular(os.stat(name, dir_fd=directory, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _is_unchanged(before: os.stat_result, now: os.stat_result | None) -> bool:
    return now is not None and all(
        getattr(before, field) == getattr(now, field) for field in _IDENTITY_FIELDS
    )


def _check_regular(status: os.stat_result) -> os.stat_result:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularFile
    return status
