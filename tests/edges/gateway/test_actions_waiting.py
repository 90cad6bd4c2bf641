"""The limit of pending confirmations of one canvas, on both stores."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from easel.errors import TooMany
from easel.host.actions.request import ActionRequest
from easel.host.actions.transitions import MAX_CONFIRMATIONS
from tests.edges.gateway.action_fixtures import (
    CanvasClient,
    audit_records,
    call_tool,
    expect_refusal,
    run_inside,
)
from tests.requirements import rule
from tests.support.gateway import GatewayClient
from tests.support.principals import THE_OWNER
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.edges.gateway.action_fixtures import ControlledTools
    from tests.edges.http.live import LiveEasel
    from tests.support.gateway import GatewayClient


def an_hour_earlier(easel: LiveEasel, canvas: str) -> None:
    """Make the pending confirmations of a canvas an hour older."""
    past = "created_at - interval '1 hour'" if easel.database_url else "created_at - 3600000000"
    easel.sql(f"update executions set created_at = {past} where canvas_id = '{canvas}'")


@rule("CV-22", "RS-13")
async def test_confirmation_above_the_limit_is_refused(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    actions = {"asks": call_tool(tools.act, confirm="always"), "goes": call_tool(tools.act)}
    canvas, other = (
        await CanvasClient.create(action_client, actions),
        await CanvasClient.create(action_client, actions),
    )
    pending = [await canvas.run("asks", requestId=f"r{n}") for n in range(MAX_CONFIRMATIONS)]
    head = (await canvas.snapshot())["descriptor"]["lastSeq"]
    problem = await expect_refusal(canvas.run("asks"))
    assert (problem.code, problem.error["retryable"], problem.details["limit"]) == (
        429,
        True,
        MAX_CONFIRMATIONS,
    )
    assert (await canvas.snapshot())["descriptor"]["lastSeq"] == head, "no event was logged"
    assert len(await canvas.confirmations()) == len(await canvas.records()) == MAX_CONFIRMATIONS
    assert (await canvas.run("asks", requestId="r0"))["confirmationId"] == pending[0]["confirmationId"], (
        "a repeated request returns the same confirmation"
    )
    assert (await canvas.run("goes"))["status"] == "completed", (
        "an action without confirmation is not limited"
    )
    assert (await other.run("asks"))["status"] == "needs_confirmation", "another canvas has its own limit"
    await canvas.confirm(pending[3], approve=False)
    await canvas.run("asks")
    await canvas.confirm(pending[4])
    await canvas.run("asks")
    assert (await expect_refusal(canvas.run("asks"))).code == 429
    await wait_for(lambda: is_audited(action_easel, canvas.name))


async def is_audited(easel: LiveEasel, canvas: str) -> bool:
    found = await asyncio.to_thread(audit_records, easel, "guardrail.refused", canvas)
    return any("wait for a person" in record["details"]["problem"] for record in found)


async def test_expired_confirmation_does_not_count(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    canvas = await CanvasClient.create(action_client, {"asks": call_tool(tools.act, confirm="always")})
    for _ in range(MAX_CONFIRMATIONS):
        await canvas.run("asks")
    await asyncio.to_thread(an_hour_earlier, action_easel, canvas.name)
    assert (await canvas.run("asks"))["status"] == "needs_confirmation"
    assert len(await canvas.confirmations()) == 1


async def test_concurrent_requests_create_exactly_the_limit_of_confirmations(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    canvas = await CanvasClient.create(action_client, {"asks": call_tool(tools.act, confirm="always")})

    async def flood() -> list[Any]:
        execute = action_easel.instances[0].services.actions.execute
        request = ActionRequest(canvas_id=canvas.name, action_id="asks", input={}, client_id="page")
        return await asyncio.gather(
            *(execute(THE_OWNER, request) for _ in range(3 * MAX_CONFIRMATIONS)), return_exceptions=True
        )

    answers = await run_inside(action_easel, flood())
    assert sum(isinstance(answer, TooMany) for answer in answers) == 2 * MAX_CONFIRMATIONS
    assert len(await canvas.confirmations()) == MAX_CONFIRMATIONS
