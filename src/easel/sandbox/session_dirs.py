"""The folder of each session: its path, its lock, and its removal after its time to live. SB-12

The path is `ROOT/{user}/{session}`. Both names contain a digest of the full name, so that no two sessions
share a folder. Each folder has a lock file next to it. A process that works in the folder holds a shared lock
and touches the lock file. A clean-up takes an exclusive lock, moves the folder to `.removed`, releases the
lock and deletes the folder there. Deletion follows no links.
"""

import asyncio
import errno
import fcntl
import hashlib
import os
import re
import stat
import subprocess
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import structlog

from easel import fs
from easel.core.tool.context import ToolContext
from easel.errors import BadSettings, Unavailable
from easel.ids import AccountId
from easel.sandbox.concurrency import finish_despite_cancel
from easel.sandbox.workspace import TEMPORARY, WORKSPACE, Root, Workspace

MAX_SLUG_LENGTH = 40
DIGEST_LENGTH = 32
LOCK_SUFFIX = ".lock"
REMOVED = ".removed"  # folders are moved here before they are removed
LOCK_TIMEOUT_SECONDS = 10.0  # maximum wait for a clean-up to move a folder aside
LOCK_RETRY_SECONDS = 0.02
CLEANUP_SECONDS = 300.0  # between two clean-ups
Count = Callable[[int], None]

log = structlog.get_logger("sandbox")


def folder_name(name: str) -> str:
    """Return a readable path component for a name; different names get different components."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_LENGTH]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())[:MAX_SLUG_LENGTH].strip("-")
    return f"{slug}-{digest}" if slug else digest


class SessionDirs:
    """Provides workspaces: a tool call works in the folder of its session."""

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
        self.root = root.absolute()  # commands start in another working directory
        self._owner = owner
        self._ttl_seconds = ttl_seconds
        self._network = network
        self._count_removed = count_removed
        self._count_failed = count_failed

    @property
    def cleanup_seconds(self) -> float:
        """The interval at which `clean_once` must be called."""
        return min(CLEANUP_SECONDS, max(1.0, self._ttl_seconds / 4)) if self._ttl_seconds else CLEANUP_SECONDS

    def check(self) -> None:
        """Raise `BadSettings` if folders cannot be created in the root."""
        try:
            (self.root / REMOVED).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            raise BadSettings(
                problem=f"The sandbox folder {self.root} cannot be used ({problem.strerror}); "
                "set EASEL_SANDBOX_ROOT to another folder."
            ) from None

    def folder_of(self, account_id: AccountId, session_key: str) -> Path:
        return self.root / folder_name(account_id) / folder_name(session_key)

    @asynccontextmanager
    async def enter(self, context: ToolContext | None) -> AsyncGenerator[Workspace]:
        """Create the session's folder if needed and lock it until the block ends."""
        if context is None:
            raise ValueError("a session's folder needs a session")
        folder = self.folder_of(context.account_id, context.session_key)
        locks: list[int] = []
        try:
            await finish_despite_cancel(asyncio.to_thread(lambda: locks.append(self._lock_shared(folder))))
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
                os.close(lock)  # releases the lock

    async def clean_once(self) -> None:
        """Run one clean-up in a thread. Does nothing if folders have no time to live."""
        if self._ttl_seconds:
            await asyncio.to_thread(self.clean)

    def clean(self, now: float | None = None) -> tuple[int, int]:
        """Remove the folders that were unused for their time to live. SB-17

        Returns how many were removed, and how many could not be. Also removes folders that an earlier call
        moved to `.removed` but could not remove.
        """
        now, removed, failed = time.time() if now is None else now, 0, 0
        for user in _subdirectories(self.root):
            for lock in sorted(user.glob("*" + LOCK_SUFFIX)):
                try:
                    removed += self._remove_expired(lock.with_name(lock.name.removesuffix(LOCK_SUFFIX)), now)
                except OSError as problem:
                    failed += 1
                    log.warning("sandbox.cleanup_failed", folder=lock.name, problem=problem.strerror)
        for leftover in _subdirectories(self.root / REMOVED, hidden=True):
            try:
                remove(leftover)
            except OSError as problem:
                failed += 1
                log.warning("sandbox.remove_failed", folder=leftover.name, problem=problem.strerror)
        self._count_removed(removed)
        self._count_failed(failed)
        return removed, failed

    def _lock_shared(self, folder: Path) -> int:
        """Take the shared lock of a folder and create the folder. Returns the descriptor of the lock."""
        for directory in (self.root, folder.parent):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = str(folder) + LOCK_SUFFIX
        deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
        while True:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if _is_at(lock, path):  # otherwise a clean-up has deleted this lock file
                    os.utime(lock)
                    self._create(folder)
                    return lock
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(lock)
                    raise Unavailable(what="The session's folder") from None
                time.sleep(LOCK_RETRY_SECONDS)
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)

    def _create(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        with fs.closing(_open_with_access(folder)) as top:
            if self._owner is not None and os.fstat(top).st_uid != self._owner:
                _change_owner(top, self._owner)
            with suppress(FileExistsError):
                os.mkdir(TEMPORARY, 0o700, dir_fd=top)
                if self._owner is not None:
                    os.chown(TEMPORARY, self._owner, self._owner, dir_fd=top, follow_symlinks=False)

    def _remove_expired(self, folder: Path, now: float) -> bool:
        """Remove a folder if it has expired. Returns whether it was removed.

        The exclusive lock is held only while the folder is moved to `.removed`.
        """
        path = str(folder) + LOCK_SUFFIX
        with fs.closing(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)) as lock:
            if now - os.fstat(lock).st_mtime < self._ttl_seconds:
                return False
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False  # in use
            if not _is_at(lock, path) or now - os.fstat(lock).st_mtime < self._ttl_seconds:
                return False
            aside = self.root / REMOVED / f"{folder.name}.{time.time_ns()}"
            aside.parent.mkdir(mode=0o700, exist_ok=True)
            with suppress(FileNotFoundError):
                folder.rename(aside)
            Path(path).unlink()
        remove(aside)
        return True


