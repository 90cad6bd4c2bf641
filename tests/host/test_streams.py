"""Streams of logs: one reader per log, no query for idle viewers, no event lost or repeated."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.run.batch import Batch
from easel.core.run.events import RunEvents
from easel.core.run.status import Status
from easel.core.stream.filter import RUN_STATE, WHOLE_RUN, EventFilter
from easel.core.stream.notifications import RunAppended
from easel.errors import CursorOutOfRange, NotFound, TooMany, Unavailable
from easel.host.streams import RUNS, StreamQuota, Subscription, TailMemory, Tails
from easel.ids import MessageId, RunId, WorkerId
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER, person
from tests.support.waiting import TIMEOUT_SECONDS, wait_for, within_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from easel.core.run.run import Claim
    from tests.host.conftest import RunHarness

NEVER = 3600.0


class CountingStore:
    """The store with a count of its queries."""

    def __init__(self, harness: RunHarness) -> None:
        self._runs = harness.runs
        self.queries: Counter[str] = Counter()
        self.is_unavailable = False

    def __getattr__(self, name: str) -> Any:
        async def counted(*args: Any, **more: Any) -> Any:
            self.queries[name] += 1
            if self.is_unavailable:
                raise Unavailable(what="The database")
            return await getattr(self._runs, name)(*args, **more)

        return counted


class Writer:
    """Writes events into a run's log."""

    def __init__(self, harness: RunHarness, claim: Claim) -> None:
        self._harness = harness
        self._claim = claim
        self._batch = 0
        self._events = RunEvents(claim.run_id, agent_id="main", node_id="test")
        self.run_id = claim.run_id

    async def write_text(self, count: int = 1, *, notify: bool = True) -> int:
        return await self._append(
            [self._events.delta(MessageId("m"), f"{n}") for n in range(count)], None, notify
        )

    async def write_thought(self) -> int:
        return await self._append([self._events.thought(MessageId("m"), "hm")], None, True)

    async def end(self, *, notify: bool = True) -> int:
        return await self._append(
            self._events.end_with_message(MessageId("m"), "", Status.COMPLETED, None),
            Status.COMPLETED,
            notify,
        )

    async def _append(self, events: Any, status: Status | None, notify: bool) -> int:
        self._batch += 1
        appended = await self._harness.runs.append(Batch(self._claim, self._batch, events, status))
        assert appended is not None
        if notify:
            self._harness.database.notifier.notify(RunAppended(self.run_id, appended.last_seq))
        return appended.last_seq


@pytest_asyncio.fixture
async def writer(harness: RunHarness) -> Writer:
    await harness.start("by hand")
    [claim] = await harness.runs.claim_queued(WorkerId("wrk_hand"), 1, 600, 0)
    return Writer(harness, claim)


def make_tails(harness: RunHarness, store: Any = None, **changes: Any) -> Tails:
    options: dict[str, Any] = {
        "poll_seconds": NEVER,
        "heartbeat_seconds": NEVER,
        "quota": StreamQuota(2_000),
        "window": 100,
        "memory": TailMemory(10_000_000),
        **changes,
    }
    return Tails(RUNS, store or harness.runs, harness.database.notifier, **options)


@pytest_asyncio.fixture
async def tails(harness: RunHarness) -> AsyncIterator[Tails]:
    tails = make_tails(harness)
    yield tails
    await tails.close()


async def open_stream(
    tails: Tails, run_id: RunId, cursor: int = 0, event_filter: EventFilter = WHOLE_RUN
) -> Subscription:
    viewer = await tails.open(THE_OWNER, run_id, cursor, event_filter)
    assert viewer is not None
    return viewer


async def read_all(viewer: Subscription) -> list[int]:
    seen: list[int] = []
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (events := await viewer.next()) is not None:
            seen += [event.seq for event in events]
    return seen


@rule("RX-34", "RX-35")
async def test_viewer_gets_old_and_new_events_once_and_in_order(tails: Tails, writer: Writer):
    await writer.write_text(250)
    watching = asyncio.create_task(read_all(await open_stream(tails, writer.run_id)))
    for _ in range(50):
        await writer.write_text(3)
    last = await writer.end()
    assert await watching == list(range(1, last + 1))


