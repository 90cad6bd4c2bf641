"""The system stream: what those who run Easel are told, and nobody else. CC-05, RS-06

Owns how records reach the chain: `record` at once, `note` soon and in batches, `tally` at most once a second with a count.
None of them fails or holds up its caller because the store is away: what cannot be stored waits for a while, within bounds,
and what does not fit or does not make it is in the log. What a record looks like is the core's business.
"""

import asyncio
import contextlib
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import structlog

from easel.core.audit.chain import START, Break, ChainPosition, Link, check_end, follow
from easel.core.audit.record import ACTIONS, EASEL, Entry, StorageClass, entry
from easel.core.audit.redaction import Redaction
from easel.core.principal import Principal, PrincipalKind
from easel.errors import BadInput, HostError, Unavailable
from easel.host.metrics import AUDIT_NOT_STORED
from easel.host.ports import AuditStore
from easel.ids import UserId

GATHER_SECONDS = 0.1  # notes that come within this time share one commit
RETRY_SECONDS = 0.5
TALLY_SECONDS = 1.0
CLOSE_SECONDS = 3.0  # how long a stopping process waits for its last notes to be stored
MAX_WAITING = 2_000  # notes not yet stored; at 3 KB each a store that stays away costs 6 MB
MAX_BATCH = 200
PAGE = 1_000  # records that are verified between two looks at the store
_FIRST = -(2**63)  # below any record, also below those that somebody has put before the first

Details = Mapping[str, Any]

log = structlog.get_logger("audit")


def agent_of(user_id: UserId) -> Principal:
    """Who acts in a user's run: the agent, for that user."""
    return Principal(user_id, "agent", kind=PrincipalKind.AGENT)


