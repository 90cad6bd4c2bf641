"""Blobs as objects in an S3-compatible bucket, stored with obstore.

Owns how an object is created without replacing an existing one, how an upload is aborted, and how failures
are reported. Keys were validated by `store`. obstore reads endpoint, region and credentials from `AWS_*`.

obstore is called in our own threads instead of through its coroutines. Those are completed by a thread of
obstore that still uses the interpreter afterwards, and aborts the process if the interpreter has exited
(measured: one exit in five after a `check`).
"""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from easel.errors import BadInput, NotFound, Unavailable
from easel.stores.blobs.store import CHUNK_BYTES, MAX_PUT_ATTEMPTS, STAGING, as_stream, await_to_end

if TYPE_CHECKING:
    from obstore import BytesStream, GetOptions, ListStream, ObjectMeta
    from obstore.store import ClientConfig, RetryConfig

    Pages = ListStream[Sequence[ObjectMeta]]

P = ParamSpec("P")
T = TypeVar("T")

MAX_CONCURRENT_REQUESTS = 16  # each request uses a thread

# A blob up to this size is uploaded in one request, a larger one in parts of this size, the minimum of S3.
PART_BYTES = 5 * 1024 * 1024
MAX_CONCURRENT_PARTS = 2  # bounds the memory of an upload
# A staged blob gets its name by a copy, and S3 copies at most 5 GiB in one request.
MAX_BLOB_BYTES = 5 * 1024**3

TIMES: "ClientConfig" = {
    "connect_timeout": timedelta(seconds=3),
    "read_timeout": timedelta(seconds=30),  # maximum time without data, such as during a part's upload
    "timeout": timedelta(hours=1),  # of a whole request; readers may be slow
}
# Few retries, so that an unreachable bucket is reported within seconds; the caller may retry.
RETRIES: "RetryConfig" = {"max_retries": 3, "retry_timeout": timedelta(seconds=10)}

LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@contextmanager
def bucket_faults(key: str) -> Generator[None]:
    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise Unavailable(what="The blob store, which refuses our credentials,") from error
    except (BaseError, OSError) as error:
        if "NoSuchBucket" in str(error):
            raise Unavailable(what="The blob store, which has no such bucket,") from error
        if isinstance(error, FileNotFoundError):
            raise NotFound(what="blob", id=key) from error
        raise Unavailable(what="The blob store") from error


class Feed:
    """Passes blocks from the event loop to the thread of an upload.

    `stop` makes the source fail, because obstore then aborts the upload. An upload that is not aborted leaves
    its parts in the bucket, unlisted but billed.
    """

    def __init__(self, first: bytes, second: bytes, rest: AsyncGenerator[bytes, None]) -> None:
        self.size = 0
        self.failure: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._ahead = [second, first]
        self._rest = rest
        self._pull: asyncio.Task[bytes] | None = None

    def __iter__(self) -> "Feed":
        return self

    def __next__(self) -> bytes:
        block = asyncio.run_coroutine_threadsafe(self._next(), self._loop).result()
        if not block:
            raise StopIteration
        return block

    async def _next(self) -> bytes:
        self._pull = asyncio.current_task()
        try:
            if self.failure is not None:
                raise self.failure
            block = self._ahead.pop() if self._ahead else await anext(self._rest, b"")
        except (Exception, asyncio.CancelledError) as error:
            self.failure = error
            raise
        self.size += len(block)
        return block

    def stop(self) -> None:
        self.failure = asyncio.CancelledError()
        if self._pull is not None:
            self._pull.cancel()


