"""Artifacts: bytes that are too heavy for a log, kept once per user, given back exactly or not at all.

Owns the order in which rows and blobs are written and removed. A row is there before its blob is and goes before it
does, and no key is used twice: whatever dies in between leaves at most a row or a blob that nothing refers to, and a later
sweep finds both.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import structlog

from easel.core.artifact.artifact import FOLDER, START, Artifact, NewArtifact, blob_key, blob_created_at
from easel.core.artifact.media_type import BINARY, HEAD, media_type
from easel.core.principal import Principal
from easel.core.stream.payload_limit import OffloadedValue, markers_in, restored
from easel.errors import BadInput, CorruptData, NotFound, TooLarge, Unavailable
from easel.host.metrics import ARTIFACTS_SWEPT
from easel.host.ports import ArtifactAccess, ArtifactStore, Blobs
from easel.ids import ArtifactId, UserId, artifact_id, is_artifact_id, new_blob_name

MIN_GRACE_SECONDS = 3600.0
# What was touched since is never swept, however short the setting: somebody may be about to refer to it.
UPLOAD_SECONDS = MIN_GRACE_SECONDS / 2
# The longest that an upload may take: its row, touched when it began, must outlast it.
MAX_CONCURRENT_PUTS = 8
MAX_ATTEMPTS = 5
SWEEP_BATCH_SIZE = 500
SWEEP_SECONDS = 3600.0

log = structlog.get_logger("artifacts")


class Artifacts:
    def __init__(self, store: ArtifactStore, blobs: Blobs, *, max_bytes: int, grace_seconds: float) -> None:
        self._store = store
        self._blobs = blobs
        self.max_bytes = max_bytes
        self._grace = max(grace_seconds, MIN_GRACE_SECONDS)
        self._puts = asyncio.Semaphore(MAX_CONCURRENT_PUTS)

    # -- keeping ---------------------------------------------------------------------------------------------------

    async def store(self, user_id: UserId, offloaded: Sequence[OffloadedValue]) -> None:
        """Durable when it returns: what refers to these may now be stored. The same content twice is one artifact."""
        waiting = {one.artifact_id: one for one in offloaded}
        for _ in range(MAX_ATTEMPTS):
            if not waiting:
                return
            claimed = await self._store.claim(user_id, [_new(user_id, one) for one in waiting.values()])
            unstored = [one for one in claimed if not one.is_stored]
            await self._put([(one.blob_key, waiting[one.artifact_id].content) for one in unstored])
            stored = {one.artifact_id for one in claimed if one.is_stored}
            if unstored:
                stored |= await self._store.mark_stored(user_id, unstored)
            waiting = {name: one for name, one in waiting.items() if name not in stored}
        if waiting:  # each time somebody slept so long that the row was swept in between
            raise Unavailable(what="The artifact store")

    async def _put(self, blobs: Sequence[tuple[str, bytes]]) -> None:
        async def put(key: str, content: bytes) -> None:
            async with self._puts:
                await self._blobs.put(key, content)

        # All of them end before this does: nobody writes on after the caller has given up.
        for outcome in await asyncio.gather(
            *(put(key, content) for key, content in blobs), return_exceptions=True
        ):
            if outcome is not None:
                raise outcome

    async def upload(
        self, principal: Principal, source: AsyncIterable[bytes], declared_type: str = ""
    ) -> Artifact:
        """Bytes as they come, never all of them in memory. What is there already is answered and not kept twice."""
        name = new_blob_name()
        # Its digest is not known before its last byte; until then the row has a name of its own, which no reader can ask for.
        begun, key = ArtifactId(f"new_{name}"), blob_key(principal.user_id, name)
        incoming = _UploadReader(self.max_bytes)
        await self._store.claim(principal.user_id, [NewArtifact(begun, 0, BINARY, key)])
        kept = None
        try:
            async with asyncio.timeout(UPLOAD_SECONDS):
                await self._blobs.put(key, incoming.read(source))
            new = NewArtifact(
                incoming.artifact_id, incoming.size, media_type(incoming.head, declared_type), key
            )
            kept = await self._store.complete_upload(
                principal.user_id, begun, new, await self._lost_key(principal.user_id, new.artifact_id)
            )
        except TimeoutError:
            raise BadInput(problem=f"An upload ends within {UPLOAD_SECONDS / 60:g} minutes.") from None
        finally:
            if kept is None:  # if an answer was lost, this finds nothing: the row has its true name by now
                with contextlib.suppress(Unavailable):
                    await self._store.withdraw(principal.user_id, begun)
        if kept is None:  # this process slept
            raise Unavailable(what="The artifact store")
        if kept.blob_key != key:
            with contextlib.suppress(Unavailable):  # else a sweep will
                await self._blobs.delete(key)
        return replace(kept, is_new=kept.blob_key == key)

    async def _lost_key(self, user_id: UserId, artifact_id: ArtifactId) -> str | None:
        """The key under which this content should be and is not. Whoever is told to store it again must not hear that it is there."""
        known = await self._store.get(user_id, artifact_id)
        return known.blob_key if known is not None and not await self._is_whole(known) else None

    async def _is_whole(self, artifact: Artifact) -> bool:
        try:
            async for _ in await self.open(artifact):
                pass
        except CorruptData:
            return False
        return True

    # -- giving back -----------------------------------------------------------------------------------------------

    async def find(self, principal: Principal, name: str) -> Artifact:
        return await self._found(principal.user_id, name)

    async def _found(self, user_id: UserId, name: str) -> Artifact:
        found = await self._store.get(user_id, ArtifactId(name)) if is_artifact_id(name) else None
        if found is None:
            raise NotFound(what="artifact", id=name)
        return found

    async def read(self, user_id: UserId, artifact_id: ArtifactId) -> bytes:
        """All of it, and exactly what was kept: other bytes are `CorruptData`, never an answer."""
        return b"".join([chunk async for chunk in await self.open(await self._found(user_id, artifact_id))])

    async def open(self, artifact: Artifact, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bytes from `start` up to `end`. A whole reading is verified: its last bytes come only if all of them are right.

        A part of it cannot be: that would take reading all the rest. Whoever reads parts can compare the whole with the
        digest in the artifact's name.
        """
        is_whole = start == 0 and (end is None or end >= artifact.size)
        try:
            chunks = await self._blobs.read(artifact.blob_key, start, None if is_whole else end)
        except NotFound:
            raise _corrupt(artifact, "the blob is gone") from None
        return _verified(artifact, chunks) if is_whole else chunks

    # -- sweeping --------------------------------------------------------------------------------------------------

    async def sweep_forever(self) -> None:
        """A duty of every worker. Several may sweep at once: what one has taken, the others do not find."""
        while True:
            try:
                await self.sweep()
            except Unavailable as problem:
                log.warning("artifacts.not_swept", reason=problem.message)
            await asyncio.sleep(SWEEP_SECONDS)

    async def sweep(self) -> int:
        """Remove what nothing refers to and nobody touched for the grace: rows first, then blobs. How many blobs went."""
        swept = await self._sweep_rows() + await self._sweep_strays()
        if swept:
            ARTIFACTS_SWEPT.inc(swept)
            log.info("artifacts.swept", blobs=swept)
        return swept

    async def _sweep_rows(self) -> int:
        swept, place = 0, START
        while place is not None:
            step = await self._store.sweep(place, self._grace, SWEEP_BATCH_SIZE)
            for key in step.blob_keys:
                await self._blobs.delete(key)
            swept += len(step.blob_keys)
            place = step.next
        return swept

    async def _sweep_strays(self) -> int:
        """Blobs that no row knows: somebody slept while their row was swept, or died before they were removed with it.

        None of them can get a row any more, since the row comes first. Their age is asked all the same: whoever has put an
        older copy of the database in place has the grace to notice.
        """
        swept, seen = 0, dict[str, datetime]()
        async for key in self._blobs.list(FOLDER):
            if (made := blob_created_at(key)) is not None:
                seen[key] = made
            if len(seen) == SWEEP_BATCH_SIZE:
                swept += await self._remove_strays(seen)
                seen = {}
        return swept + await self._remove_strays(seen)

    async def _remove_strays(self, keys: Mapping[str, datetime]) -> int:
        strays = await self._store.find_unknown_blobs(keys, self._grace) if keys else []
        for key in strays:
            await self._blobs.delete(key)
        return len(strays)


