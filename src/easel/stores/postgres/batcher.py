"""Group commit: items submitted while a transaction runs share the next transaction."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

from easel.errors import Unavailable

MAX_LONE_CALLS = 2  # connections for items that are served alone
MIN_RETRY_SECONDS = 0.01  # before a skipped item is served again; doubled for each retry
MAX_RETRY_SECONDS = 0.1

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Skipped(Enum):
    """The answer to an item that cannot be served now, because another transaction has locked its rows."""

    SKIPPED = "skipped"


SKIPPED: Final = Skipped.SKIPPED


@dataclass(slots=True, eq=False)
class _Pending(Generic[Item, Answer]):
    item: Item
    answer: asyncio.Future[Answer]
    deadline: float
    retry_seconds: float = MIN_RETRY_SECONDS


class _Lane(Generic[Item, Answer]):
    """Items that wait for a call, and how many calls may run at the same time."""

    def __init__(self, max_items: int, max_calls: int) -> None:
        self.max_items = max_items
        self.free_calls = max_calls
        self.pending: deque[_Pending[Item, Answer]] = deque()


class AppendBatcher(Generic[Item, Answer]):
    """Calls `serve` with up to `max_items` pending items, in up to `max_calls` concurrent calls.

    A single item is served at once; under load, many items share one commit. Cancelling a caller does not
    interrupt a transaction, because the batcher runs it in its own task.

    No item delays the others: `serve` answers `SKIPPED` for an item that it would have to wait for, and the
    item is retried until it is served, or is `Unavailable` after `max_seconds`. Within that time the items of
    a call that timed out are served again one by one, in calls of their own; such an item may be served
    twice.
    """

    def __init__(
        self,
        serve: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | Skipped]]],
        *,
        max_items: int,
        max_calls: int,
        max_seconds: float = 0,
    ) -> None:
        self._serve = serve
        self._max_seconds = max_seconds
        self._shared: _Lane[Item, Answer] = _Lane(max_items, max_calls)
        self._alone: _Lane[Item, Answer] = _Lane(1, MAX_LONE_CALLS)
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, item: Item) -> Answer:
        """Serve an item with the next batch. Returns its answer, or raises its error."""
        loop = asyncio.get_running_loop()
        pending = _Pending[Item, Answer](item, loop.create_future(), loop.time() + self._max_seconds)
        self._add(self._shared, pending)
        return await pending.answer

    def _add(self, lane: _Lane[Item, Answer], pending: _Pending[Item, Answer]) -> None:
        lane.pending.append(pending)
        if lane.free_calls:
            lane.free_calls -= 1
            self._start(self._serve_lane(lane))

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_lane(self, lane: _Lane[Item, Answer]) -> None:
        try:
            while lane.pending:
                batch = [lane.pending.popleft() for _ in range(min(lane.max_items, len(lane.pending)))]
                if lane is self._alone and _is_late(batch[0]):
                    _fail(batch[0], Unavailable(what="The database"))
                else:
                    await self._serve_batch(batch)
        finally:
            lane.free_calls += 1

    async def _serve_batch(self, batch: list[_Pending[Item, Answer]]) -> None:
        """Serve items together. If that fails, serve them one by one, so that only a bad item fails."""
        try:
            answers = await self._serve([pending.item for pending in batch])
        except Exception as problem:  # noqa: BLE001 - raised again in the caller
            if len(batch) > 1 and not isinstance(problem, Unavailable):
                for pending in batch:
                    await self._serve_batch([pending])
            elif len(batch) > 1 and isinstance(problem.__cause__, TimeoutError):
                for pending in batch:  # one of them may have blocked the call
                    self._add(self._alone, pending)
            else:
                for pending in batch:
                    _fail(pending, problem)
        else:
            for pending, answer in zip(batch, answers, strict=True):
                if isinstance(answer, Skipped):
                    self._start(self._retry(pending))
                elif not pending.answer.done():
                    pending.answer.set_result(answer)

    async def _retry(self, pending: _Pending[Item, Answer]) -> None:
        await asyncio.sleep(pending.retry_seconds)
        pending.retry_seconds = min(2 * pending.retry_seconds, MAX_RETRY_SECONDS)
        if _is_late(pending):
            _fail(pending, Unavailable(what="The database"))
        elif not pending.answer.cancelled():
            self._add(self._shared, pending)

    async def close(self) -> None:
        """Wait until all submitted items are served."""
        while self._tasks:
            await asyncio.wait(self._tasks)


def _is_late(pending: _Pending[Item, Answer]) -> bool:
    return asyncio.get_running_loop().time() >= pending.deadline


def _fail(pending: _Pending[Item, Answer], problem: Exception) -> None:
    if not pending.answer.done():
        pending.answer.set_exception(problem)
