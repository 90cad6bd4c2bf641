"""Artifacts on SQLite, and on a folder and a bucket, for tests of their service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest_asyncio

from easel.errors import Unavailable
from easel.host.artifacts.artifacts import Artifacts
from easel.ids import OWNER
from easel.stores.blobs.bucket import PART_BYTES
from easel.stores.blobs.store import Blobs
from easel.stores.sqlite import SqliteDatabase, open_sqlite
from tests.stores.blob_locations import BlobLocation, aws, bucket, disk, location, pieces, s3_server
from tests.support.artifacts import id_of
from tests.support.principals import THE_OWNER, person

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from easel.core.artifact.artifact import Artifact
    from easel.core.principal import Principal
    from tests.host.conftest import TurnableClock

# Fixtures: a folder, and a bucket behind a real HTTP server.
__all__ = ["aws", "bucket", "disk", "harness", "location", "s3_server"]

LIMIT = 3 * PART_BYTES
GRACE = 7 * 86_400.0
OTHER = person("mallory", "mallory")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(200)


class FaultyBlobs:
    """A real blob storage that runs a hook before one kind of call."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.before: dict[str, Callable[[str], Awaitable[None]]] = {}
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        original = getattr(self._blobs, name)
        if name == "list":
            return original

        async def call(key: str, *args: Any, **options: Any) -> Any:
            self.calls.append(name)
            if (hook := self.before.get(name)) is not None:
                await hook(key)
            return await original(key, *args, **options)

        return call

    def fail_on(self, name: str) -> None:
        async def fail(_: str) -> None:
            raise Unavailable(what="The blob store")

        self.before[name] = fail


class ArtifactHarness:
    """Artifacts on SQLite and a real blob storage, with a clock that tests can set."""

    def __init__(self, database: SqliteDatabase, storage: BlobLocation, clock: TurnableClock) -> None:
        self.database = database
        self.storage = storage
        self.clock = clock
        self.blobs = FaultyBlobs(storage.blobs)
        self.artifacts = Artifacts(
            database.artifacts, cast(Blobs, self.blobs), max_bytes=LIMIT, grace_seconds=GRACE
        )

    async def sql(self, text: str) -> list[dict[str, Any]]:
        return await self.database.write(
            lambda connection: [dict(row) for row in connection.execute(text).fetchall()]
        )

    async def upload(self, content: bytes, declared: str = "", principal: Principal = THE_OWNER) -> Artifact:
        return await self.artifacts.upload(principal, pieces(content), declared)

    async def replace_blob(self, artifact: Artifact, content: bytes) -> None:
        await self.storage.blobs.delete(artifact.blob_key)
        await self.storage.blobs.put(artifact.blob_key, content)

    async def row(self, content: bytes) -> Artifact | None:
        return await self.database.artifacts.get(OWNER, id_of(content))


@pytest_asyncio.fixture
async def harness(
    tmp_path: Path, location: BlobLocation, clock: TurnableClock
) -> AsyncIterator[ArtifactHarness]:
    database = await open_sqlite(tmp_path / "easel.db", clock=clock, synchronous="normal")
    await database.migrate()
    harness = ArtifactHarness(database, location, clock)
    await harness.sql("insert into accounts (account_id) values ('mallory')")
    yield harness
    await database.close()
