"""Acceptance of agents' specs by a person, on both stores. RS-59"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from easel.core.principal import PrincipalKind
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


@rule("CV-45", "RS-59")
async def test_accept_of_an_unknown_canvas_is_refused(action_client: GatewayClient) -> None:
    assert (
        await expect_refusal(action_client.call("canvas.accept", canvasId="none", revision=1))
    ).code == 404
    assert (await expect_refusal(action_client.call("canvas.accept", canvasId="none"))).code == 400
