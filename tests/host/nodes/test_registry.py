"""Tool nodes of two instances on one store: routing, expiry, and failures of an instance or the database."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.call import Answer, NewCall
from easel.core.principal import PrincipalKind, Role
from easel.core.stream.notifications import CallPending, Notification
from easel.errors import Forbidden, TooMany, Unavailable
from easel.host.auth.tokens import Tokens
from easel.host.nodes.registry import NodeLimits, NodeRegistration
from easel.ids import OWNER, CallId, UserId, new_call_id, new_connection_id
from tests.host.nodes.instances import (
    CALL_LIMITS,
    CONTEXT,
    LIMITS,
    TOOLS,
    FakeLink,
    Instance,
    answer_next,
    failure_of,
    hold_next_call,
    record_calls,
)
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER
from tests.support.waiting import TIMEOUT_SECONDS, wait_for, within_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from easel.host.calls.remote_calls import RemoteCallLimits
    from tests.host.conftest import RunHarness, TurnableClock

Pair = tuple[Instance, Instance]


@contextlib.asynccontextmanager
async def two_instances(
    harness: RunHarness, limits: NodeLimits = LIMITS, calls: RemoteCallLimits = CALL_LIMITS
) -> AsyncIterator[Pair]:
    """Two instances on one store and one notifier: the node connects to the first, the second calls it."""
    instances = Instance(harness, limits, calls), Instance(harness, limits, calls)
    try:
        yield instances
    finally:
        for instance in instances:
            await instance.close()


@pytest_asyncio.fixture
async def pair(harness: RunHarness) -> AsyncIterator[Pair]:
    async with two_instances(harness) as instances:
        yield instances


async def call_rows(harness: RunHarness) -> list[Any]:
    return await harness.database.read(
        lambda connection: connection.execute("select * from calls").fetchall()
    )


# --- routing ------------------------------------------------------------------------------------------------


@rule("CV-03")
@pytest.mark.parametrize("caller", [0, 1])
async def test_node_is_called_from_its_own_and_from_another_instance(pair: Pair, caller: int) -> None:
    node, link, _ = await pair[0].connect()
    call = asyncio.create_task(pair[caller].use(args={"n": 1}))
    assert await answer_next(node, link, {"n": 2}) == ("Echo", {"n": 1})
    assert await within_timeout(call) == {"n": 2}
    assert await pair[caller].tool_names() == ["laptop__Echo"]
    assert await pair[caller].nodes.find(OWNER, "laptop__Other") is None
    assert await pair[caller].nodes.find(OWNER, "laptop") is None


async def test_error_of_a_node_fails_the_remote_call(pair: Pair) -> None:
    node, link, _ = await pair[0].connect()
    call = asyncio.create_task(pair[1].use())
    call_id, _, _ = await within_timeout(link.invoked.get())
    node.finish_call(call_id, Answer(error="x" * 100))
    assert "laptop__Echo: xxx" in await failure_of(call)


async def test_call_to_a_stale_connection_is_repeated_on_the_new_one(pair: Pair) -> None:
    """The connection has ended: the call was not sent, so it can be sent again."""
    holder, caller = pair
    _, older, registration = await holder.connect()
    stale = await caller.nodes.find(OWNER, "laptop__Echo")
    assert stale is not None
    await holder.nodes.disconnect(registration)
    node, link, _ = await holder.connect()
    call = asyncio.create_task(stale.use({"n": 1}, CONTEXT))
    assert await answer_next(node, link) == ("Echo", {"n": 1})
    assert await within_timeout(call) == "done"
    assert older.invoked.empty()


async def test_node_is_not_found_before_it_is_activated(harness: RunHarness) -> None:
    instance = Instance(harness)
    registration = NodeRegistration(THE_OWNER, "laptop", TOOLS, new_connection_id())
    node = await instance.nodes.connect(registration, FakeLink())
    assert await instance.nodes.find(OWNER, "laptop__Echo") is None
    instance.nodes.activate(node)
    assert await instance.nodes.find(OWNER, "laptop__Echo") is not None
    await instance.close()


async def test_call_placed_before_the_node_is_activated_is_taken_when_it_is(harness: RunHarness) -> None:
    """Other instances know a node once it is registered; no poll finds the call here."""
    limits = replace(LIMITS, poll_seconds=600.0, ttl_seconds=1_800.0)
    calls = replace(CALL_LIMITS, poll_seconds=600.0, caller_ttl_seconds=1_800.0)
    async with two_instances(harness, limits, calls) as (holder, caller):
        await holder.connect("earlier")  # the instance takes calls already
        link = FakeLink()
        registration = NodeRegistration(THE_OWNER, "laptop", TOOLS, new_connection_id(), "1", "test")
        node = await holder.nodes.connect(registration, link)
        notifications: asyncio.Queue[Notification] = asyncio.Queue()
        harness.database.notifier.listen(notifications.put_nowait)
        call = asyncio.create_task(caller.use())
        while not isinstance(await within_timeout(notifications.get()), CallPending):
            pass
        holder.nodes.activate(node)
        await answer_next(node, link)
        assert await within_timeout(call) == "done"


async def test_refused_node_is_not_registered(pair: Pair) -> None:
    holder, other = pair
    for node_id in ("one", "two", "three"):
        await holder.connect(node_id)
    with pytest.raises(TooMany):
        await holder.connect("four")
    with pytest.raises(Forbidden):
        await holder.nodes.connect(
            NodeRegistration(replace(THE_OWNER, only_node="one"), "two", TOOLS, new_connection_id()),
            FakeLink(),
        )
    assert await holder.tool_names() == await other.tool_names() == ["one__Echo", "three__Echo", "two__Echo"]


@rule("RS-76")
@pytest.mark.parametrize("is_admin", [False, True])
async def test_node_of_another_person_is_not_replaced(pair: Pair, is_admin: bool) -> None:
    _, link, _ = await pair[0].connect()
    role = Role.ADMIN if is_admin else Role.MEMBER
    other = replace(THE_OWNER, user_id=UserId("mallory"), role=role, is_operator=False)
    for instance in pair:
        registration = NodeRegistration(other, "laptop", TOOLS, new_connection_id())
        with pytest.raises(Forbidden, match="another person has the node laptop"):
            await instance.nodes.connect(registration, FakeLink())
        await instance.nodes.disconnect(registration)
    [found] = await pair[1].store.list_nodes(OWNER)
    assert found.user_id == OWNER
    assert not link.is_replaced.is_set()
    await pair[1].connect()
    assert await pair[0].tool_names() == ["laptop__Echo"], "their own is replaced"


@rule("RS-76")
@pytest.mark.parametrize("kind", [PrincipalKind.NODE, PrincipalKind.USER])
async def test_node_that_another_token_is_bound_to_is_refused(
    pair: Pair, harness: RunHarness, kind: PrincipalKind
) -> None:
    await Tokens(harness.database.tokens, harness.audit).create(OWNER, "node", name="laptop")
    mallory = UserId("mallory")
    other = replace(
        THE_OWNER,
        kind=kind,
        role=Role.MEMBER,
        is_operator=False,
        user_id=mallory if kind is PrincipalKind.USER else None,
        on_behalf_of=None if kind is PrincipalKind.USER else mallory,
    )
    with pytest.raises(Forbidden, match="another person has the node laptop"):
        await pair[0].nodes.connect(NodeRegistration(other, "laptop", TOOLS, new_connection_id()), FakeLink())


# --- two instances ------------------------------------------------------------------------------------------


async def test_swept_row_of_a_connected_node_is_registered_again(pair: Pair, harness: RunHarness) -> None:
    """The instance was slow, not stopped."""
    holder, caller = pair
    node, link, _ = await holder.connect()
    await harness.database.nodes.sweep(-3600)
    await holder.nodes.renew()
    assert not link.is_replaced.is_set()
    call = asyncio.create_task(caller.use())
    await answer_next(node, link)
    assert await within_timeout(call) == "done"


async def test_replaced_connection_is_closed_by_a_renewal_if_the_notification_was_lost(
    pair: Pair, harness: RunHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair
    _, older, _ = await first.connect()
    call = asyncio.create_task(first.use())
    await within_timeout(older.invoked.get())
    monkeypatch.setattr(harness.database.notifier, "notify", lambda _: None)
    node, newer, _ = await second.connect()
    assert not older.is_replaced.is_set()
    await first.nodes.renew()
    await within_timeout(older.is_replaced.wait())
    assert "disconnected" in await failure_of(call)
    call = asyncio.create_task(first.use())
    await answer_next(node, newer)
    assert await within_timeout(call) == "done"


async def test_nodes_of_an_instance_that_stops_renewing_expire(pair: Pair, clock: TurnableClock) -> None:
    holder, other = pair
    await holder.connect()
    assert await other.tool_names() == ["laptop__Echo"]
    clock.ahead += LIMITS.ttl_seconds + 1

    async def names_are(names: list[str]) -> bool:
        return await other.tool_names() == names

    await wait_for(lambda: names_are([]), what="the node expires")
    await holder.nodes.renew()
    await wait_for(lambda: names_are(["laptop__Echo"]), what="the node is registered again")


async def test_call_is_cancelled_at_the_node_after_its_timeout(harness: RunHarness) -> None:
    """The caller has stopped without cancelling it."""
    harness.clock.stop()
    instance = Instance(harness)
    node, link, _ = await instance.connect()
    new = NewCall(
        new_call_id(),
        OWNER,
        node.node.connection_id,
        "tool.invoke",
        '{"tool":"Echo","args":{}}',
        timeout_seconds=0.3,
        caller_ttl_seconds=30,
    )
    assert await harness.database.calls.place_call(new)
    call_id, _, _ = await within_timeout(link.invoked.get())
    assert await within_timeout(link.cancelled.get()) == call_id
    assert not node.finish_call(call_id, Answer("late"))
    await instance.close()


async def test_unknown_method_of_a_newer_instance_is_answered_with_an_error(harness: RunHarness) -> None:
    instance = Instance(harness)
    node, _, _ = await instance.connect()
    new = NewCall(
        new_call_id(), OWNER, node.node.connection_id, "tool.dance", "{}", 20, caller_ttl_seconds=30
    )
    assert await harness.database.calls.place_call(new)
    answers: dict[CallId, str | None] = {}

    async def is_answered() -> bool:
        answers.update(await harness.database.calls.collect_answers([new.call_id]))
        return bool(answers)

    await wait_for(is_answered)
    assert "does not know tool.dance" in str(answers[new.call_id])
    await instance.close()


@pytest.mark.parametrize("change", ["connects", "disconnects"])
async def test_list_read_before_a_node_changed_is_not_cached(harness: RunHarness, change: str) -> None:
    """The query is under way when the notification arrives: its result is out of date."""
    limits = replace(LIMITS, poll_seconds=600)
    async with two_instances(harness, limits) as (holder, other):
        registration = None if change == "connects" else (await holder.connect())[2]
        is_held, may_continue = hold_next_call(other.store, "list_nodes", after=True)
        reading = asyncio.create_task(other.tool_names())
        await within_timeout(is_held.wait())
        if registration is None:
            await holder.connect()
        else:
            await holder.nodes.disconnect(registration)
        await wait_for(lambda: other.nodes._change_count > (change == "disconnects"))
        may_continue.set()
        before, after = ([], ["laptop__Echo"]) if change == "connects" else (["laptop__Echo"], [])
        assert await within_timeout(reading) == before
        assert await other.tool_names() == after


async def test_result_over_the_limit_is_not_stored(pair: Pair, harness: RunHarness) -> None:
    holder, caller = pair
    node, link, _ = await holder.connect()
    largest = "x" * (CALL_LIMITS.max_result_bytes - 2)  # with its quotes
    call = asyncio.create_task(caller.use())
    await answer_next(node, link, largest)
    assert await within_timeout(call) == largest
    caller.store.unavailable = {"collect_answers"}
    call = asyncio.create_task(caller.use())
    await answer_next(node, link, largest + "x")

    async def is_answered() -> bool:
        return any(row["answer"] for row in await call_rows(harness))

    await wait_for(is_answered)
    [row] = await call_rows(harness)
    assert len(row["answer"]) < 200
    caller.store.unavailable = set()
    size, limit = CALL_LIMITS.max_result_bytes + 1, CALL_LIMITS.max_result_bytes
    assert f"its result of {size} bytes is over the limit of {limit}" in await failure_of(call)


# --- database unavailable -----------------------------------------------------------------------------------


async def test_cached_nodes_are_used_while_the_database_is_unavailable(pair: Pair) -> None:
    holder, other = pair
    node, link, _ = await holder.connect()
    assert await other.tool_names() == ["laptop__Echo"]
    for instance in pair:
        instance.store.unavailable.add("list_nodes")
    await wait_for(lambda: used_the_cache(other), what="the cache is out of date and used")
    with pytest.raises(Unavailable):
        await holder.tool_names()  # it has no cache
    call = asyncio.create_task(holder.use())
    await answer_next(node, link)
    assert await within_timeout(call) == "done", "a node that is connected here needs no database"


async def used_the_cache(instance: Instance) -> bool:
    assert await instance.tool_names() == ["laptop__Echo"]
    return instance.store.failure_count > 0


async def test_answer_is_delivered_when_the_database_is_available_again(pair: Pair) -> None:
    holder, caller = pair
    node, link, _ = await holder.connect()
    call = asyncio.create_task(caller.use())
    call_id, _, _ = await within_timeout(link.invoked.get())
    holder.store.unavailable.add("save_answer")
    caller.store.unavailable.add("collect_answers")
    node.finish_call(call_id, Answer("done"))
    await wait_for(lambda: holder.store.failure_count > 0 and caller.store.failure_count > 0)
    holder.store.unavailable.clear()
    caller.store.unavailable.clear()
    assert await within_timeout(call) == "done"


async def test_call_that_cannot_be_placed_fails_at_once(pair: Pair) -> None:
    holder, caller = pair
    await holder.connect()
    assert await caller.tool_names() == ["laptop__Echo"]
    caller.store.unavailable.add("place_call")
    with pytest.raises(Unavailable):
        await caller.use()


async def test_disconnect_ends_local_calls_at_once_while_the_database_is_unavailable(
    pair: Pair, clock: TurnableClock
) -> None:
    holder, other = pair
    _, link, registration = await holder.connect()
    call = asyncio.create_task(holder.use())
    await within_timeout(link.invoked.get())
    holder.store.unavailable |= {"unregister", "renew", "take_calls"}
    await holder.nodes.disconnect(registration)
    assert "disconnected" in await failure_of(call)
    assert await holder.nodes.find(OWNER, "laptop__Echo") is None
    assert await other.nodes.find(OWNER, "laptop__Echo") is not None, "for other instances it has to expire"
    clock.ahead += LIMITS.ttl_seconds + 1

    async def has_expired() -> bool:
        return await other.nodes.find(OWNER, "laptop__Echo") is None

    await wait_for(has_expired)


async def test_calls_are_taken_again_after_the_database_was_unavailable(pair: Pair) -> None:
    holder, caller = pair
    node, link, _ = await holder.connect()
    holder.store.unavailable |= {"take_calls", "renew"}
    await wait_for(lambda: holder.store.failure_count > 2)
    holder.store.unavailable.clear()
    call = asyncio.create_task(caller.use())
    await answer_next(node, link)
    assert await within_timeout(call) == "done"


# --- cancellation and renewal -------------------------------------------------------------------------------


@case("X8")
async def test_cancelled_call_is_cancelled_at_the_node_at_every_step(pair: Pair, harness: RunHarness) -> None:
    holder, caller = pair
    _, link, _ = await holder.connect()
    for turns in range(20):
        call = asyncio.create_task(caller.use())
        for _ in range(turns):
            await asyncio.sleep(0.001)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call

    async def nothing_is_left() -> bool:
        return not await call_rows(harness) and link.invoked.qsize() == link.cancelled.qsize()

    await wait_for(nothing_is_left)


@rule("CV-23")
@case("X8")
async def test_call_of_a_stopped_instance_is_cancelled_at_the_node(pair: Pair, clock: TurnableClock) -> None:
    holder, caller = pair
    clock.stop()
    _, link, _ = await holder.connect()
    call = asyncio.create_task(caller.use())
    call_id, _, _ = await within_timeout(link.invoked.get())
    for _ in range(4):
        clock.ahead += CALL_LIMITS.caller_ttl_seconds / 3
        await caller.remote.renew()
        await holder.nodes.renew()
        await holder.incoming.take()
    assert link.cancelled.empty(), "the caller has renewed it"
    caller.store.unavailable = {
        "collect_answers",
        "renew_calls",
        "cancel_call",
    }  # as if the caller had stopped
    clock.ahead += CALL_LIMITS.caller_ttl_seconds
    await holder.nodes.renew()
    assert await within_timeout(link.cancelled.get()) == call_id
    caller.store.unavailable = set()
    for _ in range(2):
        await caller.remote.renew()
    assert "the call expired" in await failure_of(call), "the caller was only slow, and does not wait forever"


@case("D2")
async def test_no_call_expires_because_the_database_was_unavailable(
    harness: RunHarness, clock: TurnableClock
) -> None:
    async with two_instances(harness, calls=replace(CALL_LIMITS, call_seconds=600)) as (holder, caller):
        node, link, _ = await holder.connect()
        call = asyncio.create_task(caller.use())
        call_id, _, _ = await within_timeout(link.invoked.get())
        caller.store.unavailable = {"collect_answers", "renew_calls"}
        holder.store.unavailable = {"take_cancelled"}
        await wait_for(lambda: holder.store.failure_count > 0)
        clock.ahead += CALL_LIMITS.caller_ttl_seconds + 1
        holder.store.unavailable = set()
        await holder.nodes.renew()
        await holder.incoming.take()
        assert link.cancelled.empty()
        caller.store.unavailable = set()
        await caller.remote.renew()
        assert node.finish_call(call_id, Answer("done"))
        assert await within_timeout(call) == "done"


@case("D2")
async def test_call_expires_if_it_is_not_renewed_after_the_database_is_available_again(
    harness: RunHarness, clock: TurnableClock
) -> None:
    limits = replace(LIMITS, ttl_seconds=0.2)
    calls = replace(CALL_LIMITS, caller_ttl_seconds=0.2, call_seconds=600)
    async with two_instances(harness, limits, calls) as (holder, caller):
        clock.stop()
        _, link, _ = await holder.connect()
        call = asyncio.create_task(caller.use())
        call_id, _, _ = await within_timeout(link.invoked.get())
        caller.store.unavailable = {"collect_answers", "renew_calls", "cancel_call"}  # as if it had stopped
        holder.store.unavailable = {"take_cancelled"}
        await wait_for(lambda: holder.store.failure_count > 0)
        clock.ahead += calls.caller_ttl_seconds + 1
        holder.store.unavailable = set()
        assert await within_timeout(link.cancelled.get()) == call_id
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


@rule("CV-23")
@case("X8")
async def test_call_and_node_are_renewed_in_the_background_however_rarely_the_store_is_polled(
    harness: RunHarness, clock: TurnableClock
) -> None:
    limits = replace(LIMITS, ttl_seconds=0.06, poll_seconds=600)
    calls = replace(CALL_LIMITS, caller_ttl_seconds=0.06, poll_seconds=600, call_seconds=600)
    async with two_instances(harness, limits, calls) as (holder, caller):
        clock.stop()
        node, link, _ = await holder.connect()
        renewals = record_calls(caller.store, "renew_calls", lambda: clock.ahead)
        node_renewals = record_calls(holder.store, "renew", lambda: clock.ahead)
        checks = record_calls(holder.store, "take_cancelled", lambda: clock.ahead)
        call = asyncio.create_task(caller.use())
        call_id, _, _ = await within_timeout(link.invoked.get())
        async with asyncio.timeout(TIMEOUT_SECONDS):
            for _ in range(4):  # twice the time after which the call would have expired
                clock.ahead += calls.caller_ttl_seconds / 2
                for done in (renewals, node_renewals, checks):
                    while await done.get() < clock.ahead:
                        pass
        assert link.cancelled.empty()
        assert node.finish_call(call_id, Answer("done"))
        assert await within_timeout(call) == "done"


@rule("CV-23")
@pytest.mark.parametrize("method", ["collect_answers", "renew_calls"])
async def test_call_is_renewed_while_another_query_of_the_caller_hangs(
    harness: RunHarness, clock: TurnableClock, method: str
) -> None:
    """A slow bucket delays reading answers; a broken connection to the database delays one renewal."""
    calls = replace(CALL_LIMITS, caller_ttl_seconds=0.3)
    async with two_instances(harness, calls=calls) as (holder, caller):
        clock.stop()
        node, link, _ = await holder.connect()
        renewals = record_calls(caller.store, "renew_calls", lambda: clock.ahead)
        checks = record_calls(holder.store, "take_cancelled", lambda: clock.ahead)
        is_held, may_continue = hold_next_call(caller.store, method, after=False)
        call = asyncio.create_task(caller.use())
        call_id, _, _ = await within_timeout(link.invoked.get())
        await within_timeout(is_held.wait())
        async with asyncio.timeout(TIMEOUT_SECONDS):
            for _ in range(4):
                clock.ahead += calls.caller_ttl_seconds / 2
                for done in (renewals, checks):
                    while await done.get() < clock.ahead:
                        pass
        assert link.cancelled.empty()
        assert node.finish_call(call_id, Answer("done"))
        may_continue.set()
        assert await within_timeout(call) == "done"


async def test_call_whose_answer_is_being_fetched_does_not_expire(pair: Pair) -> None:
    """Fetching the answer has deleted the row, and the answer is not read yet."""
    holder, caller = pair
    node, link, _ = await holder.connect()
    is_held, may_continue = hold_next_call(caller.store, "collect_answers", after=True)
    call = asyncio.create_task(caller.use())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        call_id, _, _ = await link.invoked.get()
        await is_held.wait()
        may_continue.set()
        is_held, may_continue = hold_next_call(caller.store, "collect_answers", after=True)
        assert node.finish_call(call_id, Answer("done"))
        await is_held.wait()
        while await caller.store.renew_calls([call_id], 30):  # this query came before the answer was stored
            may_continue.set()
            is_held, may_continue = hold_next_call(caller.store, "collect_answers", after=True)
            await is_held.wait()
        await caller.remote.renew()
        may_continue.set()
        assert await call == "done"


async def test_call_that_is_being_placed_does_not_expire(pair: Pair) -> None:
    holder, caller = pair
    node, link, _ = await holder.connect()
    assert await caller.tool_names() == ["laptop__Echo"]
    is_held, may_continue = hold_next_call(caller.store, "place_call", after=False)
    call = asyncio.create_task(caller.use())
    await within_timeout(is_held.wait())
    for _ in range(2):
        await caller.remote.renew()
    may_continue.set()
    await answer_next(node, link)
    assert await within_timeout(call) == "done"


async def test_close_leaves_no_task_behind(harness: RunHarness) -> None:
    before = asyncio.all_tasks()
    async with two_instances(harness) as (holder, caller):
        _, link, _ = await holder.connect()
        calls = [asyncio.create_task(instance.use()) for instance in (holder, caller)]
        for _ in calls:
            await within_timeout(link.invoked.get())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    assert {task.get_name() for task in asyncio.all_tasks() - before} <= {"audit"}
