"""Calls to a tool node: directly when it is connected here, through the store when another instance has it, and each ends once."""

from __future__ import annotations

import asyncio
import base64
import random
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.tool.node import split_tool_name
from easel.edges.gateway.node_side import MAX_ERROR_LENGTH
from easel.errors import ToolFailed
from tests.edges.gateway.node_peer import NodePeer, a_tool, names_of, using
from tests.edges.http.live import LiveEasel as Live
from tests.edges.http.live import new_session, script
from tests.requirements import case, rule
from tests.support.gateway import WAIT_SECONDS, GatewayClient
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.edges.http.live import LiveEasel

LONG_POLL = 600.0
# Longer than any of these tests, and than anybody waits in them, as is a call's own time: whatever is told was told at once, by the bell.


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    settings = {"node_calls": 3, "max_result_bytes": 10_000}
    with Live(tmp_path_factory.mktemp("easel"), settings=settings) as live:
        yield live


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    with Live(tmp_path_factory.mktemp("easel"), with_worker=False) as live:
        yield live


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory, module_database_url: str) -> Iterator[LiveEasel]:
    """Two instances that tell each other by the bell alone."""
    settings = {"poll_seconds": LONG_POLL, "node_ttl_seconds": 3 * LONG_POLL, "max_result_bytes": 200_000}
    with Live(
        tmp_path_factory.mktemp("easel"), module_database_url, edges=2, with_worker=False, settings=settings
    ) as live:
        yield live


@pytest.fixture(params=["here", "elsewhere"])
def place(request: pytest.FixtureRequest) -> tuple[LiveEasel, int]:
    """Where a call is made to a node that is connected to the first instance."""
    return (
        (request.getfixturevalue("alone"), 0)
        if request.param == "here"
        else (request.getfixturevalue("apart"), 1)
    )


async def said(call: asyncio.Future[Any]) -> str:
    """Why a call failed."""
    with pytest.raises(ToolFailed) as failed:
        async with asyncio.timeout(WAIT_SECONDS):
            await call
    return failed.value.message


async def no_calls(easel: LiveEasel) -> None:
    """Nothing of them is left. A row may go a moment after whoever waited was told."""

    async def is_empty() -> bool:
        return not await asyncio.to_thread(easel.sql, "select * from calls")

    await wait_for(is_empty)


VALUES: list[Any] = [
    None,
    "",
    "text",
    0,
    -1.5,
    True,
    [],
    {},
    {"a": [1, {"b": None}], "ü": "\u2028"},
    [[[]]],
    {"redacted": True, "uri": "x"},
]


# --- what comes back ----------------------------------------------------------------------------------------


@rule("CV-03")
async def test_a_node_hears_the_bare_name_and_what_it_answers_is_the_result(
    place: tuple[LiveEasel, int],
) -> None:
    easel, at = place
    name = new_session()
    async with NodePeer.connected(easel, name) as node:
        for value in VALUES:
            call = using(easel, f"{name}__Echo", {"value": value}, at=at)
            asked = await node.invoked()
            assert (asked["tool"], asked["args"]) == ("Echo", {"value": value})
            assert await node.answer(asked["callId"], result=value) == {"ok": True}
            assert await call == value
        call = using(easel, f"{name}__Echo", at=at)
        await node.answer((await node.invoked())["callId"], error="no such file: x")
        assert await said(call) == f"{name}__Echo: no such file: x"
    await no_calls(easel)


@case("R3")
async def test_base64_goes_there_and_back_and_stands_in_no_table(apart: LiveEasel) -> None:
    name, picture = new_session(), base64.b64encode(random.Random(1).randbytes(9_000)).decode()
    async with NodePeer.connected(apart, name) as node:
        call = using(apart, f"{name}__Echo", {"picture": picture}, at=1)
        asked = await node.invoked()
        assert asked["args"] == {"picture": picture}
        connection_id = node.client.hello["server"]["connectionId"]
        [row] = apart.sql(f"select params::text as params from calls where target = '{connection_id}'")
        assert picture[:500] not in row["params"]
        await node.answer(asked["callId"], result={"again": [picture]})
        assert await call == {"again": [picture]}