@rule("RX-34", "RX-36")
async def test_page_has_at_most_100_events(harness: RunHarness, writer: Writer):
    await writer.write_text(250)
    await writer.end()
    viewer = await open_stream(make_tails(harness), writer.run_id)
    pages = [len(await viewer.next() or []) for _ in range(3)]
    assert pages == [100, 100, 53]


async def test_viewer_may_start_at_any_cursor(tails: Tails, writer: Writer):
    await writer.write_text(120)
    last = await writer.end()
    for cursor in (0, 1, 57, 119, last - 1):
        assert await read_all(await open_stream(tails, writer.run_id, cursor)) == list(
            range(cursor + 1, last + 1)
        )


@rule("RX-35")
@case("E7")
async def test_nothing_opens_at_the_end_of_an_ended_log(tails: Tails, writer: Writer):
    last = await writer.end()
    assert await tails.open(THE_OWNER, writer.run_id, last, WHOLE_RUN) is None


@rule("RS-36")
async def test_internal_events_need_their_filter(tails: Tails, writer: Writer):
    await writer.write_thought()
    await writer.write_text()
    last = await writer.end()
    assert await read_all(await open_stream(tails, writer.run_id)) == list(range(2, last + 1))
    assert await read_all(
        await open_stream(tails, writer.run_id, event_filter=WHOLE_RUN.with_internal())
    ) == list(range(1, last + 1))


async def test_stream_without_further_visible_events_ends_with_the_log(tails: Tails, writer: Writer):
    await writer.write_thought()
    last = await writer.end()
    assert await read_all(await open_stream(tails, writer.run_id, last - 1)) == [last]


@rule("RX-54")
async def test_run_of_another_user_is_not_found(tails: Tails, writer: Writer):
    with pytest.raises(NotFound):
        await tails.open(person("someone else", "x"), writer.run_id, 0, WHOLE_RUN)
    with pytest.raises(NotFound):
        await tails.open(THE_OWNER, "run_nonsense", 0, WHOLE_RUN)


@rule("RS-34")
async def test_cursor_outside_the_log_is_refused(tails: Tails, writer: Writer):
    await writer.write_text(3)
    with pytest.raises(CursorOutOfRange):
        await tails.open(THE_OWNER, writer.run_id, 4, WHOLE_RUN)
    assert count_tails(tails) == 0


def count_tails(tails: Tails) -> int:
    return len(tails._tails)


@rule("RX-11")
@case("D3")
async def test_idle_viewers_cost_no_query_and_new_events_one_read_for_all(
    harness: RunHarness, writer: Writer
):
    store = CountingStore(harness)
    tails = make_tails(harness, store)
    await writer.write_text()
    viewers = [asyncio.create_task(read_all(await open_stream(tails, writer.run_id, 1))) for _ in range(300)]
    queries_to_open = store.queries.copy()
    assert queries_to_open == {"bounds": 300}
    await asyncio.sleep(0.05)
    assert store.queries == queries_to_open, "waiting cost a query"
    await tails.poll()
    assert store.queries["heads"] == 1, "the fallback poll is one query for all"
    last = await writer.end()
    assert await asyncio.gather(*viewers) == [list(range(2, last + 1))] * 300
    assert store.queries["events_after"] == 1, "three hundred viewers, one read"
    await tails.close()


@rule("RX-11")
async def test_poll_delivers_all_events_without_notifications(harness: RunHarness, writer: Writer):
    tails = make_tails(harness, poll_seconds=0.02)
    watching = asyncio.create_task(read_all(await open_stream(tails, writer.run_id)))
    for _ in range(5):
        await writer.write_text(2, notify=False)
    last = await writer.end(notify=False)
    assert await watching == list(range(1, last + 1))
    await tails.close()


async def test_notification_while_opening_is_not_lost(harness: RunHarness, writer: Writer):
    class SlowStore(CountingStore):
        async def bounds(self, *args: Any) -> Any:
            found = await self._runs.bounds(*args)
            await writer.end()  # a new event and its notification, before the bounds are returned
            return found

    tails = make_tails(harness, SlowStore(harness))
    assert await read_all(await open_stream(tails, writer.run_id)) == [1, 2, 3]
    await tails.close()


