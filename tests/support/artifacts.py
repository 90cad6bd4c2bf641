"""Contents, names and blob keys of any age for tests of artifacts."""

from __future__ import annotations

import hashlib
import time

from easel.core.artifact.artifact import NewArtifact, blob_key
from easel.core.stream.payload_limit import OffloadedValue
from easel.ids import OWNER, AccountId, ArtifactId, artifact_id, new_blob_name

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def id_of(content: bytes) -> ArtifactId:
    return artifact_id(hashlib.sha256(content).hexdigest())


def aged_name(seconds: float, name: str | None = None) -> str:
    """Return a blob name created this long ago; its random part is new, or that of `name`."""
    made = int((time.time() - seconds) * 1000)
    return (
        "".join(_ALPHABET[made >> shift & 31] for shift in range(45, -1, -5)) + (name or new_blob_name())[10:]
    )


def aged_key(seconds: float = 0.0, account_id: AccountId = OWNER) -> str:
    return blob_key(account_id, aged_name(seconds))


def new(content: bytes, *, account_id: AccountId = OWNER) -> NewArtifact:
    return NewArtifact(id_of(content), len(content), "text/plain", aged_key(account_id=account_id))


def offloaded(*contents: bytes) -> list[OffloadedValue]:
    return [OffloadedValue(id_of(content), content) for content in contents]
