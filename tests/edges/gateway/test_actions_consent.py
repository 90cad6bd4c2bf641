"""A person's consent, on either store: when it is asked for, to what exactly it is given, and that nothing gets around it."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.principal import THE_OWNER, PrincipalKind
from easel.errors import Forbidden
from easel.host.actions.request import ActionRequest
from tests.edges.gateway.acting import Board, audited, calls, inside, refused, sets, spec_of
from tests.edges.gateway.node_peer import NodePeer, a_tool
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient, Refused
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.edges.gateway.acting import Bench

AGENT = replace(THE_OWNER, name="agent", kind=PrincipalKind.AGENT)


# --- when ---------------------------------------------------------------------------------------------------------------

LEVELS = [
    # confirm    tool             asks
    (None,       "test__Act",     True),
    (None,       "test__Once",    True),
    (None,       "test__Destroy", True),
    (None,       "test__Bash",    True),
    (None,       "test__Read",    False),
    ("auto",     "test__Act",     True),
    ("auto",     "test__Read",    False),
    ("always",   "test__Read",    True),
    ("never",    "test__Act",     False),
    ("never",    "test__Destroy", False),
]  # fmt: skip


@rule("RS-13", "RS-44", "RS-45", "CV-22")
@pytest.mark.parametrize("confirm, tool, asks", LEVELS)
async def test_a_person_is_asked_unless_the_tool_only_reads_or_the_author_says_otherwise(
    presser: GatewayClient, bench: Bench, confirm: str | None, tool: str, asks: bool
) -> None:
    action = {
        "kind": "tool.call",
        "tool": tool,
        "args": {"command": "true"},
        **({"confirm": confirm} if confirm else {}),
    }
    board = await Board.made(presser, {"go": action})
    used = next(one for one in bench.tools if one.name == tool)
    count = len(used.calls)
    answer = await board.press("go")
    assert answer["status"] == ("needs_confirmation" if asks else "completed")
    assert len(used.calls) == count + (not asks)


@rule("RS-14", "CV-41")
async def test_the_server_asks_where_the_author_would_not(
    tmp_path_factory: pytest.TempPathFactory, bench: Bench
) -> None:
    settings = {"approval_mode": "minimal"}
    with LiveEasel(
        tmp_path_factory.mktemp("strict"), settings=settings, tools=bench.tools, with_worker=False
    ) as strict:
        async with GatewayClient.connected(strict.base_url, strict.token) as client:
            message = {"kind": "session.send", "message": "hi", "confirm": "never"}
            board = await Board.made(
                client, {"read": calls(bench.read), "patch": sets("/n", 1, confirm="never"), "say": message}
            )
            for action in ("read", "patch", "say"):
                assert (await board.press(action))["status"] == "needs_confirmation"
            assert await board.revision() == 1
            spec = spec_of({"read": calls(bench.read)}) | {
                "refresh": [{"id": "r", "everyMs": 60_000, "action": "read"}]
            }
            problem = await refused(client.call("canvas.create", canvasId="jobs", spec=spec))
            assert (problem.code, "on this server (EASEL_APPROVAL_MODE)" in problem.error["message"]) == (
                400,
                True,
            )


@rule("RS-45", "RS-13", "RS-44", "CV-41")
@case("X4")
async def test_the_definition_in_force_decides_at_every_press(
    presser: GatewayClient, acting: LiveEasel
) -> None:
    """A node comes back with the same tool, declared otherwise each time."""
    name = new_session()
    read_only = {"readOnlyHint": True}
    async with NodePeer.connected(acting, name, tools=[a_tool("Do", annotations=read_only)]) as node:
        action = {"kind": "tool.call", "tool": f"{name}__Do", "args": {"x": "echo $({{input.v}})"}}
        board = await Board.made(presser, {"go": action})
        press = asyncio.create_task(board.press("go", v="a"))
        assert (await node.echo_one())["args"] == {"x": "echo $(a)"}, "plain text, for all that is known"
        assert (await press)["result"] == {"x": "echo $(a)"}
    async with NodePeer.connected(acting, name, tools=[a_tool("Do")]):
        assert (await board.press("go", v="a"))["status"] == "needs_confirmation"
    shell = {"type": "object", "properties": {"x": {"type": "string", "x-shell": True}}}
    async with NodePeer.connected(acting, name, tools=[a_tool("Do", shell, annotations=read_only)]):
        problem = await refused(board.press("go", v="a"))
        assert (problem.code, "actions.go.args.x" in problem.error["message"]) == (400, True)
    async with NodePeer.connected(acting, name, tools=[a_tool("Renamed", annotations=read_only)]):
        assert (await refused(board.press("go", v="a"))).code == 503


# --- to what ------------------------------------------------------------------------------------------------------------


@rule("CV-22", "CV-39", "CV-37")
@case("X6")
async def test_exactly_what_was_shown_runs_whatever_the_state_is_by_then(
    presser: GatewayClient, bench: Bench
) -> None:
    action = calls(
        bench.bash,
        args={"command": "printf '%s\\0' {{state.service}} {{input.to}}"},
        confirm="auto",
        saveAs="out",
    )
    board = await Board.made(presser, {"go": action}, state={"service": "api"})
    await board.listen()
    count = len(bench.bash.calls)
    asked = await board.press("go", to="it's; touch PWN")
    assert asked["resolved"]["args"] == {"command": "printf '%s\\0' api 'it'\\''s; touch PWN'"}
    assert (len(bench.bash.calls), await board.revision()) == (count, 1)
    [waiting] = await board.asked()
    assert (waiting["confirmationId"], waiting["resolved"], waiting["status"]) == (
        asked["confirmationId"],
        asked["resolved"],
        "asked",
    )
    await board.patch("/service", "other")
    done = await board.confirm(asked)
    assert done["result"] == {"exitCode": 0, "arguments": ["api", "it's; touch PWN"]}
    assert bench.bash.args[-1] == asked["resolved"]["args"]
    assert (done["status"], done["eventId"], done["revision"]) == ("completed", asked["confirmationId"], 3)
    state = await board.state()
    assert (state["service"], state["out"]["result"]) == ("other", done["result"])
    events = await presser.events(5)
    assert [one.event for one in events] == [
        "canvas.action.asked",
        "canvas.updated",
        "canvas.action.started",
        "canvas.updated",
        "canvas.action.finished",
    ]
    assert {one.payload.get("eventId", asked["confirmationId"]) for one in events} == {
        asked["confirmationId"]
    }
    assert await board.asked() == []


@rule("CV-22", "CV-48")
async def test_a_refusal_leaves_everything_as_it_was(presser: GatewayClient, bench: Bench) -> None:
    board = await Board.made(presser, {"go": calls(bench.act, confirm="always", saveAs="x")}, state={"n": 1})
    await board.listen()
    count = len(bench.act.calls)
    asked = await board.press("go")
    assert (await board.confirm(asked, approve=False))["status"] == "refused"
    assert [one.event for one in await presser.events(2)] == ["canvas.action.asked", "canvas.action.refused"]
    assert (len(bench.act.calls), await board.state(), await board.revision(), await board.asked()) == (
        count,
        {"n": 1},
        1,
        [],
    )
    for approve in (True, False):
        assert (await refused(board.confirm(asked, approve=approve))).code == 409
    assert len(bench.act.calls) == count


@rule("CV-22")
@case("X6")
async def test_a_confirmation_is_good_for_one_time_however_many_say_yes_at_once(
    presser: GatewayClient, bench: Bench
) -> None:
    board = await Board.made(
        presser,
        {"go": calls(bench.act, args={"n": new_session()}, confirm="always", saveAs="x", saveMode="append")},
    )
    asked = await board.press("go")
    count = len(bench.act.calls)
    answers = await asyncio.gather(*(board.confirm(asked) for _ in range(20)), return_exceptions=True)
    assert sorted(one.code for one in answers if isinstance(one, Refused)) == [409] * 19
    assert len(bench.act.calls) == count + 1
    assert len((await board.state())["x"]) == 1


@rule("CV-22", "CV-24", "CV-25")
async def test_a_patch_and_a_message_wait_for_a_person_too(presser: GatewayClient, acting: LiveEasel) -> None:
    session = new_session()
    say = {
        "kind": "session.send",
        "message": "about {{state.n}}",
        "sessionKey": f"agent:main:{session}",
        "confirm": "always",
    }
    board = await Board.made(presser, {"patch": sets("/n", 2, confirm="always"), "say": say}, state={"n": 1})
    patch, message = await board.press("patch"), await board.press("say")
    assert patch["resolved"] == {"kind": "state.patch", "patch": [{"op": "add", "path": "/n", "value": 2}]}
    assert message["resolved"] == {
        "kind": "session.send",
        "sessionKey": f"agent:main:{session}",
        "message": "about 1",
    }
    runs = f"select input_text from runs where session_id = '{session}'"
    assert (await board.state(), acting.sql(runs)) == ({"n": 1}, [])
    assert (await board.confirm(patch))["revision"] == 2
    await board.confirm(message)
    assert (await board.state(), acting.sql(runs)) == ({"n": 2}, [{"input_text": "about 1"}])


MEANWHILE: list[tuple[str, dict[str, Any], dict[str, Any], int]] = [
    # says                       the action then                                     the spec                       answered with
    ("other arguments",          {"args": {"x": "new"}},                             {},                            200),
    ("another tool",             {"tool": "test__Destroy"},                          {},                            409),
    ("another kind",             {"kind": "state.patch"},                            {},                            409),
    ("no longer allowed",        {},                                                 {"allow": ["test__Read"]},     403),
    ("nothing to append to",     {"saveAs": "text", "saveMode": "append"},           {},                            409),
]  # fmt: skip


@rule("CV-22", "CV-40", "CV-41")
@case("X6")
@pytest.mark.parametrize(
    "action, spec, code", [row[1:] for row in MEANWHILE], ids=[row[0] for row in MEANWHILE]
)
async def test_a_spec_that_changed_meanwhile(
    presser: GatewayClient, bench: Bench, action: dict[str, Any], spec: dict[str, Any], code: int
) -> None:
    first = calls(bench.act, args={"x": "old"}, confirm="always")
    board = await Board.made(presser, {"go": first}, state={"text": "x"})
    asked = await board.press("go")
    patched = {"kind": "state.patch", "patch": [], "confirm": "always"}
    await board.rewrite({"go": patched if "kind" in action else first | action}, **spec)
    used = [bench.act, bench.destroy]
    before = [len(tool.calls) for tool in used]
    if code == 200:
        assert (await board.confirm(asked))["result"] == {"x": "old"}, "what was shown"
        return
    assert (await refused(board.confirm(asked))).code == code
    assert [len(tool.calls) for tool in used] == before
    await board.rewrite({"go": first})
    assert (await board.confirm(asked))["result"] == {"x": "old"}, "the question still stands"


@rule("RS-45")
async def test_a_tool_that_is_away_when_a_person_agrees_is_waited_for(
    presser: GatewayClient, acting: LiveEasel
) -> None:
    name = new_session()
    async with NodePeer.connected(acting, name, tools=[a_tool("Do")]):
        board = await Board.made(presser, {"go": calls(f"{name}__Do", args={"n": 1}, confirm="always")})
        asked = await board.press("go")
    async with NodePeer.connected(acting, name, tools=[a_tool("Other")]):
        assert (await refused(board.confirm(asked))).code == 503
    async with NodePeer.connected(acting, name, tools=[a_tool("Do")]) as node:
        confirm = asyncio.create_task(board.confirm(asked))
        assert (await node.echo_one())["args"] == {"n": 1}
        assert (await confirm)["status"] == "completed"


@rule("RS-35", "CV-22", "CC-23")
@case("X6")
@pytest.mark.parametrize("heavy", ["base64", "text"])
async def test_a_heavy_call_is_shown_whole_kept_beside_and_runs_whole(
    presser: GatewayClient, bench: Bench, acting: LiveEasel, heavy: str
) -> None:
    value = (
        base64.b64encode(secrets.token_bytes(6_000)).decode()
        if heavy == "base64"
        else "plain words, again and again. " * 300
    )
    board = await Board.made(
        presser, {"go": calls(bench.act, args={"data": "{{input.data}}", "n": 1}, confirm="always")}
    )
    await board.listen()
    asked = await board.press("go", data=value, requestId="r1")
    assert asked["resolved"]["args"] == {"data": value, "n": 1}
    assert await board.press("go", data=value, requestId="r1") == asked, "asked again, the same answer"
    event = (await presser.event()).payload
    assert (
        len(
            json.dumps(
                {k: v for k, v in event.items() if k not in ("visibility", "provenance")},
                separators=(",", ":"),
            )
        )
        <= 2_048
    )
    [row] = acting.sql(f"select resolved from canvas_actions where event_id = '{asked['confirmationId']}'")
    assert (value in json.dumps(row["resolved"])) is (heavy == "text"), "Base64 is in no table"
    [waiting] = await board.asked()
    assert waiting["resolved"] == asked["resolved"], "whoever agrees later sees all of it, too"
    assert (await board.confirm(asked))["result"] == {"data": value, "n": 1}
    assert bench.act.args[-1] == {"data": value, "n": 1}


# --- by whom, and for how long ------------------------------------------------------------------------------------------


@rule("RS-59", "CV-22", "RS-15")
@pytest.mark.parametrize("kind", [PrincipalKind.AGENT, PrincipalKind.NODE, PrincipalKind.SERVICE])
async def test_only_a_person_confirms_or_accepts(
    presser: GatewayClient, bench: Bench, acting: LiveEasel, kind: PrincipalKind
) -> None:
    board = await Board.made(presser, {"go": calls(bench.act, confirm="always")})
    asked = await board.press("go")
    principal = replace(THE_OWNER, name="nobody", kind=kind)
    services, count = acting.instances[0].services, len(bench.act.calls)
    for approve in (True, False):
        with pytest.raises(Forbidden):
            await inside(
                acting, services.actions.confirm(principal, asked["confirmationId"], "x", approve=approve)
            )
    with pytest.raises(Forbidden):
        await inside(acting, services.canvases.accept(principal, board.name, 1))
    assert len(bench.act.calls) == count

    async def is_audited() -> bool:
        return bool(audited(acting, "guardrail.refused", asked["confirmationId"]))

    await wait_for(is_audited)
    assert (await board.confirm(asked))["status"] == "completed", "it is still a person's to answer"


@rule("RS-59", "CV-41")
async def test_what_an_agent_presses_a_person_is_asked_for(
    presser: GatewayClient, bench: Bench, acting: LiveEasel
) -> None:
    board = await Board.made(presser, {"go": calls(bench.act, confirm="auto")})
    ask = ActionRequest(canvas_id=board.name, action_id="go", input={}, client_id="agent:main:main")
    answer = await inside(acting, acting.instances[0].services.actions.execute(AGENT, ask))
    [waiting] = await board.asked()
    assert (waiting["confirmationId"], waiting["actor"]["kind"]) == (answer.event_id, "agent")
    assert (await board.confirm(waiting))["status"] == "completed"


async def test_what_is_no_confirmation_is_not_found(presser: GatewayClient, bench: Bench) -> None:
    board = await Board.made(presser, {"go": calls(bench.read)})
    for wrong in ("", "x", "evt_" + "0" * 26, "../evt", "\x00", "run_" + "0" * 26, "x" * 10_000):
        assert (await refused(board.confirm(wrong))).code == 404
    done = await board.press("go")
    assert (await refused(board.confirm(done["eventId"]))).code == 409, "it never was a question"


@rule("CV-22")
async def test_a_question_that_is_too_old_is_over(
    presser: GatewayClient, bench: Bench, acting: LiveEasel
) -> None:
    board = await Board.made(presser, {"go": calls(bench.act, confirm="always")})
    asked, count = await board.press("go"), len(bench.act.calls)

    async def wait(seconds: int) -> None:
        older = (
            f"created_at - interval '{seconds} seconds'"
            if acting.database_url
            else f"created_at - {seconds}000000"
        )
        await asyncio.to_thread(
            acting.sql,
            f"update canvas_actions set created_at = {older} where event_id = '{asked['confirmationId']}'",
        )

    await wait(850)
    assert len(await board.asked()) == 1
    await wait(60)
    assert await board.asked() == []
    problem = await refused(board.confirm(asked))
    assert (problem.code, "too long ago" in problem.error["message"]) == (409, True)
    assert len(bench.act.calls) == count
