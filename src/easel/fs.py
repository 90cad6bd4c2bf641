"""Safe paths and atomic writes under a directory that other programs can change.

Owns the resolution of paths that cannot leave a directory, and files that get their name when complete.
Uses the standard library only; does not know sandboxes, canvases or blobs.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import IO
from uuid import uuid4

READ_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
# Sufficient to open the entries of a directory, even without the permission to list them.
ENTER_DIRECTORY = os.O_DIRECTORY | getattr(os, "O_PATH", 0)
DRAFT_PREFIX = ".easel-draft-"

_OPENAT2 = 437  # system call number, the same on every architecture
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_MAX_RACES = 20  # attempts to resolve a path that is being renamed
_UNSUPPORTED = {errno.ENOSYS, errno.EPERM, errno.E2BIG}


class OutsideDirectory(Exception):
    """A path leads out of the directory that it must stay in."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


try:
    _syscall = ctypes.CDLL(None, use_errno=True).syscall
    _syscall.restype = ctypes.c_long
except (AttributeError, OSError, TypeError):  # not Linux
    _syscall = None


# --- paths --------------------------------------------------------------------------------------------------


@contextmanager
def closing(descriptor: int) -> Generator[int]:
    """Close the descriptor when the block ends."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_beneath(directory: int, path: str, flags: int, *, follow_symlinks: bool = False) -> int:
    """Open a path under a directory and return its descriptor.

    Links are followed only with `follow_symlinks`, and only as long as they stay inside. The kernel resolves
    the path (`openat2`); where it cannot, each name is opened in turn and no link is followed. Raises
    `OutsideDirectory` when the path leads out, OSError otherwise (ELOOP at a link that is not followed).
    """
    if _syscall is None:
        return _walk(directory, path, flags, follow_symlinks=follow_symlinks)
    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | (0 if follow_symlinks else _RESOLVE_NO_SYMLINKS)
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    for _ in range(_MAX_RACES):
        found = _syscall(_OPENAT2, directory, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if found >= 0:
            return found
        problem = ctypes.get_errno()
        if problem == errno.EXDEV:
            raise OutsideDirectory(path)
        if problem in _UNSUPPORTED:
            return _walk(directory, path, flags, follow_symlinks=follow_symlinks)
        if problem != errno.EAGAIN:
            raise OSError(problem, os.strerror(problem), path)
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)


def _walk(directory: int, path: str, flags: int, *, follow_symlinks: bool) -> int:
    *parents, name = path.split("/")
    try:
        with closing(open_directories(directory, parents, flags=ENTER_DIRECTORY)) as parent:
            return open_entry(parent, name, flags)
    except OSError as problem:
        if problem.errno == errno.ELOOP and follow_symlinks:
            raise OutsideDirectory(path) from None  # the link may stay inside, but `_walk` cannot verify that
        raise


def open_directories(
    directory: int,
    names: Iterable[str],
    *,
    flags: int = READ_DIRECTORY,
    create_mode: int | None = None,
    sync: bool = False,
) -> int:
    """Open the directory that these names lead to and return its descriptor.

    Opens one name after the other and follows no link. With `create_mode` missing directories are created;
    with `sync` each of them is durable before the next name is opened. The `filename` of an OSError is the
    name that could not be opened.
    """
    here = os.dup(directory)
    try:
        for name in names:
            if create_mode is not None:
                with suppress(FileExistsError):
                    os.mkdir(_checked_name(name), create_mode, dir_fd=here)
            if sync:
                os.fsync(here)
            below = open_entry(here, name, flags)
            os.close(here)
            here = below
    except BaseException:
        os.close(here)
        raise
    return here


def open_entry(directory: int, name: str, flags: int) -> int:
    """Open one entry of a directory. Raises OSError with ELOOP if it is a link."""
    try:
        return os.open(_checked_name(name), flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError as problem:
        # Systems report a link as ELOOP, EMLINK or, where a directory was expected, ENOTDIR.
        if problem.errno in (errno.EMLINK, errno.ENOTDIR) and _is_link(directory, name):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise


def _checked_name(name: str) -> str:
    if name == ".." or "/" in name:
        raise OutsideDirectory(name)
    return name


def _is_link(directory: int, name: str) -> bool:
    with suppress(OSError):
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    return False


# --- atomic writes ------------------------------------------------------------------------------------------


class FileDraft:
    """A new file with a temporary name. `publish` gives it the final name; `close` and `discard` clean up."""

    def __init__(self) -> None:
        self.name = DRAFT_PREFIX + uuid4().hex
        self.descriptor = -1

    def create(self, directory: int, mode: int = 0o600) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.descriptor = os.open(self.name, flags, mode, dir_fd=directory)

    def write(self, content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]

    def sync(self) -> None:
        os.fsync(self.descriptor)

    def publish(self, directory: int, target: int, name: str, *, replace: bool) -> None:
        """Give the draft in `directory` its final name in the directory `target`.

        Without `replace`, raises FileExistsError if the name exists.
        """
        if replace:
            os.rename(self.name, name, src_dir_fd=directory, dst_dir_fd=target)
        else:
            os.link(self.name, name, src_dir_fd=directory, dst_dir_fd=target, follow_symlinks=False)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def discard(self, directory: int) -> None:
        """Remove the temporary name, if it is still there."""
        with suppress(OSError):
            os.unlink(self.name, dir_fd=directory)


@contextmanager
def write_atomically(
    directory: int, name: str, *, mode: int = 0o600, replace: bool = True, sync: bool = True
) -> Generator[IO[bytes]]:
    """Yield a file that gets its name in the directory when the block ends, complete or not at all.

    An error in the block leaves the directory as it was. Without `replace` an existing file stays and
    FileExistsError is raised. With `sync` the content and the name are durable when the block has ended.
    """
    draft = FileDraft()
    draft.create(directory, mode)
    try:
        with os.fdopen(draft.descriptor, "wb", closefd=False) as file:
            yield file
        if sync:
            draft.sync()
        draft.publish(directory, directory, name, replace=replace)
        if sync:
            os.fsync(directory)
    finally:
        draft.close()
        draft.discard(directory)
