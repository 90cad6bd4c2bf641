"""Easel in this process, one per module, on both stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.http.live import LiveEasel, capture_log
from tests.support.length import DATABASES

if TYPE_CHECKING:
    from collections.abc import Iterator

HEARTBEAT_SECONDS = 0.3  # instead of 15 s


@pytest.fixture(scope="package", autouse=True)
def package_log() -> Iterator[list[dict[str, Any]]]:
    with capture_log() as events:
        yield events


@pytest.fixture
def logged(package_log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The log events of this test."""
    package_log.clear()
    return package_log


@pytest.fixture(scope="module", params=DATABASES)
def easel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """API and worker, on SQLite and on Postgres."""
    url = request.getfixturevalue("module_database_url") if request.param == "postgres" else ""
    with LiveEasel(
        tmp_path_factory.mktemp("easel"), url, settings={"heartbeat_seconds": HEARTBEAT_SECONDS}
    ) as live:
        yield live


@pytest.fixture(scope="module")
def small_easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """API and worker on SQLite, for tests that do not depend on the store."""
    with LiveEasel(tmp_path_factory.mktemp("easel")) as live:
        yield live


@pytest.fixture(scope="module")
def two_edges(tmp_path_factory: pytest.TempPathFactory, module_database_url: str) -> Iterator[LiveEasel]:
    """Two API edges and a worker that share only Postgres."""
    with LiveEasel(tmp_path_factory.mktemp("easel"), module_database_url, edges=2) as live:
        yield live
