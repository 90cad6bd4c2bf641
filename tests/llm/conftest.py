from collections.abc import AsyncIterator, Iterator

import pytest

from easel.llm.build import Models, RequestSettings
from easel.llm.retries import RetrySettings
from tests.llm.vendors import VENDORS
from tests.llm.vendors.server import VendorServer, serve

FAST = RequestSettings(RetrySettings(max_attempts=3, first_wait_seconds=0.01, max_wait_seconds=5))


@pytest.fixture
async def models() -> AsyncIterator[Models]:
    models = Models(FAST)
    yield models
    await models.close()


@pytest.fixture(params=sorted(VENDORS))
def provider(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def server(provider: str) -> Iterator[VendorServer]:
    """The strict server of the provider."""
    with serve(VENDORS[provider]()) as server:
        yield server
