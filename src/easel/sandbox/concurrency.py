"""Coroutines that must finish despite a cancel, and threads for blocking work.

Owns the effect of a cancel on such work. Does not know the purpose of the work.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakValueDictionary

Result = TypeVar("Result")


async def finish_despite_cancel(work: Coroutine[Any, Any, Result]) -> Result:
    """Run the work to its end even if the caller is cancelled, and raise the `CancelledError` afterwards."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as problem:
            cancelled = problem
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # otherwise asyncio would log it as never retrieved
        raise cancelled
    return task.result()


class Threads:
    """A thread pool for blocking work, with at most `max_per_owner` threads for one owner."""

    def __init__(self, name: str, count: int, *, max_per_owner: int) -> None:
        self._pool = ThreadPoolExecutor(count, name)
        self._max_per_owner = max_per_owner
        self._slots: WeakValueDictionary[tuple[int, str], asyncio.Semaphore] = WeakValueDictionary()

    async def run(self, owner: str, work: Callable[[threading.Event], Result]) -> Result:
        """Run the work in a thread. When cancelled, set the event and wait until the work has ended."""
        stop = threading.Event()
        loop = asyncio.get_running_loop()
        async with self._slots.setdefault((id(loop), owner), asyncio.Semaphore(self._max_per_owner)):
            future = self._pool.submit(work, stop)
            waiting = asyncio.wrap_future(future)
            try:
                return await asyncio.shield(waiting)
            except asyncio.CancelledError:
                stop.set()
                if not future.cancel():  # the work is already running
                    await finish_despite_cancel(asyncio.wait([waiting]))
                    waiting.exception()  # otherwise asyncio would log it as never retrieved
                raise


async def wait_up_to(seconds: float, work: Coroutine[Any, Any, Any]) -> bool:
    """Await the work for at most `seconds`. Returns whether the work ended in time."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return False
    return True
