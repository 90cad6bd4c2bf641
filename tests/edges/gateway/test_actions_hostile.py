"""Actions whose values, names, places and results mean harm, through `canvas.action` and real tools: nothing gets out, in or lost."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from easel.errors import ToolFailed
from tests.core.shell.hostile import EVALUATED, OPTIONS, corpus, prepared
from tests.edges.gateway.acting import Board, audited, calls, refused, sets, spec_of
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient, Refused
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.edges.gateway.acting import Bench

CONTEXTS, VALUES = corpus()
AT_ONCE = 16


def command(context: str) -> str:
    return CONTEXTS[context].replace("{{x}}", "{{input.x}}")


# --- into a shell -------------------------------------------------------------------------------------------------------


@rule("RS-16", "RS-44", "CV-27")
@case("X1", "X2")
@pytest.mark.parametrize("context", sorted(set(CONTEXTS) - EVALUATED))
async def test_every_value_reaches_the_program_as_it_is_or_is_refused(
    presser: GatewayClient, bench: Bench, context: str
) -> None:
    place = prepared(bench.folder)
    actions = {"any": calls(bench.bash, args={"command": command(context)}, allowOptions=True)}
    actions["plain"] = calls(bench.bash, args={"command": command(context)})
    board = await Board.made(presser, actions)
    room = asyncio.Semaphore(AT_ONCE)

    async def given(action: str, value: str) -> list[str] | int:
        async with room:
            try:
                return (await board.press(action, x=value))["result"]["arguments"]
            except Refused as problem:
                return problem.code

    shown = await asyncio.gather(*(given("any", value) for value in VALUES))
    expected = [f"v-{value}-z" if context == "mid_word" else value for value in VALUES]
    mangled = [value for value, one, wanted in zip(VALUES, shown, expected, strict=True) if one != [wanted]]
    assert mangled == [], "none is mangled, none refused"
    plain = await asyncio.gather(*(given("plain", value) for value in OPTIONS))
    assert plain == (
        [[f"v-{value}-z"] for value in OPTIONS] if context == "mid_word" else [400] * len(OPTIONS)
    )
    assert not place.is_breached, "none has run"


@rule("RS-16", "RS-45")
@case("X1")
@pytest.mark.parametrize("context", sorted(set(CONTEXTS) & EVALUATED))
async def test_a_place_that_a_shell_evaluates_makes_the_spec_invalid(
    presser: GatewayClient, bench: Bench, context: str
) -> None:
    spec = spec_of({"go": calls(bench.bash, args={"command": command(context)})})
    problem = await refused(presser.call("canvas.create", canvasId=new_session(), spec=spec))
    assert (problem.code, problem.error["message"].startswith("actions.go.args.command: ")) == (400, True)


@rule("RS-57", "CV-28")
@case("X1")
async def test_a_missing_value_fails_a_command_and_is_empty_everywhere_else(
    presser: GatewayClient, bench: Bench
) -> None:
    args = {"command": "printf '%s\\0' rm -rf {{state.dir}}/ end", "note": "in {{state.dir}}/"}
    actions = {"no": calls(bench.bash, args=args), "yes": calls(bench.bash, args=args, missing="empty")}
    board = await Board.made(presser, actions, state={"dir": None})
    count = len(bench.bash.calls)
    problem = await refused(board.press("no"))
    assert (problem.code, "{{state.dir}} has no value" in problem.error["message"]) == (400, True)
    assert len(bench.bash.calls) == count
    assert (await board.press("yes"))["result"]["arguments"] == ["rm", "-rf", "/", "end"], (
        "as its author asked"
    )
    assert bench.bash.args[-1]["note"] == "in /"


# --- by a name ----------------------------------------------------------------------------------------------------------


@rule("CV-40")
@case("X4")
@pytest.mark.parametrize(
    "name",
    [
        "test__Act ",
        " test__Act",
        "test__Aсt",
        "test__A*",
        "*",
        "",
        "test__Act\n",
        "test__Act\x00",
        "test＿＿Act",
    ],
)
async def test_a_name_that_is_not_a_tools_own_is_no_name(
    presser: GatewayClient, bench: Bench, name: str
) -> None:
    count = len(bench.act.calls)
    for spec in (
        spec_of({"go": calls(bench.act)}, allow=[name]),
        spec_of({"go": calls(name)}, allow=["test__Act"]),
    ):
        assert (await refused(presser.call("canvas.create", canvasId=new_session(), spec=spec))).code == 400
    assert len(bench.act.calls) == count


@rule("CV-40", "CV-41", "CV-11")
@case("X4", "X5")
async def test_no_way_leads_around_the_list_of_what_is_allowed(presser: GatewayClient, bench: Bench) -> None:
    nested = {"action": "upsert", "canvasId": "inner", "spec": spec_of({"go": calls(bench.act)})}
    board = await Board.made(
        presser, {"nest": calls("gsv__Canvas", args=nested), "go": calls(bench.act)}, allow=["test__Read"]
    )
    count = len(bench.act.calls)
    for action in ("nest", "go"):
        assert (await refused(board.press(action))).code == 403
    for method in (
        "tool.call",
        "tool.invoke",
        "tool.request",
        "tools.call",
        "test__Act",
        "canvas.action ",
        "Canvas.action",
    ):
        assert (
            await refused(presser.call(method, canvasId=board.name, actionId="go", tool="test__Act", args={}))
        ).code == 404
    for action in ("test__Act", "tool.call", "toString", "__proto__", "constructor", "hasOwnProperty"):
        assert (await refused(board.press(action))).code == 404
    assert len(bench.act.calls) == count


# --- into a place -------------------------------------------------------------------------------------------------------

PLACES = [
    "__proto__.x", "a.__proto__", "constructor.prototype.x", "prototype", "__class__.__init__", "../x", "a..b", ".a", "a.", "a/b", "a b", "a[0]", "",
    ".".join("a" * 33), ".".join("a" * 10_000), "x" * 2_000, 7, None, ["a"],
]  # fmt: skip


@rule("CV-21")
@case("X7")
@pytest.mark.parametrize("place", PLACES, ids=[repr(place)[:20] for place in PLACES])
async def test_a_result_goes_to_no_place_that_is_not_the_states_own(
    presser: GatewayClient, place: Any
) -> None:
    spec = spec_of({"go": calls("gsv__Clock", saveAs=place)})
    problem = await refused(presser.call("canvas.create", canvasId=new_session(), spec=spec))
    assert (problem.code, problem.error["message"].startswith("actions.go.saveAs")) == (400, True)


POINTERS = ["/__proto__/x", "/a/__proto__", "/constructor", "a", "/a~2b", "/a~", "/" + "/".join("a" * 10_000)]


@rule("CV-25")
@case("X7")
@pytest.mark.parametrize("pointer", POINTERS, ids=[repr(one)[:20] for one in POINTERS])
async def test_a_patch_points_to_no_place_that_is_not_the_states_own(
    presser: GatewayClient, pointer: str
) -> None:
    problem = await refused(
        presser.call("canvas.create", canvasId=new_session(), spec=spec_of({"go": sets(pointer, 1)}))
    )
    assert (problem.code, problem.error["message"].startswith("actions.go.patch[0]")) == (400, True)


@rule("CV-25", "CV-21")
@case("X7")
async def test_odd_names_are_only_names_and_other_canvases_never_change(
    presser: GatewayClient, bench: Bench
) -> None:
    bench.gives["proto"] = {"__proto__": {"polluted": True}, "constructor": {"prototype": {"polluted": True}}}
    actions = {
        "dash": sets("/map/-", 1),
        "mixed": sets("/~01~1~0", 2),
        "result": calls(bench.give, args={"name": "proto"}, saveAs="map.own", saveMode="merge"),
    }
    other = await Board.made(presser, {"go": sets("/n", 1)}, state={"map": {}})
    board = await Board.made(presser, actions, state={"map": {}})
    for action in actions:
        await board.press(action)
    assert await board.state() == {"map": {"-": 1, "own": bench.gives["proto"]}, "~1/~": 2}
    assert (await other.state(), await other.revision()) == ({"map": {}}, 1)
    assert not hasattr(object(), "polluted")


# --- out of a tool ------------------------------------------------------------------------------------------------------


@rule("RS-15", "CV-42")
@case("P6")
async def test_no_secret_gets_out_by_an_error(
    presser: GatewayClient, bench: Bench, acting: LiveEasel
) -> None:
    key, password = "sk-" + secrets.token_hex(16), secrets.token_hex(8)
    name = new_session()
    text = f"401 from https://joe:{password}@host/v1 with api_key={key}, Bearer {acting.token}"
    bench.problems |= {
        f"{name}-1": ToolFailed(tool="test__Fail", reason=text),
        f"{name}-2": RuntimeError(text),
    }
    board = await Board.made(
        presser, {n: calls(bench.fail, args={"name": f"{name}-{n}"}) for n in ("1", "2")}
    )
    await board.listen()
    told: list[str] = []
    for action in ("1", "2"):
        problem = await refused(board.press(action, requestId=action))
        again = await refused(board.press(action, requestId=action))
        told += [json.dumps([problem.error, again.error])]
    assert "401 from https://joe:[redacted]@host/v1" in told[0], "hidden, and the rest is there to be read"
    told += [json.dumps([one.payload for one in await presser.events(4)]), json.dumps(await board.records())]

    async def is_audited() -> bool:
        return len(audited(acting, "canvas.action", board.name)) == 2

    await wait_for(is_audited)
    told += [json.dumps([dict(row) for row in acting.sql("select record from audit")])]
    told += [str(acting.sql("select answer from canvas_actions where status = 'failed'"))]
    for place in told:
        for secret in (key, password, acting.token):
            assert secret not in place


@rule("CV-42", "RS-35")
async def test_a_long_error_is_cut_and_what_an_event_speaks_of_is_there(
    presser: GatewayClient, bench: Bench, acting: LiveEasel
) -> None:
    """In letters of four bytes even a shortened error is too heavy for an event."""
    name = new_session()
    bench.problems[name] = ToolFailed(tool="test__Fail", reason="😀" * 50_000)
    path = ".".join(["語" * 128] * 7)
    board = await Board.made(
        presser, {"go": calls(bench.fail, args={"name": name}), "far": calls(bench.read, saveAs=path)}
    )
    await board.listen()
    problem = await refused(board.press("go"))
    assert 500 < len(problem.error["message"]) < 1_200
    failed = (await presser.events(2))[1].payload
    marker = failed["error"]["message"]
    assert (await asyncio.to_thread(acting.get, marker["uri"])).text == problem.error["message"]
    await board.press("far")
    finished = (await presser.events(3))[2].payload
    assert (await asyncio.to_thread(acting.get, finished["saveAs"]["uri"])).text == path


HEAVY = {
    "base64": lambda: {"data": base64.b64encode(secrets.token_bytes(6_000)).decode(), "n": 1},
    "text": lambda: {"data": "plain words, again and again. " * 400, "n": 1},
    "list": lambda: [base64.b64encode(secrets.token_bytes(600)).decode() for _ in range(5)],
    "cut": lambda: {f"p{n}": base64.b64encode(secrets.token_bytes(900)).decode() for n in range(3)},
}


@rule("RS-35", "CC-23", "CV-21", "RS-43")
@case("R3")
@pytest.mark.parametrize("kind", HEAVY)
async def test_a_heavy_result_is_whole_in_the_answer_and_light_in_every_table(
    presser: GatewayClient, bench: Bench, acting: LiveEasel, kind: str
) -> None:
    name, result = new_session(), HEAVY[kind]()
    bench.gives[name] = result
    give = {"args": {"name": name}}
    board = await Board.made(
        presser, {"save": calls(bench.give, saveAs="x", **give), "only": calls(bench.give, **give)}
    )
    await board.listen()
    for action in ("save", "only"):
        assert (await board.press(action, requestId=action))["result"] == result
        assert (await board.press(action, requestId=action))["result"] == result, (
            "and when it is asked for again"
        )
    saved = (await board.state())["x"]
    assert set(saved) == {"ok", "result", "finishedAt"}
    for event in await presser.events(5):
        data = {key: value for key, value in event.payload.items() if key not in ("visibility", "provenance")}
        assert len(json.dumps(data, separators=(",", ":"))) <= 2_048
    rows = str(acting.sql(f"select state from canvases where canvas_id = '{board.name}'"))
    rows += str(acting.sql(f"select answer, resolved from canvas_actions where canvas_id = '{board.name}'"))
    pieces = (
        [result["data"]]
        if isinstance(result, dict) and "data" in result
        else list(result.values() if isinstance(result, dict) else result)
    )
    assert all((piece in rows) is (kind == "text") for piece in pieces)


ODD: list[tuple[str, Any, Any]] = [
    # says                  the tool gives          the state has
    ("not a number",        float("nan"),           None),
    ("infinity",            float("inf"),           None),
    ("nothing",             None,                   None),
    ("a NUL",               "a\x00b",               "a\ufffdb"),
    ("half a pair",         "a\ud800b",            "a\ufffdb"),
    ("a large number",      2**80,                  2**80),
    ("a tuple",             (1, 2),                 [1, 2]),
    ("braces",              "{{state.secret}}",     "{{state.secret}}"),
    ("a marker",            {"redacted": True, "uri": "/api/artifacts/x"}, {"~redacted": True, "uri": "/api/artifacts/x"}),
]  # fmt: skip


@rule("CV-21", "CV-27")
@pytest.mark.parametrize("gives, has", [row[1:] for row in ODD], ids=[row[0] for row in ODD])
async def test_an_odd_result_is_only_data(presser: GatewayClient, bench: Bench, gives: Any, has: Any) -> None:
    name = new_session()
    bench.gives[name] = gives
    give = {"args": {"name": name}}
    board = await Board.made(
        presser,
        {"go": calls(bench.give, saveAs="x", **give), "only": calls(bench.give, **give)},
        state={"secret": "hush"},
    )
    answer = await board.press("go")
    assert (await board.state())["x"]["result"] == has
    shown = gives if isinstance(gives, dict) else has
    assert (
        answer["result"]
        == (await board.press("only", requestId="r"))["result"]
        == (await board.press("only", requestId="r"))["result"]
        == shown
    )


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@rule("CV-42")
@case("X8")
@pytest.mark.parametrize(
    "gives", ["x" * 300_000, deep(150), deep(97)], ids=["too large", "too deep", "too deep where it goes"]
)
async def test_a_result_out_of_bounds_fails_its_action_and_frees_its_place(
    presser: GatewayClient, bench: Bench, gives: Any
) -> None:
    name = new_session()
    bench.gives[name] = gives
    board = await Board.made(
        presser, {"go": calls(bench.give, args={"name": name}, saveAs="a.b.c.d"), "set": sets("/n", 1)}
    )
    problem = await refused(board.press("go"))
    assert problem.code in (400, 413, 500)
    assert problem.error["name"] != "INTERNAL_ERROR"
    assert (await board.state(), (await board.records())[0]["status"]) == ({}, "failed")
    assert (await board.press("set"))["revision"] == 2


@rule("CV-42")
async def test_a_state_that_results_would_make_too_large_stays_as_it_is(
    presser: GatewayClient, bench: Bench
) -> None:
    bench.gives["large"] = "y " * 120_000
    board = await Board.made(
        presser, {"go": calls(bench.give, args={"name": "large"}, saveAs="list", saveMode="append")}
    )
    problem: Refused | None = None
    for _ in range(8):
        try:
            await board.press("go")
        except Refused as told:
            problem = told
            break
    assert problem is not None
    assert problem.code == 413
    kept = (await board.state())["list"]
    assert (len(kept), (await board.records())[0]["status"]) == (4, "failed")


@rule("CV-36")
async def test_a_canvas_as_large_as_the_settings_allow_can_be_pressed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with LiveEasel(
        tmp_path_factory.mktemp("large"), settings={"max_canvas_actions": 2_000}, with_worker=False
    ) as large:
        async with GatewayClient.connected(large.base_url, large.token) as client:
            board = await Board.made(client, {f"set{n}": sets("/n", n) for n in range(1_500)})
            await board.press("set1499")
            assert await board.state() == {"n": 1_499}