@dataclass(slots=True)
class _Tally:
    """The same thing again within a short while: counted, and told when the while is over."""

    principal: Principal | None
    every: float
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
        self._slow = slow_seconds
        self._now = now
        self._waiting: deque[Entry] = deque()
        self._overflowed = 0
        self._tallies: dict[tuple[str, str], _Tally] = {}
        self._writer: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def add_secret(self, *secrets: str) -> None:
        """From now on these are in no record, whatever they look like."""
        self._secrets |= frozenset(secrets)
        self._redaction = Redaction(self._secrets)

    def redacted(self, text: str) -> str:
        """For what is told to others: the reason why something failed may quote a key. P6"""
        return self._redaction(text)

    # -- telling ---------------------------------------------------------------------------------------------------

    async def record(
        self, principal: Principal, action: str, *, subject: str | None = None, details: Details | None = None
    ) -> None:
        """Durable when it returns. If the store is away it is as good as a note: what was done is done, and will be told."""
        one = self._entry(principal, action, subject, details)
        try:
            await self._store.append([one])
        except Unavailable:
            self._keep(one)

    def note(
        self,
        principal: Principal | None,
        action: str,
        *,
        subject: str | None = None,
        details: Details | None = None,
    ) -> None:
        """Stored soon. Never waits and never fails: whoever has trouble enough to tell needs no more of it."""
        try:
            self._keep(self._entry(principal or EASEL, action, subject, details))
        except Exception:
            log.exception("audit.not_noted", action=action)

    def record_throttled(
        self,
        principal: Principal | None,
        action: str,
        *,
        subject: str | None = None,
        details: Details | None = None,
        every: float = TALLY_SECONDS,
    ) -> None:
        """As `note`, for each actor and action at most once in `every` seconds, with how often: a flood fills no disk."""
        key = ((principal or EASEL).user_id, action)
        running = self._tallies.get(key)
        if running is not None:
            running.count += 1
            running.subject, running.details = subject, details or {}
            return
        self.note(principal, action, subject=subject, details={**(details or {}), "count": 1})
        self._count_for_a_while(principal, action, every)

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
        """Something broke: its type, what it said and where. The user was told the reference and nothing else of it."""
        told = {"reference": reference} if reference else {}
        try:
            told |= {**(details or {}), **_what_broke(problem)}
        except Exception:  # an exception may even break when it is asked what it says
            log.exception("audit.not_told", action=action)
        self.note(principal, action, subject=subject, details=told)

    def slow(
        self, action: str, seconds: float, *, subject: str | None = None, details: Details | None = None
    ) -> None:
        """Tells of it only if it took longer than EASEL_SLOW_SECONDS."""
        if seconds > self._slow:
            self.record_throttled(
                None, action, subject=subject, details={**(details or {}), "seconds": round(seconds, 6)}
            )

    def _entry(
        self, principal: Principal, action: str, subject: str | None, details: Details | None
    ) -> Entry:
        return entry(self._now(), principal, action, redact=self._redaction, subject=subject, details=details)

    # -- storing what was noted ------------------------------------------------------------------------------------

    def _keep(self, one: Entry) -> None:
        if len(self._waiting) >= MAX_WAITING or self._closing.is_set():
            self._overflowed += 1
            _only_log([one])
            return
        self._waiting.append(one)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write(), name="audit")

    async def _write(self) -> None:
        await self._pause(GATHER_SECONDS)
        try:
            while self._waiting:
                batch, gap = list(islice(self._waiting, MAX_BATCH)), self._overflowed
                try:
                    await self._store.append([*batch, *self._gap(gap)])
                except Unavailable:
                    if self._closing.is_set():
                        return
                    await self._pause(RETRY_SECONDS)
                    continue
                except Exception:
                    log.exception("audit.not_stored")
                    _only_log(batch)
                else:
                    self._overflowed -= gap
                for _ in batch:
                    self._waiting.popleft()
                if 0 < len(self._waiting) < MAX_BATCH:  # what comes one by one goes together too
                    await self._pause(GATHER_SECONDS)
        finally:
            self._writer = None

    def _gap(self, count: int) -> list[Entry]:
        """The trail says itself where something is missing that only the log has."""
        return [self._entry(EASEL, "audit.overflowed", None, {"count": count})] if count else []

    def _count_for_a_while(self, principal: Principal | None, action: str, every: float) -> None:
        key = ((principal or EASEL).user_id, action)
        timer = asyncio.get_running_loop().call_later(every, self._while_is_over, key)
        self._tallies[key] = _Tally(principal, every, timer)

    def _while_is_over(self, key: tuple[str, str]) -> None:
        tally = self._tallies.pop(key)
        if tally.count:
            self._tell_count(key[1], tally)
            self._count_for_a_while(tally.principal, key[1], tally.every)

    def _tell_count(self, action: str, tally: _Tally) -> None:
        self.note(
            tally.principal, action, subject=tally.subject, details={**tally.details, "count": tally.count}
        )

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    async def close(self) -> None:
        """What waits is stored now, or logged."""
        for (_, action), tally in self._tallies.items():
            tally.timer.cancel()
            if tally.count:
                self._tell_count(action, tally)
        self._tallies.clear()
        self._closing.set()
        if (writer := self._writer) is not None:
            await asyncio.wait([writer], timeout=CLOSE_SECONDS)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
        _only_log(self._waiting)
        self._waiting.clear()

    # -- reading ---------------------------------------------------------------------------------------------------

    async def list_records(
        self,
        *,
        action: str | None = None,
        storage_class: StorageClass | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        limit: int,
    ) -> list[Link]:
        """Newest first. Who may ask is decided before."""
        if action is not None and action not in ACTIONS:
            raise BadInput(problem=f"There is no action {action[:100]!r}; there are {', '.join(ACTIONS)}.")
        return await self._store.list_records(
            action=action, storage_class=storage_class, since=since, until=until, before=before, limit=limit
        )


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the chain was followed, of how much; with the problem, if it is broken there."""

    seq: int
    last: int
    place: ChainPosition | None = None
    is_end: bool = False
    problem: str | None = None


async def verify(store: AuditStore, known: Iterable[ChainPosition] = ()) -> AsyncIterator[Reached]:
    """Follows the chain page by page from its first record to where it ended when this began; others may append meanwhile.

    What it gives last is the end or the first break. `known` are places that were noted elsewhere: the chain has to pass them.
    """
    end = await store.get_end()
    last = max(end.newest, end.head.seq if end.head else 0)
    ahead = {place.seq: place for place in known}
    place, below = START, _FIRST
    while links := await store.list_after(below, last, PAGE):
        followed = follow(place, links)
        if isinstance(followed, Break):
            yield Reached(followed.seq, last, problem=followed.problem)
            return
        strange = next((link.seq for link in links if ahead.pop(link.seq, link).hash != link.hash), None)
        if strange is not None:
            yield Reached(
                strange,
                last,
                problem=f"Record {strange} is not the one that was noted: the chain was written anew.",
            )
            return
        place, below = followed, followed.seq
        yield Reached(place.seq, last, place)
    broken = check_end(place, end)
    if broken is None and ahead:
        broken = Break(place.seq + 1, f"Record {min(ahead)} was noted, and the chain ends with {place.seq}.")
    yield (
        Reached(place.seq, last, place, is_end=True)
        if broken is None
        else Reached(broken.seq, last, problem=broken.problem)
    )


def _what_broke(problem: BaseException) -> dict[str, Any]:
    told: dict[str, Any] = {"exception": type(problem).__name__, "message": str(problem)}
    if isinstance(problem, HostError):
        told["error"] = problem.code
    if problem.__cause__ is not None:
        told["cause"] = f"{type(problem.__cause__).__name__}: {problem.__cause__}"
    return {**told, "traceback": "".join(traceback.format_exception(problem))}


def _only_log(entries: Iterable[Entry]) -> None:
    for one in entries:
        AUDIT_NOT_STORED.inc()
        log.warning("audit.only_logged", record="{" + one.rest)
