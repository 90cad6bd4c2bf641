"""Blobs: bytes stored outside of the database, in a folder on disk or in an S3-compatible bucket.

Owns the contract of all backends: valid keys, the guarantees of a put, the check of the store, and the sweep
of staged blobs. Does not know the meaning of the bytes, who may read them or which rows refer to them. `disk`
and `bucket` are the backends.

A blob is staged first and then gets its key in one atomic step that never replaces a blob: a crash leaves a
staged blob without a key, never an incomplete blob.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from easel.errors import BadInput, NotFound, TooLarge, Unavailable

T = TypeVar("T")

STAGING = ".aside"  # folder of staged blobs; no valid key begins with it
STALE = timedelta(hours=1)  # a staged blob of this age belongs to a process that crashed
MAX_PUT_ATTEMPTS = 100  # a concurrent delete may make an attempt fail

MAX_KEY_BYTES = 1024  # the limit of S3
# The limit of file systems, also applied to S3, so that blobs can be moved between the two.
MAX_SEGMENT_BYTES = 255

CHUNK_BYTES = 256 * 1024  # maximum size of a piece that a reader gets


class BlobBackend(Protocol):
    """Stores bytes by key. Keys are valid.

    The source of a put yields blocks of `block` bytes; the last one may be shorter. `limit` is the maximum
    size of a blob.
    """

    @property
    def block(self) -> int: ...
    @property
    def limit(self) -> int | None: ...

    def put(self, key: str, source: AsyncGenerator[bytes, None]) -> Awaitable[int]: ...
    def read(self, key: str, start: int, end: int | None) -> Awaitable[AsyncIterator[bytes]]: ...
    def size(self, key: str) -> Awaitable[int | None]: ...
    def delete(self, key: str) -> Awaitable[None]: ...
    def list(self, folder: str) -> AsyncIterator[str]: ...
    def sweep(self, before: datetime) -> Awaitable[int]: ...


class Blobs:
    """Bytes by key. A blob is written once and never changed. The contract is the same on every backend."""

    def __init__(self, backend: BlobBackend) -> None:
        self._backend = backend
        self._swept_at: float | None = None

    async def put(
        self, key: str, data: bytes | AsyncIterable[bytes], *, size_limit: int | None = None
    ) -> int:
        """Store `data` under `key`, unless the key exists. Returns the size of the stored blob."""
        limit = min((limit for limit in (size_limit, self._backend.limit) if limit is not None), default=None)
        if isinstance(data, bytes) and limit is not None and len(data) > limit:
            raise TooLarge(what="The blob", limit=limit)
        present = await self._backend.size(check_key(key))
        if present is not None:
            return present
        if self._swept_at is None or time.monotonic() - self._swept_at > STALE.total_seconds():
            await self.sweep()
        async with aclosing(blocks(data, self._backend.block, limit)) as source:
            return await self._backend.put(key, source)

    async def get(self, key: str) -> bytes:
        return b"".join([chunk async for chunk in await self.read(key)])

    async def read(self, key: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Return the bytes from `start` up to `end`, like a slice.

        Raises `NotFound` before the first chunk.
        """
        if start < 0 or (end is not None and end < 0):
            raise BadInput(problem="A range of a blob must start and end at 0 or later.")
        return await self._backend.read(check_key(key), start, end)

    async def size(self, key: str) -> int | None:
        return await self._backend.size(check_key(key))

    async def delete(self, key: str) -> None:
        await self._backend.delete(check_key(key))

    async def list(self, prefix: str = "") -> AsyncIterator[str]:
        """List the keys below a folder, in any order: `a/b` lists `a/b/c`, but neither `a/b` nor `a/bc`."""
        folder = check_key(prefix.removesuffix("/")) if prefix else ""
        async for key in self._backend.list(folder):
            if is_key(key):  # skip staged blobs and foreign files
                yield key

    async def check(self) -> None:
        """Write, read and delete a small blob. Raises `Unavailable` if that fails."""
        key, sent = f"{STAGING}/{uuid4().hex}", uuid4().bytes
        try:
            async with aclosing(blocks(sent, self._backend.block, None)) as source:
                await self._backend.put(key, source)
            chunks = [chunk async for chunk in await self._backend.read(key, 0, None)]
            await self._backend.delete(key)
        except NotFound as error:
            raise Unavailable(what="The blob store") from error
        if b"".join(chunks) != sent:
            raise Unavailable(what="The blob store")

    async def sweep(self) -> int:
        """Delete the staged blobs of crashed processes. Returns how many. `put` calls it at most hourly."""
        self._swept_at = time.monotonic()
        return await self._backend.sweep(datetime.now(UTC) - STALE)


