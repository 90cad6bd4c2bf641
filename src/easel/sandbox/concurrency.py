"""Waiting for what must not be left half done."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakValueDictionary

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


class Threads:
    """Threads of our own for what waits for a disk, so that nobody else runs out of theirs; at most `each` of them for one owner."""

    def __init__(self, name: str, count: int, *, each: int) -> None:
        self._pool = ThreadPoolExecutor(count, name)
        self._each = each
        self._rooms: WeakValueDictionary[tuple[int, str], asyncio.Semaphore] = WeakValueDictionary()

    async def run(self, owner: str, work: Callable[[threading.Event], Answer]) -> Answer:
        """Cancelled, it tells the thread to stop and waits until it has."""
        stop = threading.Event()
        loop = asyncio.get_running_loop()
        async with self._rooms.setdefault((id(loop), owner), asyncio.Semaphore(self._each)):
            future = self._pool.submit(work, stop)
            waiting = asyncio.wrap_future(future)
            try:
                return await asyncio.shield(waiting)
            except asyncio.CancelledError:
                stop.set()
                if not future.cancel():  # it has begun
                    await see_through(asyncio.wait([waiting]))
                    waiting.exception()  # looked at: the cancel is the news
                raise


async def at_most(seconds: float, wait: Coroutine[Any, Any, Any]) -> bool:
    """Whether it came to its end in time."""
    try:
        async with asyncio.timeout(seconds):
            await wait
    except TimeoutError:
        return False
    return True
