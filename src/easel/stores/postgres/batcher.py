"""Group commit: what is asked for while a transaction is under way goes into the next one, together."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from easel.errors import Unavailable

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class AppendBatcher(Generic[Item, Answer]):
    """Calls `serve` with all items that are waiting (at most `most`), in up to `lanes` calls at a time.

    Alone, an item is served at once; under load hundreds share one commit. The caller's own cancellation never cuts
    a transaction in the middle: the work belongs to the combiner.
    """

    def __init__(
        self, serve: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], *, most: int, lanes: int
    ) -> None:
        self._serve = serve
        self._most = most
        self._free_lanes = lanes
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._at_work: set[asyncio.Task[None]] = set()

    async def submit(self, item: Item) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._free_lanes:
            self._free_lanes -= 1
            lane = asyncio.create_task(self._work())
            self._at_work.add(lane)
            lane.add_done_callback(self._at_work.discard)
        return await answer

    async def _work(self) -> None:
        try:
            while self._waiting:
                taken = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
                await self._serve_together(taken)
        finally:
            self._free_lanes += 1

    async def _serve_together(self, taken: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        """Together if that works; one by one if it does not, so that one bad item harms no other."""
        try:
            answers = await self._serve([item for item, _ in taken])
        except Exception as problem:  # noqa: BLE001 - whoever asked is told, and decides
            if len(taken) > 1 and not isinstance(problem, Unavailable):
                for one in taken:
                    await self._serve_together([one])
                return
            for _, answer in taken:
                if not answer.done():
                    answer.set_exception(problem)
        else:
            for (_, answer), given in zip(taken, answers, strict=True):
                if not answer.done():
                    answer.set_result(given)

    async def close(self) -> None:
        while self._at_work:
            await asyncio.wait(self._at_work)
