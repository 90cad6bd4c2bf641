"""The audit trail: records for operators, never for a user's stream. CC-05, RS-06

Owns how records reach the chain: `record` stores a record at once, `note` queues it for the next batch,
`record_throttled` queues at most one record per second with a count of repetitions. None of them fails or
blocks while the database is unavailable: records wait in a bounded queue, and a record that does not fit or
cannot be stored is logged. `core.audit` defines the content of a record.
"""

import asyncio
import contextlib
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple

import structlog

from easel.core.audit.chain import Link
from easel.core.audit.record import ACTIONS, EASEL, Entry, StorageClass, new_entry
from easel.core.audit.redaction import Redaction
from easel.core.principal import Principal, Role
from easel.core.secret.mask import mask_active
from easel.errors import BadInput, Forbidden, HostError, Unavailable
from easel.host.metrics import AUDIT_NOT_STORED
from easel.host.ports import AuditStore

BATCH_SECONDS = 0.1  # notes that arrive within this time share one commit
RETRY_SECONDS = 0.5
THROTTLE_SECONDS = 1.0
CLOSE_SECONDS = 3.0  # how long a stopping process tries to store its last notes
MAX_QUEUED = 2_000  # notes that are not stored yet; at 3 KB each they take 6 MB
MAX_BATCH = 200

Details = Mapping[str, Any]

log = structlog.get_logger("audit")


class _Key(NamedTuple):
    account_id: str
    actor_id: str
    action: str


@dataclass(slots=True)
class _Throttled:
    """Repetitions of one action of one actor within the throttle interval."""

    principal: Principal | None
    seconds: float
    timer: asyncio.TimerHandle
    count: int = 0
    subject: str | None = None
    details: Details = field(default_factory=dict[str, Any])


