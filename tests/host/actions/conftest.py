"""The services of two instances on one store, and a tool that the test controls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from tests.host.controlled_tool import ControlledTool
from tests.host.services import HostServices

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.host.conftest import RunHarness


@pytest_asyncio.fixture
async def tool() -> ControlledTool:
    return ControlledTool()


@pytest_asyncio.fixture
async def services(harness: RunHarness, tool: ControlledTool) -> AsyncIterator[HostServices]:
    services = await HostServices.open(harness, tool)
    yield services
    await services.close()


@pytest_asyncio.fixture
async def other(
    harness: RunHarness, services: HostServices, tool: ControlledTool
) -> AsyncIterator[HostServices]:
    """Another instance with the same store."""
    other = await HostServices.open(harness, tool)
    yield other
    await other.close()
