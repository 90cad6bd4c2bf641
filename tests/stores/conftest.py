"""Fixtures for tests of stores: one open store per test, on SQLite and on Postgres.

The schema is migrated once per test process. SQLite tests copy the migrated file; Postgres tests share one
database and empty it, or get a copy of the migrated one.
"""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from easel.stores.postgres import open_postgres
from tests.stores.blob_locations import aws, blobs, bucket, disk, location, s3_server
from tests.stores.harness import KINDS, TIMEOUT_SECONDS, Store, open_migrated_store, sqlite_at
from tests.support.postgres import create_database, drop_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from easel.host.ports import RunStore
    from easel.stores.sqlite import SqliteDatabase

# Fixtures.
__all__ = ["aws", "blobs", "bucket", "disk", "location", "s3_server"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def migrated_url(postgres: str) -> Iterator[str]:
    """Return a migrated Postgres database without connections, the template of others."""
    url = create_database(postgres)

    async def migrate() -> None:
        database = await open_postgres(url, pool=1, timeout=TIMEOUT_SECONDS)
        await database.migrate()
        await database.close()

    asyncio.run(migrate())
    yield url
    drop_database(postgres, _name(url))


@pytest.fixture(scope="session")
def shared_url(postgres: str, migrated_url: str) -> Iterator[str]:
    """Return the Postgres database that the tests of this process share."""
    url = create_database(postgres, template=_name(migrated_url))
    yield url
    drop_database(postgres, _name(url))


@pytest.fixture
def own_url(postgres: str, migrated_url: str) -> Iterator[str]:
    """Return a migrated Postgres database for this test alone."""
    url = create_database(postgres, template=_name(migrated_url))
    yield url
    drop_database(postgres, _name(url))


def _name(url: str) -> str:
    return url.rpartition("/")[2]


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a migrated SQLite file, the template of others."""
    path = tmp_path_factory.mktemp("migrated") / "easel.db"

    async def migrate() -> None:
        async with sqlite_at(path):
            pass

    asyncio.run(migrate())
    return path


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("shared_url") if kind == "postgres" else ""


@pytest.fixture
def folder(kind: str, tmp_path: Path, migrated_file: Path) -> Path:
    """Return the folder of this test's SQLite file, which is migrated."""
    if kind == "sqlite":
        shutil.copy(migrated_file, tmp_path / "easel.db")
    return tmp_path


@pytest_asyncio.fixture
async def store(kind: str, url: str, folder: Path) -> AsyncIterator[Store]:
    opened = await open_migrated_store(kind, folder=folder, database_url=url)
    if kind == "postgres":
        await opened.empty()
    yield opened
    await opened.close()


@pytest.fixture
def url_of_own_store(kind: str, request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("own_url") if kind == "postgres" else ""


@pytest_asyncio.fixture
async def own_store(kind: str, folder: Path, url_of_own_store: str) -> AsyncIterator[Store]:
    """Return a store whose schema the test may change."""
    opened = await open_migrated_store(kind, folder=folder, database_url=url_of_own_store)
    yield opened
    await opened.close()


@pytest.fixture
def runs(store: Store) -> RunStore:
    return store.runs


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a SQLite file that does not exist yet."""
    return tmp_path / "data" / "easel.db"


@pytest.fixture
def migrated_path(path: Path, migrated_file: Path) -> Path:
    """Return the path of a migrated SQLite file."""
    path.parent.mkdir()
    shutil.copy(migrated_file, path)
    return path


@pytest_asyncio.fixture
async def database(migrated_path: Path) -> AsyncIterator[SqliteDatabase]:
    """Return an open, migrated SQLite database."""
    async with sqlite_at(migrated_path) as database:
        yield database