class Audit:
    def __init__(
        self,
        store: AuditStore,
        *,
        secrets: Iterable[str] = (),
        slow_seconds: float = 5.0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._secrets = frozenset(secrets)
        self._redaction = Redaction(self._secrets)
        self._store = store
        self.slow_seconds = slow_seconds
        self._now = now
        self._queue: deque[Entry] = deque()
        self._overflow_count = 0
        self._is_repeat = False  # a queued entry may have been stored by an attempt without an answer
        self._throttled: dict[_Key, _Throttled] = {}
        self._writer: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def add_secret(self, *secrets: str) -> None:
        """Redact these secrets from all later records, whatever their format."""
        self._secrets |= frozenset(secrets)
        self._redaction = Redaction(self._secrets)

    def redact(self, text: str) -> str:
        """Return the text with secrets redacted: an error message may quote an API key. P6"""
        return self._redaction(text)

    # -- recording -------------------------------------------------------------------------------------------

    async def record(
        self, principal: Principal, action: str, *, subject: str | None = None, details: Details | None = None
    ) -> None:
        """Store a record durably. While the database is unavailable, the record is queued as by `note`."""
        await self.record_all(principal, [(action, details or {})], subject=subject)

    async def record_all(
        self, principal: Principal, records: Iterable[tuple[str, Details]], *, subject: str | None
    ) -> None:
        """Store records of one subject durably, in one commit."""
        entries = [self._new_entry(principal, action, subject, details) for action, details in records]
        if not entries:
            return
        try:
            await self._store.append(entries)
        except Unavailable:  # they may have been stored: the answer may be lost
            self._is_repeat = True
            for entry in entries:
                self._enqueue(entry)

    def note(
        self,
        principal: Principal | None,
        action: str,
        *,
        subject: str | None = None,
        details: Details | None = None,
    ) -> None:
        """Queue a record; never blocks and never raises."""
        try:
            self._enqueue(self._new_entry(principal or EASEL, action, subject, details))
        except Exception:
            log.exception("audit.note_error", action=action)

    def record_throttled(
        self,
        principal: Principal | None,
        action: str,
        *,
        subject: str | None = None,
        details: Details | None = None,
        every: float = THROTTLE_SECONDS,
    ) -> None:
        """Queue at most one record per actor and action in `every` seconds, with the number of calls."""
        throttled = self._throttled.get(_key(principal, action))
        if throttled is not None:
            throttled.count += 1
            throttled.subject, throttled.details = subject, details or {}
            return
        self.note(principal, action, subject=subject, details={**(details or {}), "count": 1})
        self._throttle(principal, action, every)

    def record_exception(
        self,
        principal: Principal | None,
        action: str,
        problem: BaseException,
        *,
        reference: str | None = None,
        subject: str | None = None,
        details: Details | None = None,
    ) -> None:
        """Queue a record of an exception with its traceback. Users are shown only the `reference`."""
        recorded: dict[str, Any] = {"reference": reference} if reference else {}
        try:
            recorded |= {**(details or {}), **_describe(problem)}
        except Exception:  # the __str__ of an exception may raise
            log.exception("audit.describe_error", action=action)
        self.note(principal, action, subject=subject, details=recorded)

    def record_slow(
        self, action: str, seconds: float, *, subject: str | None = None, details: Details | None = None
    ) -> None:
        """Queue a throttled record if `seconds` exceeds EASEL_SLOW_SECONDS."""
        if seconds > self.slow_seconds:
            self.record_throttled(
                None, action, subject=subject, details={**(details or {}), "seconds": round(seconds, 6)}
            )

    def _new_entry(
        self, principal: Principal, action: str, subject: str | None, details: Details | None
    ) -> Entry:
        return new_entry(
            self._now(), principal, action, redact=self._redact_entry, subject=subject, details=details
        )

    def _redact_entry(self, text: str) -> str:
        return self._redaction(mask_active(text))

    # -- storing queued records ------------------------------------------------------------------------------

    def _enqueue(self, entry: Entry) -> None:
        if len(self._queue) >= MAX_QUEUED or self._closing.is_set():
            self._overflow_count += 1
            _log_entries([entry])
            return
        self._queue.append(entry)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write(), name="audit")

    async def _write(self) -> None:
        await self._pause(BATCH_SECONDS)
        try:
            while self._queue:
                batch, overflow_count = list(islice(self._queue, MAX_BATCH)), self._overflow_count
                try:
                    await self._store.append(
                        [*batch, *self._overflow_entry(overflow_count)], is_repeat=self._is_repeat
                    )
                except Unavailable:
                    self._is_repeat = True
                    if self._closing.is_set():
                        return
                    await self._pause(RETRY_SECONDS)
                    continue
                except Exception:
                    log.exception("audit.store_error")
                    _log_entries(batch)
                else:
                    self._overflow_count -= overflow_count
                for _ in batch:
                    self._queue.popleft()
                self._is_repeat = self._is_repeat and bool(self._queue)
                if 0 < len(self._queue) < MAX_BATCH:  # let the next batch fill
                    await self._pause(BATCH_SECONDS)
        finally:
            self._writer = None

    def _overflow_entry(self, count: int) -> list[Entry]:
        """Return a record with the number of records that were only logged; no record if there are none."""
        return [self._new_entry(EASEL, "audit.overflowed", None, {"count": count})] if count else []

    def _throttle(self, principal: Principal | None, action: str, seconds: float) -> None:
        key = _key(principal, action)
        timer = asyncio.get_running_loop().call_later(seconds, self._end_throttle, key)
        self._throttled[key] = _Throttled(principal, seconds, timer)

    def _end_throttle(self, key: _Key) -> None:
        throttled = self._throttled.pop(key)
        if throttled.count:
            self._note_repetitions(key.action, throttled)
            self._throttle(throttled.principal, key.action, throttled.seconds)

    def _note_repetitions(self, action: str, throttled: _Throttled) -> None:
        details = {**throttled.details, "count": throttled.count}
        self.note(throttled.principal, action, subject=throttled.subject, details=details)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    async def close(self) -> None:
        """Store the queued records, or log those that cannot be stored in time."""
        for key, throttled in self._throttled.items():
            throttled.timer.cancel()
            if throttled.count:
                self._note_repetitions(key.action, throttled)
        self._throttled.clear()
        self._closing.set()
        if (writer := self._writer) is not None:
            await asyncio.wait([writer], timeout=CLOSE_SECONDS)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
        _log_entries(self._queue)
        self._queue.clear()

    # -- reading ---------------------------------------------------------------------------------------------

    async def list_records(
        self,
        principal: Principal,
        *,
        action: str | None = None,
        storage_class: StorageClass | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        limit: int,
    ) -> list[Link]:
        """Return records of the principal's account, newest first. Raises `Forbidden` unless it is an admin.

        An operator gets also those of the host that belong to no account, and of no other account. RS-76
        """
        if principal.role is not Role.ADMIN:
            raise Forbidden(problem="only an admin of the account may read its audit records.")
        if action is not None and action not in ACTIONS:
            raise BadInput(problem=f"action must be one of {', '.join(ACTIONS)}, not {action[:100]!r}.")
        return await self._store.list_records(
            principal.account_id,
            of_host=principal.is_operator,
            action=action,
            storage_class=storage_class,
            since=since,
            until=until,
            before=before,
            limit=limit,
        )


def _key(principal: Principal | None, action: str) -> _Key:
    actor = principal or EASEL
    return _Key(actor.account_id, actor.actor_id, action)


def _describe(problem: BaseException) -> dict[str, Any]:
    details: dict[str, Any] = {"exception": type(problem).__name__, "message": str(problem)}
    if isinstance(problem, HostError):
        details["error"] = problem.code
    if problem.__cause__ is not None:
        details["cause"] = f"{type(problem.__cause__).__name__}: {problem.__cause__}"
    return {**details, "traceback": "".join(traceback.format_exception(problem))}


def _log_entries(entries: Iterable[Entry]) -> None:
    for entry in entries:
        AUDIT_NOT_STORED.inc()
        log.warning("audit.not_stored", record="{" + entry.rest)
