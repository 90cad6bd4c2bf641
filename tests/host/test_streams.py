"""Tails: one reader per log, no query for who only waits, nothing lost and nothing twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.principal import THE_OWNER, Principal
from easel.core.run.batch import Batch
from easel.core.run.events import RunEvents
from easel.core.run.status import Status
from easel.core.stream.filter import WHOLE_RUN, EventFilter
from easel.core.stream.notifications import RunAppended
from easel.errors import CursorOutOfRange, NotFound, TooMany, Unavailable
from easel.host.streams import RUNS, StreamQuota, Subscription, Tails
from easel.ids import MessageId, RunId, UserId, WorkerId
from tests.requirements import case, rule
from tests.support.waiting import TIMEOUT_SECONDS, wait_for, within_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from easel.core.run.run import Claim
    from tests.host.conftest import RunHarness

NEVER = 3600.0


class Counting:
    """The store, with a count of what it is asked."""

    def __init__(self, harness: RunHarness) -> None:
        self._runs = harness.runs
        self.asked: Counter[str] = Counter()
        self.is_away = False

    def __getattr__(self, name: str) -> Any:
        async def counted(*args: Any, **more: Any) -> Any:
            self.asked[name] += 1
            if self.is_away:
                raise Unavailable(what="The database")
            return await getattr(self._runs, name)(*args, **more)

        return counted


class Writer:
    """Writes a run's log by hand."""

    def __init__(self, harness: RunHarness, claim: Claim) -> None:
        self._bench = harness
        self._claim = claim
        self._batch = 0
        self._events = RunEvents(claim.run_id, agent_id="main", node_id="test")
        self.run_id = claim.run_id

    async def say(self, count: int = 1, *, notification: bool = True) -> int:
        return await self._append(
            [self._events.delta(MessageId("m"), f"{n}") for n in range(count)], None, notification
        )

    async def think(self) -> int:
        return await self._append([self._events.thought(MessageId("m"), "hm")], None, True)

    async def end(self, *, notification: bool = True) -> int:
        return await self._append(
            self._events.end_with_message(MessageId("m"), "", Status.COMPLETED, None), Status.COMPLETED, notification
        )

    async def _append(self, events: Any, status: Status | None, notification: bool) -> int:
        self._batch += 1
        answer = await self._bench.runs.append(Batch(self._claim, self._batch, events, status))
        assert answer is not None
        if notification:
            self._bench.database.notifier.notify(RunAppended(self.run_id, answer.last_seq))
        return answer.last_seq


@pytest_asyncio.fixture
async def writer(harness: RunHarness) -> Writer:
    await harness.start("by hand")
    [claim] = await harness.runs.claim_queued(WorkerId("wrk_hand"), 1, 600, 0)
    return Writer(harness, claim)


def tails_of(harness: RunHarness, store: Counting | None = None, **changed: Any) -> Tails:
    options = {
        "poll_seconds": NEVER,
        "heartbeat_seconds": NEVER,
        "stall_seconds": NEVER,
        "quota": StreamQuota(2_000),
        "window": 100,
        **changed,
    }
    return Tails(RUNS, store or harness.runs, harness.database.notifier, **options)  # pyright: ignore[reportArgumentType]


@pytest_asyncio.fixture
async def tails(harness: RunHarness) -> AsyncIterator[Tails]:
    made = tails_of(harness)
    yield made
    await made.close()


async def opened(tails: Tails, run_id: RunId, cursor: int = 0, view: EventFilter = WHOLE_RUN) -> Subscription:
    viewer = await tails.open(THE_OWNER, run_id, cursor, view)
    assert viewer is not None
    return viewer


async def all_of(viewer: Subscription) -> list[int]:
    seen: list[int] = []
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (events := await viewer.next()) is not None:
            seen += [event.seq for event in events]
    return seen


