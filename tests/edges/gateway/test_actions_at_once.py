"""Actions that overlap, on either store: with each other, with patches, with their own request, with the end of what they act on."""

from __future__ import annotations

import asyncio
import base64
import secrets
import threading
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from easel.errors import TooLarge, ToolFailed
from tests.edges.gateway.acting import Board, audited, calls, refused, sets
from tests.edges.gateway.node_peer import NodePeer
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient, Refused
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.edges.gateway.acting import Bench

AT_ONCE = 30
# Below what one connection may have under way: the request before counts for a moment after its answer was heard.


def holding(bench: Bench, name: str, **more: Any) -> dict[str, Any]:
    """An action whose tool waits until the test lets it go."""
    return calls(bench.hold, args={"name": name}, **more)


async def ended(board: Board) -> dict[str, Any]:
    """The newest record, once it is over."""

    async def is_over() -> bool:
        return (await board.records())[0]["status"] not in ("running", "asked")

    await wait_for(is_over)
    return (await board.records())[0]


# --- with each other ----------------------------------------------------------------------------------------------------


@rule("CV-44", "CV-21", "RS-12")
async def test_presses_and_patches_at_once_are_all_there(presser: GatewayClient, bench: Bench) -> None:
    actions = {
        "append": calls(bench.read, args={"n": "{{input.n}}"}, saveAs="list", saveMode="append"),
        "push": {"kind": "state.patch", "patch": [{"op": "add", "path": "/pushed/-", "value": 1}]},
    }
    board = await Board.made(presser, actions, state={"pushed": []})
    await board.listen()
    answers = await asyncio.gather(*(board.press("append", n=n) for n in range(AT_ONCE)))
    more = await asyncio.gather(
        *(board.press("append", n=n) for n in range(AT_ONCE, AT_ONCE + 10)),
        *(board.press("push") for _ in range(10)),
        *(board.patch(f"/k{n}", n) for n in range(10)),
    )
    state = await board.state()
    assert sorted(int(one["result"]["n"]) for one in state["list"]) == list(range(AT_ONCE + 10))
    assert state["pushed"] == [1] * 10
    assert all(state[f"k{n}"] == n for n in range(10))
    total = AT_ONCE + 30
    assert sorted(answer["revision"] for answer in (*answers, *more)) == list(range(2, total + 2)), (
        "each has a revision of its own"
    )
    heard = await presser.events(3 * (AT_ONCE + 20) + 10)
    assert [one.payload["revision"] for one in heard if one.event == "canvas.updated"] == list(
        range(2, total + 2)
    )
    assert [one.seq for one in heard] == list(range(2, len(heard) + 2))
    by_execution: dict[str, list[str]] = {}
    for one in heard:
        if one.event.startswith("canvas.action."):
            by_execution.setdefault(one.payload["eventId"], []).append(one.event.rpartition(".")[2])
    assert list(by_execution.values()) == [["started", "finished"]] * (AT_ONCE + 20)


@rule("CV-39", "CV-44")
async def test_a_result_is_applied_to_the_state_as_it_is_when_the_tool_returns(
    presser: GatewayClient, bench: Bench
) -> None:
    name = new_session()
    board = await Board.made(
        presser,
        {"go": holding(bench, name, saveAs="box.result"), "set": sets("/box/by", "button")},
        state={"box": {}, "n": 1},
    )
    press = asyncio.create_task(board.press("go"))
    await bench.gate.entered(name)
    await board.patch("/n", 2)
    await board.press("set")
    await presser.call(
        "canvas.patch",
        canvasId=board.name,
        statePatch=[{"op": "add", "path": "/box/new", "value": [1]}],
        title="Anew",
    )
    bench.gate.let_go(name, "late but welcome")
    assert (await press)["revision"] == 5
    snapshot = await board.snapshot()
    assert (snapshot["descriptor"]["title"], snapshot["state"]["n"]) == ("Anew", 2)
    box = snapshot["state"]["box"]
    assert (box["by"], box["new"], box["result"]["result"]) == ("button", [1], "late but welcome")


