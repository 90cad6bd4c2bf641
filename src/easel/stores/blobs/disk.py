"""Blobs as files under a folder.

Ensures that a file is durable before it gets its name, and that no path leads out of the folder. Keys and
sizes were validated by `store`.

obstore's local store is not used: it does not sync files, follows links out of its root, and replaces
existing files in streamed uploads.
"""

import asyncio
import errno
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from easel import fs
from easel.errors import BadInput, NotFound, Unavailable
from easel.stores.blobs.store import CHUNK_BYTES, MAX_PUT_ATTEMPTS, STAGING, await_to_end

P = ParamSpec("P")
T = TypeVar("T")

BLOCK_BYTES = 1024 * 1024  # of one write
# ENOTDIR and ELOOP: the path leads through a file or a link.
ABSENT_ERRORS = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}


def run_in_thread(work: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorate a method to run in a thread, so that the disk never blocks the event loop."""

    @wraps(work)
    async def in_thread(*args: P.args, **kwargs: P.kwargs) -> T:
        return await await_to_end(asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs)))

    return in_thread


@contextmanager
def disk_faults(key: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in ABSENT_ERRORS:
            raise NotFound(what="blob", id=key) from error
        raise Unavailable(what="The blob store") from error


def check_is_file(status: os.stat_result) -> os.stat_result:
    """Return the status of a regular file. Raises `NotADirectoryError` for a link, a folder or a pipe."""
    if not stat.S_ISREG(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return status


class Disk:
    """Files under a root. Every component of a path is opened without following links."""

    block = BLOCK_BYTES
    limit = None

    def __init__(self, root: Path) -> None:
        self._root = root
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(what="The blob store") from error

    async def put(self, key: str, source: AsyncGenerator[bytes, None]) -> int:
        draft = fs.FileDraft()
        try:
            await self._create(draft)
            async for block in source:
                await self._write(draft, block)
            return await self._publish(draft, key)
        finally:
            await self._discard(draft)

    async def read(self, key: str, start: int, end: int | None) -> AsyncIterator[bytes]:
        size = await self.size(key)
        if size is None:
            raise NotFound(what="blob", id=key)
        return self._chunks(key, start, size if end is None else min(end, size))

    async def _chunks(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        # The file is opened for each chunk, so that slow readers hold no descriptor.
        for at in range(start, end, CHUNK_BYTES):
            yield await self._read(key, at, min(CHUNK_BYTES, end - at))

    @run_in_thread
    def size(self, key: str) -> int | None:
        *path, name = key.split("/")
        with suppress(NotFound), disk_faults(key), self._folder(path) as folder:
            return check_is_file(os.stat(name, dir_fd=folder, follow_symlinks=False)).st_size
        return None

    @run_in_thread
    def delete(self, key: str) -> None:
        *path, name = key.split("/")
        with suppress(NotFound), disk_faults(key), self._folder(path) as folder:
            check_is_file(os.stat(name, dir_fd=folder, follow_symlinks=False))
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)
        with suppress(OSError):  # rmdir fails at the first folder that is not empty
            while path and path[0] != STAGING:
                *path, name = path
                with self._folder(path) as folder:
                    os.rmdir(name, dir_fd=folder)

    async def list(self, folder: str) -> AsyncIterator[str]:
        pending = [folder]
        while pending:
            folders, files = await self._entries(pending.pop())
            pending += folders
            for key in files:
                yield key

    @run_in_thread
    def sweep(self, before: datetime) -> int:
        count = 0
        with (
            suppress(NotFound),
            disk_faults(STAGING),
            self._folder([STAGING]) as staging,
            os.scandir(staging) as entries,
        ):
            for entry in entries:
                with suppress(FileNotFoundError):  # deleted by its writer or another sweep
                    if entry.stat(follow_symlinks=False).st_mtime < before.timestamp():
                        os.unlink(entry.name, dir_fd=staging)
                        count += 1
        return count

    @contextmanager
    def _folder(self, path: Sequence[str], *, make: bool = False) -> Generator[int]:
        """Open a folder under the root. With `make`, create missing folders durably."""
        try:
            root = os.open(self._root, fs.READ_DIRECTORY)  # the root itself may be a link
        except OSError as error:
            raise Unavailable(what="The blob store") from error
        with fs.closing(root):
            folder = fs.open_directories(root, path, create_mode=0o700 if make else None, sync=make)
        with fs.closing(folder):
            yield folder

    @run_in_thread
    def _create(self, draft: fs.FileDraft) -> None:
        with disk_faults(STAGING), self._folder([STAGING], make=True) as staging:
            draft.create(staging)

    @run_in_thread
    def _write(self, draft: fs.FileDraft, block: bytes) -> None:
        with disk_faults(STAGING):
            draft.write(block)

    @run_in_thread
    def _publish(self, draft: fs.FileDraft, key: str) -> int:
        """Give the draft its name, unless the name exists. Returns the size of the blob with that name."""
        *path, name = key.split("/")
        try:
            draft.sync()
            for _ in range(MAX_PUT_ATTEMPTS):
                # A concurrent delete may remove the folder just opened, if it is empty: then open it again.
                with (
                    suppress(FileNotFoundError),
                    self._folder([STAGING]) as staging,
                    self._folder(path, make=True) as folder,
                ):
                    with suppress(FileExistsError):
                        draft.publish(staging, folder, name, replace=False)
                    os.fsync(folder)
                    return check_is_file(os.stat(name, dir_fd=folder, follow_symlinks=False)).st_size
        except OSError as error:
            if error.errno in ABSENT_ERRORS:
                raise BadInput(
                    problem=f"The blob key {key} must not lead through a blob or a link, or end at a folder."
                ) from error
            raise Unavailable(what="The blob store") from error
        raise Unavailable(what="The blob store")

    @run_in_thread
    def _discard(self, draft: fs.FileDraft) -> None:
        if draft.descriptor >= 0:
            draft.close()
            # A sweep removes the draft if this fails.
            with suppress(OSError, Unavailable), self._folder([STAGING]) as staging:
                draft.discard(staging)

    @run_in_thread
    def _read(self, key: str, at: int, length: int) -> bytes:
        *path, name = key.split("/")
        with disk_faults(key), self._folder(path) as folder:
            # O_NONBLOCK: opening a pipe in place of a blob must not block.
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            try:
                check_is_file(os.fstat(file))
                return os.pread(file, length, at)
            finally:
                os.close(file)

    @run_in_thread
    def _entries(self, folder: str) -> tuple[Sequence[str], Sequence[str]]:
        path = folder.split("/") if folder else []
        with (
            suppress(NotFound),
            disk_faults(folder),
            self._folder(path) as opened,
            os.scandir(opened) as entries,
        ):
            keys = [("/".join([*path, entry.name]), entry) for entry in entries]
            folders = [key for key, entry in keys if entry.is_dir(follow_symlinks=False)]
            return folders, [key for key, entry in keys if entry.is_file(follow_symlinks=False)]
        return [], []