@rule("RX-34", "RX-35")
async def test_viewer_gets_old_and_new_events_once_and_in_order(tails: Tails, writer: Writer):
    await writer.say(250)
    watching = asyncio.create_task(all_of(await opened(tails, writer.run_id)))
    for _ in range(50):
        await writer.say(3)
    last = await writer.end()
    assert await watching == list(range(1, last + 1))


@rule("RX-34", "RX-36")
async def test_page_has_at_most_100_events(harness: RunHarness, writer: Writer):
    await writer.say(250)
    await writer.end()
    viewer = await opened(tails_of(harness), writer.run_id)
    pages = [len(await viewer.next() or []) for _ in range(3)]
    assert pages == [100, 100, 53]


async def test_viewer_may_start_at_any_cursor(tails: Tails, writer: Writer):
    await writer.say(120)
    last = await writer.end()
    for cursor in (0, 1, 57, 119, last - 1):
        assert await all_of(await opened(tails, writer.run_id, cursor)) == list(range(cursor + 1, last + 1))


@rule("RX-35")
@case("E7")
async def test_nothing_opens_at_the_end_of_an_ended_log(tails: Tails, writer: Writer):
    last = await writer.end()
    assert await tails.open(THE_OWNER, writer.run_id, last, WHOLE_RUN) is None


@rule("RS-36")
async def test_internal_events_need_their_filter(tails: Tails, writer: Writer):
    await writer.think()
    await writer.say()
    last = await writer.end()
    assert await all_of(await opened(tails, writer.run_id)) == list(range(2, last + 1))
    assert await all_of(await opened(tails, writer.run_id, view=WHOLE_RUN.with_internal())) == list(
        range(1, last + 1)
    )


async def test_stream_without_further_visible_events_ends_with_the_log(tails: Tails, writer: Writer):
    await writer.think()
    last = await writer.end()
    assert await all_of(await opened(tails, writer.run_id, last - 1)) == [last]


@rule("RX-54")
async def test_run_of_another_user_is_not_found(tails: Tails, writer: Writer):
    with pytest.raises(NotFound):
        await tails.open(Principal(UserId("someone else"), "x"), writer.run_id, 0, WHOLE_RUN)
    with pytest.raises(NotFound):
        await tails.open(THE_OWNER, "run_nonsense", 0, WHOLE_RUN)


@rule("RS-34")
async def test_cursor_outside_the_log_is_refused(tails: Tails, writer: Writer):
    await writer.say(3)
    with pytest.raises(CursorOutOfRange):
        await tails.open(THE_OWNER, writer.run_id, 4, WHOLE_RUN)
    assert (await all_watched(tails)) == 0


async def all_watched(tails: Tails) -> int:
    return len(tails._tails)


@rule("RX-11")
@case("D3")
async def test_idle_viewers_cost_no_query_and_new_events_one_read_for_all(harness: RunHarness, writer: Writer):
    store = Counting(harness)
    tails = tails_of(harness, store)
    await writer.say()
    viewers = [asyncio.create_task(all_of(await opened(tails, writer.run_id, 1))) for _ in range(300)]
    opened_with = store.asked.copy()
    assert opened_with == {"bounds": 300}
    await asyncio.sleep(0.05)
    assert store.asked == opened_with, "waiting cost a query"
    await tails.poll()
    assert store.asked["heads"] == 1, "the fallback poll is one query for all"
    last = await writer.end()
    assert await asyncio.gather(*viewers) == [list(range(2, last + 1))] * 300
    assert store.asked["events_after"] == 1, "three hundred viewers, one read"
    await tails.close()


@rule("RX-11")
async def test_poll_delivers_all_events_without_notifications(harness: RunHarness, writer: Writer):
    tails = tails_of(harness, poll_seconds=0.02)
    watching = asyncio.create_task(all_of(await opened(tails, writer.run_id)))
    for _ in range(5):
        await writer.say(2, notification=False)
    last = await writer.end(notification=False)
    assert await watching == list(range(1, last + 1))
    await tails.close()