@rule("CV-45")
async def test_the_revision_that_is_expected_is_that_of_the_press_and_not_of_the_end(
    presser: GatewayClient, bench: Bench
) -> None:
    name = new_session()
    board = await Board.made(presser, {"go": holding(bench, name, saveAs="x")})
    press = asyncio.create_task(board.press("go", expectedRevision=1))
    await bench.gate.entered(name)
    await board.patch("/n", 2)
    bench.gate.let_go(name, 1)
    assert (await press)["revision"] == 3


# --- with time ----------------------------------------------------------------------------------------------------------


@rule("CV-23", "CV-42", "CV-20")
@case("X8")
async def test_a_tool_that_takes_too_long_is_stopped_and_what_it_says_later_is_not_stored(
    presser: GatewayClient, bench: Bench
) -> None:
    name = new_session()
    board = await Board.made(presser, {"go": holding(bench, name, saveAs="x", timeoutMs=100)})
    await board.listen()
    problem = await refused(board.press("go"))
    assert (problem.code, "0.1 s" in problem.error["message"]) == (504, True)
    assert bench.gate.ended[name] == "cancelled"
    bench.gate.let_go(name, "too late")
    assert [one.event for one in await presser.events(2)] == ["canvas.action.started", "canvas.action.failed"]
    assert (await board.state(), await board.revision(), presser.unheard) == ({}, 1, 0)
    assert (await board.records())[0]["status"] == "failed"


@rule("CV-23")
@case("X8")
async def test_a_tool_that_cannot_be_stopped_is_not_heard_either(
    presser: GatewayClient, bench: Bench
) -> None:
    name = new_session()
    board = await Board.made(
        presser, {"go": calls(bench.stubborn, args={"name": name}, saveAs="x", timeoutMs=50)}
    )
    press = asyncio.create_task(board.press("go"))
    await bench.gate.entered(name)

    async def is_asked_to_stop() -> bool:
        return bench.gate.ended.get(name) == "cancelled"

    await wait_for(is_asked_to_stop)
    bench.gate.let_go(name, "too late")
    assert (await refused(press)).code == 504
    assert (await board.state(), await board.revision()) == ({}, 1)


@rule("CV-23")
@case("X8")
async def test_who_stops_a_tool_that_takes_no_notice_is_answered_and_so_is_who_pressed(
    presser: GatewayClient, bench: Bench
) -> None:
    name = new_session()
    board = await Board.made(presser, {"go": calls(bench.stubborn, args={"name": name}, saveAs="x")})
    press = asyncio.create_task(board.press("go"))
    await bench.gate.entered(name)
    [record] = await board.records()
    answer = await presser.call("canvas.cancel", canvasId=board.name, eventId=record["eventId"])
    assert answer["status"] == "cancelled"
    assert (await refused(press)).code == 409
    assert bench.gate.ended.get(name) == "cancelled", "it was told, and goes on"
    bench.gate.let_go(name, "too late")
    assert (await board.state(), [one["status"] for one in await board.records()]) == ({}, ["failed"])


async def test_a_tool_that_is_cancelled_from_within_is_answered_all_the_same(
    presser: GatewayClient, bench: Bench
) -> None:
    name = new_session()
    bench.problems[name] = asyncio.CancelledError()
    board = await Board.made(presser, {"go": calls(bench.fail, args={"name": name}, saveAs="x")})
    assert (await refused(board.press("go"))).code == 500
    assert (await board.records())[0]["status"] == "failed"


@rule("CV-23", "CV-03")
async def test_a_node_is_told_when_its_answer_is_not_waited_for_any_more(
    presser: GatewayClient, acting: LiveEasel
) -> None:
    name = new_session()
    async with NodePeer.connected(acting, name) as node:
        board = await Board.made(presser, {"go": calls(f"{name}__Echo", saveAs="x", timeoutMs=100)})
        press = asyncio.create_task(board.press("go"))
        call = await node.invoked()
        assert (await refused(press)).code == 504
        assert await node.cancelled() == call["callId"]
        await node.answer(call["callId"], result="too late")
    assert (await board.state(), await board.revision()) == ({}, 1)


