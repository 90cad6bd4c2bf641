"""Tails of logs: one reader per instance and log, however many viewers it has.

Runs, threads and canvases have logs; a tail of each works alike, and what a viewer may see of it is the viewer's filter.

A viewer holds a cursor, not a queue: it takes what lies after its cursor from the log's newest stretch, which all
viewers share, or pages through the store while it is further behind. So a slow viewer costs no memory and an idle one
no query. The bell says when a log grew; one query a second for all watched logs finds what the bell did not say.
"""

import asyncio
import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import structlog

from easel.core.principal import Principal
from easel.core.stream.filter import EventFilter
from easel.core.stream.log import Bounds, LoggedEvent, check_cursor
from easel.core.stream.notifications import (
    CanvasAppended,
    LogDeleted,
    Notification,
    RunAppended,
    ThreadAppended,
)
from easel.errors import NotFound, TooMany, Unavailable
from easel.host.metrics import EVENTS_SENT, STALLED, SUBSCRIBERS, WATCHED_LOGS
from easel.host.ports import LogSource, Notifier
from easel.ids import UserId, is_made_here, is_name, owned

PAGE = 100  # RX-36
EMPTY = Bounds(1, 0, ended=False)
LAST = "done"  # the last event of a run's log

log = structlog.get_logger("tails")


@dataclass(frozen=True, slots=True)
class LogKind:
    """What tells one kind of log from another: its word, its names, its keys and its rings."""

    what: str
    is_name: Callable[[str], bool]
    key: Callable[[UserId, str], str]
    grew: type[RunAppended] | type[ThreadAppended] | type[CanvasAppended]
    is_there: bool = True  # whether a log that nobody has written to yet is an error


RUNS = LogKind("run", is_made_here, lambda _, name: name, RunAppended)
THREADS = LogKind("session", is_name, owned, ThreadAppended, is_there=False)
CANVASES = LogKind("canvas", is_name, owned, CanvasAppended)


class LogTail:
    """The newest stretch of one log and those who watch it."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.head = -1  # up to here the stretch is read; -1: nobody has looked yet
        self.known = 0  # up to here the bell says there is something
        self.stretch: list[LoggedEvent] = []
        self.viewers: set[Subscription] = set()
        self.reader: asyncio.Task[None] | None = None

    def begin_at(self, head: int) -> None:
        if self.head < 0:
            self.head = head

    def after(self, cursor: int) -> Sequence[LoggedEvent] | None:
        """What follows the cursor, or None when that is further back than what is kept."""
        if cursor >= self.head:
            return ()
        if not self.stretch or cursor + 1 < self.stretch[0].seq:
            return None
        start = cursor + 1 - self.stretch[0].seq
        return self.stretch[start : start + PAGE]

    def grow(self, page: list[LoggedEvent], window: int) -> None:
        self.stretch += page
        self.head = page[-1].seq
        if len(self.stretch) > 2 * window:
            del self.stretch[:-window]
        for viewer in self.viewers:
            viewer.wake()


class Subscription:
    """One viewer's place in a log."""

    def __init__(self, tails: "Tails", tail: LogTail, view: EventFilter) -> None:
        self._tails = tails
        self._tail = tail
        self._cursor = 0
        self._view = view
        self._notifier: asyncio.Future[None] | None = None
        self._is_over = False
        self.has_seen_all = False
        self.is_cut = False
        self.sending_since: float | None = None
        self._senders = 0
        self.task = asyncio.current_task()

    async def next(self) -> list[LoggedEvent] | None:
        """The next events in order; an empty list when it is time for a sign of life; None when there is nothing more."""
        while not self._is_over:
            page = self._tail.after(self._cursor)
            if page is None:
                page = await self._tails.read(self._tail.key, self._cursor)
            if not page:
                self._notifier = asyncio.get_running_loop().create_future()
                await self._notifier
                self._notifier = None
                if self._tail.head <= self._cursor and not self._is_over:
                    return []
                continue
            if (
                page[0].seq != self._cursor + 1
            ):  # the log was shortened meanwhile: its viewer must hear so, not see a gap
                self.end()
                break
            self._cursor = page[-1].seq
            self.has_seen_all = page[-1].type == LAST
            self._is_over = self._is_over or self.has_seen_all  # an `end()` during the read still counts
            if shown := [event for event in page if self._view.shows(event)]:
                EVENTS_SENT.inc(len(shown))
                return shown
        return None

    @property
    def key(self) -> str:
        return self._tail.key

    @contextlib.contextmanager
    def sending(self) -> Generator[None]:
        """Around each sending, of several at a time too: whoever is in one for too long is cut."""
        self._senders += 1
        if self.sending_since is None:
            self.sending_since = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            self._senders -= 1
            if not self._senders:
                self.sending_since = None

    def wake(self) -> None:
        if self._notifier is not None and not self._notifier.done():
            self._notifier.set_result(None)

    def cut(self) -> None:
        """Its reader takes nothing: give up the connection and what is buffered for it."""
        self.sending_since = None
        self.is_cut = True
        if self.task is not None:
            self.task.cancel()

    def end(self) -> None:
        """No more events; the viewer may come back with its cursor."""
        self._is_over = True
        self.wake()

    def start_after(self, cursor: int) -> None:
        self._cursor = cursor

    def close(self) -> None:
        self._tails.leave(self._tail, self)


