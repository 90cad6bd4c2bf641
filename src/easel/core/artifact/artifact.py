"""Artifacts: content that is stored outside the logs. The id of an artifact is the digest of its content.

Owns the description of an artifact, its URL path and the keys of its blobs. Does not know stores.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from easel.ids import AccountId, ArtifactId, timestamp_of

SERVED_AT = "/api/artifacts/"  # the URL path before an artifact's id
FOLDER = "accounts"  # the prefix of all blob keys

_KEY = re.compile(rf"{FOLDER}/[^/]+/artifacts/([0-9a-hjkmnp-tv-z]{{26}})")


@dataclass(frozen=True, slots=True)
class NewArtifact:
    """An artifact to store. `blob_key` is used unless the artifact exists already."""

    artifact_id: ArtifactId
    size: int
    media_type: str
    blob_key: str


@dataclass(frozen=True, slots=True)
class Artifact:
    account_id: AccountId
    artifact_id: ArtifactId
    size: int
    media_type: str
    blob_key: str
    is_stored: bool  # whether the upload of the blob has completed
    is_new: bool = False  # whether the current upload created the artifact

    @property
    def sha256(self) -> str:
        return self.artifact_id.removeprefix("art_")

    @property
    def uri(self) -> str:
        return SERVED_AT + self.artifact_id


ArtifactKey = tuple[AccountId, ArtifactId]  # also a cursor: artifacts are swept in this order
START: ArtifactKey = (AccountId(""), ArtifactId(""))


@dataclass(frozen=True, slots=True)
class OrphanPage:
    """The old artifacts without references in one page of all artifacts. `next` is None after the last."""

    keys: Sequence[ArtifactKey]
    next: ArtifactKey | None


def account_folder(account_id: AccountId) -> str:
    """Return the folder of all blobs of an account."""
    return f"{FOLDER}/{account_id}"


def blob_key(account_id: AccountId, name: str) -> str:
    """Return the blob key of an artifact.

    `name` is new for every row, so that a sweep of an old row never deletes the blob of a new row.
    """
    return f"{account_folder(account_id)}/artifacts/{name}"


def blob_created_at(key: str) -> datetime | None:
    """Return the creation time in the blob key of an artifact, or None if this is not such a key."""
    match = _KEY.fullmatch(key)
    return timestamp_of(match[1]) if match else None
