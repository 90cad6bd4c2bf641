"""The six acceptance criteria of the canvas specification, in a real browser, after everything was killed and started again.

On SQLite with `easel up`, and on Postgres with two APIs and a worker: there the page is opened at one API and the other one is asked.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Frame, Page, expect

from tests.browser.canvas import MINIMAL, Desk, inside, show, the_frame
from tests.requirements import rule
from tests.support.postgres import create_database, drop_database
from tests.support.processes import EaselProcess, Launcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

AWAY = "The server cannot be reached. Reconnecting…"
SPEC: dict[str, Any] = {
    "version": 1,
    "mode": "html",
    "toolPolicy": {"allow": ["gsv__Echo"]},
    "state": {"service": "api", "version": "1.2.7", "logsTail": None, "lastDeploy": None, "presses": []},
    "actions": {
        "deploy": {
            "kind": "tool.call",
            "tool": "gsv__Echo",
            "args": {"value": "{{state.service}} {{state.version}}"},
            "saveAs": "lastDeploy",
        },
        "refreshLogs": {
            "kind": "tool.call",
            "tool": "gsv__Echo",
            "args": {"value": "log of {{state.service}}"},
            "saveAs": "logsTail",
        },
        "forbidden": {"kind": "tool.call", "tool": "gsv__Sleep", "args": {"ms": 1}},
    },
}


@dataclass
class House:
    """All processes of one Easel, and a canvas that an agent made in it before they died."""

    launcher: Launcher
    front: EaselProcess  # where the browser is
    back: EaselProcess  # whom the test asks: on Postgres, another instance
    desk: Desk
    canvas_id: str

    def kill(self) -> list[EaselProcess]:
        """Every process; those that were alive."""
        alive = [one for one in self.launcher.started if one.is_alive]
        for one in alive:
            one.kill()
        return alive

    def restart(self, killed: list[EaselProcess]) -> None:
        again = {one.pid: self.launcher.again(one) for one in killed}
        self.launcher.ready(*(one for one in again.values() if one.listens))
        self.front, self.back = (
            next(new for old, new in again.items() if old == one.pid) for one in (self.front, self.back)
        )


def make_canvas(desk: Desk, name: str) -> None:
    """As an agent does: in a run, with the one tool. The scripted model plays what a model would say."""
    upsert = {
        "operation": "upsert",
        "canvasId": name,
        "title": "Cockpit",
        "spec": SPEC,
        "assets": {"assets/index.html": MINIMAL},
    }
    script = {"script": [{"call": "gsv__Canvas", "args": upsert}, {"say": "made"}]}
    run_id = desk.post("/api/runs", {"session_id": "author", "message": json.dumps(script)})["run_id"]
    until = time.monotonic() + 60  # its worker may be about to start
    while (run := desk.get(f"/api/runs/{run_id}"))["status"] in (
        "queued",
        "running",
    ) and time.monotonic() < until:
        time.sleep(0.05)
    assert run["status"] == "completed", run


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    url = create_database(request.getfixturevalue("postgres")) if request.param == "postgres" else ""
    with Launcher(tmp_path_factory.mktemp("house"), url, {"CLAIM_SECONDS": "2"}) as launcher:
        if url:
            front, back = launcher.ready(launcher.api(), launcher.api())
            launcher.worker()
        else:
            (front,) = launcher.ready(launcher.up())
            back = front
        with Desk(back) as desk:
            make_canvas(desk, "cockpit")
            desk.rpc("canvas.action", canvasId="cockpit", actionId="refreshLogs")
            house = House(launcher, front, back, desk, "cockpit")
            house.restart(house.kill())
            yield house
    if url:
        drop_database(request.getfixturevalue("postgres"), url.rpartition("/")[2])


@pytest_asyncio.fixture(loop_scope="module")
async def second_page(browser: Browser) -> AsyncIterator[Page]:
    context = await browser.new_context()
    yield await context.new_page()
    await context.close()


@rule("CV-49")
async def test_1_an_agent_can_create_a_canvas_with_state_and_actions(page: Page, house: House) -> None:
    make_canvas(house.desk, "second")
    frame = await show(page, house.front, "second")
    await expect(frame.locator("h1")).to_have_text("api")
    assert set(house.desk.rpc("canvas.get", canvasId="second")["spec"]["actions"]) == set(SPEC["actions"])


@rule("CV-50")
async def test_2_the_page_renders_the_canvas_and_triggers_an_action_by_its_id(
    page: Page, house: House
) -> None:
    frame = await show(page, house.front, house.canvas_id)
    await expect(frame.locator("pre")).to_have_text("log of api")
    await frame.get_by_text("Deploy", exact=True).click()
    await house.desk.until(lambda: house.desk.state(house.canvas_id)["lastDeploy"], "the action's result")
    assert house.desk.records(house.canvas_id)[0]["actionId"] == "deploy"


@rule("CV-04")
async def test_3_an_allowed_tool_runs_without_a_model(page: Page, house: House) -> None:
    frame = await show(page, house.front, house.canvas_id)
    before = house.desk.get("/api/runs")["runs"]
    pressed = len(house.desk.records(house.canvas_id))
    await frame.get_by_text("Refresh Logs").click()
    await house.desk.until(lambda: len(house.desk.records(house.canvas_id)) > pressed, "the press")
    await house.desk.until(lambda: house.desk.records(house.canvas_id)[0]["status"] == "completed", "its end")
    assert house.desk.records(house.canvas_id)[0]["tool"] == "gsv__Echo"
    assert house.desk.get("/api/runs")["runs"] == before, "no run, so no model was asked"


@rule("CV-50")
async def test_4_a_result_is_stored_and_seen_live_at_every_instance(
    page: Page, second_page: Page, house: House
) -> None:
    mine = await show(page, house.front, house.canvas_id)
    theirs = await show(second_page, house.back, house.canvas_id)
    house.desk.patch(house.canvas_id, "/service", "web")
    await expect(mine.locator("h1")).to_have_text("web")
    await mine.get_by_text("Refresh Logs").click()
    await expect(theirs.locator("pre")).to_have_text("log of web")
    assert house.desk.state(house.canvas_id)["logsTail"]["result"] == "log of web"
    house.desk.patch(house.canvas_id, "/service", "api")


@rule("CV-05", "CV-40")
async def test_5_a_script_cannot_get_around_the_policy(second_page: Page, house: House) -> None:
    await show(
        second_page, house.front, house.canvas_id
    )  # the window whose complaints are of no interest: it tries what is forbidden
    frame = await the_frame(second_page)
    pressed = len(house.desk.records(house.canvas_id))
    run = "(id) => window.gsvCanvas.runAction(id).then(() => 'ran', problem => String(problem.message || problem))"
    assert "toolPolicy" in await frame.evaluate(run, "forbidden")
    assert await frame.evaluate(run, "undeclared") != "ran"
    asked = {"method": "canvas.action", "params": {"canvasId": house.canvas_id, "actionId": "deploy"}}
    fetched = await frame.evaluate(
        "(asked) => fetch('/api/rpc', {method: 'POST', body: JSON.stringify(asked), credentials: 'include'}).then(r => r.status, () => 'blocked')",
        asked,
    )
    assert fetched == "blocked"
    assert not await _sees_cookies(frame)
    assert len(house.desk.records(house.canvas_id)) == pressed, "nothing ran"


async def _sees_cookies(frame: Frame) -> bool:
    """A frame of opaque origin may not even ask."""
    return await frame.evaluate("(() => { try { return document.cookie !== '' } catch { return false } })()")


@rule("CV-02")
async def test_6_a_canvas_outlives_connections_session_resets_and_every_process(
    page: Page, house: House
) -> None:
    frame = await show(page, house.front, house.canvas_id)
    await frame.locator("input").fill("9.9.9")
    await house.desk.until(lambda: house.desk.state(house.canvas_id)["version"] == "9.9.9", "what was typed")
    before = house.desk.rpc("canvas.get", canvasId=house.canvas_id)
    house.desk.delete("/api/sessions/author")
    killed = house.kill()
    await expect(page.locator("#link")).to_have_text(AWAY)  # else "connected" would be of before
    house.restart(killed)
    await expect(page.locator("#link")).to_have_text("connected")
    await expect(inside(page).locator("input")).to_have_value("9.9.9")
    after = house.desk.rpc("canvas.get", canvasId=house.canvas_id)
    for part in ("spec", "state", "assets", "revision"):
        assert after[part] == before[part], part
    assert (
        house.desk.rpc("canvas.asset.get", canvasId=house.canvas_id, path="assets/index.html")["text"]
        == MINIMAL
    )
    pressed = len(house.desk.records(house.canvas_id))
    await inside(page).get_by_text("Refresh Logs").click()
    await house.desk.until(
        lambda: len(house.desk.records(house.canvas_id)) > pressed, "a press after the restart"
    )
    assert house.desk.records(house.canvas_id)[0]["actionId"] == "refreshLogs"
