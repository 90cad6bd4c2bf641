"""Two servers with a real model for all tests of this folder, and the harness of runs."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.host.conftest import clock, harness  # noqa: F401 - fixtures
from tests.real_model.server import WHEELS, is_installed
from tests.support.processes import ROOT, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

END_SECONDS = 30
BASE_PATHS = {"openai-chat": "/v1", "openai-responses": "/v1", "anthropic": ""}


@dataclass
class ModelServer:
    is_endless: bool
    port: int
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.real_model.server", str(self.port)]
        self.process = subprocess.Popen(
            [*command, *(["--endless"] if self.is_endless else [])],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        assert str(self.port) in self.process.stdout.readline()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.communicate(timeout=END_SECONDS)

    def base_url(self, provider: str) -> str:
        return f"http://127.0.0.1:{self.port}{BASE_PATHS[provider]}"

    def is_answering(self) -> bool:
        """Return whether the server works on a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=END_SECONDS)
        try:
            connection.request("GET", "/slots")
            slots: list[dict[str, Any]] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return any(slot["is_processing"] for slot in slots)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skip(reason=f"{' and '.join(WHEELS)} are not installed: requirements/model.txt")
    for item in items:
        if "tests/real_model" in item.nodeid:
            item.add_marker("real_model")
            if not is_installed():
                item.add_marker(missing)


def _serve(*, is_endless: bool) -> Iterator[ModelServer]:
    server = ModelServer(is_endless, free_port())
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def model_server() -> Iterator[ModelServer]:
    """A server whose answers are short."""
    yield from _serve(is_endless=False)


@pytest.fixture(scope="session")
def endless_server() -> Iterator[ModelServer]:
    yield from _serve(is_endless=True)


@pytest.fixture(params=sorted(BASE_PATHS))
def provider(request: pytest.FixtureRequest) -> str:
    return request.param