# --- with the end of things ---------------------------------------------------------------------------------------------


@rule("CV-34", "CV-23")
async def test_a_canvas_that_is_deleted_meanwhile_gets_nothing_nor_does_the_next_of_its_name(
    presser: GatewayClient, bench: Bench, acting: LiveEasel
) -> None:
    name = new_session()
    actions = {"go": holding(bench, name, saveAs="x")}
    board = await Board.made(presser, actions)
    press = asyncio.create_task(board.press("go"))
    await bench.gate.entered(name)
    await presser.call("canvas.delete", canvasId=board.name)
    again = await Board.made(presser, actions, name=board.name)
    head = (await again.snapshot())["descriptor"]["lastSeq"]
    bench.gate.let_go(name, "for another")
    assert (await refused(press)).details["eventId"].startswith("evt_")
    snapshot = await again.snapshot()
    assert (snapshot["state"], snapshot["revision"], snapshot["descriptor"]["lastSeq"]) == ({}, 1, head)
    assert await again.records() == []


@rule("CV-34", "CV-48", "RS-15")
async def test_a_canvas_that_is_gone_is_told_to_whoever_waits_and_audited(
    presser: GatewayClient, bench: Bench, acting: LiveEasel
) -> None:
    name = new_session()
    board = await Board.made(presser, {"go": holding(bench, name, saveAs="x")})
    press = asyncio.create_task(board.press("go"))
    await bench.gate.entered(name)
    await presser.call("canvas.delete", canvasId=board.name)
    bench.gate.let_go(name, 1)
    assert (await refused(press)).code == 404

    async def is_audited() -> bool:
        return [one["details"]["status"] for one in audited(acting, "canvas.action", board.name)] == [
            "failed"
        ]

    await wait_for(is_audited)


@rule("CV-42", "CV-03")
async def test_a_node_that_goes_away_fails_its_action_at_once(
    presser: GatewayClient, acting: LiveEasel
) -> None:
    name = new_session()
    async with NodePeer.connected(acting, name) as node:
        board = await Board.made(presser, {"go": calls(f"{name}__Echo", saveAs="x")})
        await board.listen()
        press = asyncio.create_task(board.press("go"))
        await node.invoked()
    problem = await refused(press)  # long before the tool's own time is over
    assert name in problem.error["message"]
    assert [one.event for one in await presser.events(2)] == ["canvas.action.started", "canvas.action.failed"]
    assert (await board.state(), (await board.records())[0]["status"]) == ({}, "failed")


@rule("CV-39", "CV-07")
async def test_whoever_leaves_stops_nothing(presser: GatewayClient, bench: Bench, acting: LiveEasel) -> None:
    name = new_session()
    board = await Board.made(presser, {"go": holding(bench, name, saveAs="x")})
    async with GatewayClient.connected(acting.base_url, acting.token, new_session()) as leaving:
        await leaving.send(
            {
                "type": "req",
                "id": "1",
                "method": "canvas.action",
                "params": {"canvasId": board.name, "actionId": "go"},
            }
        )
        await bench.gate.entered(name)
    bench.gate.let_go(name, "kept")
    assert (await ended(board))["status"] == "completed"
    assert (await board.state())["x"]["result"] == "kept"


