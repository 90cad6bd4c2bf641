"""Streams of logs to viewers: one reader per log, and a cursor per viewer.

Owns subscriptions, heartbeats and the end of a stream. A viewer has a cursor, not a queue: it takes new
events from memory that all viewers of the log share, and older events page by page from the store. Events
that all viewers have passed are dropped, and the memory of all logs together has a limit. So neither a slow
nor an idle viewer needs memory, and an idle viewer needs no query. A notification says that a log has new
events; one query per poll for all watched logs finds events whose notification was lost. Does not know any
wire format.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from easel.core.principal import Principal
from easel.core.stream.filter import EventFilter
from easel.core.stream.log import Bounds, LoggedEvent, check_cursor
from easel.core.stream.notifications import (
    AccountAppended,
    CanvasAppended,
    LogAppended,
    LogDeleted,
    Notification,
    RunAppended,
    ThreadAppended,
)
from easel.errors import NotFound, TooMany, Unavailable
from easel.host.metrics import EVENTS_SENT, SUBSCRIBERS, TAIL_BYTES, WATCHED_LOGS
from easel.host.periodic import Periodic
from easel.host.ports import LogSource, Notifier
from easel.host.usage import AccountUsage
from easel.ids import AccountId, is_generated_id, is_name, scoped_key

PAGE = 100  # RX-36
WINDOW = 1_000  # newest events of a log that are kept in memory for viewers behind: ten pages
EMPTY = Bounds(1, 0, ended=False)
LAST = "done"  # type of the last event of a run's log
EVENT_BYTES = 450  # of an event in memory, in addition to its payload and the payload's frame
EVICTED_SHARE = 0.25  # of the limit: evict more than needed, so that the next page does not evict again

log = structlog.get_logger("streams")


@dataclass(frozen=True, slots=True)
class LogKind:
    """A kind of log: its name in messages, its ids, its keys and its notifications."""

    what: str
    is_name: Callable[[str], bool]
    key: Callable[[AccountId, str], str]
    appended: type[LogAppended]
    is_created_first: bool = True  # False: a log can be watched before its first event exists


RUNS = LogKind("run", is_generated_id, lambda _, name: name, RunAppended)
THREADS = LogKind("session", is_name, scoped_key, ThreadAppended, is_created_first=False)
CANVASES = LogKind("canvas", is_name, scoped_key, CanvasAppended)
ACCOUNTS = LogKind("account", is_name, lambda account_id, _: account_id, AccountAppended)


class LogTail:
    """The newest events of one log, and its subscriptions."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.head = -1  # seq of the newest event that was read; -1: unknown
        self.known = 0  # seq of the newest event that is known to exist
        self.events: list[LoggedEvent] = []
        self.size = 0  # bytes of `events` in memory, estimated
        self.viewers: set[Subscription] = set()
        self.reader: asyncio.Task[None] | None = None

    def after(self, cursor: int) -> Sequence[LoggedEvent] | None:
        """Return up to `PAGE` events after the cursor; None if the first of them is not in memory."""
        if cursor >= self.head:
            return ()
        if not self.events or cursor + 1 < self.events[0].seq:
            return None
        start = cursor + 1 - self.events[0].seq
        return self.events[start : start + PAGE]

    def grow(self, page: list[LoggedEvent], window: int) -> None:
        self.events += page
        self.size += sum(map(_size_in_memory, page))
        self.head = page[-1].seq
        if len(self.events) > 2 * window:
            self.drop(len(self.events) - window)
        for viewer in self.viewers:
            viewer.wake()

    def drop(self, count: int) -> None:
        """Drop the oldest events. A viewer that has not passed them reads them from the store."""
        self.size -= sum(map(_size_in_memory, self.events[:count]))
        del self.events[:count]

    def drop_passed(self) -> None:
        """Drop the events that all viewers have passed."""
        if self.events and self.viewers:
            passed = min(viewer.cursor for viewer in self.viewers)
            self.drop(max(0, passed + 1 - self.events[0].seq))


def _size_in_memory(event: LoggedEvent) -> int:
    return EVENT_BYTES + 2 * sys.getsizeof(event.data)


