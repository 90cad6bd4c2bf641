"""Calls from other instances to targets connected here: each is taken, run and answered once. DESIGN §5

Owns the side of the instance that has the target, and which methods each target has. A cancelled call is
cancelled at its target, and its answer is dropped. So is a call that its caller did not renew in time, except
after the database was unavailable: then callers first get time to renew.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from easel.core.call import Answer, TakenCall
from easel.core.stream.notifications import CallAnswered, CallPending, Notification
from easel.errors import HostError, Unavailable
from easel.host.artifacts.artifacts import restore
from easel.host.calls.remote_calls import RemoteCallLimits, offload_to_json
from easel.host.periodic import Periodic
from easel.host.ports import ArtifactAccess, CallStore, Notifier

if TYPE_CHECKING:
    from easel.ids import CallId

RETRY_SECONDS = 0.5
SWEEP_SECONDS = 60.0

# Runs a method of a target: receives the call and its params, returns the answer.
CallHandler = Callable[[TakenCall, Mapping[str, Any]], Awaitable[Answer]]

log = structlog.get_logger("calls")


class IncomingCalls:
    def __init__(
        self, store: CallStore, artifacts: ArtifactAccess, notifier: Notifier, limits: RemoteCallLimits
    ) -> None:
        self._store = store
        self._artifacts = artifacts
        self._notifier = notifier
        self._limits = limits
        self._targets: dict[str, Mapping[str, CallHandler]] = {}
        self._grace_until = 0.0  # until then no call expires, because the database was unavailable
        self._running: dict[CallId, asyncio.Task[None]] = {}
        poll_seconds = min(limits.poll_seconds, limits.caller_ttl_seconds / 3)
        self._taking = Periodic("calls.take", poll_seconds, self.take)
        notifier.listen(self._on_notification)

    def add_target(self, target: str, methods: Mapping[str, CallHandler]) -> None:
        """Take calls to this target from now on, those placed before included."""
        self._targets[target] = methods
        self._taking.start()
        self._taking.wake()

    def remove_target(self, target: str) -> None:
        self._targets.pop(target, None)

    def _on_notification(self, notification: Notification) -> None:
        if isinstance(notification, CallPending) and notification.target in self._targets:
            self._taking.wake()

    async def take(self) -> None:
        """Cancel calls that were cancelled or not renewed by their caller, and start new calls."""
        if not (targets := dict(self._targets)):
            return
        try:
            if self._running:
                is_grace_over = time.monotonic() > self._grace_until
                for call_id in await self._store.take_cancelled(list(targets), include_expired=is_grace_over):
                    if (task := self._running.get(call_id)) is not None:
                        task.cancel()
            calls = await self._store.take_calls(list(targets))
        except Unavailable:
            self._grace_until = time.monotonic() + self._limits.caller_ttl_seconds
            raise
        for call in calls:
            task = self._running[call.call_id] = asyncio.create_task(self._run(call, targets[call.target]))
            task.add_done_callback(lambda _, call_id=call.call_id: self._running.pop(call_id, None))

    def periodic(self) -> Periodic:
        """Return the periodic deletion of answers that stopped instances did not fetch."""
        return Periodic(
            "calls.sweep", SWEEP_SECONDS, lambda: self._store.sweep(SWEEP_SECONDS), delay=SWEEP_SECONDS
        )

    async def close(self) -> None:
        await self._taking.stop()
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _run(self, call: TakenCall, methods: Mapping[str, CallHandler]) -> None:
        try:
            async with asyncio.timeout(max(0.0, call.seconds_left)):
                answer = await self._to_stored(call, await self._answer(call, methods))
                # Poll, because nothing notifies when the store is available again.
                while not await self._save(call, answer):  # noqa: ASYNC110
                    await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            log.info("calls.incoming_call_timed_out", call_id=call.call_id)
        except Exception:
            log.exception("calls.incoming_call_error", call_id=call.call_id)

    async def _answer(self, call: TakenCall, methods: Mapping[str, CallHandler]) -> Answer:
        """Run the method and return its answer, within the limit of a result."""
        if (handle := methods.get(call.method)) is None:
            return Answer(error=f"this instance does not know {call.method}.")
        try:
            params = await restore(self._artifacts, call.account_id, msgspec.json.decode(call.params))
            answer = await handle(call, params)
        except HostError as problem:
            return Answer(error=problem.message)
        limit = self._limits.max_result_bytes
        if answer.error is None and (size := len(msgspec.json.encode(answer.result))) > limit:
            return Answer(error=f"its result of {size} bytes is over the limit of {limit}; ask for less.")
        return answer

    async def _to_stored(self, call: TakenCall, answer: Answer) -> str:
        try:
            return await offload_to_json(self._artifacts, call.account_id, answer.to_stored())
        except HostError as problem:
            failure = Answer(error=f"its result cannot be stored: {problem.message}")
            return await offload_to_json(self._artifacts, call.account_id, failure.to_stored())

    async def _save(self, call: TakenCall, answer: str) -> bool:
        """Store the answer and notify the caller. Returns False if the database is unavailable."""
        try:
            if await self._store.save_answer(call.call_id, call.target, answer):
                self._notifier.notify(CallAnswered(call.call_id))
        except Unavailable:
            return False
        return True