@pytest.fixture
async def locked(acting: LiveEasel) -> AsyncIterator[Any]:
    """Holds a canvas so that no step can be taken, until it is let go; says when somebody waits for it."""
    if acting.database_url:
        hand = await asyncpg.connect(acting.database_url)
        transaction = hand.transaction()

        async def hold(canvas_id: str) -> None:
            await transaction.start()
            await hand.execute("select 1 from canvases where canvas_id = $1 for update", canvas_id)

        async def is_waited_for() -> bool:
            mine = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
            return bool(await asyncio.to_thread(acting.sql, mine))

        yield hold, is_waited_for, transaction.rollback
        await hand.close()
        return
    free = threading.Event()
    begun = threading.Event()
    database: Any = acting.instances[0].opened
    waiting: list[asyncio.Task[Any]] = []

    def block(_: Any) -> None:
        begun.set()
        free.wait(20)

    async def hold(canvas_id: str) -> None:
        waiting.append(asyncio.create_task(asyncio.to_thread(acting.do, database.write(block))))
        await asyncio.to_thread(begun.wait, 20)

    async def is_waited_for() -> bool:
        return True  # there is one writer, and it is held: whatever was asked before is in line

    async def let_go() -> None:
        free.set()
        await asyncio.gather(*waiting)

    yield hold, is_waited_for, let_go
    free.set()


@rule("CV-39", "CV-42")
async def test_whoever_leaves_while_it_begins_leaves_nothing_half_begun(
    presser: GatewayClient, bench: Bench, acting: LiveEasel, locked: Any
) -> None:
    """The press is on its way into the store when its connection ends: it is carried out, and never left running."""
    hold, is_waited_for, let_go = locked
    board = await Board.made(presser, {"go": calls(bench.act, args={"n": 1}, saveAs="x")})
    count = len(bench.act.calls)
    await hold(board.name)
    async with GatewayClient.connected(acting.base_url, acting.token, new_session()) as leaving:
        await leaving.send(
            {
                "type": "req",
                "id": "1",
                "method": "canvas.action",
                "params": {"canvasId": board.name, "actionId": "go"},
            }
        )
        await wait_for(is_waited_for)
        assert (await leaving.refusal("canvas.none")) is not None, (
            "the press was taken before this was answered"
        )
    async with GatewayClient.connected(acting.base_url, acting.token, new_session()):
        pass  # by now its end has been noticed
    await let_go()

    async def is_begun() -> bool:
        return bool(await board.records())

    await wait_for(is_begun)
    assert (await ended(board))["status"] == "completed"
    assert len(bench.act.calls) == count + 1


# --- with its own request -----------------------------------------------------------------------------------------------


@rule("CV-36")
async def test_one_request_is_one_execution_however_often_it_comes(
    presser: GatewayClient, bench: Bench
) -> None:
    name = new_session()
    board = await Board.made(
        presser, {"go": holding(bench, name, saveAs="x", saveMode="append"), "set": sets("/n", 1)}
    )
    count = len(bench.hold.calls)
    presses = [asyncio.create_task(board.press("go", requestId="r1")) for _ in range(20)]
    await bench.gate.entered(name)
    bench.gate.let_go(name, {"data": base64.b64encode(secrets.token_bytes(5_000)).decode()})
    answers = await asyncio.gather(*presses)
    assert len(bench.hold.calls) == count + 1
    assert all(answer == answers[0] for answer in answers)
    assert await board.press("go", requestId="r1") == answers[0], "later too, with all of its heavy result"
    assert len((await board.state())["x"]) == 1
    problem = await refused(board.press("set", requestId="r1"))
    assert (problem.code, "n" in await board.state()) == (409, False)
    assert problem.error["name"] == "IDEMPOTENCY_CONFLICT"
    assert problem.error["message"].startswith("The requestId r1 "), "in the words of whoever sent it"
    for another in ({"input": {"x": 2}}, {"input": {}, "expectedRevision": 99}):
        problem = await refused(board.press("go", requestId="r1", **another))
        assert problem.error["name"] == "IDEMPOTENCY_CONFLICT", (
            "the same name for something else is no repetition"
        )
    first = await board.press("set", requestId="r2")
    await board.patch("/n", 9)
    assert (await board.press("set", requestId="r2"), (await board.state())["n"]) == (first, 9)
    other = await Board.made(presser, {"set": sets("/n", 1)})
    assert (await other.press("set", requestId="r2"))["eventId"] != first["eventId"], (
        "a request's name is the canvas's own"
    )
    assert len(await board.records()) == 2


