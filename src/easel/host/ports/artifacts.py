"""Ports of artifacts: their store, and blobs."""

from collections.abc import AsyncIterable, AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from easel.core.artifact.artifact import Artifact, ArtifactKey, NewArtifact, OrphanPage
from easel.core.canvas.retention import LogKey, OldLogs
from easel.core.stream.payload_limit import OffloadedValue
from easel.core.stream.references import PrunedRuns, ReleaseDecision, RunContent
from easel.ids import AccountId, ArtifactId, CanvasId, RunId


class ArtifactStore(Protocol):
    """The rows of artifacts: their owner, the key of their blob, and the references to them."""

    async def claim(self, account_id: AccountId, new: Sequence[NewArtifact]) -> list[Artifact]:
        """Create or touch the rows of these artifacts, so that no sweep deletes them, and return them."""
        ...

    async def withdraw(self, account_id: AccountId, upload_id: ArtifactId) -> None:
        """Delete a claimed row that has no blob."""
        ...

    async def complete_upload(
        self, account_id: AccountId, upload_id: ArtifactId, new: NewArtifact, missing_key: str | None
    ) -> Artifact | None:
        """Replace the row claimed as `upload_id` by the row of the uploaded content, and return that row.

        If the content has a row with a blob already, that row keeps its blob, unless the key of that blob is
        `missing_key`. Returns None if the claimed row was swept.
        """
        ...

    async def mark_stored(self, account_id: AccountId, artifacts: Sequence[Artifact]) -> set[ArtifactId]:
        """Mark the artifacts as stored. Returns the ids whose row still exists with the same blob key."""
        ...

    async def get(self, account_id: AccountId, artifact_id: ArtifactId) -> Artifact | None:
        """Return the artifact if it is stored."""
        ...

    async def add_references(
        self,
        account_id: AccountId,
        artifact_ids: Sequence[ArtifactId],
        *,
        run_id: RunId | None = None,
        canvas_id: CanvasId | None = None,
    ) -> None:
        """Keep the artifacts as long as the run or the canvas. Unknown ids are ignored."""
        ...

    async def find_orphans(self, after: ArtifactKey, older_than_seconds: float, limit: int) -> OrphanPage:
        """Return which of the next `limit` artifacts of all accounts are old and have no reference."""
        ...

    async def delete_orphans(self, keys: Sequence[ArtifactKey], older_than_seconds: float) -> list[str]:
        """Delete those of these artifacts that are still old and have no reference. Returns their blob keys.

        An artifact to which a reference is being added is not deleted.
        """
        ...

    async def find_unknown_blobs(self, keys: Mapping[str, datetime], older_than_seconds: float) -> list[str]:
        """Return the keys of blobs of at least this age that belong to no row."""
        ...


class ReferenceStore(Protocol):
    """The references from runs and canvases to artifacts, and what the holders still mention."""

    async def find_pruned_runs(self, after: RunId, limit: int) -> PrunedRuns:
        """Check the next `limit` references of runs. Returns the pruned runs whose references are unchecked.

        An ended run no longer changes, so its references can be checked without a lock.
        """
        ...

    async def read_run(self, run_id: RunId) -> RunContent | None:
        """Return what a run still has, and its references. Returns None if there is no such run."""
        ...

    async def release_run(self, run_id: RunId, kept: Collection[ArtifactId], limit: int) -> int:
        """Release up to `limit` references of a run that are not `kept`. Returns how many.

        If there are fewer than `limit`, the others are marked as checked.
        """
        ...

    async def find_releasable(self, after: LogKey, limit: int) -> OldLogs:
        """Return which of the next `limit` canvases have references that no event or record mentions."""
        ...

    async def release_canvas(self, account_id: AccountId, canvas_id: CanvasId, limit: int) -> ReleaseDecision:
        """Check up to `limit` references of a canvas that no event or record of it mentions.

        Releases those that its state and spec do not mention either, while the canvas is locked.
        """
        ...


class SweepClaims(Protocol):
    """Which instance does the work that one instance does for all."""

    async def claim(self, name: str, seconds: float) -> bool:
        """Claim the named work for this long by the database's clock. Returns False if it is claimed."""
        ...


class ArtifactAccess(Protocol):
    """The part of `Artifacts` that other services use: store and read values too large for a log."""

    async def store(self, account_id: AccountId, offloaded: Sequence[OffloadedValue]) -> None:
        """Store the values durably. A log may refer to them after this call."""
        ...

    async def read(self, account_id: AccountId, artifact_id: ArtifactId) -> bytes:
        """Return exactly the stored bytes, or raise."""
        ...

    async def size_of(self, account_id: AccountId, artifact_id: ArtifactId) -> int:
        """Return the size in bytes. Raises `NotFound`."""
        ...


class BlobStore(Protocol):
    async def put(
        self, key: str, data: bytes | AsyncIterable[bytes], *, size_limit: int | None = None
    ) -> int: ...

    async def get(self, key: str) -> bytes: ...

    async def read(self, key: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]: ...

    async def size(self, key: str) -> int | None: ...

    async def delete(self, key: str) -> None: ...

    def list(self, prefix: str) -> AsyncIterator[str]: ...

    async def check(self) -> None: ...
