"""Calls to a node that another instance has: a durable row, picked up there by the bell, answered once. DESIGN §5

Owns the caller's side. All that wait share one look at the store: when the bell says that an answer came, and else once a poll.
Whoever stops waiting leaves nothing running at the node; nor does an instance that dies, since it no longer says that it waits.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import structlog

from easel.core.stream.json_text import to_json
from easel.core.stream.notifications import CallAnswered, CallPending
from easel.core.stream.payload_limit import light_value
from easel.core.tool.call import LOST, NOT_ASKED, UNHEARD, Answer, NewCall
from easel.core.tool.context import Watched
from easel.core.tool.node import Node, split_tool_name
from easel.errors import HostError, Unavailable
from easel.host.artifacts import restore
from easel.host.ports import ArtifactAccess, NodeStore, Notifier
from easel.ids import CallId, UserId, new_call_id

INVOKE = "tool.invoke"
TRIES = 5  # to be heard of, in the time after which nobody believes in us any more

log = structlog.get_logger("nodes")


@dataclass(slots=True)
class _Waiting:
    user_id: UserId
    answer: "asyncio.Future[Answer]"
    is_placed: bool = False  # and its row is not fetched yet
    missed: int = 0  # times in a row that its row was not there

    def tell(self, answer: Answer) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


class RemoteCalls:
    def __init__(
        self,
        store: NodeStore,
        keeper: ArtifactAccess,
        notifier: Notifier,
        *,
        poll_seconds: float,
        call_seconds: float,
        caller_ttl_seconds: float,
    ) -> None:
        self._store = store
        self._keeper = keeper
        self._notifier = notifier
        self._poll = poll_seconds
        self._seconds = call_seconds
        self._heard = caller_ttl_seconds
        self._waiting: dict[CallId, _Waiting] = {}
        self._wake = asyncio.Event()
        self._collecting: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._renewals: set[asyncio.Task[None]] = set()
        self._others: set[asyncio.Task[Any]] = set()

    async def call(self, node: Node, name: str, args: Mapping[str, Any], watched: Watched | None) -> Answer:
        """What it says while it runs is told by the instance that hears it, to those who watch."""
        told = {} if watched is None else {"watched": asdict(watched)}
        params = await light(
            self._keeper, node.user_id, {"tool": split_tool_name(name)[1], "args": args, **told}
        )
        new = NewCall(
            new_call_id(), node.user_id, node.connection_id, INVOKE, params, self._seconds, self._heard
        )
        waiting = _Waiting(node.user_id, asyncio.get_running_loop().create_future())
        self._waiting[new.call_id] = waiting
        # A task of its own: what is half placed cannot be cancelled, and must not be left.
        placing = self._begin(self._store.place_call(new))
        try:
            if not await asyncio.shield(placing):
                return NOT_ASKED
            waiting.is_placed = True
            self._notifier.notify(CallPending(node.connection_id))
            self._start()
            return await waiting.answer
        except BaseException:
            self._begin(self._cancel(new, placing))
            raise
        finally:
            del self._waiting[new.call_id]

    def hear(self, notification: CallAnswered) -> None:
        if notification.call_id in self._waiting:
            self._wake.set()

    async def close(self) -> None:
        """What was cancelled until now is told; who still waits does so in vain."""
        duties = [task for task in (self._collecting, self._renewing, *self._renewals) if task is not None]
        for task in duties:
            task.cancel()
        await asyncio.gather(*self._others, *duties, return_exceptions=True)

    async def _cancel(self, new: NewCall, placing: "asyncio.Task[bool]") -> None:
        await asyncio.gather(placing, return_exceptions=True)
        with contextlib.suppress(Unavailable):  # then it ends by its deadline
            if (target := await self._store.cancel_call(new.user_id, new.call_id)) is not None:
                self._notifier.notify(CallPending(target))

    # -- answers ---------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._collecting is None or self._collecting.done():
            self._collecting = asyncio.create_task(self._collect())
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew_forever())

    async def _collect(self) -> None:
        """As long as somebody waits."""
        while self._waiting:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self.once()
            except Unavailable:
                log.debug("nodes.no_answers_now")  # the next look is as good
            except Exception:
                log.exception("nodes.collecting_error")

    async def once(self) -> int:
        """Fetch the answers that are there; how many that were."""
        found = await self._store.collect_answers(list(self._waiting)) if self._waiting else {}
        for call_id in found.keys() & self._waiting.keys():
            self._waiting[
                call_id
            ].is_placed = False  # its row is gone, and its answer is here: reading that may take its time
        for call_id, stored in found.items():
            if (waiting := self._waiting.get(call_id)) is not None:
                waiting.tell(LOST if stored is None else await self._read(waiting.user_id, stored))
        return len(found)

    async def _renew_forever(self) -> None:
        """As long as somebody waits, and by itself: no slow answer may keep it from being said, nor a connection that hangs the next try."""
        while self._waiting:
            await asyncio.sleep(self._heard / TRIES)
            self._renewals = {one for one in self._renewals if not one.done()}
            if len(self._renewals) < TRIES:
                self._renewals.add(asyncio.create_task(self._try_to_renew()))

    async def _try_to_renew(self) -> None:
        try:
            await self.renew()
        except Unavailable:
            log.debug("nodes.not_renewed")  # the next try is on its way
        except Exception:
            log.exception("nodes.renewing_error")

    async def renew(self) -> None:
        """Say that these are waited for; what was stopped meanwhile, since nothing was heard of us, is waited for in vain."""
        placed = {
            call_id: waiting
            for call_id, waiting in self._waiting.items()
            if waiting.is_placed and not waiting.answer.done()
        }
        there = await self._store.renew_calls(list(placed), self._heard) if placed else set[CallId]()
        for call_id, waiting in placed.items():
            waiting.missed = 0 if call_id in there else waiting.missed + 1
            if (
                waiting.missed > 1 and waiting.is_placed
            ):  # once is no sign: somebody may just be fetching its answer
                waiting.tell(UNHEARD)

    async def _read(self, user_id: UserId, stored: str) -> Answer:
        try:
            return Answer.of_stored(await restore(self._keeper, user_id, msgspec.json.decode(stored)))
        except HostError as problem:
            return Answer(error=f"it has answered, and the answer cannot be read back: {problem.message}")

    def _begin(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)
        return task


async def light(keeper: ArtifactAccess, user_id: UserId, value: Any) -> str:
    """As it may stand in a table: Base64 over 2 KB is kept beside it, and comes back. RS-35"""
    lighter, offloaded = light_value(value)
    if offloaded:
        await keeper.store(user_id, offloaded)
    return to_json(lighter)
