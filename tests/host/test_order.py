"""Following an account: numbers while it has followers, a client that reconnects, and no work for accounts
without followers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.run.batch import Batch
from easel.core.run.events import RunEvents
from easel.core.stream.notifications import RunAppended
from easel.errors import CursorOutOfRange
from easel.host.order import FOLLOW_SECONDS, AccountOrder, end_expired_follows
from easel.ids import OWNER, MessageId, WorkerId
from tests.support.waiting import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from easel.core.run.run import Claim
    from tests.host.conftest import RunHarness

NEVER = 3600.0


class CountingOrders:
    """The store with a count of its calls."""

    def __init__(self, harness: RunHarness) -> None:
        self._orders = harness.database.orders
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._orders, name)


@pytest.fixture
def counted(harness: RunHarness) -> CountingOrders:
    return CountingOrders(harness)


@pytest_asyncio.fixture
async def order(harness: RunHarness, counted: Any) -> AsyncIterator[AccountOrder]:
    opened = AccountOrder(counted, harness.database.notifier, poll_seconds=NEVER)
    yield opened
    await opened.close()


class Appender:
    """Appends to the log of one running run, and notifies."""

    def __init__(self, harness: RunHarness, claim: Claim) -> None:
        self._harness = harness
        self._claim = claim
        self._batch = 0

    async def append(self, *texts: str) -> None:
        events = RunEvents(self._claim.run_id, agent_id="main", node_id="test")
        self._batch += 1
        deltas = [events.delta(MessageId("msg_1"), text) for text in texts]
        appended = await self._harness.runs.append(Batch(self._claim, self._batch, deltas))
        assert appended is not None
        self._harness.database.notifier.notify(RunAppended(self._claim.run_id, appended.last_seq))


@pytest_asyncio.fixture
async def run(harness: RunHarness) -> Appender:
    await harness.start("by hand")
    [claim] = await harness.runs.claim_queued(WorkerId("wrk_a"), 1, NEVER, 0)
    return Appender(harness, claim)


async def test_followers_are_woken_by_the_notification_of_an_append(
    order: AccountOrder, run: Appender
) -> None:
    async with order.follow(OWNER) as one, order.follow(OWNER) as other:
        assert one.head == 0
        for nth in range(1, 4):
            await run.append("a", "b")
            for follower in (one, other):
                assert await follower.wait(2 * (nth - 1), TIMEOUT_SECONDS)
        assert one.head == other.head == 6
        found = await other.read_after(0)
        assert found[0].first_server_seq == 1
        assert found[-1].server_seq == 6
        assert [part.append.first_seq for part in await one.read_after(5)] == [6]
        assert await one.read_after(6) == []
        assert await one.wait(6, 0.01) is False


async def test_client_that_reconnects_continues_after_its_number(order: AccountOrder, run: Appender) -> None:
    async with order.follow(OWNER) as client:
        await run.append("a")
        assert await client.wait(0, TIMEOUT_SECONDS)
    await run.append("b", "c")
    async with order.follow(OWNER) as client:
        assert client.head == 3
        assert [part.append.first_seq for part in await client.read_after(1)] == [2]


async def test_number_of_a_client_that_reconnects_late_is_too_old(
    order: AccountOrder, run: Appender, harness: RunHarness
) -> None:
    async with order.follow(OWNER) as client:
        await run.append("a")
        assert await client.wait(0, TIMEOUT_SECONDS)
    harness.clock.ahead += FOLLOW_SECONDS + 1
    assert await end_expired_follows(harness.database.orders, harness.database.notifier) == 1
    async with order.follow(OWNER) as client:
        for unusable in (1, client.head + 1):
            with pytest.raises(CursorOutOfRange):
                await client.read_after(unusable)
        assert await client.read_after(client.head) == []


async def test_renewing_keeps_what_is_followed_and_starts_again_what_has_ended(
    order: AccountOrder, run: Appender, harness: RunHarness
) -> None:
    async with order.follow(OWNER) as client:
        harness.clock.ahead += FOLLOW_SECONDS - 1
        await order.renew()
        harness.clock.ahead += FOLLOW_SECONDS - 1
        assert await end_expired_follows(harness.database.orders, harness.database.notifier) == 0
        harness.clock.ahead += 2
        assert await end_expired_follows(harness.database.orders, harness.database.notifier) == 1
        await order.renew()
        await run.append("a")
        assert await client.wait(0, TIMEOUT_SECONDS)
        with pytest.raises(CursorOutOfRange):
            await client.read_after(0)


async def test_account_without_followers_causes_no_query(
    order: AccountOrder, counted: CountingOrders, run: Appender
) -> None:
    async with AsyncExitStack() as clients:
        for _ in range(3):
            await clients.enter_async_context(order.follow(OWNER))
    counted.calls.clear()
    await run.append("a")
    await asyncio.sleep(0)
    await order.number()
    await order.renew()
    assert not counted.calls
