"""The story of tool nodes, told between two instances on one store: who has which node, and what becomes of calls when something is away."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.principal import THE_OWNER
from easel.core.stream.notifications import CallPending, Notification
from easel.core.tool.call import Answer, NewCall
from easel.core.tool.context import ToolContext
from easel.core.tool.offer import OfferLimits
from easel.errors import Forbidden, HostError, ToolFailed, TooMany, Unavailable
from easel.host.nodes.registry import NodeLimits, NodeRegistration, NodeRegistry
from easel.ids import OWNER, CallId, new_call_id, new_connection_id
from tests.requirements import case, rule
from tests.support.waiting import TIMEOUT_SECONDS, wait_for, within_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from easel.host.nodes.connection import ConnectedNode
    from tests.host.conftest import Bench, TurnableClock

CONTEXT = ToolContext(THE_OWNER, "agent:main:main")
LIMITS = NodeLimits(
    seconds=30,
    caller_ttl_seconds=30,
    poll_seconds=0.02,
    call_seconds=20,
    calls=4,
    nodes=3,
    result_bytes=10_000,
    offer=OfferLimits(10, 10_000),
)
TOOLS = [{"name": "Echo", "inputSchema": {"type": "object"}}]


class Link:
    """The other end of a node's connection: hears, and answers when the test says so."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[CallId, str, Mapping[str, Any]]] = asyncio.Queue()
        self.cancelled: asyncio.Queue[CallId] = asyncio.Queue()
        self.is_replaced = asyncio.Event()

    async def invoke(self, call_id: CallId, tool: str, args: Mapping[str, Any]) -> None:
        self.asked.put_nowait((call_id, tool, args))

    async def cancel(self, call_id: CallId) -> None:
        self.cancelled.put_nowait(call_id)

    async def close_replaced(self) -> None:
        self.is_replaced.set()


