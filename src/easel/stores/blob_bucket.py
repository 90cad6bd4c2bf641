"""Blobs as objects in an S3-compatible bucket, by obstore.

Owns how an object comes to be without replacing one, how an upload is withdrawn and what a lost bucket looks like. Knows
no key rules: `blobs` has checked them. Endpoint, region and credentials are obstore's to read from `AWS_*`.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from easel.errors import BadInput, NotFound, Unavailable
from easel.stores.blobs import ASIDE, CHUNK, RACES, as_stream, settled

if TYPE_CHECKING:
    from obstore import BytesStream, GetOptions, ListStream, ObjectMeta
    from obstore.store import ClientConfig, RetryConfig

PART = 5 * 1024 * 1024  # a blob up to this size goes up in one request, a larger one in parts; the least that S3 allows
PARTS_AT_ONCE = 2  # so an upload holds a few parts in memory, however large the blob
LARGEST = 5 * 1024**3  # what S3 copies in one request, which is how a large blob gets its name

TIMES: "ClientConfig" = {
    "connect_timeout": timedelta(seconds=3),
    "read_timeout": timedelta(seconds=30),  # of silence, such as while a part goes up
    "timeout": timedelta(hours=1),  # a slow reader is no fault
}
# A lost bucket is reported within seconds, and whoever asked may try again.
RETRIES: "RetryConfig" = {"max_retries": 3, "retry_timeout": timedelta(seconds=10)}

LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@contextmanager
def bucket_faults(key: str) -> Generator[None]:
    try:
        yield
    except (BaseError, OSError) as error:
        if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in str(error):
            raise NotFound(what="blob", id=key) from error
        raise Unavailable(what="The blob store") from error


class Feed:
    """Blocks on their way into an upload. obstore withdraws an upload whose source fails, so failing is how to stop one:
    cancelling would leave its parts in the bucket, unseen and paid for."""

    def __init__(self, first: bytes, second: bytes, rest: AsyncGenerator[bytes, None]) -> None:
        self.size = 0
        self.failure: BaseException | None = None
        self._ahead = [second, first]
        self._rest = rest
        self._pull: asyncio.Future[bytes] | None = None

    def __aiter__(self) -> "Feed":
        return self

    async def __anext__(self) -> bytes:
        self._pull = asyncio.ensure_future(self._next())
        if self.failure is not None:
            self._pull.cancel()
        try:
            block = await self._pull
        except (Exception, asyncio.CancelledError) as error:
            self.failure = error
            raise RuntimeError("the source of an upload failed") from error
        if not block:
            raise StopAsyncIteration
        self.size += len(block)
        return block

    async def _next(self) -> bytes:
        return self._ahead.pop() if self._ahead else await anext(self._rest, b"")

    def stop(self) -> None:
        self.failure = asyncio.CancelledError()
        if self._pull is not None:
            self._pull.cancel()


class Bucket:
    """Objects under a prefix of a bucket. A small one is created by one conditional request, a large one named by a copy."""

    block = PART
    limit = LARGEST

    def __init__(self, bucket: str, prefix: str | None) -> None:
        endpoints = (os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"))
        try:
            endpoint = urlsplit(next(filter(None, endpoints), ""))
            # Plain HTTP is for a server beside us. Elsewhere it must be asked for, and obstore does not look once it is given options.
            asked_for = os.environ.get("AWS_ALLOW_HTTP", "").lower() in {"1", "true", "yes", "on"}
            self._s3 = S3Store(
                bucket,
                prefix=prefix,
                client_options={**TIMES, "allow_http": asked_for or endpoint.hostname in LOOPBACK},
                retry_config=RETRIES,
                copy_if_not_exists=os.environ.get("AWS_COPY_IF_NOT_EXISTS", "multipart"),
                disable_bulk_delete=True,  # some compatible servers lack it, and we delete one by one
            )
        except (BaseError, ValueError) as error:
            raise BadInput(problem=f"The AWS_* variables do not describe a bucket: {str(error).partition(chr(10))[0]}") from error

    async def put(self, key: str, source: AsyncGenerator[bytes, None]) -> int:
        first = await anext(source, b"")
        second = await anext(source, b"")
        if not second:
            return await self._create(key, len(first), lambda: self._s3.put_async(key, first, mode="create"))
        feed, aside = Feed(first, second, source), f"{ASIDE}/{uuid4().hex}"
        try:
            await self._upload(aside, feed)
            return await self._create(key, feed.size, lambda: self._s3.copy_async(aside, key, overwrite=False))
        finally:
            with suppress(Unavailable):  # else a sweep will
                await self.delete(aside)

    async def _create(self, key: str, size: int, create: Callable[[], Awaitable[object]]) -> int:
        for _ in range(RACES):
            with bucket_faults(key), suppress(AlreadyExistsError):
                await create()
                return size
            present = await self.size(key)
            if present is not None:  # else it has just been deleted
                return present
        raise Unavailable(what="The blob store")

    async def _upload(self, aside: str, feed: Feed) -> None:
        upload = self._s3.put_async(aside, feed, use_multipart=True, chunk_size=PART, max_concurrency=PARTS_AT_ONCE)
        try:
            with bucket_faults(aside):
                await settled(asyncio.ensure_future(upload), feed.stop)
        except (RuntimeError, NotFound, Unavailable):
            if feed.failure is not None:
                raise feed.failure from None
            raise

    async def read(self, key: str, start: int, end: int | None) -> AsyncIterator[bytes]:
        options: GetOptions = {}
        if start or end is not None:  # S3 refuses a range outside the object, so cut it first
            size = await self.size(key)
            if size is None:
                raise NotFound(what="blob", id=key)
            end = size if end is None else min(end, size)
            if start >= end:
                return as_stream(b"")
            options = {"range": (start, end)}
        with bucket_faults(key):
            found = await self._s3.get_async(key, options=options)
        return self._chunks(key, found.stream(min_chunk_size=CHUNK))

    async def _chunks(self, key: str, stream: "BytesStream") -> AsyncIterator[bytes]:
        while True:
            with bucket_faults(key):
                piece = await anext(stream, None)
            if piece is None:
                return
            for start in range(0, len(piece), CHUNK):
                yield bytes(piece[start : start + CHUNK])

    async def size(self, key: str) -> int | None:
        with suppress(NotFound), bucket_faults(key):
            return (await self._s3.head_async(key))["size"]
        return None

    async def delete(self, key: str) -> None:
        with suppress(NotFound), bucket_faults(key):
            await self._s3.delete_async(key)

    def _pages(self, folder: str) -> "ListStream[Sequence[ObjectMeta]]":
        return self._s3.list(folder or None)  # pyright: ignore[reportUnknownMemberType] - its other form needs Arrow

    async def list(self, folder: str) -> AsyncIterator[str]:
        pages = self._pages(folder)
        while True:
            with bucket_faults(folder):
                page = await anext(pages, None)
            if page is None:
                return
            for found in page:
                yield found["path"]

    async def sweep(self, before: datetime) -> int:
        with bucket_faults(ASIDE):
            old = [found["path"] async for page in self._pages(ASIDE) for found in page if found["last_modified"] < before]
        for key in old:
            await self.delete(key)
        return len(old)