def remove(folder: Path) -> None:
    """Remove a folder with its content, of any depth and with any permissions. Follows no links.

    Python's own removal is recursive, and so ends at a depth that a command can exceed.
    """
    if folder.is_symlink() or not folder.exists():
        folder.unlink(missing_ok=True)
        return
    for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        done = subprocess.run(  # noqa: S603 - our own arguments
            [*command, "--", folder], stderr=subprocess.DEVNULL, check=False
        )
    if done.returncode:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(folder))


def _open_with_access(folder: Path) -> int:
    """Open a folder and set its permissions to 0700."""
    with fs.closing(os.open(folder.parent, fs.READ_DIRECTORY)) as parent:
        try:
            descriptor = fs.open_entry(parent, folder.name, fs.READ_DIRECTORY)
        except PermissionError:
            with fs.closing(fs.open_entry(parent, folder.name, fs.ENTER_DIRECTORY)) as handle:
                Path(f"/proc/self/fd/{handle}").chmod(0o700)
            descriptor = fs.open_entry(parent, folder.name, fs.READ_DIRECTORY)
    os.fchmod(descriptor, 0o700)
    return descriptor


def _change_owner(top: int, owner: int) -> None:
    """Change the owner of a folder and its content, of any depth, with one open descriptor at a time."""
    current = fs.open_entry(top, ".", fs.READ_DIRECTORY)
    try:
        # The folders from the top to the current one, each with its subfolders that were not entered yet.
        stack = [(os.fstat(current), _change_owner_of_entries(current, owner))]
        while stack:
            _, pending = stack[-1]
            if pending:
                current = _move_to(current, pending.pop())
                stack.append((os.fstat(current), _change_owner_of_entries(current, owner)))
                continue
            stack.pop()
            if stack:
                current = _move_to(current, "..")
                if not os.path.samestat(os.fstat(current), stack[-1][0]):  # moved during the walk
                    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
    finally:
        os.close(current)
    os.fchown(top, owner, owner)


def _move_to(directory: int, name: str) -> int:
    """Open a folder by its name or `..`, and close the current folder."""
    moved_to = os.open(name, fs.READ_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    os.close(directory)
    return moved_to


def _change_owner_of_entries(directory: int, owner: int) -> list[str]:
    """Change the owner of all entries except files with several hard links. Returns the subfolders."""
    inner: list[str] = []
    for name in os.listdir(directory):
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            inner.append(name)
        if stat.S_ISDIR(status.st_mode) or status.st_nlink == 1:
            os.chown(name, owner, owner, dir_fd=directory, follow_symlinks=False)
    return inner


def _subdirectories(folder: Path, *, hidden: bool = False) -> list[Path]:
    if not folder.exists():
        return []
    with os.scandir(folder) as entries:
        return sorted(
            Path(entry.path)
            for entry in entries
            if entry.is_dir(follow_symlinks=False) and (hidden or not entry.name.startswith("."))
        )


def _is_at(descriptor: int, path: str) -> bool:
    """Return whether the path still names the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), Path(path).lstat())
    except FileNotFoundError:
        return False