def open_blobs(url: str) -> Blobs:
    """Open blobs in a folder (a path or `file:///…`) or a bucket (`s3://bucket/prefix` and `AWS_*`)."""
    # Backends are imported here: obstore is slow to import, and not needed for a folder.
    folder = folder_of(url)
    if folder is not None:
        from easel.stores.blobs.disk import Disk  # noqa: PLC0415

        return Blobs(Disk(folder))
    from easel.stores.blobs.bucket import Bucket  # noqa: PLC0415

    parts = urlsplit(url)
    prefix = unquote(parts.path).strip("/")
    return Blobs(Bucket(parts.hostname or "", check_key(prefix) if prefix else None))


def folder_of(url: str) -> Path | None:
    """Return the folder that a blob URL names, None for a bucket. Raises `BadInput` for anything else."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadInput(problem="The location of blobs must be a URL or a path.") from error
    match parts.scheme if "://" in url else "folder" if url else "":
        case "folder":
            return Path(url).expanduser().absolute()
        case "file" if parts.netloc in {"", "localhost"} and not parts.query and not parts.fragment:
            return Path(unquote(parts.path))
        case "s3" if (
            parts.hostname and parts.hostname == parts.netloc and not parts.query and not parts.fragment
        ):
            return None
        case _:
            raise BadInput(
                problem="Blobs must be in a folder (/path or file:///path) or a bucket (s3://bucket/prefix)."
            )


def check_key(key: str) -> str:
    """Return the key. Raises `BadInput` if it is not valid on every backend."""
    try:
        segments = key.encode().split(b"/")
    except UnicodeEncodeError as error:
        raise BadInput(problem="A blob key must be valid Unicode.") from error
    if len(key.encode()) > MAX_KEY_BYTES or max(map(len, segments)) > MAX_SEGMENT_BYTES:
        raise BadInput(
            problem=f"A blob key must have at most {MAX_KEY_BYTES} bytes, "
            f"and at most {MAX_SEGMENT_BYTES} between slashes."
        )
    if any(segment in {b"", b".", b".."} for segment in segments):
        raise BadInput(problem="A blob key must be relative, without empty, `.` or `..` segments.")
    # S3 lists keys in XML, which cannot contain control characters, U+FFFE and U+FFFF.
    if any(
        character == "\\" or character < " " or "\x7f" <= character <= "\x9f" or character in "\ufffe\uffff"
        for character in key
    ):
        raise BadInput(problem="A blob key must not contain a backslash or a control character.")
    if segments[0] == STAGING.encode():
        raise BadInput(problem=f"A blob key must not begin with {STAGING}.")
    return key


def is_key(text: str) -> bool:
    try:
        return check_key(text) == text
    except BadInput:
        return False


async def blocks(
    data: bytes | AsyncIterable[bytes], size: int, limit: int | None
) -> AsyncGenerator[bytes, None]:
    """Yield `data` in blocks of `size` bytes; the last may be shorter. Raises `TooLarge` above `limit`."""
    total, pending = 0, bytearray()
    async for piece in as_stream(data):
        total += len(piece)
        if limit is not None and total > limit:
            raise TooLarge(what="The blob", limit=limit)
        for cut in range(0, len(piece), size):
            pending += piece[cut : cut + size]
            if len(pending) >= size:
                yield bytes(pending[:size])
                del pending[:size]
    if pending:
        yield bytes(pending)


async def as_stream(data: bytes | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if not isinstance(data, bytes):
        async for piece in data:
            yield piece
    elif data:
        yield data


async def await_to_end(work: asyncio.Future[T], stop: Callable[[], object] = lambda: None) -> T:
    """Return the result of `work`. When cancelled, call `stop`, wait until the work has ended, and raise."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop()
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # otherwise asyncio would log it as never retrieved
        raise
