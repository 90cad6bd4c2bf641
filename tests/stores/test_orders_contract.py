"""The order of a followed account on every store: each event has one number, without gaps, in the order of
its log; an old number is recognised; other accounts have none.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from easel.core.principal import ActorKind
from easel.core.stream.envelope import Provenance
from easel.core.stream.log import Bounds, check_cursor
from easel.core.stream.order import Append, LogType, Numbered, OrderedAppend
from easel.errors import CursorOutOfRange, NotFound, Unavailable
from easel.ids import OWNER, AccountId, CanvasId
from easel.stores.postgres import runs as postgres_runs
from easel.stores.postgres.orders import PostgresOrders
from easel.stores.postgres.run_arguments import append_arguments
from tests.stores.documents import (
    SESSION,
    ask,
    change,
    check_out_for,
    create_document,
    take_lease,
    write,
)
from tests.stores.harness import (
    CLAIM_SECONDS,
    A,
    B,
    Store,
    assert_stored,
    closing_events,
    delta_batch,
    ending_batch,
    new_run,
    open_migrated_store,
    other_connection,
    run_events,
    start_run,
    start_runs,
)
from tests.stores.test_artifacts_contract import ON_POSTGRES
from tests.stores.test_boards_contract import whiteboard_write, write_value
from tests.stores.test_canvases_contract import create_canvas as create_cockpit
from tests.stores.test_canvases_contract import set_state

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from easel.host.ports import OrderStore, RunStore

ADA = Provenance("ada", "session", "talk", kind=ActorKind.PERSON)
SECONDS = 3600.0  # longer than any test
LIMIT, KEPT = 1_000, 10_000
OPENING = run_events(new_run().run_id).start(0)


@pytest.fixture
def orders(store: Store) -> OrderStore:
    return store.database.orders


async def number(orders: OrderStore, account_id: AccountId = OWNER) -> int:
    """Number all appends, and return the last number of the account."""
    assert await orders.number(limit=LIMIT, kept=KEPT) is not None
    assert not await orders.has_unordered()
    return (await orders.bounds([account_id]))[account_id].newest


async def read_order(orders: OrderStore, account_id: AccountId = OWNER) -> list[OrderedAppend]:
    return await orders.read_after(account_id, 0, LIMIT)


def positions(order: list[OrderedAppend]) -> list[tuple[int, str, str, int]]:
    """Return (number, log type, log id, seq) of each event. Checks that the numbers have no gap."""
    found: list[tuple[int, str, str, int]] = []
    for one in order:
        append = one.append
        for nth, seq in enumerate(range(append.first_seq, append.last_seq + 1)):
            found.append((one.first_server_seq + nth, append.log_type.value, append.log_id, seq))
    numbers = [number for number, *_ in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    return found


async def stored_events(store: Store, account_id: AccountId = OWNER) -> set[tuple[str, str, int]]:
    """Return (log type, log id, seq) of every event in the logs of the account."""
    rows = await store.sql(
        "select 'run' as log_type, e.run_id as log_id, e.seq from run_events e"
        f" join runs r on r.run_id = e.run_id where r.account_id = '{account_id}' and e.seq > 0"
        f" union all select 'canvas', canvas_id, seq from canvas_events where account_id = '{account_id}'"
        f" union all select 'account', account_id, seq from account_events where account_id = '{account_id}'"
    )
    return {(row["log_type"], row["log_id"], row["seq"]) for row in rows}


async def count_appends(store: Store) -> tuple[int, int]:
    """Return how many rows of appends have no number, and how many have one."""
    tables = ("unordered_appends", "ordered_appends")
    [unordered, ordered] = [(await store.sql(f"select count(*) as n from {table}"))[0] for table in tables]
    return unordered["n"], ordered["n"]


def assert_logs_in_order(order: list[OrderedAppend]) -> None:
    """Fail unless each event has one number, and those of a log are in its order."""
    seen: dict[tuple[str, str], int] = {}
    for _, log_type, log_id, seq in positions(order):
        assert seq == seen.get((log_type, log_id), seq - 1) + 1
        seen[log_type, log_id] = seq


async def append_everywhere(store: Store) -> None:
    """Append events with every statement that appends: of runs, boards, canvases, documents and accounts."""
    runs, documents, database = store.runs, store.database.documents, store.database
    await create_cockpit(database.canvases)
    await database.canvases.change(OWNER, CanvasId("cockpit"), set_state(n=1))
    await create_document(database.canvases)
    await change(documents, write("text"))

    # claims with an opening event, a board, an append, an adoption and the end
    await runs.enqueue(ask(text="long " * 40_000))
    [claim] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0, OPENING)
    await write_value(database.boards, whiteboard_write(claim.run_id), claim)
    assert_stored(await runs.append(delta_batch(claim, 1, "a", "b")))
    await check_out_for(documents, claim)
    await store.expire_claim(claim.run_id)
    [adopted] = await runs.claim_expired(B, 1, CLAIM_SECONDS, opening=OPENING)
    assert await documents.release_leases(adopted) == ["plan"]

    # a message and a cancel, each of which ends a lease
    await change(documents, take_lease(adopted, "y"), claim=adopted, locks_session=True)
    waiting = ask()
    assert (await runs.enqueue(waiting)).preempted == ("plan",)
    cancelled = await runs.request_cancel(OWNER, waiting.run_id, closing_events(waiting.run_id))
    assert cancelled is not None
    assert_stored(await runs.append(ending_batch(adopted, 1)))
    await database.sessions.rename(OWNER, SESSION, "Another title", ADA)


async def test_every_event_of_a_followed_account_has_one_number(store: Store, orders: OrderStore) -> None:
    await orders.follow(OWNER, SECONDS)
    await append_everywhere(store)
    while await orders.has_unordered():  # one transaction at a time, so that no append hides a missing one
        assert await orders.number(limit=1, kept=KEPT) is not None
    last = (await orders.bounds([OWNER]))[OWNER].newest
    order = await read_order(orders)
    assert {event[1:] for event in positions(order)} == await stored_events(store)
    assert len(positions(order)) == last == order[-1].server_seq
    assert_logs_in_order(order)


async def test_append_of_an_account_without_followers_stores_no_row(store: Store, orders: OrderStore) -> None:
    ann = await store.add_user("ann")
    [claim] = await start_runs(store.runs, new_run(user=ann))
    await orders.follow(ann, SECONDS)
    await append_everywhere(store)
    assert await count_appends(store) == (0, 0)
    assert await orders.bounds([OWNER]) == {}
    assert_stored(await store.runs.append(delta_batch(claim, 1, "a")))
    assert await orders.number(limit=LIMIT, kept=KEPT) == Numbered(
        {ann: Bounds(1, 1, ended=False)}, has_more=False
    )


async def test_events_from_before_the_follow_have_no_number(runs: RunStore, orders: OrderStore) -> None:
    claim = await start_run(runs)
    assert_stored(await runs.append(delta_batch(claim, 1, "a")))
    await orders.follow(OWNER, SECONDS)
    assert_stored(await runs.append(delta_batch(claim, 2, "b", "c")))
    assert_stored(await runs.append(delta_batch(claim, 2, "b", "c")))  # a repeated batch stores nothing
    assert await number(orders) == 2
    assert await read_order(orders) == [OrderedAppend(2, Append(LogType.RUN, claim.run_id, 2, 3))]


@asynccontextmanager
async def second_store(store: Store, url: str) -> AsyncIterator[Store]:
    """Open the store once more, as another instance; SQLite serves one process."""
    if store.kind == "sqlite":
        yield store
        return
    other = await open_migrated_store(store.kind, folder=store.folder, database_url=url)
    yield other
    await other.close()


async def test_two_instances_number_each_event_once_while_runs_append(
    store: Store, url: str, orders: OrderStore
) -> None:
    await orders.follow(OWNER, SECONDS)
    claims = await start_runs(store.runs, *(new_run(f"talk{nth}") for nth in range(8)))

    async def append(nth: int) -> None:
        for batch in range(1, 13):
            assert_stored(await store.runs.append(delta_batch(claims[nth], batch, "a", "b")))

    async def keep_numbering(one: OrderStore, appending: asyncio.Future[list[None]]) -> None:
        while not appending.done():
            await one.number(limit=5, kept=KEPT)

    async with second_store(store, url) as other:
        appending = asyncio.gather(*(append(nth) for nth in range(8)))
        await asyncio.gather(
            appending, keep_numbering(orders, appending), keep_numbering(other.database.orders, appending)
        )
    await orders.number(limit=LIMIT, kept=KEPT)
    assert await number(orders) == 8 * (1 + 12 * 2)  # each run makes its session
    order = await read_order(orders)
    assert_logs_in_order(order)
    assert {event[1:] for event in positions(order)} == await stored_events(store)


async def test_numbering_that_was_killed_is_done_once_by_the_next(runs: RunStore, orders: OrderStore) -> None:
    claim = await start_run(runs)
    await orders.follow(OWNER, SECONDS)
    assert_stored(await runs.append(delta_batch(claim, 1, "a")))
    assert await number(orders) == 1
    assert_stored(await runs.append(delta_batch(claim, 2, "b")))
    with (
        patch("easel.stores.nouns.orders._to_columns", side_effect=KeyError("killed")),
        pytest.raises(KeyError),
    ):
        await number(orders)
    assert await orders.has_unordered()
    assert await number(orders) == 2
    assert [event[-1] for event in positions(await read_order(orders))] == [1, 2]


async def test_a_follow_that_is_renewed_late_goes_on(store: Store, orders: OrderStore) -> None:
    claim = await start_run(store.runs)
    await orders.follow(OWNER, SECONDS)
    assert_stored(await store.runs.append(delta_batch(claim, 1, "a")))
    await store.sql(f"update account_orders set followed_until = {store.ago(1)}")
    assert_stored(await store.runs.append(delta_batch(claim, 2, "b")))
    assert await orders.renew([OWNER, AccountId("nobody")], SECONDS) == {OWNER}
    assert await orders.end_expired() is None
    assert await number(orders) == 2


async def test_numbers_go_on_after_following_ended_and_an_old_one_is_too_old(
    store: Store, orders: OrderStore
) -> None:
    claim = await start_run(store.runs)
    await orders.follow(OWNER, SECONDS)
    assert_stored(await store.runs.append(delta_batch(claim, 1, "a", "b")))
    assert await number(orders) == 2
    assert_stored(await store.runs.append(delta_batch(claim, 2, "c")))  # not numbered in time
    await store.sql(f"update account_orders set followed_until = {store.ago(1)}")
    assert [await orders.end_expired(), await orders.end_expired()] == [OWNER, None]
    assert_stored(await store.runs.append(delta_batch(claim, 3, "d")))
    assert await orders.number(limit=LIMIT, kept=KEPT) == Numbered({}, has_more=False)
    assert await count_appends(store) == (0, 0)
    assert await orders.renew([OWNER], SECONDS) == set()

    await orders.follow(OWNER, SECONDS)
    bounds = (await orders.bounds([OWNER]))[OWNER]
    assert bounds.oldest - 1 > 2  # a client with the last number has missed events
    assert_stored(await store.runs.append(delta_batch(claim, 4, "e")))
    assert await number(orders) == bounds.newest + 1
    assert positions(await read_order(orders)) == [(bounds.newest + 1, "run", claim.run_id, 5)]


async def test_reader_between_the_end_and_the_restart_of_a_follow_is_told_that_it_missed_events(
    store: Store, orders: OrderStore
) -> None:
    claim = await start_run(store.runs)
    await orders.follow(OWNER, SECONDS)
    assert_stored(await store.runs.append(delta_batch(claim, 1, "a")))
    await number(orders)
    await store.sql(f"update account_orders set followed_until = {store.ago(1)}")
    assert await orders.end_expired() == OWNER
    read_again = (await orders.bounds([OWNER]))[OWNER].newest  # by a client that shows the log up to here
    assert_stored(await store.runs.append(delta_batch(claim, 2, "b")))  # has no number
    await orders.follow(OWNER, SECONDS)
    assert_stored(await store.runs.append(delta_batch(claim, 3, "c")))
    await number(orders)
    with pytest.raises(CursorOutOfRange):
        check_cursor(read_again, (await orders.bounds([OWNER]))[OWNER])


async def test_deleted_account_cannot_be_followed(store: Store, orders: OrderStore) -> None:
    ann = await store.add_user("ann")
    now = store.ago(0)
    await store.sql(f"update accounts set disabled_at = {now}, deleted_at = {now} where account_id = 'ann'")
    for account_id in (ann, AccountId("nobody")):
        with pytest.raises(NotFound):
            await orders.follow(account_id, SECONDS)


async def test_follow_that_has_not_begun_is_not_renewed(store: Store, orders: OrderStore) -> None:
    await orders.follow(OWNER, SECONDS)
    await store.sql("update account_orders set is_complete = false")
    assert await orders.renew([OWNER], SECONDS) == set()


async def test_an_order_keeps_its_newest_numbers(store: Store, orders: OrderStore) -> None:
    claims = await start_runs(store.runs, new_run("one"), new_run("two"))
    await orders.follow(OWNER, SECONDS)
    bounds = Bounds(1, 0, ended=False)
    for batch in range(1, 11):
        for claim in claims:
            assert_stored(await store.runs.append(delta_batch(claim, batch, "a", "b")))
        await orders.number(limit=LIMIT, kept=8)
        bounds = (await orders.bounds([OWNER]))[OWNER]
        assert min(bounds.newest, 8) <= bounds.newest - bounds.oldest + 1 <= 10
    kept = await read_order(orders)
    assert [one.server_seq for one in kept] == [34, 36, 38, 40]
    assert kept[0].first_server_seq == bounds.oldest
    assert await orders.read_after(OWNER, 38, LIMIT) == kept[3:]
    assert await orders.read_after(OWNER, 34, 2) == kept[1:3]


async def test_an_order_is_deleted_with_its_account(store: Store, orders: OrderStore) -> None:
    ann = await store.add_user("ann")
    await orders.follow(ann, SECONDS)
    [claim] = await start_runs(store.runs, new_run(user=ann))
    assert_stored(await store.runs.append(delta_batch(claim, 1, "a")))
    await number(orders, ann)
    now = store.ago(0)
    await store.sql(f"update accounts set disabled_at = {now}, deleted_at = {now} where account_id = 'ann'")
    assert await store.purge() > 0
    assert await count_appends(store) == (0, 0)
    assert await orders.bounds([ann]) == {}


# --- Postgres: an append that runs while a follow starts ----------------------------------------------------


@ON_POSTGRES
async def test_a_follow_waits_for_the_appends_that_do_not_know_of_it(store: Store) -> None:
    claim = await start_run(store.runs, SESSION)
    statement = postgres_runs.SQL["append_batches"]
    polled = asyncio.Event()
    list_appenders = PostgresOrders._list_appenders
    polls: list[set[str]] = []

    async def listed(orders: PostgresOrders) -> set[str]:
        polls.append(await list_appenders(orders))
        if len(polls) == 3:
            polled.set()
        return polls[-1]

    async with other_connection(store) as appender:
        transaction = appender.transaction()
        await transaction.start()
        arguments = append_arguments([delta_batch(claim, 1, "a")])
        await appender.fetch(statement.sql, *statement.arguments(arguments))
        with patch.object(PostgresOrders, "_list_appenders", listed):
            following = asyncio.create_task(store.database.orders.follow(OWNER, SECONDS))
            await asyncio.wait([asyncio.create_task(polled.wait()), following], return_when="FIRST_COMPLETED")
            assert not following.done()
            assert await store.sql("select is_complete from account_orders") == [{"is_complete": False}]
            await transaction.commit()
            await following
    assert await store.sql("select is_complete from account_orders") == [{"is_complete": True}]


@ON_POSTGRES
async def test_a_follow_fails_if_an_append_does_not_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = store.database.orders
    monkeypatch.setattr(orders, "_max_wait_seconds", 0.1)
    async with other_connection(store) as appender, appender.transaction():
        await appender.execute("lock table unordered_appends in row exclusive mode")
        with pytest.raises(Unavailable):
            await orders.follow(OWNER, SECONDS)
    await orders.follow(OWNER, SECONDS)
