"""Fixtures for every test: a Postgres server and an empty database.

Owns the session-wide server and the check of rule and case ids. Fixtures of one folder live in that folder.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.requirements import check_markers
from tests.support.length import examples
from tests.support.postgres import create_database, drop_database
from tests.support.postgres_shared import shared_server, wait_for_shared_server_to_end

if TYPE_CHECKING:
    from collections.abc import Iterator

# The folder shared by the workers of one pytest run. The controller makes it, the workers inherit its name.
MEETING_PLACE = "EASEL_TEST_MEETING_PLACE"


def is_worker() -> bool:
    return "PYTEST_XDIST_WORKER" in os.environ


def pytest_configure(config: pytest.Config) -> None:
    # A shared machine is slow at times, so the duration of an example is no failure. CI tries the same
    # examples every time.
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile(
        "easel",
        max_examples=examples(100),
        deadline=None,
        derandomize="CI" in os.environ,
        suppress_health_check=slow,
    )
    hypothesis.settings.load_profile("easel")
    # Processes started in the background by a shell ignore SIGINT, and so do their children; restore the
    # default.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not is_worker():
        os.environ[MEETING_PLACE] = tempfile.mkdtemp(prefix="easel-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not is_worker() and (place := os.environ.pop(MEETING_PLACE, None)):
        wait_for_shared_server_to_end(Path(place))
        shutil.rmtree(place, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fail the collection if a test cites a rule or case that does not exist."""
    for item in items:
        check_markers(item)


def pytest_collection_finish() -> None:
    """Leave the million objects of the collected tests out of every later garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Return the superuser's URL of the session's one Postgres, shared by all workers.

    Use `create_database(postgres)` for more databases. To stop or break a server, start a
    `tests.support.postgres.Postgres`.
    """
    with shared_server(Path(os.environ[MEETING_PLACE])) as url:
        yield url


@pytest.fixture
def database_url(postgres: str) -> Iterator[str]:
    """Create an empty database for this test alone."""
    url = create_database(postgres)
    yield url
    drop_database(postgres, url.rpartition("/")[2])
