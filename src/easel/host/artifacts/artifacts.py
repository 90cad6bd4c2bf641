"""Artifacts: content that is too large for a log, stored once per user and returned exactly or not at all.

Owns the order in which rows and blobs are written and deleted. A row is written before its blob and deleted
before its blob, and no blob key is reused: a crash leaves at most a row or a blob without references, which a
later sweep deletes. Does not know databases.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

import structlog

from easel.core.artifact.artifact import FOLDER, START, Artifact, NewArtifact, blob_created_at, blob_key
from easel.core.artifact.media_type import BINARY, HEAD, media_type
from easel.core.principal import Principal
from easel.core.stream.envelope import MESSAGE_EVENTS
from easel.core.stream.message_text import Marker, artifacts_of, restore_references, with_markers_of
from easel.core.stream.payload_limit import OffloadedValue, markers_in, restore_markers
from easel.errors import BadInput, CorruptData, NotFound, TooLarge, Unavailable
from easel.host.metrics import ARTIFACTS_SWEPT
from easel.host.periodic import SweepProgress
from easel.host.ports import ArtifactAccess, ArtifactStore, BlobStore
from easel.host.usage import AccountBudget
from easel.ids import AccountId, ArtifactId, artifact_id, is_artifact_id, new_blob_name

MAX_UPLOAD_SECONDS = 1800.0
MAX_CONCURRENT_PUTS = 8
MAX_ATTEMPTS = 5
# Artifacts that are checked in one statement, and at most deleted in one transaction: on SQLite, other writes
# wait for that transaction.
SWEEP_BATCH_SIZE = 100

log = structlog.get_logger("artifacts")


class Artifacts:
    """Stores, reads and sweeps the artifacts of all users. Limits the number of concurrent puts."""

    def __init__(
        self,
        store: ArtifactStore,
        blobs: BlobStore,
        *,
        max_bytes: int,
        grace_seconds: float,
        budget: AccountBudget | None = None,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self.max_bytes = max_bytes
        self._budget = budget
        self._grace = grace_seconds
        # Shorter than the grace period, so that the row of an upload is not swept before the upload ends.
        self._max_upload_seconds = min(MAX_UPLOAD_SECONDS, grace_seconds / 2)
        self._puts = asyncio.Semaphore(MAX_CONCURRENT_PUTS)

    # -- storing ---------------------------------------------------------------------------------------------

    async def store(self, account_id: AccountId, offloaded: Sequence[OffloadedValue]) -> None:
        """Store offloaded values durably, equal content once. A log may refer to them after this call."""
        pending = {value.artifact_id: value for value in offloaded}
        for _ in range(MAX_ATTEMPTS):
            if not pending:
                return
            claimed = await self._store.claim(
                account_id, [_to_new_artifact(account_id, value) for value in pending.values()]
            )
            unstored = [artifact for artifact in claimed if not artifact.is_stored]
            await self._put([(row.blob_key, pending[row.artifact_id].content) for row in unstored])
            stored = {artifact.artifact_id for artifact in claimed if artifact.is_stored}
            if unstored:
                stored |= await self._store.mark_stored(account_id, unstored)
            pending = {name: value for name, value in pending.items() if name not in stored}
        if pending:  # a row was swept before its blob was stored, at every attempt
            raise Unavailable(what="The artifact store")

    async def _put(self, blobs: Sequence[tuple[str, bytes]]) -> None:
        async def put(key: str, content: bytes) -> None:
            async with self._puts:
                await self._blobs.put(key, content)

        # Wait for every put, so that none continues after an error was raised.
        for outcome in await asyncio.gather(
            *(put(key, content) for key, content in blobs), return_exceptions=True
        ):
            if outcome is not None:
                raise outcome

    async def upload(
        self, principal: Principal, source: AsyncIterable[bytes], declared_type: str = ""
    ) -> Artifact:
        """Store a stream without holding it in memory.

        Returns the existing artifact if the content is stored already. Raises `TooLarge` if the account has
        stored as much as it may store.
        """
        if self._budget is not None:
            await self._budget.check_storage(principal.account_id)
        name = new_blob_name()
        # The digest is known only after the upload. Until then the row has an id that `find` rejects.
        upload_id, key = ArtifactId(f"new_{name}"), blob_key(principal.account_id, name)
        incoming = _UploadReader(self.max_bytes)
        await self._store.claim(principal.account_id, [NewArtifact(upload_id, 0, BINARY, key)])
        artifact = None
        try:
            async with asyncio.timeout(self._max_upload_seconds):
                await self._blobs.put(key, incoming.read(source))
            new = NewArtifact(
                incoming.artifact_id, incoming.size, media_type(incoming.head, declared_type), key
            )
            artifact = await self._store.complete_upload(
                principal.account_id,
                upload_id,
                new,
                await self._corrupt_key(principal.account_id, new.artifact_id),
            )
        except TimeoutError:
            raise BadInput(
                problem=f"An upload must end within {self._max_upload_seconds:g} seconds."
            ) from None
        finally:
            if artifact is None:  # if only the reply was lost, the row has its final id and is not deleted
                with contextlib.suppress(Unavailable):
                    await self._store.withdraw(principal.account_id, upload_id)
        if artifact is None:  # the row was swept during the upload
            raise Unavailable(what="The artifact store")
        if artifact.blob_key != key:
            with contextlib.suppress(Unavailable):  # if the delete fails, a later sweep deletes the blob
                await self._blobs.delete(key)
        return replace(artifact, is_new=artifact.blob_key == key)

    async def _corrupt_key(self, account_id: AccountId, artifact_id: ArtifactId) -> str | None:
        """Return the artifact's blob key if the blob is corrupt and the upload must replace it, else None."""
        artifact = await self._store.get(account_id, artifact_id)
        return artifact.blob_key if artifact is not None and not await self._is_intact(artifact) else None

    async def _is_intact(self, artifact: Artifact) -> bool:
        try:
            async for _ in await self.open(artifact):
                pass
        except CorruptData:
            return False
        return True

    # -- reading ---------------------------------------------------------------------------------------------

    async def find(self, account_id: AccountId, name: str) -> Artifact:
        """Return an artifact. Raises `NotFound`."""
        artifact = await self._store.get(account_id, ArtifactId(name)) if is_artifact_id(name) else None
        if artifact is None:
            raise NotFound(what="artifact", id=name)
        return artifact

    async def read(self, account_id: AccountId, artifact_id: ArtifactId) -> bytes:
        """Return the complete content. Raises `CorruptData` if the content does not match its digest."""
        return b"".join([chunk async for chunk in await self.open(await self.find(account_id, artifact_id))])

    async def size_of(self, account_id: AccountId, artifact_id: ArtifactId) -> int:
        return (await self.find(account_id, artifact_id)).size

    async def open(self, artifact: Artifact, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Return the bytes from `start` up to `end` as a stream.

        A complete read is verified: its last chunk is yielded only if the digest matches. A partial read is
        not verified; a client can compare the complete content with the digest in the artifact's id.
        """
        is_complete = start == 0 and (end is None or end >= artifact.size)
        try:
            chunks = await self._blobs.read(artifact.blob_key, start, None if is_complete else end)
        except NotFound:
            raise _corrupt(artifact, "the blob does not exist") from None
        return _verify(artifact, chunks) if is_complete else chunks

    # -- sweeping --------------------------------------------------------------------------------------------

    async def sweep(self) -> int:
        """Delete artifacts without references and blobs without a row, after the grace period.

        Returns how many blobs were deleted. A batch that fails is skipped, and the next sweep repeats it.
        """
        progress = SweepProgress()
        for sweep in (self._sweep_rows, self._sweep_unknown_blobs):
            try:
                await sweep(progress)
            except Unavailable as problem:
                progress.problem = problem
        if progress.count:
            ARTIFACTS_SWEPT.inc(progress.count)
            log.info("artifacts.swept", blobs=progress.count)
        if progress.problem is not None:
            log.warning("artifacts.sweep_incomplete", problem=str(progress.problem))
        return progress.count

    async def _sweep_rows(self, progress: SweepProgress) -> None:
        position = START
        while position is not None:
            page = await self._store.find_orphans(position, self._grace, SWEEP_BATCH_SIZE)
            if page.keys:
                await progress.add(self._delete(self._store.delete_orphans(page.keys, self._grace)))
            position = page.next

    async def _sweep_unknown_blobs(self, progress: SweepProgress) -> None:
        """Delete blobs without a row, left by a sweep that crashed or by an upload that was paused too long.

        Such a blob never gets a row, because a row is written before its blob. The grace period applies all
        the same, so that an operator who restored an older copy of the database can notice the missing rows.
        """
        batch = dict[str, datetime]()
        async for key in self._blobs.list(FOLDER):
            if (created := blob_created_at(key)) is not None:
                batch[key] = created
            if len(batch) == SWEEP_BATCH_SIZE:
                await progress.add(self._delete(self._store.find_unknown_blobs(batch, self._grace)))
                batch = {}
        if batch:
            await progress.add(self._delete(self._store.find_unknown_blobs(batch, self._grace)))

    async def _delete(self, found: Awaitable[Sequence[str]]) -> int:
        """Delete the blobs with the found keys. Returns how many there were."""
        keys = await found
        for key in keys:
            await self._blobs.delete(key)
        return len(keys)


class _UploadReader:
    """Reads an upload, counts its size, keeps its first bytes and computes its digest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.size = 0
        self.head = b""
        self._digest = hashlib.sha256()

    @property
    def artifact_id(self) -> ArtifactId:
        return artifact_id(self._digest.hexdigest())

    async def read(self, source: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
        async for piece in source:
            self.size += len(piece)
            if self.size > self._limit:
                raise TooLarge(what="The artifact", limit=self._limit)
            if len(self.head) < HEAD:
                self.head = (self.head + piece)[:HEAD]
            self._digest.update(piece)
            yield piece
        if not self.size:
            raise BadInput(
                problem="The upload is empty; send the bytes as the body, or as the part `file` of a form."
            )


def _to_new_artifact(account_id: AccountId, offloaded: OffloadedValue) -> NewArtifact:
    kind = media_type(offloaded.content[:HEAD], offloaded.media_type)
    return NewArtifact(
        offloaded.artifact_id, len(offloaded.content), kind, blob_key(account_id, new_blob_name())
    )


async def _verify(artifact: Artifact, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the chunks, the last one only if the digest of all chunks matches. Raises `CorruptData`."""
    digest, size, last = hashlib.sha256(), 0, b""
    try:
        async for chunk in chunks:
            size += len(chunk)
            if size > artifact.size:
                break
            if last:
                yield last
            digest.update(chunk)
            last = chunk
    except NotFound:
        raise _corrupt(artifact, "the blob was deleted during the read") from None
    if size != artifact.size or digest.hexdigest() != artifact.sha256:
        raise _corrupt(artifact, f"{size} bytes with the digest {digest.hexdigest()}")
    if last:
        yield last


def _corrupt(artifact: Artifact, reason: str) -> CorruptData:
    log.error(
        "artifact.corrupt",
        artifact_id=artifact.artifact_id,
        account_id=artifact.account_id,
        blob_key=artifact.blob_key,
        size=artifact.size,
        reason=reason,
    )
    return CorruptData(what="artifact", id=artifact.artifact_id)


async def restore(artifacts: ArtifactAccess, account_id: AccountId, value: Any) -> Any:
    """Return a stored value in which each marker of an offloaded value is replaced by that value."""
    fetched = {
        artifact_id: await artifacts.read(account_id, artifact_id) for artifact_id in markers_in(value)
    }
    return restore_markers(value, fetched)


async def restore_event(artifacts: ArtifactAccess, account_id: AccountId, event_type: str, data: Any) -> Any:
    """Return the data of an event with its original values, and the original text of a message."""
    if event_type not in MESSAGE_EVENTS:
        return await restore(artifacts, account_id, data)
    return (
        {**data, "text": await restore_text(artifacts, account_id, data)} if "attachments" in data else data
    )


async def read_text(artifacts: ArtifactAccess, account_id: AccountId, message: Mapping[str, Any]) -> str:
    """Return the complete text of a message event, with its references. RS-62"""
    return (await _read_text(artifacts, account_id, message))[0]


async def restore_text(artifacts: ArtifactAccess, account_id: AccountId, message: Mapping[str, Any]) -> str:
    """Return the original text of a message event, with what was taken out in place of the references."""
    text, attachments = await _read_text(artifacts, account_id, message)
    fetched = {
        name: await artifacts.read(account_id, name)
        for name in artifacts_of(with_markers_of(text, attachments))
    }
    return restore_references(text, fetched)


async def _read_text(
    artifacts: ArtifactAccess, account_id: AccountId, message: Mapping[str, Any]
) -> tuple[str, list[Marker]]:
    attachments: Any = message.get("attachments", [])
    if not isinstance(attachments, list):  # the list did not fit into the event
        attachments = await restore(artifacts, account_id, attachments)
    markers = cast("list[Marker]", attachments)
    if not message.get("truncated") or not markers:
        return message["text"], markers
    complete, *others = markers
    [name] = artifacts_of([complete])
    return (await artifacts.read(account_id, name)).decode(), others
