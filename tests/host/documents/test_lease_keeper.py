"""The leases of running runs: renewed by activity, released at the end of the loop and at expiry."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.document.lease import Held
from easel.core.stream.notifications import CanvasAppended
from easel.errors import Unavailable
from easel.host.documents.leases import LeaseKeeper
from easel.host.documents.transactions import DocumentTransactions
from tests.host.documents.harness import PLAN, Instance, unique
from tests.requirements import rule
from tests.support.principals import THE_OWNER
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from easel.core.run.run import Claim
    from easel.core.stream.notifications import Notification


class CountingStore:
    """The store with a count of the renewals, which fail while it is unavailable."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.renewals: list[list[str]] = []
        self.is_unavailable = False

    async def renew_leases(self, run_ids: Any, seconds: float) -> None:
        self.renewals.append(list(run_ids))
        if self.is_unavailable:
            raise Unavailable(what="The database")
        await self._store.renew_leases(run_ids, seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def keeper_on(
    instance: Instance, store: CountingStore, clock: Callable[[], float] = time.monotonic
) -> LeaseKeeper:
    documents: Any = store
    transactions = DocumentTransactions(documents, instance.artifacts, instance.notifier)
    return LeaseKeeper(transactions, instance.database.canvases, instance.notifier, clock=clock)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def begin(instance: Instance) -> tuple[Claim, str, str]:
    session = unique("s")
    canvas_id = await instance.create(PLAN, session=session)
    claim = await instance.start(session)
    return claim, canvas_id, await instance.check_out(claim)


async def seconds_left(instance: Instance, canvas_id: str) -> float:
    document = await instance.get(canvas_id)
    assert isinstance(document.lease, Held)
    return (document.lease.expires_at - document.now) / timedelta(seconds=1)


@rule("CT-14", "CT-15")
async def test_activity_renews_at_most_once_per_second_and_only_runs_with_a_lease(instance: Instance):
    claim, canvas_id, _ = await begin(instance)
    store, clock = CountingStore(instance.store), Clock()
    keeper = keeper_on(instance, store, clock)
    await keeper.note_activity(claim.run_id)
    assert store.renewals == []  # this process does not know of a lease
    keeper.note_checked_out(claim.run_id, (await instance.get(canvas_id)).canvas_id)
    assert keeper.may_hold(claim.run_id)
    await instance.expire(canvas_id, -4)
    for _ in range(3):
        clock.now += 1.0
        for _ in range(5):
            await keeper.note_activity(claim.run_id)
    assert store.renewals == [[claim.run_id]] * 3
    assert await seconds_left(instance, canvas_id) > 5


@rule("CT-13", "CT-14")
async def test_activity_does_not_revive_a_lease_that_has_ended(instance: Instance):
    claim, canvas_id, lease_id = await begin(instance)
    await instance.expire(canvas_id)
    with instance.leases.waiting(claim.run_id):
        await instance.leases.renew_in_flight()
    assert await instance.holder(canvas_id) is None
    lease_id = await instance.check_out(claim)
    await instance.documents.take_control(THE_OWNER, canvas_id)
    with instance.leases.waiting(claim.run_id):
        await instance.leases.renew_in_flight()
    assert await instance.holder(canvas_id) is None
    assert (await instance.call(claim, "read_all", lease_id=lease_id))["code"] == "STALE_EPOCH"
    assert not instance.leases.may_hold(claim.run_id)


@rule("RS-70")
async def test_runs_in_flight_are_renewed_in_one_statement(instance: Instance):
    claims = [await begin(instance) for _ in range(3)]
    store = CountingStore(instance.store)
    keeper = keeper_on(instance, store)
    for claim, canvas_id, _ in claims[:2]:
        keeper.note_checked_out(claim.run_id, (await instance.get(canvas_id)).canvas_id)
        await instance.expire(canvas_id, -4)
    with contextlib.ExitStack() as requests:
        for claim, _, _ in claims:
            requests.enter_context(keeper.waiting(claim.run_id))
        await keeper.renew_in_flight()
    assert store.renewals == [[claims[0][0].run_id, claims[1][0].run_id]]
    for _, canvas_id, _ in claims[:2]:
        assert await seconds_left(instance, canvas_id) > 5


async def test_unavailable_store_does_not_fail_the_run(small: Instance):
    claim, canvas_id, _ = await begin(small)
    store = CountingStore(small.store)
    store.is_unavailable = True
    keeper = keeper_on(small, store)
    keeper.note_checked_out(claim.run_id, (await small.get(canvas_id)).canvas_id)
    with keeper.waiting(claim.run_id):
        await keeper.renew_in_flight()
    assert len(store.renewals) == 1


async def test_run_whose_lease_has_surely_expired_is_forgotten(small: Instance):
    claim, canvas_id, _ = await begin(small)
    clock = Clock()
    keeper = keeper_on(small, CountingStore(small.store), clock)
    keeper.note_checked_out(claim.run_id, (await small.get(canvas_id)).canvas_id)
    clock.now += 59
    await keeper.release_expired()
    assert keeper.may_hold(claim.run_id)
    clock.now += 2
    await keeper.release_expired()
    assert not keeper.may_hold(claim.run_id)


@rule("CT-16")
async def test_end_of_the_loop_releases_the_lease_and_notifies_viewers(instance: Instance):
    notifications: list[Notification] = []
    instance.notifier.listen(notifications.append)
    claim, canvas_id, _ = await begin(instance)
    await instance.leases.release(claim)
    assert await instance.holder(canvas_id) is None
    assert not instance.leases.may_hold(claim.run_id)
    events = await instance.events(canvas_id, "canvas.lease.changed")
    assert events[-1]["lease"] is None

    async def is_notified() -> bool:
        return CanvasAppended(f"owner/{canvas_id}", 4) in notifications

    await wait_for(is_notified)


async def test_attempt_that_took_over_releases_the_lease_of_the_attempt_before(instances: list[Instance]):
    one, other = instances
    claim, canvas_id, _ = await begin(one)
    await other.leases.release(claim)  # the other process does not know of the lease
    assert await one.holder(canvas_id) == claim.run_id
    await other.leases.release(replace(claim, attempt=2, has_document=True))
    assert await one.holder(canvas_id) is None


@rule("CT-12", "CT-16")
async def test_expired_leases_are_released_with_an_event_and_live_ones_are_kept(instance: Instance):
    _, expired, _ = await begin(instance)
    holder, live, _ = await begin(instance)
    await instance.expire(expired)
    epoch = (await instance.get(expired)).lease.epoch
    while await instance.leases.release_expired():
        pass
    document = await instance.get(expired)
    assert not isinstance(document.lease, Held)
    assert document.lease.epoch == epoch
    ended = await instance.events(expired, "canvas.lease.changed")
    assert [(event["lease"] is None, event["reason"]) for event in ended] == [
        (False, "checked_out"),
        (True, "expired"),
    ]
    assert await instance.holder(live) == holder.run_id


@pytest.mark.parametrize("act", ["message", "cancel"])
async def test_viewers_of_a_document_are_notified_of_a_preempted_lease(instance: Instance, act: str):
    notifications: list[Notification] = []
    claim, canvas_id, _ = await begin(instance)
    instance.notifier.listen(notifications.append)
    if act == "message":
        await instance.queue.start(THE_OWNER, claim.session_id, "stop")
    else:
        await instance.queue.cancel(THE_OWNER, claim.run_id)

    async def is_notified() -> bool:
        return CanvasAppended(f"owner/{canvas_id}", 4) in notifications

    await wait_for(is_notified)
    assert (await instance.events(canvas_id, "canvas.lease.changed"))[-1]["lease"] is None
