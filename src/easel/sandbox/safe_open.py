"""Files beneath a root, opened so that nothing in it leads out of it: no link, no `..`, no matter who swaps what meanwhile. SB-19

The kernel walks the path (`openat2` with RESOLVE_BENEATH) and follows links as long as they stay inside. Where it cannot, we walk,
step by step, and follow none.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import IO
from uuid import uuid4
from weakref import WeakValueDictionary

from easel.sandbox.workspace import Outside, Workspace

_OPENAT2 = 437  # the same number on every machine
_NO_LINKS, _NO_MAGIC_LINKS, _BENEATH = 0x04, 0x02, 0x08
_RACES = 20  # how often a path is walked again that somebody moved under our feet
_OLD_KERNEL = {errno.ENOSYS, errno.EPERM, errno.E2BIG}
FOLDER = os.O_DIRECTORY | getattr(os, "O_PATH", 0)  # to open what is in it, not to read it
DRAFT = ".easel-draft-"
TURN_SECONDS = 10.0  # how long to wait for those who change the same file; longer only where a disk hangs
# What shows that a file is another one, or has been written to.
_TELLING = ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")

_turns: "WeakValueDictionary[tuple[int, int, str], Lock]" = (
    WeakValueDictionary()
)  # of those who are changing a file, or wait to
_turns_changing = Lock()


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


try:
    _syscall = ctypes.CDLL(None, use_errno=True).syscall
    _syscall.restype = ctypes.c_long
except (AttributeError, OSError, TypeError):  # not Linux
    _syscall = None


@contextmanager
def opened(place: Workspace, path: str, flags: int, *, follow: bool = True) -> Generator[int]:
    """Raises OSError, or `Outside` when the way leads out of the place."""
    root, way = place.find(path)
    top = os.open(root.folder, FOLDER)
    try:
        descriptor = open_beneath(top, way, flags, follow=follow)
    finally:
        os.close(top)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_file(place: Workspace, path: str) -> Generator[IO[bytes]]:
    """A regular file, to be read. A pipe in its place holds nobody up."""
    with opened(place, path, os.O_RDONLY | os.O_NONBLOCK) as descriptor:
        _regular(os.fstat(descriptor))
        with os.fdopen(os.dup(descriptor), "rb") as file:
            yield file


def replace(place: Workspace, path: str, content: bytes) -> None:
    """The file has this content, or what it had: never a part of it. Folders on the way are made."""
    with held(place, path, make=True) as spot:
        spot.put(content)


@contextmanager
def held(place: Workspace, path: str, *, make: bool = False) -> Generator["LockedPath"]:
    """A name in a folder, for one at a time in this process, by whatever way it is reached; `make`: and the folders on the way."""
    root, way = place.find(path)
    *folders, name = way.split("/")
    if name == ".":
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    top = os.open(root.folder, FOLDER)
    try:
        folder = (
            _made(top, folders, place.owner) if make else open_beneath(top, "/".join(folders) or ".", FOLDER)
        )
    finally:
        os.close(top)
    try:
        with _turn_at(folder, name):
            yield LockedPath(folder, name, place.owner)
    finally:
        os.close(folder)


@dataclass(frozen=True, slots=True)
class LockedPath:
    folder: int
    name: str
    owner: int | None

    def put(self, content: bytes, instead_of: os.stat_result | None = None) -> None:
        """Raises `Changed` where another file is there, or the same with other content, than the one that was to be replaced."""
        there = _there(self.name, self.folder)
        mode = stat.S_IMODE(there.st_mode) & 0o777 if there else 0o644
        draft = DRAFT + uuid4().hex
        descriptor = os.open(
            draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=self.folder
        )
        try:
            with os.fdopen(descriptor, "wb") as file:
                if self.owner is not None:
                    os.fchown(descriptor, self.owner, self.owner)
                elif there is not None and there.st_uid != os.geteuid():
                    os.fchown(
                        descriptor, there.st_uid, there.st_gid
                    )  # a node that is root leaves files to whom they belong
                os.fchmod(descriptor, mode)
                file.write(content)
            # Commands and other programs take no turns: all we can do is to look at the last moment.
            if instead_of is not None and not _is_as_it_was(instead_of, _there(self.name, self.folder)):
                raise Changed
            os.rename(draft, self.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft, dir_fd=self.folder)
            raise


@contextmanager
def _turn_at(folder: int, name: str) -> Generator[None]:
    found = os.fstat(folder)
    with _turns_changing:
        turn = _turns.setdefault((found.st_dev, found.st_ino, name), Lock())
    if not turn.acquire(timeout=TURN_SECONDS):
        raise OSError(errno.EBUSY, "others are changing it, and have not come to an end")
    try:
        yield
    finally:
        turn.release()


def open_beneath(top: int, way: str, flags: int, *, follow: bool = True) -> int:
    flags |= os.O_CLOEXEC
    if _syscall is None:
        return _walked(top, way, flags)
    how = _How(flags, 0, _BENEATH | _NO_MAGIC_LINKS | (0 if follow else _NO_LINKS))
    for _ in range(_RACES):
        found = _syscall(_OPENAT2, top, os.fsencode(way), ctypes.byref(how), ctypes.sizeof(how))
        if found >= 0:
            return found
        problem = ctypes.get_errno()
        if problem == errno.EXDEV:
            raise Outside
        if problem in _OLD_KERNEL:
            return _walked(top, way, flags)
        if problem != errno.EAGAIN:
            raise OSError(problem, os.strerror(problem))
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _walked(top: int, way: str, flags: int) -> int:
    """Every step is opened without following links. `way` has no `..` in it: `Place.find` has seen to that."""
    *folders, name = way.split("/")
    at = os.dup(top)
    try:
        for folder in folders:
            deeper = _step(at, folder, FOLDER)
            os.close(at)
            at = deeper
        return _step(at, name, flags)
    finally:
        os.close(at)


def _step(at: int, name: str, flags: int) -> int:
    if name != "." and stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
        raise Outside
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)


def _made(top: int, folders: Sequence[str], owner: int | None) -> int:
    """The innermost folder, open; those that were not there are made."""
    for depth, name in enumerate(folders):
        with suppress(FileNotFoundError):
            os.close(open_beneath(top, "/".join(folders[: depth + 1]), FOLDER))
            continue
        parent = open_beneath(top, "/".join(folders[:depth]) or ".", FOLDER)
        try:
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=parent)
                if owner is not None:
                    os.chown(name, owner, owner, dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(parent)
    return open_beneath(top, "/".join(folders) or ".", FOLDER)


def _there(name: str, folder: int) -> os.stat_result | None:
    """The file that is replaced, if there is one."""
    try:
        return _regular(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _is_as_it_was(before: os.stat_result, now: os.stat_result | None) -> bool:
    return now is not None and all(getattr(before, field) == getattr(now, field) for field in _TELLING)


def _regular(found: os.stat_result) -> os.stat_result:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise NotAFile
    return found


class Changed(Exception):
    """A file is not what it was when it was read."""


class NotAFile(Exception):
    """A link, a pipe or a device stands where a file is expected."""
