"""The page of an unaccepted canvas: it cannot decide or cancel for a person. RS-59"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, expect

from tests.browser.canvas import (
    EMPTY_PAGE,
    MINIMAL_PAGE,
    CanvasApi,
    canvas_frame,
    loaded_frame,
    open_canvas,
)
from tests.requirements import rule

if TYPE_CHECKING:
    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

LEAK_SECONDS = 1.5  # a request of a page arrives within a few milliseconds


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext) -> Page:
    """Open a page whose script errors do not fail the test."""
    return await context.new_page()


STOPS_ALL = f"""{EMPTY_PAGE}<p>page</p><script>
  const tried = new Set(); // once each: the records of a flood tell of the flood, and not of each try in it
  document.addEventListener('gsv:status', ({{ detail }}) => {{
    for (const {{ status, eventId }} of Object.values(detail)) {{
      if (!['running', 'asked'].includes(status) || tried.has(status + eventId)) continue;
      tried.add(status + eventId);
      gsvCanvas.cancelAction(eventId).catch(() => {{}});
    }}
  }});
</script>"""
DEPLOY: dict[str, Any] = {
    "version": 1,
    "toolPolicy": {"allow": ["gsv__Sleep"]},
    "actions": {
        "deploy": {"kind": "tool.call", "tool": "gsv__Sleep", "args": {"ms": 2_500}, "confirm": "never"},
        "long": {"kind": "tool.call", "tool": "gsv__Sleep", "args": {"ms": 60_000}, "confirm": "never"},
        "ask": {"kind": "tool.call", "tool": "gsv__Sleep", "args": {"ms": 1_500}, "confirm": "always"},
    },
}


@rule("RS-59", "CV-05")
async def test_unaccepted_page_cannot_decide_or_cancel_for_a_person(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(MINIMAL_PAGE, DEPLOY)
    await api.as_agent(operation="upsert", canvasId=name, assets={"assets/index.html": STOPS_ALL})
    assert api.rpc("canvas.get", canvasId=name)["accepted"] is False
    await open_canvas(page, server, name)

    def has_tried(event_id: str) -> bool:
        return any(
            one["detail"] == event_id
            for one in api.audit("canvas.page.refused", name)
            if one["what"] == "stop"
        )

    asked = api.rpc("canvas.action", canvasId=name, actionId="ask")["confirmationId"]
    await api.until(lambda: has_tried(asked), "it tries to refuse, and that is on record")
    assert [one["status"] for one in api.records(name)] == ["asked"], "it waits for the person"
    ended = await asyncio.to_thread(api.rpc, "canvas.confirm", confirmationId=asked, approve=True)
    assert ended["status"] == "completed", "what they have confirmed runs to its end"
    pressing = asyncio.create_task(
        asyncio.to_thread(api.rpc, "canvas.action", canvasId=name, actionId="long")
    )
    event_id = (
        await api.until(lambda: [one for one in api.records(name) if one["status"] == "running"], "it runs")
    )[0]["eventId"]
    await api.until(lambda: has_tried(event_id), "it tries to stop it")
    assert api.records(name)[0]["status"] == "running"
    await expect(page.locator("#notes-list")).to_contain_text("tried to stop an action that it did not start")
    assert api.audit("canvas.cancelled", name) == []
    api.rpc("canvas.cancel", canvasId=name, eventId=event_id)
    await asyncio.gather(pressing, return_exceptions=True)


@rule("RS-59", "CV-05")
async def test_unaccepted_page_cancels_only_its_own_actions(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(MINIMAL_PAGE, DEPLOY)
    await api.as_agent(
        operation="upsert", canvasId=name, assets={"assets/index.html": f"{EMPTY_PAGE}<p>first</p>"}
    )
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    stop = "gsvCanvas.cancelAction(%s).then(({ status }) => status, ({ code }) => code)"

    async def start_action() -> str:
        await frame.evaluate("void gsvCanvas.runAction('long').catch(() => {})")
        [one] = await api.until(
            lambda: api.rpc("canvas.records", canvasId=name, status="running")["records"], "it runs"
        )
        return json.dumps(one["eventId"])

    assert await frame.evaluate(stop % await start_action()) == "cancelled"
    event_id = await start_action()
    await api.as_agent(
        operation="upsert", canvasId=name, assets={"assets/index.html": f"{EMPTY_PAGE}<p>second</p>"}
    )
    await expect(canvas_frame(page).locator("p")).to_have_text("second")
    frame = await loaded_frame(page)
    assert await frame.evaluate(stop % event_id) == 403, "another page has started it"
    api.rpc("canvas.cancel", canvasId=name, eventId=json.loads(event_id))


@rule("RS-59")
async def test_accepted_page_cancels_any_running_action_and_decides_nothing(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(f"{EMPTY_PAGE}<p>page</p>", DEPLOY)
    await open_canvas(page, server, name)
    frame = await loaded_frame(page)
    asked = api.rpc("canvas.action", canvasId=name, actionId="ask")["confirmationId"]
    refuse = (
        f"gsvCanvas.cancelAction({json.dumps(asked)}).then(({{ status }}) => status, ({{ name }}) => name)"
    )
    assert await frame.evaluate(refuse) == "NOT_RUNNING"
    await frame.evaluate("void gsvCanvas.runAction('ask')")
    await expect(page.locator("#consent")).to_be_visible()
    mine = next(one["eventId"] for one in api.records(name))
    assert await frame.evaluate(refuse.replace(asked, mine)) == "NOT_RUNNING", (
        "nor what it has asked for itself"
    )
    await expect(page.locator("#consent")).to_be_visible()
    assert [one["status"] for one in api.records(name)] == ["asked", "asked"]
    await page.locator("#consent-refuse").click()
    running = asyncio.create_task(
        asyncio.to_thread(api.rpc_any, "canvas.action", canvasId=name, actionId="long")
    )
    [one] = await api.until(
        lambda: api.rpc("canvas.records", canvasId=name, status="running")["records"], "it runs"
    )
    await frame.evaluate(f"gsvCanvas.cancelAction({json.dumps(one['eventId'])})")
    assert (await running)["error"]["name"] == "CANCELLED"
