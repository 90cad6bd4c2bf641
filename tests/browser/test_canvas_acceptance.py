"""The six acceptance criteria of the canvas specification in a browser, after a restart of all processes.

On SQLite with `easel up`, and on Postgres with two APIs and a worker: there the page is opened at one API and
the other one is asked.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Frame, Page, expect

from tests.browser.canvas import MINIMAL_PAGE, CanvasApi, canvas_frame, loaded_frame, open_canvas
from tests.requirements import rule
from tests.support.postgres import create_database, drop_database
from tests.support.processes import EaselProcess, Launcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

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
class Deployment:
    """All processes of one Easel, and a canvas that an agent created before they were killed."""

    launcher: Launcher
    front: EaselProcess  # where the browser is
    back: EaselProcess  # whom the test asks: on Postgres, another instance
    api: CanvasApi
    canvas_id: str

    def kill(self) -> list[EaselProcess]:
        """Kill every process. Returns those that were alive."""
        alive = [process for process in self.launcher.started if process.is_alive]
        for process in alive:
            process.kill()
        return alive

    def restart(self, killed: list[EaselProcess]) -> None:
        again = {process.pid: self.launcher.again(process) for process in killed}
        self.launcher.ready(*(process for process in again.values() if process.listens))
        self.front, self.back = (
            next(new for old, new in again.items() if old == one.pid) for one in (self.front, self.back)
        )


def make_canvas(api: CanvasApi, name: str) -> None:
    """Create a canvas as an agent does: with the tool gsv__Canvas, in a run of the scripted model."""
    upsert = {
        "operation": "upsert",
        "canvasId": name,
        "title": "Cockpit",
        "spec": SPEC,
        "assets": {"assets/index.html": MINIMAL_PAGE},
    }
    script = {"script": [{"call": "gsv__Canvas", "args": upsert}, {"say": "made"}]}
    run_id = api.post("/api/runs", {"session_id": "author", "message": json.dumps(script)})["run_id"]
    until = time.monotonic() + 60  # its worker may be about to start
    while (run := api.get(f"/api/runs/{run_id}"))["status"] in (
        "queued",
        "running",
    ) and time.monotonic() < until:
        time.sleep(0.05)
    assert run["status"] == "completed", run


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def deployment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    url = create_database(request.getfixturevalue("postgres")) if request.param == "postgres" else ""
    with Launcher(tmp_path_factory.mktemp("deployment"), url, {"CLAIM_SECONDS": "2"}) as launcher:
        if url:
            front, back = launcher.ready(launcher.api(), launcher.api())
            launcher.worker()
        else:
            (front,) = launcher.ready(launcher.up())
            back = front
        with CanvasApi(back) as api:
            make_canvas(api, "cockpit")
            api.rpc("canvas.action", canvasId="cockpit", actionId="refreshLogs")
            deployment = Deployment(launcher, front, back, api, "cockpit")
            deployment.restart(deployment.kill())
            yield deployment
    if url:
        drop_database(request.getfixturevalue("postgres"), url.rpartition("/")[2])


@pytest_asyncio.fixture(loop_scope="session")
async def second_page(browser: Browser) -> AsyncIterator[Page]:
    context = await browser.new_context()
    yield await context.new_page()
    await context.close()


@rule("CV-49")
async def test_1_agent_creates_a_canvas_with_state_and_actions(page: Page, deployment: Deployment) -> None:
    make_canvas(deployment.api, "second")
    frame = await open_canvas(page, deployment.front, "second")
    await expect(frame.locator("h1")).to_have_text("api")
    assert set(deployment.api.rpc("canvas.get", canvasId="second")["spec"]["actions"]) == set(SPEC["actions"])


@rule("CV-50")
async def test_2_page_renders_the_canvas_and_runs_an_action_by_its_id(
    page: Page, deployment: Deployment
) -> None:
    frame = await open_canvas(page, deployment.front, deployment.canvas_id)
    await expect(frame.locator("pre")).to_have_text("log of api")
    await frame.get_by_text("Deploy", exact=True).click()
    await deployment.api.until(
        lambda: deployment.api.state(deployment.canvas_id)["lastDeploy"], "the action's result"
    )
    assert deployment.api.records(deployment.canvas_id)[0]["actionId"] == "deploy"


@rule("CV-04")
async def test_3_allowed_tool_runs_without_a_model(page: Page, deployment: Deployment) -> None:
    frame = await open_canvas(page, deployment.front, deployment.canvas_id)
    before = deployment.api.get("/api/runs")["runs"]
    pressed = len(deployment.api.records(deployment.canvas_id))
    await frame.get_by_text("Refresh Logs").click()
    await deployment.api.until(
        lambda: len(deployment.api.records(deployment.canvas_id)) > pressed, "the press"
    )
    await deployment.api.until(
        lambda: deployment.api.records(deployment.canvas_id)[0]["status"] == "completed", "its end"
    )
    assert deployment.api.records(deployment.canvas_id)[0]["tool"] == "gsv__Echo"
    assert deployment.api.get("/api/runs")["runs"] == before, "no run, so no model was asked"


@rule("CV-50")
async def test_4_result_is_stored_and_shown_live_at_every_instance(
    page: Page, second_page: Page, deployment: Deployment
) -> None:
    mine = await open_canvas(page, deployment.front, deployment.canvas_id)
    theirs = await open_canvas(second_page, deployment.back, deployment.canvas_id)
    deployment.api.patch(deployment.canvas_id, "/service", "web")
    await expect(mine.locator("h1")).to_have_text("web")
    await mine.get_by_text("Refresh Logs").click()
    await expect(theirs.locator("pre")).to_have_text("log of web")
    assert deployment.api.state(deployment.canvas_id)["logsTail"]["result"] == "log of web"
    deployment.api.patch(deployment.canvas_id, "/service", "api")


@rule("CV-05", "CV-40")
async def test_5_script_cannot_bypass_the_policy(second_page: Page, deployment: Deployment) -> None:
    await open_canvas(
        second_page, deployment.front, deployment.canvas_id
    )  # the window whose complaints are of no interest: it tries what is forbidden
    frame = await loaded_frame(second_page)
    pressed = len(deployment.api.records(deployment.canvas_id))
    run = (
        "(id) => window.gsvCanvas.runAction(id).then(() => 'ran', problem => String(problem.message || "
        "problem))"
    )
    assert "toolPolicy" in await frame.evaluate(run, "forbidden")
    assert await frame.evaluate(run, "undeclared") != "ran"
    asked = {"method": "canvas.action", "params": {"canvasId": deployment.canvas_id, "actionId": "deploy"}}
    fetched = await frame.evaluate(
        "(asked) => fetch('/api/rpc', {method: 'POST', body: JSON.stringify(asked), credentials: "
        "'include'}).then(r => r.status, () => 'blocked')",
        asked,
    )
    assert fetched == "blocked"
    assert not await _sees_cookies(frame)
    assert len(deployment.api.records(deployment.canvas_id)) == pressed, "nothing ran"


async def _sees_cookies(frame: Frame) -> bool:
    """A frame of opaque origin cannot read it."""
    return await frame.evaluate("(() => { try { return document.cookie !== '' } catch { return false } })()")


@rule("CV-02")
async def test_6_canvas_survives_connections_session_resets_and_restarts(
    page: Page, deployment: Deployment
) -> None:
    frame = await open_canvas(page, deployment.front, deployment.canvas_id)
    await frame.locator("input").fill("9.9.9")
    await deployment.api.until(
        lambda: deployment.api.state(deployment.canvas_id)["version"] == "9.9.9", "what was typed"
    )
    before = deployment.api.rpc("canvas.get", canvasId=deployment.canvas_id)
    deployment.api.delete("/api/sessions/author")
    killed = deployment.kill()
    await expect(page.locator("#link")).to_have_text(AWAY)  # else "connected" would be of before
    deployment.restart(killed)
    await expect(page.locator("#link")).to_have_text("connected")
    await expect(canvas_frame(page).locator("input")).to_have_value("9.9.9")
    after = deployment.api.rpc("canvas.get", canvasId=deployment.canvas_id)
    for part in ("spec", "state", "assets", "revision"):
        assert after[part] == before[part], part
    assert (
        deployment.api.rpc("canvas.asset.get", canvasId=deployment.canvas_id, path="assets/index.html")[
            "text"
        ]
        == MINIMAL_PAGE
    )
    pressed = len(deployment.api.records(deployment.canvas_id))
    await canvas_frame(page).get_by_text("Refresh Logs").click()
    await deployment.api.until(
        lambda: len(deployment.api.records(deployment.canvas_id)) > pressed, "a press after the restart"
    )
    assert deployment.api.records(deployment.canvas_id)[0]["actionId"] == "refreshLogs"
