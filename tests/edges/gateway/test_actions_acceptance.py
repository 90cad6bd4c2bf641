"""Acceptance of agents' specs by a person, on both stores. RS-59"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from easel.core.principal import PrincipalKind
from easel.errors import Forbidden
from easel.host.canvases.drafts import Draft
from tests.edges.gateway.action_fixtures import (
    CanvasClient,
    call_tool,
    expect_refusal,
    make_spec,
    run_inside,
    set_state,
)
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import rule
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from tests.edges.gateway.action_fixtures import ControlledTools
    from tests.support.gateway import GatewayClient

AGENT = replace(THE_OWNER, name="agent", kind=PrincipalKind.AGENT, user_id=None)


async def asks(canvas: CanvasClient, action: str = "go") -> bool:
    return (await canvas.run(action))["status"] == "needs_confirmation"


@rule("RS-59", "CV-22", "CV-41")
async def test_never_of_an_agents_spec_needs_acceptance_of_that_revision(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    services, canvas = action_easel.instances[0].services, CanvasClient(action_client, new_session())
    spec = make_spec(
        {
            "go": call_tool(tools.act, args={"v": 1}),
            "read": call_tool(tools.read),
            "patch": set_state("/n", 1, confirm="never"),
        }
    )
    await run_inside(action_easel, services.canvases.create(AGENT, Draft(canvas_id=canvas.name, spec=spec)))
    assert not (await canvas.snapshot())["accepted"]
    assert await asks(canvas)
    assert not await asks(canvas, "read"), "a read-only tool needs no confirmation"
    assert (await canvas.run("patch"))["revision"] == 2, "the state changes after the spec was read"
    for revision in (0, 3, 99):
        problem = await expect_refusal(
            action_client.call("canvas.accept", canvasId=canvas.name, revision=revision)
        )
        assert (problem.code, problem.details["currentRevision"]) == (409, 2)
    accepted = await action_client.call("canvas.accept", canvasId=canvas.name, revision=1)
    assert (accepted["accepted"], accepted["revision"]) == (True, 3)
    assert not await asks(canvas)
    assert (await action_client.call("canvas.accept", canvasId=canvas.name, revision=3))["revision"] == 3, (
        "it was accepted before"
    )


@rule("RS-59", "CV-41")
async def test_spec_rewritten_by_an_agent_must_be_accepted_again(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    services = action_easel.instances[0].services
    canvas = await CanvasClient.create(action_client, {"go": call_tool(tools.act)})
    assert not await asks(canvas), "a person wrote it"
    seen = await canvas.revision()
    change = {
        "state_patch": None,
        "spec": make_spec({"go": call_tool(tools.act, args={"v": 2})}),
        "title": None,
        "expected_revision": None,
    }
    await run_inside(action_easel, services.canvases.patch(AGENT, canvas.name, **change))
    assert await asks(canvas)
    assert (
        await expect_refusal(action_client.call("canvas.accept", canvasId=canvas.name, revision=seen))
    ).code == 409, "that spec was replaced"
    await action_client.call("canvas.accept", canvasId=canvas.name, revision=seen + 1)
    assert not await asks(canvas)
    await run_inside(
        action_easel,
        services.canvases.upsert(
            AGENT, Draft(canvas_id=canvas.name, spec=make_spec({"go": call_tool(tools.act)}))
        ),
    )
    assert await asks(canvas)


@rule("RS-59")
async def test_state_change_by_an_agent_keeps_the_acceptance(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    canvas = await CanvasClient.create(action_client, {"go": call_tool(tools.act)})
    change = {
        "state_patch": [{"op": "add", "path": "/n", "value": 1}],
        "spec": None,
        "title": "New",
        "expected_revision": None,
    }
    await run_inside(
        action_easel, action_easel.instances[0].services.canvases.patch(AGENT, canvas.name, **change)
    )
    assert not await asks(canvas)


@rule("RS-59")
async def test_agents_spec_must_not_allow_a_tool_that_the_agent_may_not_call(action_easel: LiveEasel) -> None:
    services, name = action_easel.instances[0].services, new_session()
    spec = make_spec({"go": call_tool("nobody__Bash")})
    with pytest.raises(Forbidden):
        await run_inside(action_easel, services.canvases.create(AGENT, Draft(canvas_id=name, spec=spec)))
    made = await run_inside(
        action_easel, services.canvases.create(THE_OWNER, Draft(canvas_id=name, spec=spec))
    )
    assert made.canvas.is_accepted, "a person may list a tool that does not exist yet"
    change = {"state_patch": None, "spec": spec, "title": None, "expected_revision": None}
    with pytest.raises(Forbidden):
        await run_inside(action_easel, services.canvases.patch(AGENT, name, **change))


@rule("RS-59")
async def test_spec_written_by_a_person_is_accepted(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    canvas = CanvasClient(action_client, new_session())
    spec = make_spec({"go": call_tool(tools.act)})
    await run_inside(
        action_easel,
        action_easel.instances[0].services.canvases.create(AGENT, Draft(canvas_id=canvas.name, spec=spec)),
    )
    assert await asks(canvas)
    await canvas.patch("/n", 1)
    assert await asks(canvas), "a state change is no acceptance"
    await canvas.rewrite({"go": call_tool(tools.act)})
    assert not await asks(canvas)


PAGE = {"assets/index.html": b"<script>gsvCanvas.runAction('go')</script>"}


@rule("RS-59")
@pytest.mark.parametrize("saved", ["patch", "upsert", "upsert with all its assets"])
async def test_saving_a_spec_does_not_accept_a_page_written_by_an_agent(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel, saved: str
) -> None:
    canvas = await CanvasClient.create(action_client, {"go": call_tool(tools.act)})
    assert not await asks(canvas)
    await run_inside(
        action_easel,
        action_easel.instances[0].services.canvases.upsert(AGENT, Draft(canvas_id=canvas.name, assets=PAGE)),
    )
    assert await asks(canvas)
    spec = make_spec({"go": call_tool(tools.act, title="Go")})
    mine = {"assets": {"assets/index.html": "mine"}} if saved.endswith("assets") else {}
    answer = await action_client.call(
        f"canvas.{saved.split(maxsplit=1)[0]}", canvasId=canvas.name, spec=spec, **mine
    )
    assert answer["accepted"] is bool(mine)
    assert ("The page of this canvas is not accepted" in str(answer.get("warnings"))) is not bool(mine)
    assert await asks(canvas) is not bool(mine)
    await action_client.call("canvas.accept", canvasId=canvas.name, revision=answer["revision"])
    answer = await action_client.call("canvas.patch", canvasId=canvas.name, spec=spec)
    assert answer["accepted"], "a person's next change keeps the acceptance"


@rule("RS-59")
@pytest.mark.parametrize("verb", ["canvas.upsert", "canvas.patch"])
async def test_person_who_saves_an_agents_spec_unchanged_accepts_it(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel, verb: str
) -> None:
    canvas, spec = CanvasClient(action_client, new_session()), make_spec({"go": call_tool(tools.act)})
    await run_inside(
        action_easel,
        action_easel.instances[0].services.canvases.create(AGENT, Draft(canvas_id=canvas.name, spec=spec)),
    )
    answer = await action_client.call(verb, canvasId=canvas.name, spec=spec)
    assert (answer["accepted"], answer["revision"]) == (True, 2)
    assert (await canvas.log())[-1].payload["changedPaths"] == ["$accepted"]


@rule("RS-59", "RS-72")
async def test_agent_that_saves_the_same_spec_changes_nothing_also_from_another_session(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    library, canvas = (
        action_easel.instances[0].services.canvases,
        await CanvasClient.create(action_client, {"go": call_tool(tools.act)}),
    )
    same = Draft(canvas_id=canvas.name, spec=(await canvas.snapshot())["spec"])
    before = await canvas.revision()
    for draft in (same, replace(same, owner_session_key="agent:main:elsewhere")):
        await run_inside(action_easel, library.upsert(AGENT, draft))
    change = {"state_patch": None, "spec": same.spec, "title": None, "expected_revision": None}
    await run_inside(action_easel, library.patch(AGENT, canvas.name, **change))
    assert (await canvas.revision(), await asks(canvas)) == (before, False)


@rule("RS-59")
async def test_accepted_member_is_refused_if_the_change_does_not_accept(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    canvas = await CanvasClient.create(action_client, {"go": call_tool(tools.act)})
    same = {"canvasId": canvas.name, "accepted": True}
    assert (await action_client.call("canvas.upsert", **same))["accepted"], "it is accepted already"
    await run_inside(
        action_easel,
        action_easel.instances[0].services.canvases.upsert(AGENT, Draft(canvas_id=canvas.name, assets=PAGE)),
    )
    before = await canvas.snapshot()
    for change in ({}, {"spec": before["spec"]}, {"assets": {"assets/index.html": "mine"}}):
        problem = await expect_refusal(action_client.call("canvas.upsert", **same, **change))
        assert (problem.code, "canvas.accept" in problem.error["message"]) == (400, True)
    assert await canvas.snapshot() == before
    assert (
        await action_client.call(
            "canvas.upsert", **same, spec=before["spec"], assets={"assets/index.html": "mine"}
        )
    )["accepted"]


@rule("CV-45", "RS-59")
async def test_accept_of_an_unknown_canvas_is_refused(action_client: GatewayClient) -> None:
    assert (
        await expect_refusal(action_client.call("canvas.accept", canvasId="none", revision=1))
    ).code == 404
    assert (await expect_refusal(action_client.call("canvas.accept", canvasId="none"))).code == 400
