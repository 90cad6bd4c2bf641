"""Each test of the contract runs on every store: `store` is one of them, open, migrated and empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.stores.harness import KINDS, Store, open_store, sqlite_at
from tests.support.postgres import create_database, drop_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from easel.host.ports import RunStore
    from easel.stores.sqlite import SqliteDatabase


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def contract_url(postgres: str) -> Iterator[str]:
    """One Postgres database for the whole contract: making one takes longer than most of its tests."""
    url = create_database(postgres)
    yield url
    drop_database(postgres, url.rpartition("/")[2])


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("contract_url") if kind == "postgres" else ""


@pytest_asyncio.fixture
async def store(kind: str, url: str, tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(kind, folder=tmp_path, database_url=url)
    await opened.empty()
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def own_store(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A store whose schema the test may change."""
    url = request.getfixturevalue("database_url") if kind == "postgres" else ""
    opened = await open_store(kind, folder=tmp_path, database_url=url)
    yield opened
    await opened.close()


@pytest.fixture
def runs(store: Store) -> RunStore:
    return store.runs


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a SQLite database can be made."""
    return tmp_path / "data" / "easel.db"


@pytest_asyncio.fixture
async def database(path: Path) -> AsyncIterator[SqliteDatabase]:
    """An open SQLite database for what is SQLite's alone."""
    async with sqlite_at(path) as database:
        yield database