@rule("CV-03")
async def test_an_agent_reaches_a_node_by_the_same_name_with_the_same_result(small: LiveEasel) -> None:
    async with NodePeer.connected(small, "laptop") as node:
        run_id = small.start(
            script({"call": "laptop__Echo", "args": {"a": 1}}, {"call": "laptop__Nothing", "args": {}})
        )
        await node.echo_one()
        events = await asyncio.to_thread(small.events, run_id)
        results = [event.data for event in events if event.type == "tool.result"]
        assert results[0]["result"] == {"a": 1}
        assert "there is no such tool" in str(results[1])
        call = using(small, "laptop__Echo", {"a": 1})
        await node.echo_one()
        assert await call == results[0]["result"]


SPEC = {
    "version": 1,
    "toolPolicy": {"allow": ["laptop__Echo"]},
    "state": {"who": "ada"},
    "actions": {
        "ask": {
            "kind": "tool.call",
            "tool": "laptop__Echo",
            "args": {"text": "hello {{state.who}}"},
            "saveAs": "answer",
        }
    },
}


@rule("CV-03", "RS-45")
async def test_a_canvas_reaches_a_node_by_the_same_name_and_is_told_503_while_it_is_away(
    small: LiveEasel,
) -> None:
    name = new_session()
    async with GatewayClient.connected(small.base_url, small.token, name) as client:
        await client.call("canvas.create", canvasId=name, spec=SPEC)
        away = await client.refusal("canvas.action", {"canvasId": name, "actionId": "ask"})
        assert away is not None
        assert away.code == 503
        async with NodePeer.connected(small, "laptop") as node:
            pressing = asyncio.create_task(client.call("canvas.action", canvasId=name, actionId="ask"))
            assert (await node.echo_one())["args"] == {"text": "hello ada"}
            assert (await pressing)["status"] == "completed"
            shown = await client.call("canvas.get", canvasId=name)
            assert shown["state"]["answer"]["result"] == {"text": "hello ada"}
            pressing = asyncio.create_task(
                client.refusal("canvas.action", {"canvasId": name, "actionId": "ask"})
            )
            await node.invoked()
        failed = await pressing
        assert failed is not None
        assert "disconnected before it answered" in failed.error["message"]


async def test_many_calls_are_under_way_at_once_and_end_in_any_order(place: tuple[LiveEasel, int]) -> None:
    easel, at = place
    name = new_session()
    async with NodePeer.connected(easel, name) as node:
        calls = [using(easel, f"{name}__Echo", {"n": n}, at=at) for n in range(30)]
        asked = [await node.invoked() for _ in calls]
        random.Random(2).shuffle(asked)
        for one in asked:
            await node.answer(one["callId"], result=one["args"]["n"])
        assert await asyncio.gather(*calls) == list(range(30))


async def test_a_call_to_a_node_that_is_here_writes_nothing(small: LiveEasel) -> None:
    database: Any = small.instances[0].opened
    async with NodePeer.connected(small, "laptop") as node:
        call = using(small, "laptop__Echo")
        await node.echo_one()
        await call

        async def commits_of_some_calls() -> int:
            before = database.commits
            for _ in range(5):
                call = using(small, "laptop__Echo")
                await node.echo_one()
                await call
            return database.commits - before

        async def are_none() -> bool:
            return await commits_of_some_calls() == 0

        await wait_for(are_none)  # the worker's own writes come now and then, a call's would come every time


# --- what is refused ----------------------------------------------------------------------------------------


@case("X4")
@pytest.mark.parametrize(
    "name",
    [
        "laptop__bash",
        "laptop__Bash ",
        " laptop__Bash",
        "Laptop__Bash",
        "laptop__Ваsh",
        "laptop_Bash",
        "Bash",
        "laptop__",
        "desktop__Bash",
    ],
)
async def test_a_tool_is_found_by_its_exact_name_only(small: LiveEasel, name: str) -> None:
    async with NodePeer.connected(small, "laptop") as node:
        assert "there is no such tool" in await said(using(small, name, {"command": "true"}))
        assert node.client.unheard == 0


