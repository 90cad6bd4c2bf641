"""The six acceptance criteria of the canvas specification in a browser, after a restart of all processes.

On SQLite with `easel up`, and on Postgres with two APIs and a worker: there the page is opened at one API and
the other one is asked. The canvas is accepted first: so its page is shown in every browser, as `make
browsers` checks.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.browser.canvas import MINIMAL_PAGE, CanvasApi, open_tab
from tests.browser.tabs import DrivenBrowser, Tab, expect_text, wait_in
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
    """Create a canvas as an agent does, with the tool gsv__Canvas in a run, and accept it as a person."""
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
    api.rpc("canvas.accept", canvasId=name, revision=api.rpc("canvas.get", canvasId=name)["revision"])


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
async def second_tab(any_browser: DrivenBrowser) -> AsyncIterator[Tab]:
    window = await any_browser.new_window()
    yield await window.new_tab()
    await window.close()


DEPLOY = "[data-gsv-action=deploy]"
REFRESH = "[data-gsv-action=refreshLogs]"


@rule("CV-49")
async def test_1_agent_creates_a_canvas_with_state_and_actions(tab: Tab, deployment: Deployment) -> None:
    make_canvas(deployment.api, "second")
    await open_tab(tab, deployment.front, "second")
    await expect_text(tab, "h1", "api", frame=True)
    assert set(deployment.api.rpc("canvas.get", canvasId="second")["spec"]["actions"]) == set(SPEC["actions"])


@rule("CV-50")
async def test_2_page_renders_the_canvas_and_runs_an_action_by_its_id(
    tab: Tab, deployment: Deployment
) -> None:
    await open_tab(tab, deployment.front, deployment.canvas_id)
    await expect_text(tab, "pre", "log of api", frame=True)
    await tab.click(DEPLOY, frame=True)
    await deployment.api.until(
        lambda: deployment.api.state(deployment.canvas_id)["lastDeploy"], "the action's result"
    )
    assert deployment.api.records(deployment.canvas_id)[0]["actionId"] == "deploy"


@rule("CV-04")
async def test_3_allowed_tool_runs_without_a_model(tab: Tab, deployment: Deployment) -> None:
    await open_tab(tab, deployment.front, deployment.canvas_id)
    before = deployment.api.get("/api/runs")["runs"]
    pressed = len(deployment.api.records(deployment.canvas_id))
    await tab.click(REFRESH, frame=True)
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
    tab: Tab, second_tab: Tab, deployment: Deployment
) -> None:
    await open_tab(tab, deployment.front, deployment.canvas_id)
    await open_tab(second_tab, deployment.back, deployment.canvas_id)
    deployment.api.patch(deployment.canvas_id, "/service", "web")
    await expect_text(tab, "h1", "web", frame=True)
    await tab.click(REFRESH, frame=True)
    await expect_text(second_tab, "pre", "log of web", frame=True)
    assert deployment.api.state(deployment.canvas_id)["logsTail"]["result"] == "log of web"
    deployment.api.patch(deployment.canvas_id, "/service", "api")


@rule("CV-05", "CV-40")
async def test_5_script_cannot_bypass_the_policy(tab: Tab, deployment: Deployment) -> None:
    await open_tab(tab, deployment.front, deployment.canvas_id)
    pressed = len(deployment.api.records(deployment.canvas_id))

    async def run(action_id: str) -> str:
        text = f"gsvCanvas.runAction({json.dumps(action_id)}).then(() => 'ran', ({{message}}) => message)"
        return await tab.evaluate(text, frame=True)

    assert "toolPolicy" in await run("forbidden")
    assert await run("undeclared") != "ran"
    asked = {"method": "canvas.action", "params": {"canvasId": deployment.canvas_id, "actionId": "deploy"}}
    body = json.dumps(json.dumps(asked))
    fetched = await tab.evaluate(
        f"fetch('/api/rpc', {{method: 'POST', body: {body}, credentials: 'include'}})"
        ".then(({status}) => status, () => 'blocked')",
        frame=True,
    )
    assert fetched == "blocked"
    cookie = "(() => { try { return document.cookie } catch (problem) { return problem.name } })()"
    assert await tab.evaluate(cookie, frame=True) == "SecurityError"
    assert len(deployment.api.records(deployment.canvas_id)) == pressed, "nothing ran"


@rule("CV-02")
async def test_6_canvas_survives_connections_session_resets_and_restarts(
    tab: Tab, deployment: Deployment
) -> None:
    await open_tab(tab, deployment.front, deployment.canvas_id)
    await tab.fill("input", "9.9.9", frame=True)
    await deployment.api.until(
        lambda: deployment.api.state(deployment.canvas_id)["version"] == "9.9.9", "what was typed"
    )
    before = deployment.api.rpc("canvas.get", canvasId=deployment.canvas_id)
    deployment.api.delete("/api/sessions/author")
    killed = deployment.kill()
    await expect_text(tab, "#link", AWAY)  # else "connected" would be of before
    deployment.restart(killed)
    await wait_in(tab, "document.querySelector('#link').textContent === 'connected'")
    await wait_in(tab, "document.querySelector('input')?.value === '9.9.9'", frame=True)
    after = deployment.api.rpc("canvas.get", canvasId=deployment.canvas_id)
    for part in ("spec", "state", "assets", "revision"):
        assert after[part] == before[part], part
    stored = deployment.api.rpc("canvas.asset.get", canvasId=deployment.canvas_id, path="assets/index.html")
    assert stored["text"] == MINIMAL_PAGE
    pressed = len(deployment.api.records(deployment.canvas_id))
    await tab.click(REFRESH, frame=True)
    await deployment.api.until(
        lambda: len(deployment.api.records(deployment.canvas_id)) > pressed, "a press after the restart"
    )
    assert deployment.api.records(deployment.canvas_id)[0]["actionId"] == "refreshLogs"
