"""Every session's own folder: where it is, who is using it, and when it goes. SB-12

`ROOT/{user}/{session}`, each name readable and with a digest of the whole, so that no two share one and none leads elsewhere. Beside
a folder lies its lock: shared by whoever works in it, of this process or another, and touched by them; a clean-up takes it
alone, moves the folder aside and only then removes it. What is removed is never looked at through a link.
"""

import asyncio
import errno
import fcntl
import hashlib
import os
import re
import stat
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from easel.core.tool.context import ToolContext
from easel.errors import BadSettings, Unavailable
from easel.ids import UserId
from easel.sandbox.concurrency import see_through
from easel.sandbox.workspace import TEMPORARY, WORKSPACE, Root, Workspace

SLUG = 40  # characters of a name that are kept to be recognised
DIGEST = 32  # hexadecimal digits that make it unique
LOCK = ".lock"
ASIDE = ".removed"  # where folders go to be removed
TAKE_SECONDS = 10.0  # how long to wait for a clean-up to move a folder aside
TRY_SECONDS = 0.02
CLEAN_SECONDS = 300.0  # between two clean-ups
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
Count = Callable[[int], None]

log = structlog.get_logger("sandbox")


@dataclass(frozen=True, slots=True)
class Cleaned:
    removed: int
    failed: int


def folder_name(name: str) -> str:
    """One name in a path for any name at all, and another one for any other."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())[:SLUG].strip("-")
    return f"{slug}-{digest}" if slug else digest


class SessionFolders:
    """A workplace: whoever calls works in the folder of the session that it is called for."""

    def __init__(
        self,
        root: Path,
        *,
        owner: int | None = None,
        ttl_seconds: float = 0.0,
        network: bool = False,
        count_removed: Count = lambda _: None,
        count_failed: Count = lambda _: None,
    ) -> None:
        self.root = root.absolute()  # commands do not start where we stand
        self._owner = owner
        self._ttl = ttl_seconds
        self._network = network
        self._count_removed = count_removed
        self._count_failed = count_failed

    def check(self) -> None:
        """Whether folders can be made here; they are made when they are needed."""
        try:
            (self.root / ASIDE).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            raise BadSettings(
                problem=f"The sandbox folder {self.root} cannot be used ({problem.strerror}); set EASEL_SANDBOX_ROOT to another."
            ) from None

    def folder_of(self, user_id: UserId, session_key: str) -> Path:
        return self.root / folder_name(user_id) / folder_name(session_key)

    @asynccontextmanager
    async def enter(self, context: ToolContext | None) -> AsyncGenerator[Workspace]:
        if context is None:
            raise ValueError("a session's folder needs a session")
        folder = self.folder_of(context.user_id, context.session_key)
        locks: list[int] = []
        try:
            await see_through(asyncio.to_thread(lambda: locks.append(self._take(folder))))
            yield Workspace(
                (Root(WORKSPACE, folder),),
                context.session_key,
                temporary=f"{WORKSPACE}/{TEMPORARY}",
                owner=self._owner,
                network=self._network,
            )
        finally:
            for lock in locks:
                with suppress(OSError):
                    os.utime(lock)
                os.close(lock)  # and with it goes our share

    async def clean_forever(self) -> None:
        """A worker's duty."""
        while self._ttl:
            await asyncio.to_thread(self.clean)
            await asyncio.sleep(min(CLEAN_SECONDS, max(1.0, self._ttl / 4)))
        await asyncio.Event().wait()

    def clean(self, now: float | None = None) -> Cleaned:
        """Removes what nobody has used for its time to live, and what an earlier clean-up could not. SB-17"""
        now, removed, failed = time.time() if now is None else now, 0, 0
        for user in _folders(self.root):
            for lock in sorted(user.glob("*" + LOCK)):
                try:
                    removed += self._removed(lock.with_name(lock.name.removesuffix(LOCK)), now)
                except OSError as problem:
                    failed += 1
                    log.warning("sandbox.not_cleaned", folder=lock.name, problem=problem.strerror)
        for left in _folders(self.root / ASIDE, hidden=True):
            try:
                remove(left)
            except OSError as problem:
                failed += 1
                log.warning("sandbox.not_removed", folder=left.name, problem=problem.strerror)
        self._count_removed(removed)
        self._count_failed(failed)
        return Cleaned(removed, failed)

    def _take(self, folder: Path) -> int:
        """Our share of the lock of a folder that is there."""
        for made in (self.root, folder.parent):
            made.mkdir(mode=0o700, parents=True, exist_ok=True)
        until = time.monotonic() + TAKE_SECONDS
        while True:
            lock = os.open(str(folder) + LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if _is_at(lock, str(folder) + LOCK):  # else a clean-up removed it between our two steps
                    os.utime(lock)
                    self._make(folder)
                    return lock
            except BlockingIOError:
                if time.monotonic() > until:
                    os.close(lock)
                    raise Unavailable(what="The session's folder") from None
                time.sleep(TRY_SECONDS)
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)

    def _make(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        top = _unlocked(folder.name, os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY), close=True)
        try:
            if self._owner is not None and os.fstat(top).st_uid != self._owner:
                _give(top, self._owner)
            with suppress(FileExistsError):
                os.mkdir(TEMPORARY, 0o700, dir_fd=top)
                if self._owner is not None:
                    os.chown(TEMPORARY, self._owner, self._owner, dir_fd=top, follow_symlinks=False)
        finally:
            os.close(top)

    def _removed(self, folder: Path, now: float) -> bool:
        """Whether it was time. Nobody comes in while we hold the lock alone, and we hold it only to move the folder aside."""
        place = str(folder) + LOCK
        with _opened(place) as lock:
            if now - os.fstat(lock).st_mtime < self._ttl:
                return False
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False  # somebody works there
            if not _is_at(lock, place) or now - os.fstat(lock).st_mtime < self._ttl:
                return False
            aside = self.root / ASIDE / f"{folder.name}.{time.time_ns()}"
            aside.parent.mkdir(mode=0o700, exist_ok=True)
            with suppress(FileNotFoundError):
                folder.rename(aside)
            Path(place).unlink()
        remove(aside)
        return True