async def test_arguments_are_checked_before_the_node_hears_of_them(place: tuple[LiveEasel, int]) -> None:
    easel, at = place
    name = new_session()
    async with NodePeer.connected(easel, name) as node:
        for args in ({}, {"command": 1}, {"command": "true", "more": 1}):
            assert f"{name}__Bash: " in await said(using(easel, f"{name}__Bash", args, at=at))
        assert node.client.unheard == 0


BAD_ANSWERS: list[dict[str, Any]] = [
    {},
    {"callId": 7, "result": 1},
    {"callId": "CALL"},
    {"callId": "CALL", "result": 1, "error": "both"},
    {"callId": "CALL", "error": {"message": "an object"}},
    {"callId": "CALL", "result": 1, "more": 2},
]


@pytest.mark.parametrize("answer", BAD_ANSWERS)
async def test_an_answer_that_is_none_gets_a_400_and_the_call_goes_on(
    small: LiveEasel, answer: dict[str, Any]
) -> None:
    async with NodePeer.connected(small, "laptop") as node:
        call = using(small, "laptop__Echo")
        call_id = (await node.invoked())["callId"]
        refused = await node.client.refusal(
            "tool.result", {**answer, **({"callId": call_id} if answer.get("callId") == "CALL" else {})}
        )
        assert refused is not None
        assert refused.code == 400
        await node.answer(call_id, result="good")
        assert await call == "good"


async def test_a_call_is_answered_once_and_only_by_the_node_that_was_asked(easel: LiveEasel) -> None:
    """Bug 8 of GSV: any connection could answer any call."""
    name, other_name = new_session(), new_session()
    async with NodePeer.connected(easel, name) as node, NodePeer.connected(easel, other_name) as other:
        call = using(easel, f"{name}__Echo")
        call_id = (await node.invoked())["callId"]
        assert await other.answer(call_id, result="forged") == {"ok": True, "dropped": True}
        assert await other.client.call("tool.progress", callId=call_id, text="forged") == {
            "ok": True,
            "dropped": True,
        }
        assert await node.answer("call_unknown", result="forged") == {"ok": True, "dropped": True}
        assert await node.answer(call_id, result="first") == {"ok": True}
        assert await node.answer(call_id, result="second") == {"ok": True, "dropped": True}
        assert await call == "first"


@case("X8")
@pytest.mark.parametrize("result, part", [("x" * 20_000, "over the limit"), ([[[]]], "")])
async def test_a_result_beyond_the_limits_is_refused_and_the_node_stays(
    small: LiveEasel, result: Any, part: str
) -> None:
    async with NodePeer.connected(small, "laptop") as node:
        call = using(small, "laptop__Echo")
        await node.answer((await node.invoked())["callId"], result=result)
        if part:
            assert part in await said(call)
        else:
            assert await call == result
        call = using(small, "laptop__Echo")
        await node.echo_one()
        await call


async def test_of_an_error_so_much_is_told_on_and_no_more(place: tuple[LiveEasel, int]) -> None:
    """It goes into a conversation, into a record and to whoever pressed."""
    easel, at = place
    name = new_session()
    async with NodePeer.connected(easel, name) as node:
        for error, told in (
            ("x" * MAX_ERROR_LENGTH, "x" * 4_000),
            ("x" * 100_000, "x" * 4_000),
            ("", "failed."),
        ):
            call = using(easel, f"{name}__Echo", at=at)
            assert await node.answer((await node.invoked())["callId"], error=error) == {"ok": True}
            assert await said(call) == f"{name}__Echo: {told}"


async def test_a_large_result_from_elsewhere_is_refused_before_it_is_stored(apart: LiveEasel) -> None:
    name = new_session()
    async with NodePeer.connected(apart, name) as node:
        call = using(apart, f"{name}__Echo", at=1)
        await node.answer((await node.invoked())["callId"], result="word " * 50_000)
        assert "over the limit of 200000" in await said(call)


async def test_a_node_has_only_so_many_calls_under_way(small: LiveEasel) -> None:
    async with NodePeer.connected(small, "laptop") as node:
        calls = [using(small, "laptop__Echo") for _ in range(3)]
        asked = [await node.invoked() for _ in calls]
        assert "3 calls under way" in await said(using(small, "laptop__Echo"))
        for one in asked:
            await node.answer(one["callId"], result=1)
        assert await asyncio.gather(*calls) == [1, 1, 1]


