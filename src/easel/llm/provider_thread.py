"""The thread in which requests to model providers run, with an event loop of its own.

Converting a long history takes the provider libraries up to half a second. Here it does not block the event
loop of the server. Does not know models: it runs coroutines and passes on what they produce.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_UNREAD_ITEMS = 32
BATCH = 16  # items that are read before the thread is notified


@dataclass(frozen=True, slots=True)
class _Ended:
    problem: BaseException | None


class ProviderThread:
    """Starts with the first request. `close` ends the requests in flight."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def stream(
        self, produce: Callable[[Callable[[Item], Awaitable[None]]], Awaitable[None]]
    ) -> AsyncGenerator[Item, None]:
        """Run `produce(send)` in the thread and yield what it sends. Closing the iterator cancels it.

        `send` waits while `MAX_UNREAD_ITEMS` items are unread.
        """
        here, there = asyncio.get_running_loop(), None
        received = asyncio.Queue[Item | _Ended]()
        free = asyncio.Semaphore(MAX_UNREAD_ITEMS)  # used in the thread only

        def put(item: Item | _Ended) -> None:
            _call(here, received.put_nowait, item)

        async def send(item: Item) -> None:
            await free.acquire()
            put(item)

        async def run() -> None:
            nonlocal there
            there = asyncio.get_running_loop()
            try:
                await produce(send)
            except BaseException as problem:
                put(_Ended(problem))
                if not isinstance(problem, Exception):
                    raise
            else:
                put(_Ended(None))

        running = self._submit(run())
        try:
            taken = 0
            while not isinstance(item := await received.get(), _Ended):
                yield item
                taken += 1
                # Not for each item: waking the other loop lets its thread run, for 5 ms if it is busy.
                if taken == BATCH or received.empty():
                    _call(there, _release, free, taken)
                    taken = 0
                    await asyncio.sleep(0)
            if isinstance(item.problem, asyncio.CancelledError):
                raise ConnectionError("the request was cancelled because the host stops.")
            if item.problem is not None:
                raise item.problem
        finally:
            running.cancel()

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the thread and return its result."""
        return await asyncio.wrap_future(self._submit(work))

    async def close(self) -> None:
        """Cancel the requests in flight and end the thread."""
        with self._lock:
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is not None and thread is not None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_cancel_others(), loop))
            loop.call_soon_threadsafe(loop.stop)
            await asyncio.to_thread(thread.join)
            loop.close()

    def _submit(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="easel-providers", daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)


def _release(free: asyncio.Semaphore, count: int) -> None:
    for _ in range(count):
        free.release()


def _call(loop: asyncio.AbstractEventLoop | None, function: Callable[..., None], *args: Any) -> None:
    if loop is not None and not loop.is_closed():
        loop.call_soon_threadsafe(function, *args)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
