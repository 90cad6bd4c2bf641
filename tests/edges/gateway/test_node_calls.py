"""Calls to a tool node: over its connection, or through the store to the instance that has it."""

from __future__ import annotations

import asyncio
import base64
import random
from typing import TYPE_CHECKING, Any

import pytest

from easel.edges.gateway.node_side import MAX_ERROR_LENGTH
from easel.errors import BadInput, ToolFailed
from tests.edges.gateway.node_peer import NodePeer, call_tool, new_tool, node_tool_names
from tests.edges.http.live import LiveEasel as Live
from tests.edges.http.live import new_session
from tests.requirements import case, rule
from tests.support.gateway import WAIT_SECONDS
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.edges.http.live import LiveEasel

LONG_POLL = 600.0  # longer than any test: what happens sooner was caused by a notification


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    settings = {"max_result_bytes": 10_000}
    with Live(tmp_path_factory.mktemp("easel"), settings=settings) as live:
        yield live


@pytest.fixture(scope="module")
def one_instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    with Live(tmp_path_factory.mktemp("easel"), with_worker=False) as live:
        yield live


@pytest.fixture(scope="module")
def two_instances(tmp_path_factory: pytest.TempPathFactory, module_database_url: str) -> Iterator[LiveEasel]:
    """Two instances that rely on notifications."""
    settings = {"poll_seconds": LONG_POLL, "node_ttl_seconds": 3 * LONG_POLL, "max_result_bytes": 200_000}
    with Live(
        tmp_path_factory.mktemp("easel"), module_database_url, edges=2, with_worker=False, settings=settings
    ) as live:
        yield live


@pytest.fixture(params=["same instance", "other instance"])
def caller(request: pytest.FixtureRequest) -> tuple[LiveEasel, int]:
    """The instance that calls a node of the first instance."""
    return (
        (request.getfixturevalue("one_instance"), 0)
        if request.param == "same instance"
        else (request.getfixturevalue("two_instances"), 1)
    )


async def failure_of(call: asyncio.Future[Any]) -> str:
    """Return the message with which a call fails."""
    with pytest.raises(ToolFailed) as failure:
        async with asyncio.timeout(WAIT_SECONDS):
            await call
    return failure.value.message


async def wait_until_no_calls(easel: LiveEasel) -> None:
    """Wait until no row is left. A row may be deleted just after its caller has the answer."""

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


# --- results ------------------------------------------------------------------------------------------------


@rule("CV-03")
async def test_node_receives_the_tool_name_without_its_id_and_its_answer_is_the_result(
    caller: tuple[LiveEasel, int],
) -> None:
    easel, at = caller
    name = new_session()
    async with NodePeer.connected(easel, name) as node:
        for value in VALUES:
            call = call_tool(easel, f"{name}__Echo", {"value": value}, at=at)
            received = await node.receive_call()
            assert (received["tool"], received["args"]) == ("Echo", {"value": value})
            assert await node.answer(received["callId"], result=value) == {"ok": True}
            assert await call == value
        call = call_tool(easel, f"{name}__Echo", at=at)
        await node.answer((await node.receive_call())["callId"], error="no such file: x")
        assert await failure_of(call) == f"{name}__Echo: no such file: x"
    await wait_until_no_calls(easel)


@case("R3")
async def test_base64_is_passed_unchanged_and_not_stored_in_a_row(two_instances: LiveEasel) -> None:
    name, picture = new_session(), base64.b64encode(random.Random(1).randbytes(9_000)).decode()
    async with NodePeer.connected(two_instances, name) as node:
        call = call_tool(two_instances, f"{name}__Echo", {"picture": picture}, at=1)
        received = await node.receive_call()
        assert received["args"] == {"picture": picture}
        connection_id = node.client.hello["server"]["connectionId"]
        [row] = two_instances.sql(
            f"select params::text as params from calls where target = '{connection_id}'"
        )
        assert picture[:500] not in row["params"]
        await node.answer(received["callId"], result={"again": [picture]})
        assert await call == {"again": [picture]}