# --- how a call ends before its time ------------------------------------------------------------------------


async def test_a_call_fails_at_once_when_its_node_goes_away(place: tuple[LiveEasel, int]) -> None:
    """Bug 6 of GSV: the caller waited for ever."""
    easel, at = place
    name = new_session()
    async with NodePeer.connected(easel, name) as node:
        calls = [using(easel, f"{name}__Echo", at=at) for _ in range(3)]
        for _ in calls:
            await node.invoked()
    for call in calls:
        assert f"node {name} disconnected before it answered" in await said(call)
    why = await said(using(easel, f"{name}__Echo", at=at))
    assert "there is no such tool" in why or "the call was not sent" in why
    await no_calls(easel)


@case("X8")
@pytest.mark.parametrize("way", ["nobody wants it any more", "its time is over"])
async def test_a_call_that_ends_here_ends_at_the_node(place: tuple[LiveEasel, int], way: str) -> None:
    easel, at = place
    name = new_session()
    async with NodePeer.connected(easel, name) as node:
        # By way of the store it takes a while until the node is asked, and longer where the store is busy.
        seconds = 5 if at else 0.5
        call = using(easel, f"{name}__Echo", at=at, seconds=seconds if "time" in way else None)
        call_id = (await node.invoked())["callId"]
        if "time" in way:
            assert f"took longer than {seconds} s" in await said(call)
        else:
            call.cancel()
        assert await node.cancelled() == call_id
        assert await node.answer(call_id, result="late") == {"ok": True, "dropped": True}
        call = using(easel, f"{name}__Echo", {"still": "there"}, at=at)
        await node.echo_one()
        assert await call == {"still": "there"}
    await no_calls(easel)


async def test_a_call_whose_answer_was_on_its_way_is_not_cancelled(easel: LiveEasel) -> None:
    name = new_session()
    async with NodePeer.connected(easel, name) as node:
        call = using(easel, f"{name}__Echo")
        await node.echo_one()
        await call
        call.cancel()
        marker = using(easel, f"{name}__Echo", {"after": 1})
        assert (await node.echo_one())["args"] == {"after": 1}
        await marker


async def test_output_reaches_whoever_wants_to_see_it_while_the_call_runs(small: LiveEasel) -> None:
    seen: list[str] = []
    async with NodePeer.connected(small, "laptop") as node:
        call = using(small, "laptop__Echo", on_output=seen.append)
        call_id = (await node.invoked())["callId"]
        for text in ("one\n", "", "two\n", "z" * 65_536):
            assert await node.client.call("tool.progress", callId=call_id, text=text) == {"ok": True}
        assert "".join(seen) == "one\ntwo\n" + "z" * 65_536
        too_long = await node.client.refusal("tool.progress", {"callId": call_id, "text": "z" * 65_537})
        assert too_long is not None
        assert too_long.code == 400
        for _ in range(20):
            await node.client.call("tool.progress", callId=call_id, text="z" * 65_536)
        assert len("".join(seen)) == 1_048_576, (
            "of more than a megabyte the rest is in the result, or nowhere"
        )
        await node.answer(call_id, result=1)
        assert await call == 1
        assert await node.client.call("tool.progress", callId=call_id, text="late") == {
            "ok": True,
            "dropped": True,
        }


# --- two instances ------------------------------------------------------------------------------------------


async def test_both_instances_know_a_node_at_once_and_forget_it_at_once(apart: LiveEasel) -> None:
    name = new_session()
    for at in (0, 1):
        await wait_for(lambda at=at: _knows_not(apart, at))  # nor any of the tests before
    async with NodePeer.connected(apart, name, at=1):
        for at in (0, 1):
            await wait_for(lambda at=at: _knows(apart, at, f"{name}__Echo"))
        async with GatewayClient.connected(apart.base_url, apart.token, new_session()) as client:
            assert [one["nodeId"] for one in (await client.call("nodes.list"))["nodes"]] == ["local", name]
    for at in (0, 1):
        await wait_for(lambda at=at: _knows_not(apart, at))


async def _knows(easel: LiveEasel, at: int, name: str) -> bool:
    return name in await names_of(easel, at=at)