async def test_notification_while_opening_is_not_lost(harness: RunHarness, writer: Writer):
    class Slow(Counting):
        async def bounds(self, *args: Any) -> Any:
            found = await self._runs.bounds(*args)
            await writer.end()  # grows and rings after the look, before it is told
            return found

    tails = tails_of(harness, Slow(harness))
    assert await all_of(await opened(tails, writer.run_id)) == [1, 2, 3]
    await tails.close()


@case("E8")
async def test_slow_viewer_reads_pages_from_the_store_and_misses_nothing(
    harness: RunHarness, writer: Writer
):
    store = Counting(harness)
    tails = tails_of(harness, store)
    slow = await opened(tails, writer.run_id)
    quick = asyncio.create_task(all_of(await opened(tails, writer.run_id)))
    for _ in range(30):
        await writer.say(100)
    last = await writer.end()
    assert await quick == list(range(1, last + 1))
    kept = tails._tails[writer.run_id].events
    assert len(kept) <= 200, "what is kept in memory has a bound"
    assert await all_of(slow) == list(range(1, last + 1))
    await tails.close()


@rule("RS-34")
@pytest.mark.parametrize("pages", [0, 1], ids=["before its first page", "between two pages"])
async def test_slow_viewer_of_a_pruned_log_is_ended_without_a_gap(
    harness: RunHarness, writer: Writer, pages: int
):
    await writer.say(150)
    last = await writer.end()
    tails = tails_of(harness)
    slow = await opened(tails, writer.run_id)
    for _ in range(pages):
        assert [event.seq for event in await slow.next() or []] == list(range(1, 101))
    harness.clock.ahead += 61
    assert await harness.runs.prune(60) == 1
    assert await all_of(slow) == []
    assert not slow.has_seen_all, "it has not come to the end of the log, and comes back with its cursor"
    with pytest.raises(CursorOutOfRange) as gone:
        await tails.open(THE_OWNER, writer.run_id, 100 * pages, WHOLE_RUN)
    assert gone.value.details["oldest"] == last
    await tails.close()


async def test_stream_survives_an_unavailable_store(harness: RunHarness, writer: Writer):
    store = Counting(harness)
    tails = tails_of(harness, store, poll_seconds=0.02)
    watching = asyncio.create_task(all_of(await opened(tails, writer.run_id)))
    store.is_away = True
    await writer.say(5)

    async def was_asked() -> bool:
        return store.asked["events_after"] > 0

    await wait_for(was_asked)
    store.is_away = False
    last = await writer.end()
    assert await watching == list(range(1, last + 1))
    await tails.close()


async def test_idle_stream_gets_heartbeats(harness: RunHarness, writer: Writer):
    tails = tails_of(harness, heartbeat_seconds=0.02)
    viewer = await opened(tails, writer.run_id)
    assert await within_timeout(viewer.next()) == []
    await tails.close()


@case("E12")
async def test_closing_ends_every_stream_and_refuses_new_ones(harness: RunHarness, writer: Writer):
    tails = tails_of(harness)
    watching = asyncio.create_task(all_of(await opened(tails, writer.run_id)))
    await asyncio.sleep(0)
    await tails.close()
    assert await watching == []
    with pytest.raises(Unavailable):
        await tails.open(THE_OWNER, writer.run_id, 0, WHOLE_RUN)


async def test_stream_quota_is_enforced_and_freed(harness: RunHarness, writer: Writer):
    tails = tails_of(harness, quota=StreamQuota(2))
    first, _ = await opened(tails, writer.run_id), await opened(tails, writer.run_id)
    with pytest.raises(TooMany):
        await tails.open(THE_OWNER, writer.run_id, 0, WHOLE_RUN)
    first.close()
    first.close()  # leaving twice is leaving once
    last = await opened(tails, writer.run_id)
    last.close()
    await tails.close()


async def test_tail_without_viewers_is_removed(tails: Tails, writer: Writer):
    viewer = await opened(tails, writer.run_id)
    assert await all_watched(tails) == 1
    viewer.close()
    assert await all_watched(tails) == 0
