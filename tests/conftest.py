"""What every test may ask for: a Postgres server, an empty database, and strictness about ids and skips.

Owns the session-wide server and the markers' law. Fixtures that only one folder needs live in that folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.requirements import check_markers
from tests.support.postgres import create_database, drop_database
from tests.support.postgres_shared import shared_server, wait_for_shared_server_to_end

if TYPE_CHECKING:
    from collections.abc import Iterator

# Where the workers of one pytest run meet. The controller makes it, the workers inherit its name.
MEETING_PLACE = "EASEL_TEST_MEETING_PLACE"


def is_worker() -> bool:
    return "PYTEST_XDIST_WORKER" in os.environ


def pytest_configure(config: pytest.Config) -> None:
    # A shared machine is slow at times: how long an example took, or its making, is no finding. CI tries the same examples every time.
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile(
        "easel", deadline=None, derandomize="CI" in os.environ, suppress_health_check=slow
    )
    hypothesis.settings.load_profile("easel")
    # What a shell starts in the background is deaf to Ctrl-C, and so are its children; ours are stopped by it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not is_worker():
        os.environ[MEETING_PLACE] = tempfile.mkdtemp(prefix="easel-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not is_worker() and (place := os.environ.pop(MEETING_PLACE, None)):
        wait_for_shared_server_to_end(Path(place))
        shutil.rmtree(place, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A rule or case that does not exist fails the collection, not silently the report."""
    for item in items:
        check_markers(item)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The superuser's URL of the session's one Postgres, shared by all workers; ask `create_database(postgres)` for more databases.

    To stop or break a server, start a `tests.support.postgres.Postgres` of your own.
    """
    with shared_server(Path(os.environ[MEETING_PLACE])) as url:
        yield url


@pytest.fixture
def database_url(postgres: str) -> Iterator[str]:
    """A fresh, empty database for this test alone."""
    url = create_database(postgres)
    yield url
    drop_database(postgres, url.rpartition("/")[2])