class Subscription:
    """One viewer's position in a log."""

    def __init__(
        self, tails: "Tails", tail: LogTail, event_filter: EventFilter, account_id: AccountId
    ) -> None:
        self.account_id = account_id
        self._tails = tails
        self._tail = tail
        self.cursor = 0  # the position up to which the viewer has all events that its filter shows
        self._filter = event_filter
        self._wakeup: asyncio.Future[None] | None = None
        self._is_heartbeat_due = False
        self._is_over = False
        self.has_seen_all = False

    async def next(self) -> list[LoggedEvent] | None:
        """Return the next events; an empty list when a heartbeat is due; None when the stream has ended."""
        while not self._is_over:
            page = self._tail.after(self.cursor)
            if page is None:
                page = await self._tails.read(self._tail.key, self.cursor)
            if not page:
                if not self._is_heartbeat_due:
                    self._wakeup = asyncio.get_running_loop().create_future()
                    await self._wakeup
                    self._wakeup = None
                    continue
                self._is_heartbeat_due = False
                return []
            if page[0].seq != self.cursor + 1:
                # The log was pruned during the read. End the stream instead of skipping events: the viewer
                # reconnects and gets an error.
                self.end()
                break
            self.cursor = page[-1].seq
            self.has_seen_all = page[-1].type == LAST
            self._is_over = self._is_over or self.has_seen_all  # keep an `end()` during the read
            if visible := [event for event in page if self._filter.shows(event)]:
                EVENTS_SENT.inc(len(visible))
                self._is_heartbeat_due = False
                return visible
            if self._is_heartbeat_due and not self._is_over:  # between pages that the filter hides
                self._is_heartbeat_due = False
                return []
        return None

    def wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    def beat(self) -> None:
        """Make `next` return, with an empty list if there is no event."""
        self._is_heartbeat_due = True
        self.wake()

    def end(self) -> None:
        """End the stream; the viewer may resume with its cursor."""
        self._is_over = True
        self.wake()

    def close(self) -> None:
        self._tails.leave(self._tail, self)


class StreamQuota:
    """The streams that an instance, and an account on all instances, may have open, of all kinds together."""

    def __init__(self, limit: int, usage: AccountUsage | None = None) -> None:
        self._limit = limit
        self._usage = usage
        self._used = 0

    def check(self, account_id: AccountId) -> None:
        if self._used >= self._limit:
            raise TooMany(what="open streams", limit=self._limit)
        if self._usage is not None:
            self._usage.check("streams", account_id)

    def count(self, account_id: AccountId, change: int) -> None:
        self._used += change
        if self._usage is not None:
            self._usage.hold("streams", account_id, change)


