"""Fixtures of the gateway tests: a server per module, on both stores, and connected clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.edges.gateway.action_fixtures import ControlledTools
from tests.edges.http.live import LiveEasel, capture_log, new_session
from tests.support.gateway import GatewayClient
from tests.support.length import DATABASES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture(scope="package", autouse=True)
def package_log() -> Iterator[list[dict[str, Any]]]:
    with capture_log() as events:
        yield events


@pytest.fixture(scope="module", params=DATABASES)
def easel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    url = request.getfixturevalue("module_database_url") if request.param == "postgres" else ""
    with LiveEasel(tmp_path_factory.mktemp("easel"), url, with_worker=False) as live:
        yield live


@pytest.fixture(scope="module")
def small_easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """A server on SQLite, for tests that do not depend on the store."""
    with LiveEasel(tmp_path_factory.mktemp("easel"), with_worker=False) as live:
        yield live


@pytest.fixture(scope="module")
def two_edges(tmp_path_factory: pytest.TempPathFactory, module_database_url: str) -> Iterator[LiveEasel]:
    """Two API instances on the same Postgres and blob folder."""
    with LiveEasel(tmp_path_factory.mktemp("easel"), module_database_url, edges=2, with_worker=False) as live:
        yield live


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> ControlledTools:
    """Tools that a test controls."""
    return ControlledTools(tmp_path_factory.mktemp("tools"))


@pytest.fixture(scope="module", params=DATABASES)
def action_easel(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tools: ControlledTools
) -> Iterator[LiveEasel]:
    """A server with a worker and the controlled tools."""
    url = request.getfixturevalue("module_database_url") if request.param == "postgres" else ""
    settings = {"poll_seconds": 0.1}
    with LiveEasel(tmp_path_factory.mktemp("easel"), url, settings=settings, tools=tools.tools) as live:
        yield live


@pytest_asyncio.fixture
async def action_client(action_easel: LiveEasel) -> AsyncIterator[GatewayClient]:
    async with GatewayClient.connected(action_easel.base_url, action_easel.token, new_session()) as connected:
        yield connected


@pytest_asyncio.fixture
async def client(easel: LiveEasel) -> AsyncIterator[GatewayClient]:
    async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as connected:
        yield connected


@pytest_asyncio.fixture
async def canvas(client: GatewayClient) -> str:
    name = new_session()
    await client.call("canvas.create", canvasId=name, title="Cockpit", state={"n": 0})
    return name