@rule("CV-36", "CV-42")
async def test_a_request_that_failed_is_answered_with_its_failure(
    presser: GatewayClient, bench: Bench
) -> None:
    name = new_session()
    bench.problems |= {
        f"{name}-1": TooLarge(what="It", limit=1),
        f"{name}-2": ToolFailed(tool="test__Fail", reason="once"),
    }
    slow = calls(bench.hold, args={"name": name}, timeoutMs=30)
    actions = {n: calls(bench.fail, args={"name": f"{name}-{n}"}) for n in ("1", "2")} | {
        "slow": slow,
        "gone": calls("nobody__Tool"),
    }
    board = await Board.made(presser, actions)
    for action, code in (("1", 413), ("2", 500), ("slow", 504), ("gone", 503)):
        before = len(bench.fail.calls) + len(bench.hold.calls)
        first = await refused(board.press(action, requestId=action))
        count = len(bench.fail.calls) + len(bench.hold.calls)
        again = await refused(board.press(action, requestId=action))
        assert first.code == again.code == code
        assert (first.error["message"], first.details["eventId"]) == (
            again.error["message"],
            again.details["eventId"],
        )
        assert len(bench.fail.calls) + len(bench.hold.calls) == count == before + (action != "gone")


@rule("CV-36", "CV-22")
async def test_a_request_that_waits_for_a_person_asks_once(presser: GatewayClient, bench: Bench) -> None:
    board = await Board.made(presser, {"go": calls(bench.act, confirm="always")})
    answers = await asyncio.gather(*(board.press("go", requestId="r") for _ in range(10)))
    assert len({answer["confirmationId"] for answer in answers}) == 1
    assert len(await board.asked()) == 1
    await board.confirm(answers[0])
    assert (await board.press("go", requestId="r"))["status"] == "completed"
    no = await board.press("go", requestId="s")
    await board.confirm(no, approve=False)
    assert (await board.press("go", requestId="s"))["status"] == "refused"


async def test_what_is_nested_without_end_is_refused(presser: GatewayClient) -> None:
    board = await Board.made(presser, {"set": sets("/n", 1)})
    deep: Any = 1
    for _ in range(400):
        deep = [deep]
    problem = await refused(board.press("set", input={"a": deep}, requestId="r"))
    assert (problem.code, "input: is nested deeper" in problem.error["message"]) == (400, True)
    assert await board.records() == []


@pytest.mark.parametrize("request_id", ["", "x" * 201, "a\x00b", "line\nend"])
async def test_a_request_has_a_name_that_can_be_printed(
    presser: GatewayClient, bench: Bench, request_id: str
) -> None:
    board = await Board.made(presser, {"go": sets("/n", 1)})
    assert (await refused(board.press("go", requestId=request_id))).code == 400
    assert (await board.press("go", requestId="é " * 100))["revision"] == 2


# --- with too many others -----------------------------------------------------------------------------------------------


@rule("CV-36")
async def test_one_too_many_is_told_to_come_back(
    tmp_path_factory: pytest.TempPathFactory, bench: Bench
) -> None:
    with LiveEasel(
        tmp_path_factory.mktemp("small"), settings={"max_actions": 2}, tools=bench.tools, with_worker=False
    ) as small:
        async with GatewayClient.connected(small.base_url, small.token) as client:
            names = [new_session() for _ in range(2)]
            board = await Board.made(
                client, {name: holding(bench, name) for name in names} | {"set": sets("/n", 1)}
            )
            presses = [asyncio.create_task(board.press(name)) for name in names]
            for name in names:
                await bench.gate.entered(name)
            problem = await refused(board.press("set"))
            assert (problem.code, problem.error["retryable"]) == (429, True)
            assert len(await board.records()) == 2, "it never began"
            bench.gate.let_go(names[0])
            await presses[0]
            assert (await board.press("set"))["revision"] == 2
            bench.gate.let_go(names[1])
            assert not isinstance(await presses[1], Refused)
