"""An empty database for each module of tests of an edge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.postgres import create_database, drop_database

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def module_database_url(postgres: str) -> Iterator[str]:
    url = create_database(postgres)
    yield url
    drop_database(postgres, url.rpartition("/")[2])
