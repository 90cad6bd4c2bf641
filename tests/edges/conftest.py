"""Fixtures of every edge: the log of its package, and an empty database for each module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.http.live import capture_log
from tests.support.postgres import create_database, drop_database

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package", autouse=True)
def package_log() -> Iterator[list[dict[str, Any]]]:
    with capture_log() as events:
        yield events


@pytest.fixture(scope="module")
def module_database_url(postgres: str) -> Iterator[str]:
    url = create_database(postgres)
    yield url
    drop_database(postgres, url.rpartition("/")[2])
