"""Artifacts: content stored beside the logs and named by its digest.

Owns the value, its URL path and the keys of its blobs. Does not know stores.
"""

import re
from dataclasses import dataclass
from datetime import datetime

from easel.ids import ArtifactId, UserId, timestamp_of

SERVED_AT = "/api/artifacts/"
FOLDER = "users"  # the prefix of all blob keys

_KEY = re.compile(rf"{FOLDER}/[^/]+/artifacts/([0-9a-hjkmnp-tv-z]{{26}})")


@dataclass(frozen=True, slots=True)
class NewArtifact:
    """An artifact to store, and the key of its blob."""

    artifact_id: ArtifactId
    size: int
    media_type: str
    blob_key: str


@dataclass(frozen=True, slots=True)
class Artifact:
    user_id: UserId
    artifact_id: ArtifactId
    size: int
    media_type: str
    blob_key: str
    is_stored: bool  # whether the blob is known to be complete
    is_new: bool = False  # whether this upload created it

    @property
    def sha256(self) -> str:
        return self.artifact_id.removeprefix("art_")

    @property
    def uri(self) -> str:
        return SERVED_AT + self.artifact_id


SweepPosition = tuple[UserId, ArtifactId]  # of a sweep over all rows
START: SweepPosition = (UserId(""), ArtifactId(""))


@dataclass(frozen=True, slots=True)
class SweepStep:
    """One batch of a sweep: keys of blobs without a row, and the next position; None after the last batch."""

    blob_keys: list[str]
    next: SweepPosition | None


def blob_key(user_id: UserId, name: str) -> str:
    """Return the blob key.

    `name` is new for every row, so that a sweep of an old row never deletes a new blob.
    """
    return f"{FOLDER}/{user_id}/artifacts/{name}"


def blob_created_at(key: str) -> datetime | None:
    """Return when the blob was created, or None if this is not the key of an artifact."""
    match = _KEY.fullmatch(key)
    return timestamp_of(match[1]) if match else None
