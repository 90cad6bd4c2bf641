"""Waiting for what another process does and cannot call us about: look, and look again, with an end."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def until(is_so: Callable[[], Awaitable[bool]], *, within: float, every: float, what: str) -> None:
    deadline = time.monotonic() + within
    while not await is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within:g} s: {what}")
        await asyncio.sleep(every)