def remove(folder: Path) -> None:
    """A folder and all beneath it, however deep, whatever the permissions, and no link followed.

    Inner folders are moved up to the top before they are emptied, so that neither names nor descriptors grow with the depth.
    """
    if not folder.exists() and not folder.is_symlink():
        return
    top = _unlocked(folder.name, os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY), close=True)
    try:
        offloaded, ahead = 0, ["."]
        while ahead:
            at = ahead.pop()
            inner = os.dup(top) if at == "." else _unlocked(at, top)
            try:
                for name in os.listdir(inner):  # noqa: PTH208 - a descriptor
                    if not stat.S_ISDIR(os.stat(name, dir_fd=inner, follow_symlinks=False).st_mode):
                        os.unlink(name, dir_fd=inner)
                        continue
                    os.close(_unlocked(name, inner))
                    offloaded += 1
                    new = f".easel-moved-{time.time_ns()}-{offloaded}"
                    os.rename(name, new, src_dir_fd=inner, dst_dir_fd=top)
                    ahead.append(new)
            finally:
                os.close(inner)
            if at != ".":
                os.rmdir(at, dir_fd=top)
    finally:
        os.close(top)
    folder.rmdir()


def _unlocked(name: str, at: int, *, close: bool = False) -> int:
    """A folder, open, after we gave ourselves the right to."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
    except PermissionError:
        handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
        try:
            Path(f"/proc/self/fd/{handle}").chmod(0o700)
        finally:
            os.close(handle)
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
    finally:
        if close:
            os.close(at)
    os.fchmod(descriptor, 0o700)
    return descriptor


def _give(top: int, owner: int) -> None:
    """All that is in a folder to its owner, who was somebody else under another setting. However deep: one folder is open at a time."""
    here = os.open(".", _DIRECTORY, dir_fd=top)
    try:
        way = [
            (os.fstat(here), _give_entries(here, owner))
        ]  # from the top to where we are, each with what is still to be entered there
        while way:
            _, ahead = way[-1]
            if ahead:
                here = _entered(here, ahead.pop())
                way.append((os.fstat(here), _give_entries(here, owner)))
                continue
            way.pop()
            if way:
                here = _entered(here, "..")
                if not os.path.samestat(os.fstat(here), way[-1][0]):
                    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))  # moved meanwhile
    finally:
        os.close(here)
    os.fchown(top, owner, owner)


def _entered(folder: int, name: str) -> int:
    """Another folder, open in the place of this one."""
    entered = os.open(name, _DIRECTORY, dir_fd=folder)
    os.close(folder)
    return entered


def _give_entries(folder: int, owner: int) -> list[str]:
    """The folders among them. A file that has another name elsewhere is not the session's alone, and is left to whom it belongs."""
    inner: list[str] = []
    for name in os.listdir(folder):
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            inner.append(name)
        if stat.S_ISDIR(found.st_mode) or found.st_nlink == 1:
            os.chown(name, owner, owner, dir_fd=folder, follow_symlinks=False)
    return inner


def _folders(at: Path, *, hidden: bool = False) -> list[Path]:
    if not at.exists():
        return []
    with os.scandir(at) as entries:
        return sorted(
            Path(one.path)
            for one in entries
            if one.is_dir(follow_symlinks=False) and (hidden or not one.name.startswith("."))
        )


def _is_at(descriptor: int, path: str) -> bool:
    try:
        there = Path(path).lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


@contextmanager
def _opened(path: str) -> Generator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
