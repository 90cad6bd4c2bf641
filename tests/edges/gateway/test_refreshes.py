"""How the jobs of a canvas stand that run by themselves: told to whoever watches, and to whoever comes later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.edges.gateway.acting import Board, calls, spec_of
from tests.edges.http.live import new_session
from tests.requirements import rule
from tests.support.gateway import eventually

if TYPE_CHECKING:
    from tests.edges.http.live import LiveEasel
    from tests.support.gateway import GatewayClient


async def polling(client: GatewayClient, actions: dict[str, Any]) -> Board:
    every = [{"id": "poll", "everyMs": 1_000, "action": "look", "enabled": True}]
    board = Board(client, new_session())
    await client.call("canvas.create", canvasId=board.name, spec={**spec_of(actions), "refresh": every})
    return board


@rule("RS-45", "CV-51")
async def test_a_job_that_cannot_begin_is_told_to_whoever_comes_later_until_the_spec_has_no_such_job(presser: GatewayClient) -> None:
    looks = {"look": calls("laptop__Read", args={"path": "x"})}
    board = await polling(presser, looks)
    assert "failing" not in await board.whole()

    async def has_failed() -> bool:
        return "failing" in await board.whole()

    await eventually(has_failed)
    [job] = (await board.whole())["failing"]
    assert (job["refreshId"], job["actionId"], job["failures"], job["error"]["name"]) == ("poll", "look", 1, "UNAVAILABLE")
    assert "laptop__Read" in job["error"]["message"]
    assert 0 <= job["retryInMs"] <= 2_200

    async def is_told() -> bool:
        return any(one.event == "canvas.refresh.failed" for one in await board.log())

    await eventually(is_told)
    assert await board.records() == [], "it did not even begin"
    await board.rewrite(looks)
    assert "failing" not in await board.whole()


@rule("RS-45")
async def test_keys_that_the_reason_quotes_are_hidden_there_too(presser: GatewayClient, acting: LiveEasel) -> None:
    name = f"laptop__{acting.token}"
    board = await polling(presser, {"look": calls(name)})

    async def has_failed() -> bool:
        return "failing" in await board.whole()

    await eventually(has_failed)
    [job] = (await board.whole())["failing"]
    assert acting.token not in job["error"]["message"]
    assert "hidden" in job["error"]["message"] or "redacted" in job["error"]["message"]
