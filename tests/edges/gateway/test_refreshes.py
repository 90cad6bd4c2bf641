"""How the jobs of a canvas stand that run by themselves: told to whoever watches, and to whoever comes later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.edges.gateway.action_fixtures import CanvasClient, call_tool, make_spec
from tests.edges.http.live import new_session
from tests.requirements import rule
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.edges.http.live import LiveEasel
    from tests.support.gateway import GatewayClient


EVERY_MS = 1_000


async def polling(client: GatewayClient, actions: dict[str, Any]) -> CanvasClient:
    every = [{"id": "poll", "everyMs": EVERY_MS, "action": "look", "enabled": True}]
    canvas = CanvasClient(client, new_session())
    made = await client.call(
        "canvas.create", canvasId=canvas.name, spec={**make_spec(actions), "refresh": every}
    )
    assert "failing" not in made, "as it was when it was made, however late that is heard"
    return canvas


@rule("RS-45", "CV-51")
async def test_a_job_that_cannot_begin_is_told_to_whoever_comes_later_until_the_spec_has_no_such_job(
    action_client: GatewayClient,
) -> None:
    looks = {"look": call_tool("laptop__Read", args={"path": "x"})}
    canvas = await polling(action_client, looks)
    await canvas.listen(after=0)
    while (told := await action_client.event()).event != "canvas.refresh.failed":
        pass
    assert told.payload["failures"] == 1
    [job] = (await canvas.snapshot())["failing"]
    assert (job["refreshId"], job["actionId"], job["error"]["name"]) == ("poll", "look", "UNAVAILABLE")
    assert "laptop__Read" in job["error"]["message"]
    assert job["failures"] >= 1, "it may have been tried again since"
    assert 0 <= job["retryInMs"] <= EVERY_MS * 2 ** job["failures"] * 1.1
    assert await canvas.records() == [], "it did not even begin"
    await canvas.rewrite(looks)
    assert "failing" not in await canvas.snapshot()


@rule("RS-45")
async def test_keys_that_the_reason_quotes_are_hidden_there_too(
    action_client: GatewayClient, action_easel: LiveEasel
) -> None:
    name = f"laptop__{action_easel.token}"
    canvas = await polling(action_client, {"look": call_tool(name)})

    async def has_failed() -> bool:
        return "failing" in await canvas.snapshot()

    await wait_for(has_failed)
    [job] = (await canvas.snapshot())["failing"]
    assert action_easel.token not in job["error"]["message"]
    assert "hidden" in job["error"]["message"] or "redacted" in job["error"]["message"]
