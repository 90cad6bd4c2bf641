"""What artifacts need from outside: their store, and blobs."""

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from easel.core.artifact.artifact import Artifact, NewArtifact, SweepPosition, SweepStep
from easel.core.stream.payload_limit import OffloadedValue
from easel.ids import ArtifactId, CanvasId, RunId, UserId


class ArtifactStore(Protocol):
    """The rows of artifacts: whose they are, where their bytes lie, and what refers to them."""

    async def claim(self, user_id: UserId, new: Sequence[NewArtifact]) -> list[Artifact]:
        """The rows of these, made or touched: no sweep takes them for now."""
        ...

    async def withdraw(self, user_id: UserId, upload_id: ArtifactId) -> None:
        """Remove a row that was claimed and has no blob."""
        ...

    async def complete_upload(
        self, user_id: UserId, upload_id: ArtifactId, new: NewArtifact, missing_key: str | None
    ) -> Artifact | None:
        """The blob of the row that was claimed as `upload_id` turned out to be this content; None: that row was swept meanwhile.

        The row of the content gets the blob, unless it has one already, and another one than `missing_key`.
        """
        ...

    async def mark_stored(self, user_id: UserId, artifacts: Sequence[Artifact]) -> set[ArtifactId]:
        """Their blobs are there; without those whose row has gone meanwhile, or has another blob."""
        ...

    async def get(self, user_id: UserId, artifact_id: ArtifactId) -> Artifact | None:
        """Only if it is stored."""
        ...

    async def add_references(
        self,
        user_id: UserId,
        artifact_ids: Sequence[ArtifactId],
        *,
        run_id: RunId | None = None,
        canvas_id: CanvasId | None = None,
    ) -> None:
        """Kept as long as the run or the canvas; ids of nothing are passed over."""
        ...

    async def sweep(self, after: SweepPosition, older_than_seconds: float, limit: int) -> SweepStep:
        """Look at `limit` rows and remove those that nothing refers to and nobody touched for so long."""
        ...

    async def find_unknown_blobs(self, keys: Mapping[str, datetime], older_than_seconds: float) -> list[str]:
        """Those made so long ago that belong to no row."""
        ...


class ArtifactAccess(Protocol):
    """Keeps what is too heavy for a log, and gives it back: the artifacts, as the other stories need them."""

    async def store(self, user_id: UserId, offloaded: Sequence[OffloadedValue]) -> None:
        """Durable when it returns: what refers to these may now be stored."""
        ...

    async def read(self, user_id: UserId, artifact_id: ArtifactId) -> bytes:
        """The exact bytes, or an error: never others."""
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
