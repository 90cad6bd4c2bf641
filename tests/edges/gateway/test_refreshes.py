"""How the jobs of a canvas stand that run by themselves: told to whoever watches, and to whoever comes later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.edges.gateway.acting import Board, calls, spec_of
from tests.edges.http.live import new_session
from tests.requirements import rule
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.edges.http.live import LiveEasel
    from tests.support.gateway import GatewayClient


EVERY_MS = 1_000


async def polling(client: GatewayClient, actions: dict[str, Any]) -> Board:
    every = [{"id": "poll", "everyMs": EVERY_MS, "action": "look", "enabled": True}]
    board = Board(client, new_session())
    made = await client.call(
        "canvas.create", canvasId=board.name, spec={**spec_of(actions), "refresh": every}
    )
    assert "failing" not in made, "as it was when it was made, however late that is heard"
    return board


@rule("RS-45", "CV-51")
async def test_a_job_that_cannot_begin_is_told_to_whoever_comes_later_until_the_spec_has_no_such_job(
    presser: GatewayClient,
) -> None:
    looks = {"look": calls("laptop__Read", args={"path": "x"})}
    board = await polling(presser, looks)
    await board.listen(after=0)
    while (told := await presser.event()).event != "canvas.refresh.failed":
        pass
    assert told.payload["failures"] == 1
    [job] = (await board.snapshot())["failing"]
    assert (job["refreshId"], job["actionId"], job["error"]["name"]) == ("poll", "look", "UNAVAILABLE")
    assert "laptop__Read" in job["error"]["message"]
    assert job["failures"] >= 1, "it may have been tried again since"
    assert 0 <= job["retryInMs"] <= EVERY_MS * 2 ** job["failures"] * 1.1
    assert await board.records() == [], "it did not even begin"
    await board.rewrite(looks)
    assert "failing" not in await board.snapshot()


@rule("RS-45")
async def test_keys_that_the_reason_quotes_are_hidden_there_too(
    presser: GatewayClient, acting: LiveEasel
) -> None:
    name = f"laptop__{acting.token}"
    board = await polling(presser, {"look": calls(name)})

    async def has_failed() -> bool:
        return "failing" in await board.snapshot()

    await wait_for(has_failed)
    [job] = (await board.snapshot())["failing"]
    assert acting.token not in job["error"]["message"]
    assert "hidden" in job["error"]["message"] or "redacted" in job["error"]["message"]
