"""How much of a canvas may wait for a person, on either store: a page that asks and asks does not bury what has to be looked at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from easel.core.principal import THE_OWNER
from easel.errors import TooMany
from easel.host.actions.request import ActionRequest
from easel.settings import Settings
from tests.edges.gateway.action_fixtures import (
    CanvasClient,
    audit_records,
    call_tool,
    expect_refusal,
    run_inside,
)
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import rule
from tests.support.gateway import GatewayClient
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.gateway.action_fixtures import ControlledTools

MOST = Settings().max_confirmations


def an_hour_earlier(easel: LiveEasel, canvas: str) -> None:
    """What waits there was asked for long ago."""
    past = "created_at - interval '1 hour'" if easel.database_url else "created_at - 3600000000"
    easel.sql(f"update canvas_actions set created_at = {past} where canvas_id = '{canvas}'")


@rule("CV-22", "RS-13")
async def test_twenty_wait_and_the_next_is_told_to_come_back(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    actions = {"asks": call_tool(tools.act, confirm="always"), "goes": call_tool(tools.act)}
    canvas, other = (
        await CanvasClient.create(action_client, actions),
        await CanvasClient.create(action_client, actions),
    )
    asked = [await canvas.run("asks", requestId=f"r{n}") for n in range(MOST)]
    head = (await canvas.snapshot())["descriptor"]["lastSeq"]
    problem = await expect_refusal(canvas.run("asks"))
    assert (problem.code, problem.error["retryable"], problem.details["limit"]) == (429, True, MOST)
    assert (await canvas.snapshot())["descriptor"]["lastSeq"] == head, (
        "nobody is told of what was not even asked"
    )
    assert len(await canvas.confirmations()) == len(await canvas.records()) == MOST
    assert (await canvas.run("asks", requestId="r0"))["confirmationId"] == asked[0]["confirmationId"], (
        "the same press again is no other"
    )
    assert (await canvas.run("goes"))["status"] == "completed", "what needs no consent goes on"
    assert (await other.run("asks"))["status"] == "needs_confirmation", "nor is another canvas held up"
    await canvas.confirm(asked[3], approve=False)
    await canvas.run("asks")
    await canvas.confirm(asked[4])
    await canvas.run("asks")
    assert (await expect_refusal(canvas.run("asks"))).code == 429
    await wait_for(lambda: on_record(action_easel, canvas.name))


async def on_record(easel: LiveEasel, canvas: str) -> bool:
    found = await asyncio.to_thread(audit_records, easel, "guardrail.refused", canvas)
    return any("wait for a person" in one["details"]["problem"] for one in found)


async def test_what_was_asked_too_long_ago_takes_no_room(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    canvas = await CanvasClient.create(action_client, {"asks": call_tool(tools.act, confirm="always")})
    for _ in range(MOST):
        await canvas.run("asks")
    await asyncio.to_thread(an_hour_earlier, action_easel, canvas.name)
    assert (await canvas.run("asks"))["status"] == "needs_confirmation"
    assert len(await canvas.confirmations()) == 1


async def test_of_many_at_once_exactly_as_many_wait_as_may(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    canvas = await CanvasClient.create(action_client, {"asks": call_tool(tools.act, confirm="always")})

    async def flood() -> list[Any]:
        press = action_easel.instances[0].services.actions.execute
        ask = ActionRequest(canvas_id=canvas.name, action_id="asks", input={}, client_id="page")
        return await asyncio.gather(*(press(THE_OWNER, ask) for _ in range(3 * MOST)), return_exceptions=True)

    answers = await run_inside(action_easel, flood())
    assert sum(isinstance(one, TooMany) for one in answers) == 2 * MOST
    assert len(await canvas.confirmations()) == MOST


async def test_how_many_is_a_setting(tmp_path: Path, tools: ControlledTools) -> None:
    with LiveEasel(
        tmp_path, with_worker=False, settings={"max_confirmations": 2}, tools=tools.tools
    ) as easel:
        async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as client:
            canvas = await CanvasClient.create(client, {"asks": call_tool(tools.act, confirm="always")})
            await canvas.run("asks")
            await canvas.run("asks")
            assert (await expect_refusal(canvas.run("asks"))).details["limit"] == 2