class Weather:
    """A store that can be away, in front of the real one."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.away: set[str] = set()
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        if name in self.away:
            return self._refuse
        return getattr(self._store, name)

    async def _refuse(self, *_: Any, **__: Any) -> Any:
        self.refused += 1
        raise Unavailable(what="The database")


def watched(store: Any, name: str, mark: Callable[[], Any]) -> asyncio.Queue[Any]:
    """What the mark was whenever this was asked of the store, each once it is done."""
    done: asyncio.Queue[Any] = asyncio.Queue()
    real = getattr(store, name)

    async def ask(*given: Any, **named: Any) -> Any:
        began = mark()
        answer = await real(*given, **named)
        done.put_nowait(began)
        return answer

    setattr(store, name, ask)
    return done


def held(store: Any, name: str, *, is_done: bool) -> tuple[asyncio.Event, asyncio.Event]:
    """The next time this is asked of the store, the first event says so, and it goes on with the second: after it is done, or before."""
    begun, may_go_on = asyncio.Event(), asyncio.Event()
    real = getattr(store, name)

    async def ask(*given: Any, **named: Any) -> Any:
        delattr(store, name)  # once
        answer = await real(*given, **named) if is_done else None
        begun.set()
        await may_go_on.wait()
        return answer if is_done else await real(*given, **named)

    setattr(store, name, ask)
    return begun, may_go_on


class Instance:
    def __init__(self, bench: Bench, limits: NodeLimits = LIMITS) -> None:
        self.store: Any = Weather(bench.database.nodes)
        self.nodes = NodeRegistry(self.store, bench.artifacts, bench.database.notifier, bench.audit, limits)

    async def connect(
        self, node_id: str = "laptop", tools: Any = TOOLS
    ) -> tuple[ConnectedNode, Link, NodeRegistration]:
        link, arrival = Link(), NodeRegistration(THE_OWNER, node_id, tools, new_connection_id(), "1", "test")
        one = await self.nodes.enter(arrival, link)
        self.nodes.open(one)
        return one, link, arrival

    async def use(self, name: str = "laptop__Echo", args: Mapping[str, Any] | None = None) -> Any:
        tool = await self.nodes.find(OWNER, name)
        assert tool is not None, f"{name} is not there"
        return await tool.use(args or {}, CONTEXT)

    async def names(self) -> list[str]:
        return [tool.name for tool in await self.nodes.definitions(OWNER)]


@pytest_asyncio.fixture
async def pair(bench: Bench) -> AsyncIterator[tuple[Instance, Instance]]:
    """Two instances on one store and one bell."""
    both = Instance(bench), Instance(bench)
    yield both
    for one in both:
        await one.nodes.close()


async def answered(one: ConnectedNode, link: Link, result: Any = "done") -> tuple[str, Mapping[str, Any]]:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        call_id, tool, args = await link.asked.get()
    assert one.answered(call_id, Answer(result))
    return tool, args


async def why(call: asyncio.Task[Any]) -> str:
    with pytest.raises(ToolFailed) as failed:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await call
    return failed.value.message


# --- where a call goes --------------------------------------------------------------------------------------------------


@rule("CV-03")
@pytest.mark.parametrize("caller", [0, 1])
async def test_a_call_finds_its_node_from_either_instance(
    pair: tuple[Instance, Instance], caller: int
) -> None:
    one, link, _ = await pair[0].connect()
    call = asyncio.create_task(pair[caller].use(args={"n": 1}))
    assert await answered(one, link, {"n": 2}) == ("Echo", {"n": 1})
    assert await within_timeout(call) == {"n": 2}
    assert await pair[caller].names() == ["laptop__Echo"]
    assert await pair[caller].nodes.find(OWNER, "laptop__Other") is None
    assert await pair[caller].nodes.find(OWNER, "laptop") is None


async def test_a_node_is_not_asked_before_it_is_greeted(bench: Bench) -> None:
    here = Instance(bench)
    link, arrival = Link(), NodeRegistration(THE_OWNER, "laptop", TOOLS, new_connection_id())
    one = await here.nodes.enter(arrival, link)
    assert await here.nodes.find(OWNER, "laptop__Echo") is None
    here.nodes.open(one)
    assert await here.nodes.find(OWNER, "laptop__Echo") is not None
    await here.nodes.close()


async def test_one_that_was_refused_has_left_nothing_behind(pair: tuple[Instance, Instance]) -> None:
    here = pair[0]
    for node_id in ("one", "two", "three"):
        await here.connect(node_id)
    with pytest.raises(TooMany):
        await here.connect("four")
    with pytest.raises(Forbidden):
        await here.nodes.enter(
            NodeRegistration(replace(THE_OWNER, only_node="one"), "two", TOOLS, new_connection_id()), Link()
        )
    assert await here.names() == await pair[1].names() == ["one__Echo", "three__Echo", "two__Echo"]


# --- two instances ------------------------------------------------------------------------------------------------------


async def test_a_row_that_was_swept_while_its_node_was_there_comes_back(
    pair: tuple[Instance, Instance], bench: Bench
) -> None:
    """The instance was slow for a while, not dead."""
    here, there = pair
    one, link, _ = await here.connect()
    await bench.database.nodes.sweep(-3600)
    await here.nodes.renew()
    assert not link.is_replaced.is_set()
    call = asyncio.create_task(there.use())
    await answered(one, link)
    assert await within_timeout(call) == "done"


async def test_an_older_connection_is_let_go_even_if_nobody_rang(
    pair: tuple[Instance, Instance], bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = pair
    _, older, _ = await here.connect()
    call = asyncio.create_task(here.use())
    await within_timeout(older.asked.get())
    monkeypatch.setattr(bench.database.notifier, "notify", lambda _: None)
    one, newer, _ = await there.connect()
    assert not older.is_replaced.is_set()
    await here.nodes.renew()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await older.is_replaced.wait()
    assert "went away" in await why(call)
    call = asyncio.create_task(here.use())
    await answered(one, newer)
    assert await within_timeout(call) == "done"


async def test_nodes_of_an_instance_that_is_not_heard_of_run_out(
    pair: tuple[Instance, Instance], clock: TurnableClock
) -> None:
    here, there = pair
    await here.connect()
    assert await there.names() == ["laptop__Echo"]
    clock.ahead += LIMITS.seconds + 1

    async def is_gone() -> bool:
        return await there.names() == []

    await wait_for(is_gone)
    await here.nodes.renew()

    async def is_back() -> bool:
        return await there.names() == ["laptop__Echo"]

    await wait_for(is_back)


async def test_a_call_ends_at_the_node_when_its_time_is_over(bench: Bench) -> None:
    """Whoever asked has died without a word."""
    bench.clock.stop()  # so that its time is not over before it is asked
    here = Instance(bench)
    one, link, _ = await here.connect()
    new = NewCall(
        new_call_id(),
        OWNER,
        one.node.connection_id,
        "tool.invoke",
        '{"tool":"Echo","args":{}}',
        0.3,
        caller_ttl_seconds=30,
    )
    assert await bench.database.nodes.place_call(new)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        call_id, _, _ = await link.asked.get()
        assert await link.cancelled.get() == call_id
    assert not one.answered(call_id, Answer("late"))
    await here.nodes.close()


async def test_what_a_newer_instance_asks_and_we_do_not_know_is_answered(bench: Bench) -> None:
    here = Instance(bench)
    one, _, _ = await here.connect()
    new = NewCall(new_call_id(), OWNER, one.node.connection_id, "tool.dance", "{}", 20, caller_ttl_seconds=30)
    assert await bench.database.nodes.place_call(new)
    found: dict[CallId, str | None] = {}

    async def has_come() -> bool:
        found.update(await bench.database.nodes.collect_answers([new.call_id]))
        return bool(found)

    await wait_for(has_come)
    assert "does not know tool.dance" in str(found[new.call_id])
    await here.nodes.close()


@pytest.mark.parametrize("change", ["it comes", "it goes"])
async def test_what_was_read_before_a_node_came_or_went_is_not_believed_after(
    bench: Bench, change: str
) -> None:
    """The answer of the store was on its way when the bell rang: it is of before."""
    limits = replace(LIMITS, poll_seconds=600)  # what is believed is believed for long
    here, there = Instance(bench, limits), Instance(bench, limits)
    arrival = None if change == "it comes" else (await here.connect())[2]
    begun, may_go_on = held(there.store, "list_nodes", is_done=True)
    reading = asyncio.create_task(there.names())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await begun.wait()
        if arrival is None:
            await here.connect()
        else:
            await here.nodes.leave(arrival)

        async def was_heard() -> bool:
            return there.nodes._changes > (change == "it goes")

        await wait_for(was_heard)
        may_go_on.set()
        before, after = ([], ["laptop__Echo"]) if change == "it comes" else (["laptop__Echo"], [])
        assert await reading == before
        assert await there.names() == after
    for instance in (here, there):
        await instance.nodes.close()


async def test_a_result_beyond_the_limit_is_not_stored_for_another_instance(
    pair: tuple[Instance, Instance], bench: Bench
) -> None:
    here, there = pair
    one, link, _ = await here.connect()
    fits = "x" * (LIMITS.result_bytes - 2)  # with its quotes
    call = asyncio.create_task(there.use())
    await answered(one, link, fits)
    assert await within_timeout(call) == fits
    there.store.away = {"collect_answers"}
    call = asyncio.create_task(there.use())
    await answered(one, link, fits + "x")

    async def stored() -> list[Any]:
        return await bench.database.read(
            lambda connection: connection.execute(
                "select answer from calls where answer is not null"
            ).fetchall()
        )

    async def is_answered() -> bool:
        return bool(await stored())

    await wait_for(is_answered)
    [row] = await stored()
    assert len(row["answer"]) < 200
    there.store.away = set()
    assert (
        f"its result of {LIMITS.result_bytes + 1} bytes is over the limit of {LIMITS.result_bytes}"
        in await why(call)
    )


# --- when the store is away ---------------------------------------------------------------------------------------------


async def test_what_was_known_is_still_known_when_the_store_is_away(pair: tuple[Instance, Instance]) -> None:
    here, there = pair
    one, link, _ = await here.connect()
    assert await there.names() == ["laptop__Echo"]
    for instance in pair:
        instance.store.away.add("list_nodes")
    await asyncio.sleep(2 * LIMITS.poll_seconds)
    assert await there.names() == ["laptop__Echo"]
    with pytest.raises(Unavailable):
        await here.names()  # it has never looked
    call = asyncio.create_task(here.use())
    await answered(one, link)
    assert await within_timeout(call) == "done", "and what is here needs no store at all"


async def test_an_answer_waits_until_the_store_is_back(pair: tuple[Instance, Instance]) -> None:
    here, there = pair
    one, link, _ = await here.connect()
    call = asyncio.create_task(there.use())
    call_id, _, _ = await within_timeout(link.asked.get())
    here.store.away.add("save_answer")
    there.store.away.add("collect_answers")
    one.answered(call_id, Answer("kept"))

    async def was_tried() -> bool:
        return here.store.refused > 0 and there.store.refused > 0

    await wait_for(was_tried)
    here.store.away.clear()
    there.store.away.clear()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert await call == "kept"


async def test_a_call_that_cannot_be_placed_is_told_at_once(pair: tuple[Instance, Instance]) -> None:
    here, there = pair
    await here.connect()
    assert await there.names() == ["laptop__Echo"]
    there.store.away.add("place_call")
    with pytest.raises(Unavailable):
        await there.use()


async def test_a_node_leaves_here_at_once_though_the_store_is_away(
    pair: tuple[Instance, Instance], clock: TurnableClock
) -> None:
    here, there = pair
    _, link, arrival = await here.connect()
    call = asyncio.create_task(here.use())
    await within_timeout(link.asked.get())
    here.store.away |= {"unregister", "renew", "take_calls"}
    await here.nodes.leave(arrival)
    assert "went away" in await why(call)
    assert await here.nodes.find(OWNER, "laptop__Echo") is None
    assert await there.nodes.find(OWNER, "laptop__Echo") is not None, "elsewhere it runs out"
    clock.ahead += LIMITS.seconds + 1

    async def has_run_out() -> bool:
        return await there.nodes.find(OWNER, "laptop__Echo") is None

    await wait_for(has_run_out)


async def test_the_duty_goes_on_after_the_store_was_away(pair: tuple[Instance, Instance]) -> None:
    here, there = pair
    one, link, _ = await here.connect()
    here.store.away |= {"take_calls", "renew"}

    async def was_tried() -> bool:
        return here.store.refused > 2

    await wait_for(was_tried)
    here.store.away.clear()
    call = asyncio.create_task(there.use())
    await answered(one, link)
    assert await within_timeout(call) == "done"


# --- ends ---------------------------------------------------------------------------------------------------------------


@case("X8")
async def test_a_cancelled_call_is_stopped_wherever_it_has_got_to(
    pair: tuple[Instance, Instance], bench: Bench
) -> None:
    here, there = pair
    _, link, _ = await here.connect()
    for turns in range(20):  # at any moment of its way
        call = asyncio.create_task(there.use())
        for _ in range(turns):
            await asyncio.sleep(0.001)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call

    async def nothing_is_left() -> bool:
        rows: list[Any] = await bench.database.read(
            lambda connection: connection.execute("select * from calls").fetchall()
        )
        return not rows and link.asked.qsize() == link.cancelled.qsize()

    await wait_for(nothing_is_left)


@rule("CV-23")
@case("X8")
async def test_what_an_instance_asked_that_died_is_stopped_at_the_node(
    pair: tuple[Instance, Instance], clock: TurnableClock
) -> None:
    """And not one moment too soon: as long as it says that it waits, the command goes on."""
    holder, caller = pair
    clock.stop()
    _, link, _ = await holder.connect()
    call = asyncio.create_task(caller.use())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        call_id, _, _ = await link.asked.get()
    for _ in range(4):
        clock.ahead += LIMITS.seconds / 3
        await caller.nodes._elsewhere.renew()
        await holder.nodes.renew()
        await holder.nodes._errands.once({one.node.connection_id: one for one in holder.nodes._here.values()})
    assert link.cancelled.empty()
    caller.store.away = {"collect_answers", "renew_calls", "cancel_call"}  # as if it were not there any more
    clock.ahead += LIMITS.seconds
    await holder.nodes.renew()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert await link.cancelled.get() == call_id
    caller.store.away = set()
    for _ in range(2):
        await caller.nodes._elsewhere.renew()
    assert "was not heard of for too long" in await why(call), (
        "it was not dead after all, and does not wait in vain"
    )


@case("D2")
async def test_a_store_that_was_away_has_heard_of_nobody_and_nothing_is_stopped_for_that(
    bench: Bench, clock: TurnableClock
) -> None:
    limits = replace(LIMITS, call_seconds=600)
    holder, caller = Instance(bench, limits), Instance(bench, limits)
    one, link, _ = await holder.connect()
    call = asyncio.create_task(caller.use())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        call_id, _, _ = await link.asked.get()
    here = {one.node.connection_id: one}
    caller.store.away = {"collect_answers", "renew_calls"}
    holder.store.away = {"take_cancelled"}
    refused = holder.store.refused
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while holder.store.refused == refused:  # noqa: ASYNC110 - the duty has no event for it
            await asyncio.sleep(0.01)
    clock.ahead += LIMITS.seconds + 1
    holder.store.away = set()
    await holder.nodes.renew()
    await holder.nodes._errands.once(here)
    assert link.cancelled.empty()
    caller.store.away = set()
    await caller.nodes._elsewhere.renew()
    assert one.answered(call_id, Answer("done"))
    assert await within_timeout(call) == "done"
    for instance in (holder, caller):
        await instance.nodes.close()


@case("D2")
async def test_patience_with_a_store_that_was_away_has_an_end(bench: Bench, clock: TurnableClock) -> None:
    """Who is not heard of for so long after it is back has died."""
    limits = replace(LIMITS, seconds=0.2, caller_ttl_seconds=0.2, call_seconds=600)
    holder, caller = Instance(bench, limits), Instance(bench, limits)
    clock.stop()
    _, link, _ = await holder.connect()
    call = asyncio.create_task(caller.use())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        call_id, _, _ = await link.asked.get()
        caller.store.away = {
            "collect_answers",
            "renew_calls",
            "cancel_call",
        }  # as if it were not there any more
        holder.store.away = {"take_cancelled"}
        refused = holder.store.refused

        async def was_away() -> bool:
            return holder.store.refused > refused

        await wait_for(was_away)
        clock.ahead += limits.seconds + 1
        holder.store.away = set()
        assert await link.cancelled.get() == call_id
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    for instance in (holder, caller):
        await instance.nodes.close()


@rule("CV-23")
@case("X8")
async def test_as_long_as_somebody_waits_that_is_said_by_itself(bench: Bench, clock: TurnableClock) -> None:
    """However rarely the store is looked at otherwise."""
    limits = replace(LIMITS, seconds=0.06, caller_ttl_seconds=0.06, poll_seconds=600, call_seconds=600)
    holder, caller = Instance(bench, limits), Instance(bench, limits)
    clock.stop()
    one, link, _ = await holder.connect()
    waits = watched(caller.store, "renew_calls", lambda: clock.ahead)
    lives = watched(holder.store, "renew", lambda: clock.ahead)
    looks = watched(holder.store, "take_cancelled", lambda: clock.ahead)
    call = asyncio.create_task(caller.use())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        call_id, _, _ = await link.asked.get()
        for _ in range(4):
            clock.ahead += limits.seconds / 2
            for said in (waits, lives, looks):
                while await said.get() < clock.ahead:
                    pass
    assert link.cancelled.empty()
    assert one.answered(call_id, Answer("done")), (
        "after twice the time for which nobody is believed without a word"
    )
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert await within_timeout(call) == "done"
    for instance in (holder, caller):
        await instance.nodes.close()


@rule("CV-23")
async def test_a_look_for_answers_that_hangs_keeps_nobody_from_saying_that_they_wait(
    bench: Bench, clock: TurnableClock
) -> None:
    """A slow bucket, a dead connection of the pool: the other calls of this instance are waited for all the same."""
    limits = replace(LIMITS, caller_ttl_seconds=0.3)
    holder, caller = Instance(bench, limits), Instance(bench, limits)
    clock.stop()
    one, link, _ = await holder.connect()
    waits = watched(caller.store, "renew_calls", lambda: clock.ahead)
    looks = watched(holder.store, "take_cancelled", lambda: clock.ahead)
    begun, may_go_on = held(caller.store, "collect_answers", is_done=False)
    call = asyncio.create_task(caller.use())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        call_id, _, _ = await link.asked.get()
        await begun.wait()
        for _ in range(4):
            clock.ahead += limits.caller_ttl_seconds / 2
            for said in (waits, looks):
                while await said.get() < clock.ahead:
                    pass
        assert link.cancelled.empty()
        assert one.answered(call_id, Answer("done"))
        may_go_on.set()
        assert await within_timeout(call) == "done"
    for instance in (holder, caller):
        await instance.nodes.close()


async def test_an_answer_that_is_being_fetched_is_not_missed(pair: tuple[Instance, Instance]) -> None:
    """Its row is gone already, and nobody has read it yet."""
    here, there = pair
    one, link, _ = await here.connect()
    begun, may_go_on = held(there.store, "collect_answers", is_done=True)
    call = asyncio.create_task(there.use())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        call_id, _, _ = await link.asked.get()
        await begun.wait()
        may_go_on.set()
        begun, may_go_on = held(there.store, "collect_answers", is_done=True)
        assert one.answered(call_id, Answer("done"))
        await begun.wait()
        while await there.store.renew_calls(
            [call_id], 30
        ):  # as long as a look comes before the answer is stored, it goes on without it
            may_go_on.set()
            begun, may_go_on = held(there.store, "collect_answers", is_done=True)
            await begun.wait()
        await there.nodes._elsewhere.renew()
        may_go_on.set()
        assert await within_timeout(call) == "done"


async def test_what_is_asked_of_a_node_before_it_was_greeted_is_taken_when_it_was(bench: Bench) -> None:
    """It is known to others from the moment it is stored, and no poll comes to find it."""
    limits = replace(LIMITS, poll_seconds=600.0, seconds=1_800.0)
    here, there = Instance(bench, limits), Instance(bench, limits)
    link, arrival = Link(), NodeRegistration(THE_OWNER, "laptop", TOOLS, new_connection_id(), "1", "test")
    one = await here.nodes.enter(arrival, link)
    notifications: asyncio.Queue[Notification] = asyncio.Queue()
    bench.database.notifier.listen(notifications.put_nowait)
    call = asyncio.create_task(there.use())
    while not isinstance(await within_timeout(notifications.get()), CallPending):
        pass
    here.nodes.open(one)
    await answered(one, link)
    assert await within_timeout(call) == "done"
    for instance in (here, there):
        await instance.nodes.close()


async def test_a_call_that_is_being_placed_is_not_missed_yet(pair: tuple[Instance, Instance]) -> None:
    """Another one is waited for meanwhile, and the store knows nothing of this one."""
    here, there = pair
    one, link, _ = await here.connect()
    assert await there.names() == ["laptop__Echo"]
    begun, may_go_on = held(there.store, "place_call", is_done=False)
    call = asyncio.create_task(there.use())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await begun.wait()
        await there.nodes._elsewhere.renew()
        may_go_on.set()
    await answered(one, link)
    assert await within_timeout(call) == "done"


async def test_a_process_that_ends_leaves_no_task_behind(bench: Bench) -> None:
    here, there = Instance(bench), Instance(bench)
    _, link, _ = await here.connect()
    calls = [asyncio.create_task(instance.use()) for instance in (here, there)]
    for _ in calls:
        await within_timeout(link.asked.get())
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    for instance in (here, there):
        await instance.nodes.close()
    left = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}  # type: ignore[union-attr]
    assert not any("odes" in name or "Calls" in name or "Errands" in name for name in left), left


async def test_errors_of_other_kinds_are_none_of_a_nodes(pair: tuple[Instance, Instance]) -> None:
    one, link, _ = await pair[0].connect()
    call = asyncio.create_task(pair[1].use())
    call_id, _, _ = await within_timeout(link.asked.get())
    one.answered(call_id, Answer(error="x" * 100))
    with pytest.raises(HostError, match="laptop__Echo: xxx"):
        await within_timeout(call)