class _UploadReader:
    """An upload on its way: what its bytes add up to, known once they are all there."""

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


def _new(user_id: UserId, offloaded: OffloadedValue) -> NewArtifact:
    kind = media_type(offloaded.content[:HEAD], offloaded.media_type)
    return NewArtifact(
        offloaded.artifact_id, len(offloaded.content), kind, blob_key(user_id, new_blob_name())
    )


async def _verified(artifact: Artifact, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """The chunks, the last one held back until the digest of all of them is right."""
    digest, size, held = hashlib.sha256(), 0, b""
    try:
        async for chunk in chunks:
            size += len(chunk)
            if size > artifact.size:
                break
            if held:
                yield held
            digest.update(chunk)
            held = chunk
    except NotFound:
        raise _corrupt(artifact, "the blob went while it was read") from None
    if size != artifact.size or digest.hexdigest() != artifact.sha256:
        raise _corrupt(artifact, f"{size} bytes of the digest {digest.hexdigest()}")
    if held:
        yield held


def _corrupt(artifact: Artifact, found: str) -> CorruptData:
    log.error(
        "artifact.damaged",
        artifact_id=artifact.artifact_id,
        user_id=artifact.user_id,
        blob_key=artifact.blob_key,
        size=artifact.size,
        found=found,
    )
    return CorruptData(what="artifact", id=artifact.artifact_id)


async def restore(keeper: ArtifactAccess, user_id: UserId, value: Any) -> Any:
    """Return a stored value with every offloaded value put back in its place."""
    fetched = {artifact_id: await keeper.read(user_id, artifact_id) for artifact_id in markers_in(value)}
    return restored(value, fetched)