async def test_concurrent_calls_are_answered_in_any_order(caller: tuple[LiveEasel, int]) -> None:
    easel, at = caller
    name = new_session()
    async with NodePeer.connected(easel, name) as node:
        calls = [call_tool(easel, f"{name}__Echo", {"n": n}, at=at) for n in range(30)]
        received = [await node.receive_call() for _ in calls]
        random.Random(2).shuffle(received)
        for call in received:
            await node.answer(call["callId"], result=call["args"]["n"])
        assert await asyncio.gather(*calls) == list(range(30))


async def test_call_on_the_same_instance_writes_nothing_to_the_database(small: LiveEasel) -> None:
    database: Any = small.instances[0].opened
    async with NodePeer.connected(small, "laptop") as node:
        call = call_tool(small, "laptop__Echo")
        await node.echo_next_call()
        await call

        async def call_without_commit() -> bool:
            before = database.commits
            for _ in range(5):
                call = call_tool(small, "laptop__Echo")
                await node.echo_next_call()
                await call
            return database.commits == before

        await wait_for(call_without_commit)  # the worker writes too, but not all the time


# --- refusals -----------------------------------------------------------------------------------------------


@case("X4")
async def test_tool_is_found_by_its_exact_name_only(small: LiveEasel) -> None:
    names = ["laptop__bash", "laptop__Bash ", " laptop__Bash", "Laptop__Bash", "laptop__Ваsh"]
    names += ["laptop_Bash", "Bash", "laptop__", "desktop__Bash"]
    async with NodePeer.connected(small, "laptop") as node:
        for name in names:
            assert "there is no such tool" in await failure_of(call_tool(small, name, {"command": "true"})), (
                name
            )
        assert node.client.unheard == 0


async def test_arguments_are_validated_before_the_call_is_sent(caller: tuple[LiveEasel, int]) -> None:
    easel, at = caller
    name = new_session()
    async with NodePeer.connected(easel, name) as node:
        for args in ({}, {"command": 1}, {"command": "true", "more": 1}):
            with pytest.raises(BadInput, match=f"{name}__Bash: "):
                await call_tool(easel, f"{name}__Bash", args, at=at)
        assert node.client.unheard == 0


INVALID_ANSWERS: list[dict[str, Any]] = [
    {},
    {"callId": 7, "result": 1},
    {"callId": "CALL"},
    {"callId": "CALL", "result": 1, "error": "both"},
    {"callId": "CALL", "error": {"message": "an object"}},
]


async def test_invalid_answer_is_refused_and_the_call_stays_open(small: LiveEasel) -> None:
    async with NodePeer.connected(small, "laptop") as node:
        call = call_tool(small, "laptop__Echo")
        call_id = (await node.receive_call())["callId"]
        for answer in INVALID_ANSWERS:
            params = {**answer, **({"callId": call_id} if answer.get("callId") == "CALL" else {})}
            refused = await node.client.refusal("tool.result", params)
            assert refused is not None
            assert refused.code == 400, answer
        await node.answer(call_id, result="good")
        assert await call == "good"


@rule("RS-67")
async def test_member_of_an_answer_that_is_not_used_may_be_null(small: LiveEasel) -> None:
    async with NodePeer.connected(small, "laptop") as node:
        completed = call_tool(small, "laptop__Echo")
        await node.answer((await node.receive_call())["callId"], result="good", error=None)
        assert await completed == "good"
        failed = call_tool(small, "laptop__Echo")
        await node.answer((await node.receive_call())["callId"], result=None, error="it broke")
        with pytest.raises(ToolFailed, match="it broke"):
            await failed


async def test_call_is_answered_once_and_only_by_its_node(easel: LiveEasel) -> None:
    """Bug 8 of GSV: any connection could answer any call."""
    name, other_name = new_session(), new_session()
    async with NodePeer.connected(easel, name) as node, NodePeer.connected(easel, other_name) as other:
        call = call_tool(easel, f"{name}__Echo")
        call_id = (await node.receive_call())["callId"]
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
async def test_result_over_the_limit_fails_the_call_and_the_node_stays_connected(small: LiveEasel) -> None:
    async with NodePeer.connected(small, "laptop") as node:
        call = call_tool(small, "laptop__Echo")
        await node.answer((await node.receive_call())["callId"], result="x" * 20_000)
        assert "over the limit" in await failure_of(call)
        call = call_tool(small, "laptop__Echo")
        await node.echo_next_call()
        await call


