"""Blobs: bytes kept beside the log, in a folder on disk or in an S3-compatible bucket.

Owns the contract: which keys there are, what a put promises, how a blob is checked and swept. Knows nothing of what the
bytes mean, who may read them or which rows refer to them; where they lie is for `blob_disk` and `blob_bucket` to know.

A blob is written aside first and then given its name in one step that never replaces: a crash leaves a nameless
leftover, not half a blob.
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

ASIDE = ".aside"  # where blobs wait for their name; no key begins with it
STALE = timedelta(hours=1)  # what waits there untouched for so long belongs to a process that died
RACES = 100  # how often a put begins again because deletes keep undoing what it stands on

KEY_BYTES = 1024  # what S3 allows for a key
SEGMENT_BYTES = (
    255  # what file systems allow for a name; the same on S3, so that blobs can move between the two
)

CHUNK = 256 * 1024  # the most that a reader is handed at once


class BlobBackend(Protocol):
    """Where bytes lie. Keys come checked; the source of a put comes in blocks of `block` bytes, the last one apart."""

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
    """Bytes by key, written once. The same contract in every place."""

    def __init__(self, place: BlobBackend) -> None:
        self._place = place
        self._swept_at: float | None = None

    async def put(
        self, key: str, data: bytes | AsyncIterable[bytes], *, size_limit: int | None = None
    ) -> int:
        """Keep `data` under `key`, unless there is a blob already: that one stays. Returns the size of what is there."""
        limit = min((limit for limit in (size_limit, self._place.limit) if limit is not None), default=None)
        if isinstance(data, bytes) and limit is not None and len(data) > limit:
            raise TooLarge(what="The blob", limit=limit)
        present = await self._place.size(checked(key))
        if present is not None:
            return present
        if self._swept_at is None or time.monotonic() - self._swept_at > STALE.total_seconds():
            await self.sweep()
        async with aclosing(blocks(data, self._place.block, limit)) as source:
            return await self._place.put(key, source)

    async def get(self, key: str) -> bytes:
        return b"".join([chunk async for chunk in await self.read(key)])

    async def read(self, key: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bytes from `start` up to `end`, as a slice cuts them. A missing blob is refused before the first chunk."""
        if start < 0 or (end is not None and end < 0):
            raise BadInput(problem="A range of a blob starts and ends at 0 or later.")
        return await self._place.read(checked(key), start, end)

    async def size(self, key: str) -> int | None:
        return await self._place.size(checked(key))

    async def delete(self, key: str) -> None:
        await self._place.delete(checked(key))

    async def list(self, prefix: str = "") -> AsyncIterator[str]:
        """The keys below a folder, in no promised order: `a/b` lists `a/b/c`, but neither `a/b` nor `a/bc`."""
        folder = checked(prefix.removesuffix("/")) if prefix else ""
        async for key in self._place.list(folder):
            if is_key(key):  # else it waits aside, or someone else put it there
                yield key

    async def check(self) -> None:
        """Write, read back and delete a few bytes, in the way of any blob. Raises `Unavailable`."""
        key, sent = f"{ASIDE}/{uuid4().hex}", uuid4().bytes
        try:
            async with aclosing(blocks(sent, self._place.block, None)) as source:
                await self._place.put(key, source)
            found = [chunk async for chunk in await self._place.read(key, 0, None)]
            await self._place.delete(key)
        except NotFound as error:
            raise Unavailable(what="The blob store") from error
        if b"".join(found) != sent:
            raise Unavailable(what="The blob store")

    async def sweep(self) -> int:
        """Remove what dead processes left aside, and say how many. A put does this now and then."""
        self._swept_at = time.monotonic()
        return await self._place.sweep(datetime.now(UTC) - STALE)


def open_blobs(url: str) -> Blobs:
    """Blobs in a folder (`file:///…` or a plain path) or a bucket (`s3://bucket/prefix`; the rest is in `AWS_*`)."""
    # Imported here: a process pays only for the place that it uses, and obstore is the dear one.
    folder = folder_of(url)
    if folder is not None:
        from easel.stores.blobs.disk import Disk  # noqa: PLC0415

        return Blobs(Disk(folder))
    from easel.stores.blobs.bucket import Bucket  # noqa: PLC0415

    parts = urlsplit(url)
    prefix = unquote(parts.path).strip("/")
    return Blobs(Bucket(parts.hostname or "", checked(prefix) if prefix else None))


def folder_of(url: str) -> Path | None:
    """The folder that a place for blobs is; None: it is a bucket."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadInput(problem="The place for blobs is not a URL and not a path.") from error
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
                problem="Blobs are kept in a folder (/path or file:///path) or in a bucket (s3://bucket/prefix)."
            )


def checked(key: str) -> str:
    """The key itself, if it names one place only and that place is under the root."""
    try:
        segments = key.encode().split(b"/")
    except UnicodeEncodeError as error:
        raise BadInput(problem="A blob key is valid Unicode.") from error
    if len(key.encode()) > KEY_BYTES or max(map(len, segments)) > SEGMENT_BYTES:
        raise BadInput(
            problem=f"A blob key has at most {KEY_BYTES} bytes, and {SEGMENT_BYTES} between slashes."
        )
    if any(segment in {b"", b".", b".."} for segment in segments):
        raise BadInput(problem="A blob key is relative, without empty, `.` or `..` segments.")
    # S3 lists its keys in XML, which has no control characters and not the last two code points of the first plane.
    if any(sign == "\\" or sign < " " or "\x7f" <= sign <= "\x9f" or sign in "\ufffe\uffff" for sign in key):
        raise BadInput(problem="A blob key has no backslash and no control character.")
    if segments[0] == ASIDE.encode():
        raise BadInput(problem=f"A blob key does not begin with {ASIDE}.")
    return key


def is_key(text: str) -> bool:
    try:
        return checked(text) == text
    except BadInput:
        return False


async def blocks(
    data: bytes | AsyncIterable[bytes], size: int, limit: int | None
) -> AsyncGenerator[bytes, None]:
    """`data` in blocks of `size`, the last one apart. Refuses as soon as more than `limit` came in."""
    total, waiting = 0, bytearray()
    async for piece in as_stream(data):
        total += len(piece)
        if limit is not None and total > limit:
            raise TooLarge(what="The blob", limit=limit)
        for cut in range(0, len(piece), size):
            waiting += piece[cut : cut + size]
            if len(waiting) >= size:
                yield bytes(waiting[:size])
                del waiting[:size]
    if waiting:
        yield bytes(waiting)


async def as_stream(data: bytes | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if not isinstance(data, bytes):
        async for piece in data:
            yield piece
    elif data:
        yield data


async def settled(work: asyncio.Future[T], stop: Callable[[], object] = lambda: None) -> T:
    """The result of `work`. When cancelled, ask it to `stop` and wait for it: nobody tidies up under its feet."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop()
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # looked at, so that the loop does not report it as forgotten
        raise
