"""How much of a canvas may wait for a person, on either store: a page that asks and asks does not bury what has to be looked at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from easel.core.principal import THE_OWNER
from easel.errors import TooMany
from easel.host.actions.request import ActionRequest
from easel.settings import Settings
from tests.edges.gateway.acting import Board, audited, calls, inside, refused
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import rule
from tests.support.gateway import GatewayClient
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.gateway.acting import Bench

MOST = Settings().max_confirmations


def an_hour_earlier(easel: LiveEasel, canvas: str) -> None:
    """What waits there was asked for long ago."""
    past = "created_at - interval '1 hour'" if easel.database_url else "created_at - 3600000000"
    easel.sql(f"update canvas_actions set created_at = {past} where canvas_id = '{canvas}'")


@rule("CV-22", "RS-13")
async def test_twenty_wait_and_the_next_is_told_to_come_back(
    presser: GatewayClient, bench: Bench, acting: LiveEasel
) -> None:
    actions = {"asks": calls(bench.act, confirm="always"), "goes": calls(bench.act)}
    board, other = await Board.made(presser, actions), await Board.made(presser, actions)
    asked = [await board.press("asks", requestId=f"r{n}") for n in range(MOST)]
    head = (await board.snapshot())["descriptor"]["lastSeq"]
    problem = await refused(board.press("asks"))
    assert (problem.code, problem.error["retryable"], problem.details["limit"]) == (429, True, MOST)
    assert (await board.snapshot())["descriptor"]["lastSeq"] == head, (
        "nobody is told of what was not even asked"
    )
    assert len(await board.asked()) == len(await board.records()) == MOST
    assert (await board.press("asks", requestId="r0"))["confirmationId"] == asked[0]["confirmationId"], (
        "the same press again is no other"
    )
    assert (await board.press("goes"))["status"] == "completed", "what needs no consent goes on"
    assert (await other.press("asks"))["status"] == "needs_confirmation", "nor is another canvas held up"
    await board.confirm(asked[3], approve=False)
    await board.press("asks")
    await board.confirm(asked[4])
    await board.press("asks")
    assert (await refused(board.press("asks"))).code == 429
    await wait_for(lambda: on_record(acting, board.name))


async def on_record(easel: LiveEasel, canvas: str) -> bool:
    found = await asyncio.to_thread(audited, easel, "guardrail.refused", canvas)
    return any("wait for a person" in one["details"]["problem"] for one in found)


async def test_what_was_asked_too_long_ago_takes_no_room(
    presser: GatewayClient, bench: Bench, acting: LiveEasel
) -> None:
    board = await Board.made(presser, {"asks": calls(bench.act, confirm="always")})
    for _ in range(MOST):
        await board.press("asks")
    await asyncio.to_thread(an_hour_earlier, acting, board.name)
    assert (await board.press("asks"))["status"] == "needs_confirmation"
    assert len(await board.asked()) == 1


async def test_of_many_at_once_exactly_as_many_wait_as_may(
    presser: GatewayClient, bench: Bench, acting: LiveEasel
) -> None:
    board = await Board.made(presser, {"asks": calls(bench.act, confirm="always")})

    async def flood() -> list[Any]:
        press = acting.instances[0].services.actions.execute
        ask = ActionRequest(canvas_id=board.name, action_id="asks", input={}, client_id="page")
        return await asyncio.gather(*(press(THE_OWNER, ask) for _ in range(3 * MOST)), return_exceptions=True)

    answers = await inside(acting, flood())
    assert sum(isinstance(one, TooMany) for one in answers) == 2 * MOST
    assert len(await board.asked()) == MOST


async def test_how_many_is_a_setting(tmp_path: Path, bench: Bench) -> None:
    with LiveEasel(
        tmp_path, with_worker=False, settings={"max_confirmations": 2}, tools=bench.tools
    ) as easel:
        async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as client:
            board = await Board.made(client, {"asks": calls(bench.act, confirm="always")})
            await board.press("asks")
            await board.press("asks")
            assert (await refused(board.press("asks"))).details["limit"] == 2
