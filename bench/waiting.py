"""Poll for a condition in another process, with a deadline."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def wait_for(
    condition: Callable[[], Awaitable[bool]], *, within: float, every: float, what: str
) -> None:
    deadline = time.monotonic() + within
    while not await condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within:g} s: {what}")
        await asyncio.sleep(every)
