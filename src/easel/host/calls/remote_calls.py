"""Calls to targets of other instances: each is a durable row that the other instance answers once. DESIGN §5

A target is a connection of a node or of a client, under its id. Owns the caller's side: one query fetches the
answers of all pending calls, when a notification arrives and otherwise once per poll. A cancelled call is
cancelled at its target; so are the calls of an instance that stops renewing them.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from easel.core.call import EXPIRED, LOST, NOT_SENT, Answer, NewCall
from easel.core.stream.json_text import to_json
from easel.core.stream.notifications import CallAnswered, CallPending, Notification
from easel.core.stream.payload_limit import offload_large_values
from easel.errors import HostError, Unavailable
from easel.host.artifacts.artifacts import restore
from easel.host.periodic import Periodic
from easel.host.ports import ArtifactAccess, CallStore, Notifier
from easel.ids import AccountId, CallId, new_call_id

# The interval between renewals and the timeout of each are TTL / RENEWALS_PER_TTL. So a call does not expire
# if two renewals in a row time out.
RENEWALS_PER_TTL = 6

log = structlog.get_logger("calls")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCallLimits:
    caller_ttl_seconds: float  # a call expires unless its caller renews it within this time
    poll_seconds: float
    call_seconds: float
    max_result_bytes: int


@dataclass(slots=True)
class _PendingCall:
    account_id: AccountId
    answer: "asyncio.Future[Answer]"
    has_row: bool = False
    missing_count: int = 0  # consecutive renewals that did not find the row

    def finish(self, answer: Answer) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


class RemoteCalls:
    def __init__(
        self, store: CallStore, artifacts: ArtifactAccess, notifier: Notifier, limits: RemoteCallLimits
    ) -> None:
        self._store = store
        self._artifacts = artifacts
        self._notifier = notifier
        self._limits = limits
        self._pending: dict[CallId, _PendingCall] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._renewal_seconds = limits.caller_ttl_seconds / RENEWALS_PER_TTL
        self._collecting = Periodic("calls.collect_answers", limits.poll_seconds, self.collect)
        # Separate from `_collecting`: an answer that is slow to read must not delay a renewal.
        self._renewing = Periodic(
            "calls.renew", self._renewal_seconds, self._renew_in_time, delay=self._renewal_seconds
        )
        notifier.listen(self._on_notification)

    async def call(
        self, account_id: AccountId, target: str, method: str, params: Mapping[str, Any]
    ) -> Answer:
        """Call a method of a target and return its answer."""
        new = NewCall(
            new_call_id(),
            account_id,
            target,
            method,
            await offload_to_json(self._artifacts, account_id, params),
            self._limits.call_seconds,
            self._limits.caller_ttl_seconds,
        )
        pending = _PendingCall(account_id, asyncio.get_running_loop().create_future())
        self._pending[new.call_id] = pending
        # In a separate task: if the caller is cancelled now, `_cancel` must wait until the row is written
        # before it can cancel the call.
        placing = self._spawn(self._store.place_call(new))
        try:
            if not await asyncio.shield(placing):
                return NOT_SENT
            pending.has_row = True
            self._notifier.notify(CallPending(target))
            self._collecting.start()
            self._renewing.start()
            return await pending.answer
        except BaseException:
            self._spawn(self._cancel(new, placing))
            raise
        finally:
            del self._pending[new.call_id]

    def _on_notification(self, notification: Notification) -> None:
        if isinstance(notification, CallAnswered) and notification.call_id in self._pending:
            self._collecting.wake()

    async def collect(self) -> int:
        """Fetch the answers that have arrived. Returns how many were fetched."""
        answers = await self._store.collect_answers(list(self._pending)) if self._pending else {}
        for call_id in answers.keys() & self._pending.keys():
            # Fetching the answer has deleted the row: `renew` must not count it as missing while the answer
            # is read.
            self._pending[call_id].has_row = False
        for call_id, stored in answers.items():
            if (pending := self._pending.get(call_id)) is not None:
                pending.finish(LOST if stored is None else await self._read(pending.account_id, stored))
        return len(answers)

    async def renew(self) -> None:
        """Renew pending calls. A call whose row is missing in two consecutive renewals fails as expired."""
        placed = {
            call_id: pending
            for call_id, pending in self._pending.items()
            if pending.has_row and not pending.answer.done()
        }
        ttl_seconds = self._limits.caller_ttl_seconds
        renewed = await self._store.renew_calls(list(placed), ttl_seconds) if placed else set[CallId]()
        for call_id, pending in placed.items():
            pending.missing_count = 0 if call_id in renewed else pending.missing_count + 1
            # A row that is missing once may have been deleted by a `collect` in progress.
            if pending.missing_count > 1 and pending.has_row:
                pending.finish(EXPIRED)

    async def close(self) -> None:
        """Wait for cancellations in progress, then stop collecting and renewing."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._collecting.stop()
        await self._renewing.stop()

    async def _renew_in_time(self) -> None:
        try:
            async with asyncio.timeout(self._renewal_seconds):
                await self.renew()
        except TimeoutError:
            log.warning("calls.renewal_timed_out", calls=len(self._pending))

    async def _cancel(self, new: NewCall, placing: "asyncio.Task[bool]") -> None:
        await asyncio.gather(placing, return_exceptions=True)
        with contextlib.suppress(Unavailable):  # the call then ends at its deadline
            if (target := await self._store.cancel_call(new.account_id, new.call_id)) is not None:
                self._notifier.notify(CallPending(target))

    async def _read(self, account_id: AccountId, stored: str) -> Answer:
        try:
            return Answer.from_stored(await restore(self._artifacts, account_id, msgspec.json.decode(stored)))
        except HostError as problem:
            return Answer(error=f"it was answered, but the answer cannot be read: {problem.message}")

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def offload_to_json(artifacts: ArtifactAccess, account_id: AccountId, value: Any) -> str:
    """Return the value as JSON for a row, after Base64 over 2 KB in it was stored as artifacts. RS-35"""
    within_limit, offloaded = offload_large_values(value)
    if offloaded:
        await artifacts.store(account_id, offloaded)
    return to_json(within_limit)