class StreamQuota:
    """How many streams an instance may have open, of all kinds together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.taken = 0

    def check(self) -> None:
        if self.taken >= self._limit:
            raise TooMany(what="open streams", limit=self._limit)


class Tails:
    def __init__(
        self,
        kind: LogKind,
        source: LogSource,
        notifier: Notifier,
        *,
        poll_seconds: float,
        heartbeat_seconds: float,
        stall_seconds: float,
        room: "StreamQuota",
        window: int,
    ) -> None:
        self._kind = kind
        self._source = source
        self._poll_seconds = poll_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._stall_seconds = stall_seconds
        self._room = room
        self._window = window
        self._tails: dict[str, LogTail] = {}
        self._viewers: set[Subscription] = (
            set()
        )  # of all tails, and of those that are no more but whose viewers have yet to leave
        self._count = 0
        self._is_closing = False
        self._duties: list[asyncio.Task[None]] = []
        notifier.listen(self._on_notification)

    async def open(
        self, principal: Principal, name: str, cursor: int | None, view: EventFilter
    ) -> Subscription | None:
        """A place after `cursor`, or before the oldest event that is kept; None when there is nothing more to come.

        Raises for a foreign log or a cursor outside the log.
        """
        if self._is_closing:
            raise Unavailable(what="This instance")
        self._room.check()
        if not self._kind.is_name(name):
            raise NotFound(what=self._kind.what, id=name)
        self._start_duties()
        # Watched before looked at: a ring between the look and the watch would otherwise be lost.
        key = self._kind.key(principal.user_id, name)
        tail = self._tails.setdefault(key, LogTail(key))
        viewer = Subscription(self, tail, view)
        tail.viewers.add(viewer)
        self._viewers.add(viewer)
        self._counted(+1)
        try:
            bounds = await self._source.bounds(principal.user_id, name)
            if bounds is None and not self._kind.is_there:
                bounds = EMPTY
            if bounds is None:
                raise NotFound(what=self._kind.what, id=name)
            cursor = bounds.oldest - 1 if cursor is None else cursor
            check_cursor(cursor, bounds)
            viewer.start_after(cursor)
            if bounds.ended and cursor == bounds.newest:
                viewer.close()
                return None
        except BaseException:
            viewer.close()
            raise
        tail.begin_at(bounds.newest)
        self._note(tail, bounds.newest)
        return viewer

    def leave(self, tail: LogTail, viewer: Subscription) -> None:
        if viewer not in tail.viewers:
            return
        tail.viewers.discard(viewer)
        self._viewers.discard(viewer)
        self._counted(-1)
        if not tail.viewers and self._tails.get(tail.key) is tail:
            del self._tails[tail.key]
            WATCHED_LOGS.labels(self._kind.what).set(len(self._tails))

    async def read(self, key: str, cursor: int) -> list[LoggedEvent]:
        return await self._source.events_after(key, cursor, PAGE)

    async def close(self) -> None:
        """Every stream ends in good order; its viewer resumes elsewhere by its cursor."""
        self._is_closing = True
        for duty in self._duties:
            duty.cancel()
        for viewer in self._viewers:
            viewer.end()
        await asyncio.gather(*self._duties, return_exceptions=True)

    def _counted(self, change: int) -> None:
        self._count += change
        self._room.taken += change
        SUBSCRIBERS.labels(self._kind.what).set(self._count)
        WATCHED_LOGS.labels(self._kind.what).set(len(self._tails))

    # -- growing ---------------------------------------------------------------------------------------------------

    def _on_notification(self, notification: Notification) -> None:
        if isinstance(notification, self._kind.grew):
            if tail := self._tails.get(notification.key):
                self._note(tail, notification.seq)
        elif (
            isinstance(notification, LogDeleted)
            and notification.what == self._kind.what
            and (tail := self._tails.get(notification.key))
        ):
            self._end(tail)

    def _end(self, tail: LogTail) -> None:
        """The log is no more: whoever comes back is told so, and finds nothing of it here."""
        if self._tails.get(tail.key) is tail:
            del self._tails[tail.key]
        for viewer in list(tail.viewers):
            viewer.end()

    def _note(self, tail: LogTail, seq: int) -> None:
        tail.known = max(tail.known, seq)
        if 0 <= tail.head < tail.known and tail.reader is None:
            tail.reader = asyncio.create_task(self._read_on(tail))

    async def _read_on(self, tail: LogTail) -> None:
        """Read what was added. A store that is away is asked again by the poll."""
        try:
            while tail.viewers and tail.head < tail.known:
                page = await self.read(tail.key, tail.head)
                if not page:
                    return
                tail.grow(page, self._window)
        except Unavailable:
            log.info("tail.database_unavailable", log=tail.key)
        finally:
            tail.reader = None

    # -- what time brings ------------------------------------------------------------------------------------------

    def _start_duties(self) -> None:
        if not self._duties:
            self._duties = [
                asyncio.create_task(self._poll_forever()),
                asyncio.create_task(self._beat_forever()),
            ]

    async def _poll_forever(self) -> None:
        while True:
            await asyncio.sleep(self._poll_seconds)
            try:
                await self.poll()
            except Unavailable:
                pass  # the next look may find it back
            except Exception:  # a poll that is given up would never find what the bell did not say
                log.exception("tails.poll_error", logs=self._kind.what)

    async def poll(self) -> None:
        """One query for all watched logs."""
        watched = [(tail, tail.head) for tail in self._tails.values() if tail.head >= 0]
        if not watched:
            return
        heads = await self._source.heads([tail.key for tail, _ in watched])
        for tail, head_before in watched:  # as it was when we asked: what came meanwhile is not in the answer
            head = heads.get(tail.key)
            if head is not None:
                self._note(tail, head)
            elif self._kind.is_there or head_before > 0:
                self._end(tail)

    async def _beat_forever(self) -> None:
        beats_in = self._heartbeat_seconds
        tick = min(1.0, self._heartbeat_seconds, self._stall_seconds / 4)
        while True:
            await asyncio.sleep(tick)
            beats_in -= tick
            self._cut_stalled()
            if beats_in <= 0:
                beats_in = self._heartbeat_seconds
                for viewer in list(self._viewers):
                    viewer.wake()

    def _cut_stalled(self) -> None:
        latest = asyncio.get_running_loop().time() - self._stall_seconds
        for viewer in list(self._viewers):
            if viewer.sending_since is not None and viewer.sending_since < latest:
                STALLED.inc()
                log.info("stream.stalled", log=viewer.key)
                viewer.cut()