class Bucket:
    """Objects under a prefix.

    A small object is created by one conditional request. A large one is staged, and then copied to its key.
    """

    block = PART_BYTES
    limit = MAX_BLOB_BYTES

    def __init__(self, bucket: str, prefix: str | None) -> None:
        endpoints = (
            os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
        )
        try:
            endpoint = urlsplit(next(filter(None, endpoints), ""))
            # Plain HTTP is allowed for a local server, or by AWS_ALLOW_HTTP. obstore ignores that variable if
            # it gets `client_options`.
            allow_http = os.environ.get("AWS_ALLOW_HTTP", "").lower() in {"1", "true", "yes", "on"}
            self._s3 = S3Store(
                bucket,
                prefix=prefix,
                client_options={**TIMES, "allow_http": allow_http or endpoint.hostname in LOOPBACK},
                retry_config=RETRIES,
                copy_if_not_exists=os.environ.get("AWS_COPY_IF_NOT_EXISTS", "multipart"),
                disable_bulk_delete=True,  # some servers do not support it
            )
        except (BaseError, ValueError) as error:
            raise BadInput(
                problem=f"The AWS_* variables must describe a bucket: {str(error).partition(chr(10))[0]}"
            ) from error
        self._threads = ThreadPoolExecutor(MAX_CONCURRENT_REQUESTS, "blobs")

    async def _request(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *args, **kwargs))

    async def put(self, key: str, source: AsyncGenerator[bytes, None]) -> int:
        first = await anext(source, b"")
        second = await anext(source, b"")
        if not second:
            return await self._create(key, len(first), partial(self._s3.put, key, first, mode="create"))
        feed, staged = Feed(first, second, source), f"{STAGING}/{uuid4().hex}"
        try:
            await self._upload(staged, feed)
            return await self._create(key, feed.size, partial(self._s3.copy, staged, key, overwrite=False))
        finally:
            with suppress(Unavailable):  # a sweep deletes the staged object later
                await self.delete(staged)

    async def _create(self, key: str, size: int, create: Callable[[], object]) -> int:
        for _ in range(MAX_PUT_ATTEMPTS):
            with bucket_faults(key), suppress(AlreadyExistsError):
                await self._request(create)
                return size
            present = await self.size(key)
            if present is not None:  # None: deleted since the failed create
                return present
        raise Unavailable(what="The blob store")

    async def _upload(self, staged: str, feed: Feed) -> None:
        upload = partial(
            self._s3.put,
            staged,
            feed,
            use_multipart=True,
            chunk_size=PART_BYTES,
            max_concurrency=MAX_CONCURRENT_PARTS,
        )
        # A separate thread, because it also waits for the source: a slow one must not delay other requests.
        thread = ThreadPoolExecutor(1, "blob-upload")
        try:
            with bucket_faults(staged):
                await await_to_end(asyncio.get_running_loop().run_in_executor(thread, upload), feed.stop)
        except Exception:
            if feed.failure is not None:
                raise feed.failure from None
            raise
        finally:
            thread.shutdown(wait=False)

    async def read(self, key: str, start: int, end: int | None) -> AsyncIterator[bytes]:
        options: GetOptions = {}
        if start or end is not None:  # S3 rejects a range outside of the object
            size = await self.size(key)
            if size is None:
                raise NotFound(what="blob", id=key)
            end = size if end is None else min(end, size)
            if start >= end:
                return as_stream(b"")
            options = {"range": (start, end)}
        with bucket_faults(key):
            found = await self._request(self._s3.get, key, options=options)
        return self._chunks(key, found.stream(min_chunk_size=CHUNK_BYTES))

    async def _chunks(self, key: str, stream: "BytesStream") -> AsyncIterator[bytes]:
        while True:
            with bucket_faults(key):
                piece = await self._request(next, stream, None)
            if piece is None:
                return
            for start in range(0, len(piece), CHUNK_BYTES):
                yield bytes(piece[start : start + CHUNK_BYTES])

    async def size(self, key: str) -> int | None:
        with suppress(NotFound), bucket_faults(key):
            return (await self._request(self._s3.head, key))["size"]
        return None

    async def delete(self, key: str) -> None:
        with suppress(NotFound), bucket_faults(key):
            await self._request(self._s3.delete, key)

    async def list(self, folder: str) -> AsyncIterator[str]:
        async for found in self._objects(folder):
            yield found["path"]

    async def sweep(self, before: datetime) -> int:
        old = [found["path"] async for found in self._objects(STAGING) if found["last_modified"] < before]
        for key in old:
            await self.delete(key)
        return len(old)

    async def _objects(self, folder: str) -> AsyncIterator["ObjectMeta"]:
        # The type of the other overload of `list` is unknown without Arrow.
        pages: Pages = self._s3.list(folder or None)  # pyright: ignore[reportUnknownMemberType]
        while True:
            with bucket_faults(folder):
                page = await self._request(next, pages, None)
            if page is None:
                return
            for found in page:
                yield found
