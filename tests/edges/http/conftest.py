"""Easel in this process, once per file, on either store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.http.live import LiveEasel, kept_log
from tests.support.postgres import create_database, drop_database

if TYPE_CHECKING:
    from collections.abc import Iterator

HEARTBEAT_SECONDS = 0.3  # users have 15 s; the contract is the same


@pytest.fixture(scope="package", autouse=True)
def everything_logged() -> Iterator[list[dict[str, Any]]]:
    with kept_log() as kept:
        yield kept


@pytest.fixture
def logged(everything_logged: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is logged during this test."""
    everything_logged.clear()
    return everything_logged


@pytest.fixture(scope="module")
def module_database_url(postgres: str) -> Iterator[str]:
    url = create_database(postgres)
    yield url
    drop_database(postgres, url.rpartition("/")[2])


@pytest.fixture(scope="module", params=("sqlite", "postgres"))
def easel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """API and worker on SQLite, and again on Postgres: for whatever the store could spoil."""
    url = request.getfixturevalue("module_database_url") if request.param == "postgres" else ""
    with LiveEasel(
        tmp_path_factory.mktemp("easel"), url, settings={"heartbeat_seconds": HEARTBEAT_SECONDS}
    ) as live:
        yield live


@pytest.fixture(scope="module")
def small_easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """API and worker on SQLite: for what has nothing to do with the store."""
    with LiveEasel(tmp_path_factory.mktemp("easel")) as live:
        yield live


@pytest.fixture(scope="module")
def two_edges(tmp_path_factory: pytest.TempPathFactory, module_database_url: str) -> Iterator[LiveEasel]:
    """Two API edges and a worker that share nothing but Postgres."""
    with LiveEasel(tmp_path_factory.mktemp("easel"), module_database_url, edges=2) as live:
        yield live
