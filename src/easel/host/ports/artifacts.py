"""Ports of artifacts: their store, and blobs."""

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from easel.core.artifact.artifact import Artifact, NewArtifact, SweepPosition, SweepStep
from easel.core.stream.payload_limit import OffloadedValue
from easel.ids import ArtifactId, CanvasId, RunId, UserId


class ArtifactStore(Protocol):
    """The rows of artifacts: their owner, the key of their blob, and the references to them."""

    async def claim(self, user_id: UserId, new: Sequence[NewArtifact]) -> list[Artifact]:
        """Create or touch the rows of these artifacts, so that no sweep deletes them, and return them."""
        ...

    async def withdraw(self, user_id: UserId, upload_id: ArtifactId) -> None:
        """Delete a claimed row that has no blob."""
        ...

    async def complete_upload(
        self, user_id: UserId, upload_id: ArtifactId, new: NewArtifact, missing_key: str | None
    ) -> Artifact | None:
        """Replace the row claimed as `upload_id` by the row of the uploaded content, and return that row.

        If the content has a row with a blob already, that row keeps its blob, unless the key of that blob is
        `missing_key`. Returns None if the claimed row was swept.
        """
        ...

    async def mark_stored(self, user_id: UserId, artifacts: Sequence[Artifact]) -> set[ArtifactId]:
        """Mark the artifacts as stored. Returns the ids whose row still exists with the same blob key."""
        ...

    async def get(self, user_id: UserId, artifact_id: ArtifactId) -> Artifact | None:
        """Return the artifact if it is stored."""
        ...

    async def add_references(
        self,
        user_id: UserId,
        artifact_ids: Sequence[ArtifactId],
        *,
        run_id: RunId | None = None,
        canvas_id: CanvasId | None = None,
    ) -> None:
        """Keep the artifacts as long as the run or the canvas. Unknown ids are ignored."""
        ...

    async def sweep(self, after: SweepPosition, older_than_seconds: float, limit: int) -> SweepStep:
        """Visit `limit` rows after `after`, and delete old untouched rows without references."""
        ...

    async def find_unknown_blobs(self, keys: Mapping[str, datetime], older_than_seconds: float) -> list[str]:
        """Return the keys of blobs of at least this age that belong to no row."""
        ...


class ArtifactAccess(Protocol):
    """The part of `Artifacts` that other services use: store and read values too large for a log."""

    async def store(self, user_id: UserId, offloaded: Sequence[OffloadedValue]) -> None:
        """Store the values durably. A log may refer to them after this call."""
        ...

    async def read(self, user_id: UserId, artifact_id: ArtifactId) -> bytes:
        """Return exactly the stored bytes, or raise."""
        ...


class Blobs(Protocol):
    async def put(
        self, key: str, data: bytes | AsyncIterable[bytes], *, size_limit: int | None = None
    ) -> int: ...

    async def get(self, key: str) -> bytes: ...

    async def read(self, key: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]: ...

    async def size(self, key: str) -> int | None: ...

    async def delete(self, key: str) -> None: ...

    def list(self, prefix: str) -> AsyncIterator[str]: ...

    async def check(self) -> None: ...