@case("E8")
async def test_slow_viewer_reads_pages_from_the_store_and_misses_nothing(harness: RunHarness, writer: Writer):
    store = CountingStore(harness)
    tails = make_tails(harness, store)
    slow = await open_stream(tails, writer.run_id)
    quick = asyncio.create_task(read_all(await open_stream(tails, writer.run_id)))
    for _ in range(30):
        await writer.write_text(100)
    last = await writer.end()
    assert await quick == list(range(1, last + 1))
    in_memory = tails._tails[writer.run_id].events
    assert len(in_memory) <= 200, "the events in memory must be limited"
    assert await read_all(slow) == list(range(1, last + 1))
    await tails.close()


@rule("RS-34")
@pytest.mark.parametrize("pages", [0, 1], ids=["before its first page", "between two pages"])
async def test_slow_viewer_of_a_pruned_log_is_ended_without_a_gap(
    harness: RunHarness, writer: Writer, pages: int
):
    await writer.write_text(150)
    last = await writer.end()
    tails = make_tails(harness)
    slow = await open_stream(tails, writer.run_id)
    for _ in range(pages):
        assert [event.seq for event in await slow.next() or []] == list(range(1, 101))
    harness.clock.ahead += 61
    assert len(await harness.runs.prune(60)) == 1
    assert await read_all(slow) == []
    assert not slow.has_seen_all, "it must resume with its cursor"
    with pytest.raises(CursorOutOfRange) as error:
        await tails.open(THE_OWNER, writer.run_id, 100 * pages, WHOLE_RUN)
    assert error.value.details["oldest"] == last
    await tails.close()


async def test_stream_survives_an_unavailable_store(harness: RunHarness, writer: Writer):
    store = CountingStore(harness)
    tails = make_tails(harness, store, poll_seconds=0.02)
    watching = asyncio.create_task(read_all(await open_stream(tails, writer.run_id)))
    store.is_unavailable = True
    await writer.write_text(5)

    async def was_queried() -> bool:
        return store.queries["events_after"] > 0

    await wait_for(was_queried)
    store.is_unavailable = False
    last = await writer.end()
    assert await watching == list(range(1, last + 1))
    await tails.close()


async def test_idle_stream_gets_heartbeats(harness: RunHarness, writer: Writer):
    tails = make_tails(harness, heartbeat_seconds=0.02)
    viewer = await open_stream(tails, writer.run_id)
    assert await within_timeout(viewer.next()) == []
    await tails.close()


@case("E12")
async def test_closing_ends_every_stream_and_refuses_new_ones(harness: RunHarness, writer: Writer):
    tails = make_tails(harness)
    watching = asyncio.create_task(read_all(await open_stream(tails, writer.run_id)))
    await asyncio.sleep(0)
    await tails.close()
    assert await watching == []
    with pytest.raises(Unavailable):
        await tails.open(THE_OWNER, writer.run_id, 0, WHOLE_RUN)


async def test_stream_quota_is_enforced_and_freed(harness: RunHarness, writer: Writer):
    tails = make_tails(harness, quota=StreamQuota(2))
    first, _ = await open_stream(tails, writer.run_id), await open_stream(tails, writer.run_id)
    with pytest.raises(TooMany):
        await tails.open(THE_OWNER, writer.run_id, 0, WHOLE_RUN)
    first.close()
    first.close()  # closing twice frees one place only
    last = await open_stream(tails, writer.run_id)
    last.close()
    await tails.close()


async def test_tail_without_viewers_is_removed(tails: Tails, writer: Writer):
    viewer = await open_stream(tails, writer.run_id)
    assert count_tails(tails) == 1
    viewer.close()
    assert count_tails(tails) == 0


# --- memory -------------------------------------------------------------------------------------------------


async def start_writers(harness: RunHarness, count: int) -> list[Writer]:
    for n in range(count):
        await harness.start("by hand", session=f"log-{n}")
    claims = await harness.runs.claim_queued(WorkerId("wrk_hand"), count, 600, 0)
    return [Writer(harness, claim) for claim in claims]


async def read_to(viewer: Subscription, cursor: int) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while viewer.cursor < cursor:
            await viewer.next()


