"""The HTTP responses of a provider request, closed when the request ends, however it ends.

The SDKs leave a response to the garbage collector in some places, for example if a request is cancelled
before its first event was read. The provider must see at once that the request has ended.
"""

import contextlib
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any


class RefusedAnswer(Exception):
    """The answer must not be used, and asking again does not change that."""


_responses: ContextVar[list[Any] | None] = ContextVar("responses", default=None)


async def remember_response(response: Any) -> None:
    """Add a response to those of the current request: a hook of the HTTP client."""
    if (responses := _responses.get()) is not None:
        responses.append(response)


@contextlib.asynccontextmanager
async def close_responses() -> AsyncGenerator[None, None]:
    """Close all responses that arrive within the block, also if it is cancelled."""
    responses: list[Any] = []
    token = _responses.set(responses)
    try:
        yield
    finally:
        _responses.reset(token)
        for response in responses:
            with contextlib.suppress(Exception):
                await response.aclose()