class TailMemory:
    """The memory for the events of all tails of an instance, of all kinds of logs together."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._sizes: dict[LogTail, int] = {}  # in the order of the tails' last changes
        self.used = 0

    def update(self, tail: LogTail) -> None:
        """Count the current size of a tail, and evict events if all tails together are too large."""
        self._count(tail)
        if self.used > self._max_bytes:
            self._evict(round(self._max_bytes * (1 - EVICTED_SHARE)))
        TAIL_BYTES.set(self.used)

    def forget(self, tail: LogTail) -> None:
        self.used -= self._sizes.pop(tail, 0)
        TAIL_BYTES.set(self.used)

    def _count(self, tail: LogTail) -> None:
        self.used += tail.size - self._sizes.pop(tail, 0)
        if tail.size:
            self._sizes[tail] = tail.size

    def _evict(self, max_bytes: int) -> None:
        """Drop events that all viewers have passed, then all events of the tails that changed first."""
        for tail in list(self._sizes):
            tail.drop_passed()
            self._count(tail)
        for tail in list(self._sizes):
            if self.used <= max_bytes:
                return
            tail.drop(len(tail.events))
            self._count(tail)


class Tails:
    def __init__(
        self,
        kind: LogKind,
        source: LogSource,
        notifier: Notifier,
        *,
        poll_seconds: float,
        heartbeat_seconds: float,
        quota: StreamQuota,
        memory: TailMemory,
        window: int = WINDOW,
    ) -> None:
        self._kind = kind
        self._source = source
        self._heartbeat_seconds = heartbeat_seconds
        self._quota = quota
        self._window = window
        self._memory = memory
        self._tails: dict[str, LogTail] = {}
        # The viewers of all tails, and viewers of deleted logs that have not closed their subscription yet.
        self._viewers: set[Subscription] = set()
        self._count = 0
        self._is_closing = False
        self._heartbeat_in = heartbeat_seconds
        self._tick_seconds = min(1.0, heartbeat_seconds)
        self._loops = (
            Periodic(f"{kind.what}_streams.poll", poll_seconds, self.poll, delay=poll_seconds),
            Periodic(f"{kind.what}_streams.tick", self._tick_seconds, self._tick, delay=self._tick_seconds),
        )
        notifier.listen(self._on_notification)

    async def open(
        self, principal: Principal, name: str, cursor: int | None, event_filter: EventFilter
    ) -> Subscription | None:
        """Return a subscription that starts after `cursor`, or at the oldest event if `cursor` is None.

        Returns None if the log has ended at `cursor`. Raises `NotFound` for an unknown log or the log of
        another user, and `CursorOutOfRange` for a cursor outside the log.
        """
        if self._is_closing:
            raise Unavailable(what="This instance")
        self._quota.check(principal.account_id)
        if not self._kind.is_name(name):
            raise NotFound(what=self._kind.what, id=name)
        for loop in self._loops:
            loop.start()
        # Subscribe before reading the bounds, so that no notification between the two is missed.
        key = self._kind.key(principal.account_id, name)
        tail = self._tails.setdefault(key, LogTail(key))
        viewer = Subscription(self, tail, event_filter, principal.account_id)
        tail.viewers.add(viewer)
        self._viewers.add(viewer)
        self._count_viewers(viewer.account_id, +1)
        try:
            bounds = await self._source.bounds(principal.account_id, name)
            if bounds is None and not self._kind.is_created_first:
                bounds = EMPTY
            if bounds is None:
                raise NotFound(what=self._kind.what, id=name)
            cursor = bounds.oldest - 1 if cursor is None else cursor
            check_cursor(cursor, bounds)
            viewer.cursor = cursor
            if bounds.ended and cursor == bounds.newest:
                viewer.close()
                return None
        except BaseException:
            viewer.close()
            raise
        if tail.head < 0:
            tail.head = bounds.newest
        self._note(tail, bounds.newest)
        return viewer

    def leave(self, tail: LogTail, viewer: Subscription) -> None:
        if viewer not in tail.viewers:
            return
        tail.viewers.discard(viewer)
        self._viewers.discard(viewer)
        self._count_viewers(viewer.account_id, -1)
        if not tail.viewers:
            self._memory.forget(tail)
            self._drop(tail)

    def _drop(self, tail: LogTail) -> None:
        """Watch the log no more, unless another tail of it was opened since."""
        if self._tails.get(tail.key) is tail:
            del self._tails[tail.key]
            WATCHED_LOGS.labels(self._kind.what).set(len(self._tails))

    async def read(self, key: str, cursor: int) -> list[LoggedEvent]:
        return await self._source.events_after(key, cursor, PAGE)

    async def close(self) -> None:
        """End every stream; viewers resume at another instance with their cursor."""
        self._is_closing = True
        for viewer in self._viewers:
            viewer.end()
        for loop in self._loops:
            await loop.stop()

    def _count_viewers(self, account_id: AccountId, change: int) -> None:
        self._count += change
        self._quota.count(account_id, change)
        SUBSCRIBERS.labels(self._kind.what).set(self._count)
        WATCHED_LOGS.labels(self._kind.what).set(len(self._tails))

    # -- new events ------------------------------------------------------------------------------------------

    def _on_notification(self, notification: Notification) -> None:
        if isinstance(notification, self._kind.appended):
            if tail := self._tails.get(notification.key):
                self._note(tail, notification.seq)
        elif (
            isinstance(notification, LogDeleted)
            and notification.what == self._kind.what
            and (tail := self._tails.get(notification.key))
        ):
            self._end(tail)

    def _end(self, tail: LogTail) -> None:
        """End all subscriptions of a deleted log; a viewer that reconnects gets an error."""
        self._drop(tail)
        for viewer in list(tail.viewers):
            viewer.end()

    def _note(self, tail: LogTail, seq: int) -> None:
        tail.known = max(tail.known, seq)
        if 0 <= tail.head < tail.known and tail.reader is None:
            tail.reader = asyncio.create_task(self._read_on(tail))

    async def _read_on(self, tail: LogTail) -> None:
        """Read new events into memory. If the store is unavailable, the next poll retries."""
        try:
            while tail.viewers and tail.head < tail.known:
                page = await self.read(tail.key, tail.head)
                if not page or not tail.viewers:  # the memory of a tail without viewers is never given back
                    return
                tail.grow(page, self._window)
                self._memory.update(tail)
        except Unavailable:
            log.info("stream.database_unavailable", log=tail.key)
        finally:
            tail.reader = None

    # -- periodic work ---------------------------------------------------------------------------------------

    async def poll(self) -> None:
        """Find new events whose notification was lost, with one query for all watched logs."""
        watched = [(tail, tail.head) for tail in self._tails.values() if tail.head >= 0]
        if not watched:
            return
        heads = await self._source.heads([tail.key for tail, _ in watched])
        # A log whose first event was appended during the query is not in `heads`, but it was not deleted.
        for tail, head_before in watched:
            head = heads.get(tail.key)
            if head is not None:
                self._note(tail, head)
            elif self._kind.is_created_first or head_before > 0:
                self._end(tail)

    async def _tick(self) -> None:
        """Drop passed events, and wake all viewers when a heartbeat is due."""
        self._heartbeat_in -= self._tick_seconds
        self.drop_passed()
        if self._heartbeat_in <= 0:
            self._heartbeat_in = self._heartbeat_seconds
            for viewer in list(self._viewers):
                viewer.beat()

    def drop_passed(self) -> None:
        """Drop from memory the events that all viewers of their log have passed."""
        for tail in self._tails.values():
            size = tail.size
            tail.drop_passed()
            if tail.size != size:
                self._memory.update(tail)