async def test_events_that_all_viewers_have_passed_are_dropped(harness: RunHarness):
    memory = TailMemory(10_000_000)
    tails = make_tails(harness, memory=memory)
    writers = await start_writers(harness, 20)
    viewers = [await open_stream(tails, writer.run_id) for writer in writers]
    behind = await open_stream(tails, writers[0].run_id)
    for writer, viewer in zip(writers, viewers, strict=True):
        await read_to(viewer, await writer.write_text(150))
    assert memory.used == sum(tail.size for tail in tails._tails.values()) > 20 * 150 * 450
    tails.drop_passed()
    assert [len(tails._tails[writer.run_id].events) for writer in writers] == [150, *[0] * 19]
    await read_to(behind, 100)
    tails.drop_passed()
    assert [event.seq for event in tails._tails[writers[0].run_id].events] == list(range(101, 151))
    behind.close()
    tails.drop_passed()
    assert memory.used == 0

    late = await open_stream(tails, writers[3].run_id)
    await writers[3].write_text(5)
    last = await writers[3].end()
    assert await read_all(late) == list(range(1, last + 1)), "a late viewer gets everything from the store"
    assert await read_all(viewers[3]) == list(range(151, last + 1))
    await tails.close()


async def test_memory_of_all_logs_together_is_limited(harness: RunHarness):
    memory = TailMemory(100_000)  # about 150 events
    tails = make_tails(harness, memory=memory)
    writers = await start_writers(harness, 8)
    behind = [await open_stream(tails, writer.run_id) for writer in writers]
    quick = [await open_stream(tails, writer.run_id) for writer in writers]
    for _ in range(3):
        for writer, viewer in zip(writers, quick, strict=True):
            await read_to(viewer, await writer.write_text(50))
            assert memory.used == sum(tail.size for tail in tails._tails.values()) <= 100_000
    ends = [await writer.end() for writer in writers]
    for viewers in (behind, quick):
        for viewer, end in zip(viewers, ends, strict=True):
            start = viewer.cursor
            assert await read_all(viewer) == list(range(start + 1, end + 1))
            viewer.close()
    assert memory.used == 0
    await tails.close()


@rule("RX-11")
async def test_new_events_are_read_once_after_passed_ones_were_dropped(harness: RunHarness, writer: Writer):
    store = CountingStore(harness)
    tails = make_tails(harness, store)
    viewers = [await open_stream(tails, writer.run_id) for _ in range(50)]
    for _ in range(3):
        last = await writer.write_text(60)
        await asyncio.gather(*(read_to(viewer, last) for viewer in viewers))
        tails.drop_passed()
    assert store.queries["events_after"] == 3
    await tails.close()


@pytest.mark.parametrize("is_behind", [False, True], ids=["live", "catching up"])
async def test_viewer_of_hidden_events_gets_heartbeats_with_its_cursor(
    harness: RunHarness, writer: Writer, is_behind: bool
):
    tails = make_tails(harness)
    last = await writer.write_text(350) if is_behind else 0
    viewer = await open_stream(tails, writer.run_id, event_filter=RUN_STATE)
    if is_behind:
        viewer.beat()
        assert await within_timeout(viewer.next()) == []
        assert viewer.cursor == 100, "a heartbeat between two pages"
    waiting = asyncio.create_task(viewer.next())
    if not is_behind:
        last = await writer.write_text(350)

    async def has_passed() -> bool:
        return viewer.cursor == last

    await wait_for(has_passed)
    viewer.beat()
    assert await within_timeout(waiting) == []
    await tails.close()


async def test_page_that_arrives_after_the_last_viewer_left_takes_no_memory(
    harness: RunHarness, writer: Writer
):
    reading, may_continue = asyncio.Event(), asyncio.Event()

    class SlowStore(CountingStore):
        async def events_after(self, *args: Any) -> Any:
            reading.set()
            await within_timeout(may_continue.wait())
            return await self._runs.events_after(*args)

    memory = TailMemory(10_000_000)
    tails = make_tails(harness, SlowStore(harness), memory=memory)
    viewer = await open_stream(tails, writer.run_id)
    await writer.write_text(5)
    await within_timeout(reading.wait())
    reader = tails._tails[writer.run_id].reader
    assert reader is not None
    viewer.close()
    may_continue.set()
    await within_timeout(reader)
    assert memory.used == 0
    await tails.close()
