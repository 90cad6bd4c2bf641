"""The state of refresh jobs, as subscribers and later readers see it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.edges.gateway.action_fixtures import CanvasClient, call_tool, make_spec
from tests.edges.http.live import new_session
from tests.requirements import rule

if TYPE_CHECKING:
    from tests.edges.http.live import LiveEasel
    from tests.support.gateway import GatewayClient


EVERY_MS = 60_000


async def create_with_refresh(
    easel: LiveEasel, client: GatewayClient, actions: dict[str, Any]
) -> CanvasClient:
    """Create a canvas whose refresh job is due at once."""
    every = [{"id": "poll", "everyMs": EVERY_MS, "action": "look", "enabled": True}]
    canvas = CanvasClient(client, new_session())
    made = await client.call(
        "canvas.create", canvasId=canvas.name, spec={**make_spec(actions), "refresh": every}
    )
    assert "failing" not in made
    past = "next_at - interval '1 hour'" if easel.database_url else "next_at - 3600000000"
    await asyncio.to_thread(
        easel.sql, f"update canvas_refreshes set next_at = {past} where canvas_id = '{canvas.name}'"
    )
    return canvas


@rule("RS-45", "CV-51")
async def test_failing_job_is_reported_in_the_snapshot_until_the_spec_removes_it(
    action_client: GatewayClient, action_easel: LiveEasel
) -> None:
    actions = {"look": call_tool(f"laptop__{action_easel.token}", args={"path": "x"})}
    canvas = await create_with_refresh(action_easel, action_client, actions)
    await canvas.listen(after=0)
    while (event := await action_client.event()).event != "canvas.refresh.failed":
        pass
    assert event.payload["failures"] == 1
    [job] = (await canvas.snapshot())["failing"]
    assert (job["refreshId"], job["actionId"], job["error"]["name"]) == ("poll", "look", "UNAVAILABLE")
    assert "Tool laptop__" in job["error"]["message"]
    assert action_easel.token not in job["error"]["message"], "secrets are redacted"
    assert job["failures"] >= 1
    assert 0 <= job["retryInMs"] <= EVERY_MS * 2 ** job["failures"] * 1.1
    assert await canvas.records() == [], "it did not start"
    await canvas.rewrite(actions)
    assert "failing" not in await canvas.snapshot()
