"""Specs that an agent wrote, on either store: what they may name, and what they may not do before a person accepts them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from easel.core.principal import THE_OWNER, PrincipalKind
from easel.errors import Forbidden
from easel.host.canvases.library import Draft
from tests.edges.gateway.acting import Board, calls, inside, refused, sets, spec_of
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import rule

if TYPE_CHECKING:
    from tests.edges.gateway.acting import Bench
    from tests.support.gateway import GatewayClient

AGENT = replace(THE_OWNER, name="agent", kind=PrincipalKind.AGENT)


async def asks(board: Board, action: str = "go") -> bool:
    return (await board.press(action))["status"] == "needs_confirmation"


@rule("RS-59", "CV-22", "CV-41")
async def test_an_agents_never_counts_as_auto_until_a_person_accepts_that_very_spec(
    presser: GatewayClient, bench: Bench, acting: LiveEasel
) -> None:
    services, board = acting.instances[0].services, Board(presser, new_session())
    spec = spec_of(
        {
            "go": calls(bench.act, args={"v": 1}),
            "read": calls(bench.read),
            "patch": sets("/n", 1, confirm="never"),
        }
    )
    await inside(acting, services.canvases.create(AGENT, Draft(canvas_id=board.name, spec=spec)))
    assert not (await board.snapshot())["accepted"]
    assert await asks(board)
    assert not await asks(board, "read"), "what only reads needs nobody"
    assert (await board.press("patch"))["revision"] == 2, (
        "the state has moved on since the spec was looked at"
    )
    for revision in (0, 3, 99):
        problem = await refused(presser.call("canvas.accept", canvasId=board.name, revision=revision))
        assert (problem.code, problem.details["currentRevision"]) == (409, 2)
    accepted = await presser.call("canvas.accept", canvasId=board.name, revision=1)
    assert (accepted["accepted"], accepted["revision"]) == (True, 3)
    assert not await asks(board)
    assert (await presser.call("canvas.accept", canvasId=board.name, revision=3))["revision"] == 3, (
        "nothing more to say"
    )


@rule("RS-59", "CV-41")
async def test_a_spec_that_the_agent_writes_anew_has_to_be_accepted_anew(
    presser: GatewayClient, bench: Bench, acting: LiveEasel
) -> None:
    services = acting.instances[0].services
    board = await Board.made(presser, {"go": calls(bench.act)})
    assert not await asks(board), "a person wrote it"
    seen = await board.revision()
    change = {
        "state_patch": None,
        "spec": spec_of({"go": calls(bench.act, args={"v": 2})}),
        "title": None,
        "expected_revision": None,
    }
    await inside(acting, services.canvases.patch(AGENT, board.name, **change))
    assert await asks(board)
    assert (await refused(presser.call("canvas.accept", canvasId=board.name, revision=seen))).code == 409, (
        "that spec is no longer there"
    )
    await presser.call("canvas.accept", canvasId=board.name, revision=seen + 1)
    assert not await asks(board)
    await inside(
        acting,
        services.canvases.upsert(AGENT, Draft(canvas_id=board.name, spec=spec_of({"go": calls(bench.act)}))),
    )
    assert await asks(board)


@rule("RS-59")
async def test_what_an_agent_does_to_the_state_alone_needs_no_new_acceptance(
    presser: GatewayClient, bench: Bench, acting: LiveEasel
) -> None:
    board = await Board.made(presser, {"go": calls(bench.act)})
    change = {
        "state_patch": [{"op": "add", "path": "/n", "value": 1}],
        "spec": None,
        "title": "Anew",
        "expected_revision": None,
    }
    await inside(acting, acting.instances[0].services.canvases.patch(AGENT, board.name, **change))
    assert not await asks(board)


@rule("RS-59")
async def test_an_agents_spec_reaches_no_further_than_the_agent(acting: LiveEasel) -> None:
    services, name = acting.instances[0].services, new_session()
    spec = spec_of({"go": calls("nobody__Bash")})
    with pytest.raises(Forbidden):
        await inside(acting, services.canvases.create(AGENT, Draft(canvas_id=name, spec=spec)))
    made = await inside(acting, services.canvases.create(THE_OWNER, Draft(canvas_id=name, spec=spec)))
    assert made.canvas.is_accepted, "a person may name what is not there yet"
    change = {"state_patch": None, "spec": spec, "title": None, "expected_revision": None}
    with pytest.raises(Forbidden):
        await inside(acting, services.canvases.patch(AGENT, name, **change))


@rule("RS-59")
async def test_what_a_person_writes_over_an_agents_spec_is_their_own(
    presser: GatewayClient, bench: Bench, acting: LiveEasel
) -> None:
    board = Board(presser, new_session())
    spec = spec_of({"go": calls(bench.act)})
    await inside(
        acting, acting.instances[0].services.canvases.create(AGENT, Draft(canvas_id=board.name, spec=spec))
    )
    assert await asks(board)
    await board.patch("/n", 1)
    assert await asks(board), "a change of the state accepts nothing"
    await board.rewrite({"go": calls(bench.act)})
    assert not await asks(board)


PAGE = {"assets/index.html": b"<script>gsvCanvas.runAction('go')</script>"}


@rule("RS-59")
@pytest.mark.parametrize("saved", ["patch", "upsert", "upsert with all its assets"])
async def test_who_saves_a_spec_accepts_no_page_that_an_agent_put_there_meanwhile(
    presser: GatewayClient, bench: Bench, acting: LiveEasel, saved: str
) -> None:
    board = await Board.made(presser, {"go": calls(bench.act)})
    assert not await asks(board)
    await inside(
        acting, acting.instances[0].services.canvases.upsert(AGENT, Draft(canvas_id=board.name, assets=PAGE))
    )
    assert await asks(board)
    spec = spec_of({"go": calls(bench.act, title="Go")})
    mine = {"assets": {"assets/index.html": "mine"}} if saved.endswith("assets") else {}
    answer = await presser.call(
        f"canvas.{saved.split(maxsplit=1)[0]}", canvasId=board.name, spec=spec, **mine
    )
    assert answer["accepted"] is bool(mine)
    assert ("Nobody has accepted the page" in str(answer.get("warnings"))) is not bool(mine)
    assert await asks(board) is not bool(mine)
    await presser.call("canvas.accept", canvasId=board.name, revision=answer["revision"])
    answer = await presser.call("canvas.patch", canvasId=board.name, spec=spec)
    assert answer["accepted"], "what is accepted stays so when a person goes on with it"


@rule("RS-59")
@pytest.mark.parametrize("verb", ["canvas.upsert", "canvas.patch"])
async def test_who_sends_an_agents_spec_as_it_is_stands_for_it_and_that_is_told(
    presser: GatewayClient, bench: Bench, acting: LiveEasel, verb: str
) -> None:
    board, spec = Board(presser, new_session()), spec_of({"go": calls(bench.act)})
    await inside(
        acting, acting.instances[0].services.canvases.create(AGENT, Draft(canvas_id=board.name, spec=spec))
    )
    answer = await presser.call(verb, canvasId=board.name, spec=spec)
    assert (answer["accepted"], answer["revision"]) == (True, 2)
    assert (await board.log())[-1].payload["changedPaths"] == ["$accepted"]


@rule("RS-59")
async def test_an_agent_that_sends_the_very_same_spec_ends_no_acceptance_unless_it_takes_the_canvas_over(
    presser: GatewayClient, bench: Bench, acting: LiveEasel
) -> None:
    library, board = (
        acting.instances[0].services.canvases,
        await Board.made(presser, {"go": calls(bench.act)}),
    )
    same = Draft(canvas_id=board.name, spec=(await board.snapshot())["spec"])
    before = await board.revision()
    for draft in (
        same,
        replace(same, owner_session_key=(await board.snapshot())["descriptor"]["ownerSessionKey"]),
    ):
        await inside(acting, library.upsert(AGENT, draft))
    change = {"state_patch": None, "spec": same.spec, "title": None, "expected_revision": None}
    await inside(acting, library.patch(AGENT, board.name, **change))
    assert (await board.revision(), await asks(board)) == (before, False)
    await inside(acting, library.upsert(AGENT, replace(same, owner_session_key="agent:main:elsewhere")))
    assert await asks(board), "the same command in another folder is another one"


@rule("RS-59")
async def test_accepted_is_refused_where_what_is_sent_does_not_make_it_so(
    presser: GatewayClient, bench: Bench, acting: LiveEasel
) -> None:
    board = await Board.made(presser, {"go": calls(bench.act)})
    same = {"canvasId": board.name, "accepted": True}
    assert (await presser.call("canvas.upsert", **same))["accepted"], "it is so already"
    await inside(
        acting, acting.instances[0].services.canvases.upsert(AGENT, Draft(canvas_id=board.name, assets=PAGE))
    )
    before = await board.snapshot()
    for more in ({}, {"spec": before["spec"]}, {"assets": {"assets/index.html": "mine"}}):
        problem = await refused(presser.call("canvas.upsert", **same, **more))
        assert (problem.code, "canvas.accept" in problem.error["message"]) == (400, True)
    assert await board.snapshot() == before
    assert (
        await presser.call("canvas.upsert", **same, spec=before["spec"], assets={"assets/index.html": "mine"})
    )["accepted"]


@rule("CV-45", "RS-59")
async def test_accept_is_for_a_canvas_that_is_there(presser: GatewayClient) -> None:
    assert (await refused(presser.call("canvas.accept", canvasId="none", revision=1))).code == 404
    assert (await refused(presser.call("canvas.accept", canvasId="none"))).code == 400