async def test_error_message_of_a_node_is_cut(caller: tuple[LiveEasel, int]) -> None:
    easel, at = caller
    name = new_session()
    async with NodePeer.connected(easel, name) as node:
        for error, message in (
            ("x" * MAX_ERROR_LENGTH, "x" * 4_000),
            ("x" * 100_000, "x" * 4_000),
            ("", "failed."),
        ):
            call = call_tool(easel, f"{name}__Echo", at=at)
            assert await node.answer((await node.receive_call())["callId"], error=error) == {"ok": True}
            assert await failure_of(call) == f"{name}__Echo: {message}"


async def test_call_over_the_limit_of_a_node_fails(small: LiveEasel) -> None:
    async with NodePeer.connected(small, "laptop") as node:
        calls = [call_tool(small, "laptop__Echo") for _ in range(64)]
        received = [await node.receive_call() for _ in calls]
        assert "the node runs 64 calls, which is its limit" in await failure_of(
            call_tool(small, "laptop__Echo")
        )
        for call in received:
            await node.answer(call["callId"], result=1)
        assert await asyncio.gather(*calls) == [1] * 64


# --- calls that end early -----------------------------------------------------------------------------------


async def test_call_fails_at_once_when_its_node_disconnects(caller: tuple[LiveEasel, int]) -> None:
    """Bug 6 of GSV: the caller waited forever."""
    easel, at = caller
    name = new_session()
    async with NodePeer.connected(easel, name) as node:
        calls = [call_tool(easel, f"{name}__Echo", at=at) for _ in range(3)]
        for _ in calls:
            await node.receive_call()
    for call in calls:
        assert f"node {name} disconnected before it answered" in await failure_of(call)
    message = await failure_of(call_tool(easel, f"{name}__Echo", at=at))
    assert "there is no such tool" in message or "the call was not sent" in message
    await wait_until_no_calls(easel)


async def test_answered_call_is_not_cancelled_at_the_node(easel: LiveEasel) -> None:
    name = new_session()
    async with NodePeer.connected(easel, name) as node:
        call = call_tool(easel, f"{name}__Echo")
        await node.echo_next_call()
        await call
        call.cancel()
        marker = call_tool(easel, f"{name}__Echo", {"after": 1})
        assert (await node.echo_next_call())["args"] == {"after": 1}
        await marker


async def test_output_reaches_the_caller_while_the_call_runs(small: LiveEasel) -> None:
    output: list[str] = []
    async with NodePeer.connected(small, "laptop") as node:
        call = call_tool(small, "laptop__Echo", on_output=output.append)
        call_id = (await node.receive_call())["callId"]
        for text in ("one\n", "", "two\n", "z" * 65_536):
            assert await node.client.call("tool.progress", callId=call_id, text=text) == {"ok": True}
        assert "".join(output) == "one\ntwo\n" + "z" * 65_536
        too_long = await node.client.refusal("tool.progress", {"callId": call_id, "text": "z" * 65_537})
        assert too_long is not None
        assert too_long.code == 400
        for _ in range(20):
            await node.client.call("tool.progress", callId=call_id, text="z" * 65_536)
        assert len("".join(output)) == 1_048_576, "output over a megabyte is dropped"
        await node.answer(call_id, result=1)
        assert await call == 1
        assert await node.client.call("tool.progress", callId=call_id, text="late") == {
            "ok": True,
            "dropped": True,
        }


# --- two instances ------------------------------------------------------------------------------------------


async def _knows(easel: LiveEasel, at: int, name: str) -> bool:
    return name in await node_tool_names(easel, at=at)


async def test_node_that_reconnects_to_another_instance_replaces_its_connection(
    two_instances: LiveEasel,
) -> None:
    name = new_session()
    async with NodePeer.connected(two_instances, name) as older:
        call = call_tool(two_instances, f"{name}__Echo")
        await older.receive_call()
        async with NodePeer.connected(two_instances, name, at=1, tools=[new_tool("New")]) as newer:
            assert await older.client.closed() == (1000, "Replaced by a newer connection")
            assert "disconnected" in await failure_of(call)
            for at in (0, 1):
                await wait_for(lambda at=at: _knows(two_instances, at, f"{name}__New"))
                call = call_tool(two_instances, f"{name}__New", {"at": at}, at=at)
                await newer.echo_next_call()
                assert await call == {"at": at}
