"""Waiting for what must not be left half done."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Answer = TypeVar("Answer")


async def see_through(work: Coroutine[Any, Any, Answer]) -> Answer:
    """To its end, however often we are cancelled meanwhile; then the cancel is passed on."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as problem:
            cancelled = problem
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # looked at: the cancel is the news
        raise cancelled
    return task.result()


async def in_thread(work: Callable[[threading.Event], Answer]) -> Answer:
    """A disk makes a thread wait, never the loop. Cancelled, it tells the thread to stop and waits until it has."""
    stop = threading.Event()
    task = asyncio.create_task(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([task])
        raise


async def at_most(seconds: float, wait: Coroutine[Any, Any, Any]) -> bool:
    """Whether it came to its end in time."""
    try:
        async with asyncio.timeout(seconds):
            await wait
    except TimeoutError:
        return False
    return True
