"""Artifacts: bytes kept beside the logs, named by what they are.

Owns the value, the address under which one is served, and the keys of the blobs behind them. Knows no store.
"""

import re
from dataclasses import dataclass
from datetime import datetime

from easel.ids import ArtifactId, UserId
from easel.ids import made_at as name_made_at

SERVED_AT = "/api/artifacts/"
FOLDER = "users"  # above all keys of artifacts, whoever they belong to

_KEY = re.compile(rf"{FOLDER}/[^/]+/artifacts/([0-9a-hjkmnp-tv-z]{{26}})")


@dataclass(frozen=True, slots=True)
class NewArtifact:
    """Bytes that want a row, and the key under which their blob is, or will be."""

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
    is_stored: bool  # whether the blob is known to be there, whole
    is_new: bool = False  # whether the upload that answers with this has made it

    @property
    def sha256(self) -> str:
        return self.artifact_id.removeprefix("art_")

    @property
    def uri(self) -> str:
        return SERVED_AT + self.artifact_id


Place = tuple[UserId, ArtifactId]  # where a sweep stands on its way over all rows
START: Place = (UserId(""), ArtifactId(""))


@dataclass(frozen=True, slots=True)
class Swept:
    """One step of a sweep: the keys of the blobs that now belong to nobody, and where to go on; None: that was all."""

    blob_keys: list[str]
    next: Place | None


def blob_key(user_id: UserId, name: str) -> str:
    """Each row has a blob of its own, under a new name: what is swept away for an old row is never a new row's."""
    return f"{FOLDER}/{user_id}/artifacts/{name}"


def made_at(key: str) -> datetime | None:
    """When the name in the key was made; None if this is no key of an artifact."""
    found = _KEY.fullmatch(key)
    return name_made_at(found[1]) if found else None
