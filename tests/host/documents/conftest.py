"""One or two instances of the document services, on SQLite and on Postgres."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from easel.stores.postgres import open_postgres
from tests.host.documents.harness import Instance, open_instances
from tests.support.length import DATABASES
from tests.support.postgres import create_database, drop_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

TIMEOUT_SECONDS = 30.0


@pytest.fixture(scope="package")
def documents_url(postgres: str) -> Iterator[str]:
    """Return a migrated Postgres database that the tests of documents share."""
    url = create_database(postgres)

    async def migrate() -> None:
        database = await open_postgres(url, pool=1, timeout=TIMEOUT_SECONDS)
        await database.migrate()
        await database.close()

    asyncio.run(migrate())
    yield url
    drop_database(postgres, url.rpartition("/")[2])


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest) -> str:
    """Return the address of the Postgres database, or an empty text for SQLite."""
    return request.getfixturevalue("documents_url") if request.param == "postgres" else ""


@pytest_asyncio.fixture
async def instances(database_url: str, tmp_path: Path) -> AsyncIterator[list[Instance]]:
    """Two instances of the services on one store."""
    async with open_instances(database_url, tmp_path) as opened:
        yield opened


@pytest_asyncio.fixture
async def instance(instances: list[Instance]) -> Instance:
    """One instance, on SQLite and on Postgres."""
    return instances[0]


@pytest_asyncio.fixture
async def small(tmp_path: Path) -> AsyncIterator[Instance]:
    """One instance on SQLite, for tests that do not depend on the store."""
    async with open_instances("", tmp_path) as opened:
        yield opened[0]
