"""What a journey starts from: processes of its own on a database of its own, and their logs shown when it
fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.journeys.client import Client
from tests.journeys.stored_runs import StoredRuns
from tests.support.postgres import create_database, drop_database
from tests.support.processes import EaselProcess, Launcher

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

CLAIM_SECONDS = 2.0
# Drills wait for claims to run out; users have 15 s. A busy machine holds a healthy worker up for a second
# now and then.


@dataclass
class Cluster:
    """Two APIs and two workers that share nothing but Postgres."""

    launcher: Launcher
    apis: list[EaselProcess]
    workers: list[EaselProcess]
    stored_runs: StoredRuns

    def client(self) -> Client:
        return Client(*self.apis)

    def bring_back(self) -> None:
        """Whatever a test has killed is there again for the next one."""
        for group in (self.apis, self.workers):
            for index, one in enumerate(group):
                if not one.is_alive:
                    group[index] = self.launcher.again(one)
        self.launcher.ready(*self.apis)


@pytest.fixture(scope="module")
def module_cluster(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    url = create_database(postgres)
    with Launcher(tmp_path_factory.mktemp("cluster"), url, {"CLAIM_SECONDS": str(CLAIM_SECONDS)}) as launcher:
        apis = [launcher.api(), launcher.api()]
        workers = [launcher.test_worker(), launcher.test_worker()]
        launcher.ready(*apis)
        yield Cluster(launcher, apis, workers, StoredRuns(url))
    drop_database(postgres, url.rpartition("/")[2])


@pytest.fixture
def cluster(module_cluster: Cluster) -> Cluster:
    """Two APIs and two workers, all alive, shared by the tests of one file."""
    module_cluster.bring_back()
    return module_cluster


@pytest.fixture
def launcher(database_url: str, tmp_path: Path) -> Iterator[Launcher]:
    """Nothing started yet; everything that the test starts is on a fresh database."""
    with Launcher(tmp_path, database_url, {"CLAIM_SECONDS": str(CLAIM_SECONDS)}) as launcher:
        yield launcher


@pytest.fixture
def stored_runs(database_url: str) -> StoredRuns:
    return StoredRuns(database_url)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed journey shows what its processes said."""
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            launcher = value if isinstance(value, Launcher) else getattr(value, "launcher", None)
            if isinstance(launcher, Launcher):
                report.sections.append(("Easel's processes", launcher.last_output(launcher.started[-8:])))
    return report