async def _knows_not(easel: LiveEasel, at: int) -> bool:
    return await names_of(easel, at=at) == set()


async def test_a_node_that_comes_back_elsewhere_leaves_its_older_connection(apart: LiveEasel) -> None:
    name = new_session()
    async with NodePeer.connected(apart, name) as older:
        call = using(apart, f"{name}__Echo")
        await older.invoked()
        async with NodePeer.connected(apart, name, at=1, tools=[a_tool("New")]) as newer:
            assert await older.client.closed() == (1000, "Replaced by a newer connection")
            assert "disconnected" in await said(call)
            for at in (0, 1):
                await wait_for(lambda at=at: _knows(apart, at, f"{name}__New"))
                call = using(apart, f"{name}__New", {"at": at}, at=at)
                await newer.echo_one()
                assert await call == {"at": at}


async def test_a_call_that_meets_the_node_in_a_new_place_finds_it_there(apart: LiveEasel) -> None:
    """What was known of it a moment ago is old: it was asked nothing by the old way, so it can be asked by the new one."""
    name = new_session()
    nodes: Any = apart.instances[1].services.nodes
    async with NodePeer.connected(apart, name):
        await wait_for(lambda: _knows(apart, 1, f"{name}__Echo"))
        old = nodes._known.copy()
        async with NodePeer.connected(apart, name) as again:
            await wait_for(lambda: _has_heard(nodes, old))
            nodes._known.update(old)
            call = using(apart, f"{name}__Echo", {"n": 1}, at=1)
            await again.echo_one()
            assert await call == {"n": 1}


async def _has_heard(nodes: Any, old: dict[Any, Any]) -> bool:
    return all(nodes._known[user] is not known for user, known in old.items())


async def test_the_nodes_of_an_instance_that_died_run_out_with_their_calls(
    tmp_path_factory: pytest.TempPathFactory, module_database_url: str
) -> None:
    settings = {"node_ttl_seconds": 600.0, "poll_seconds": 0.1}
    name = new_session()
    with Live(
        tmp_path_factory.mktemp("easel"), module_database_url, edges=2, with_worker=False, settings=settings
    ) as live:
        dead: Any = live.instances[0].services.nodes
        async with NodePeer.connected(live, name) as node:
            await wait_for(lambda: _knows(live, 1, f"{name}__Echo"))
            call = using(live, f"{name}__Echo", at=1)
            await node.invoked()
            live._loop.call_soon_threadsafe(
                dead._duty.cancel
            )  # it renews nothing any more, and answers nothing
            await wait_for(lambda: _is_over(dead._duty))
            live.sql(
                f"update nodes set expires_at = clock_timestamp() where node_id = '{name}'"
            )  # as if that time were over
            assert "disconnected" in await said(call)
            assert "there is no such tool" in await said(using(live, f"{name}__Echo", at=1))


async def _is_over(task: asyncio.Task[Any]) -> bool:
    return task.done()


async def test_without_the_bell_a_poll_does_it(
    tmp_path_factory: pytest.TempPathFactory, module_database_url: str
) -> None:
    name = new_session()
    with Live(
        tmp_path_factory.mktemp("easel"),
        module_database_url,
        edges=2,
        with_worker=False,
        settings={"poll_seconds": 0.2},
    ) as live:
        for instance in live.instances:
            notifier: Any = instance.opened.notifier
            notifier.notify = lambda _: None
        async with NodePeer.connected(live, name) as node:
            await wait_for(lambda: _knows(live, 1, f"{name}__Echo"))
            call = using(live, f"{name}__Echo", {"n": 1}, at=1)
            await node.echo_one()
            assert await call == {"n": 1}
            call = using(live, f"{name}__Echo", at=1)
            call_id = (await node.invoked())["callId"]
            call.cancel()
            assert await node.cancelled() == call_id
            call = using(live, f"{name}__Echo", at=1)
            await node.invoked()
        assert "disconnected" in await said(call)


def test_a_whole_name_is_taken_apart_at_its_first_double_underscore() -> None:
    assert split_tool_name("server-a__Bash") == ("server-a", "Bash")
    assert split_tool_name("server-a__My__Tool") == ("server-a", "My__Tool")
    assert split_tool_name("plain") == ("plain", "")
