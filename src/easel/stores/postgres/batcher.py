"""Group commit: items submitted while a transaction runs share the next transaction."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from easel.errors import Unavailable

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class AppendBatcher(Generic[Item, Answer]):
    """Calls `serve` with up to `max_items` pending items, in up to `max_calls` concurrent calls.

    A single item is served at once; under load, many items share one commit. Cancelling a caller does not
    interrupt a transaction, because the batcher runs it in its own task.
    """

    def __init__(
        self,
        serve: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        *,
        max_items: int,
        max_calls: int,
    ) -> None:
        self._serve = serve
        self._max_items = max_items
        self._free_calls = max_calls
        self._pending: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, item: Item) -> Answer:
        """Serve an item with the next batch. Returns its answer, or raises its error."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._pending.append((item, answer))
        if self._free_calls:
            self._free_calls -= 1
            task = asyncio.create_task(self._serve_pending())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await answer

    async def _serve_pending(self) -> None:
        try:
            while self._pending:
                batch = [self._pending.popleft() for _ in range(min(self._max_items, len(self._pending)))]
                await self._serve_batch(batch)
        finally:
            self._free_calls += 1

    async def _serve_batch(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        """Serve all items together. If that fails, serve them one by one, so that only a bad item fails."""
        try:
            answers = await self._serve([item for item, _ in batch])
        except Exception as problem:  # noqa: BLE001 - raised again in the caller
            if len(batch) > 1 and not isinstance(problem, Unavailable):
                for pending in batch:
                    await self._serve_batch([pending])
                return
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(problem)
        else:
            for (_, answer), result in zip(batch, answers, strict=True):
                if not answer.done():
                    answer.set_result(result)

    async def close(self) -> None:
        """Wait until all submitted items are served."""
        while self._tasks:
            await asyncio.wait(self._tasks)
