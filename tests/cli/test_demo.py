"""`easel demo`: the canvases for newcomers are there, in order, and their first buttons work with nothing installed."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.core.action.policy import check_templates, needs_consent
from easel.core.canvas.assets import ENTRY
from easel.core.canvas.spec import parse_spec
from easel.demo import CANVASES, DemoCanvas
from easel.host.canvases.agent_tools import LOGS
from easel.host.tools.native import native_tools
from tests.browser.canvas import Desk
from tests.requirements import rule
from tests.support.processes import EASEL, Launcher

if TYPE_CHECKING:
    from pathlib import Path

TOOLS = {tool.definition.name: tool.definition for tool in native_tools()} | {LOGS.name: LOGS}
FIRST_BUTTON = re.compile(r'data-gsv-action="(\w+)"')


@pytest.mark.parametrize("canvas", CANVASES, ids=lambda one: one.canvas_id)
def test_a_demo_is_a_good_example(canvas: DemoCanvas) -> None:
    spec = parse_spec(canvas.spec)
    warnings = check_templates(spec, TOOLS)
    assert [one for one in warnings if "local__Bash" not in one] == []
    page = canvas.assets[ENTRY]
    named = set(re.findall(r'data-gsv-action="([^"]+)"', page)) | {
        spec.bindings[one] for one in re.findall(r'data-gsv-control="([^"]+)"', page)
    }
    assert named == set(spec.actions), "every action has a button, and every button an action"
    for path in re.findall(r'data-gsv-model="state\.([^"]+)"', page):
        assert spec.may_write(tuple(path.split("."))), path


@rule("CV-19")
@pytest.mark.parametrize("canvas", CANVASES, ids=lambda one: one.canvas_id)
def test_what_runs_by_itself_rests_while_nobody_looks(canvas: DemoCanvas) -> None:
    """A newcomer leaves it running overnight: 28,800 looks at a log that nobody reads."""
    assert all(job.only_watched for job in parse_spec(canvas.spec).refreshes)


@pytest.mark.parametrize("canvas", CANVASES, ids=lambda one: one.canvas_id)
def test_all_of_its_state_is_used(canvas: DemoCanvas) -> None:
    rest = {name: part for name, part in canvas.spec.items() if name not in ("state", "writable")}
    used = canvas.assets[ENTRY] + msgspec.json.encode(rest).decode()
    assert [name for name in canvas.spec["state"] if f"state.{name}" not in used] == []


@pytest.mark.parametrize("canvas", CANVASES, ids=lambda one: one.canvas_id)
def test_the_first_button_asks_nobody_and_needs_no_shell(canvas: DemoCanvas) -> None:
    spec = parse_spec(canvas.spec)
    found = FIRST_BUTTON.search(canvas.assets[ENTRY])
    assert found
    action: Any = spec.actions[found[1]]
    assert action.tool in TOOLS
    assert not needs_consent(action, TOOLS[action.tool])


def test_the_command_brings_them_into_a_running_easel_and_leaves_what_is_there(tmp_path: Path) -> None:
    with Launcher(tmp_path) as launcher:
        (server,) = launcher.ready(launcher.up())
        with Desk(server) as desk:
            for time in range(2):
                said = subprocess.run(
                    [*EASEL, "demo", "--port", server.base_url.rpartition(":")[2]],
                    env=server.environment,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=True,
                )
                for canvas in CANVASES:
                    assert f"{canvas.title}: {server.base_url}/canvas/main/{canvas.canvas_id}" in said.stdout
                if time == 0:
                    desk.rpc(
                        "canvas.patch",
                        canvasId="release-checklist",
                        statePatch=[{"op": "replace", "path": "/release", "value": "3.0"}],
                    )
            assert desk.state("release-checklist")["release"] == "3.0"
            pressed = desk.rpc("canvas.action", canvasId="deploy-cockpit", actionId="checkClock")
            assert pressed["result"]["now"].startswith("20")


def test_where_no_easel_runs_one_is_started_with_them(tmp_path: Path) -> None:
    with Launcher(tmp_path) as launcher:
        (server,) = launcher.ready(launcher.start("up", (*EASEL, "demo", "--port", "0"), {}))
        with Desk(server) as desk:
            there = {one["canvasId"] for one in desk.rpc("canvas.list")["canvases"]}
    assert there == {canvas.canvas_id for canvas in CANVASES}


@rule("RS-14", "SB-01")
def test_a_server_that_asks_before_everything_has_them_too_and_lets_nothing_run_by_itself(
    tmp_path: Path,
) -> None:
    with Launcher(tmp_path) as launcher:
        (server,) = launcher.ready(
            launcher.start("up", (*EASEL, "up", "--demo", "--port", "0"), {"APPROVAL_MODE": "minimal"})
        )
        with Desk(server) as desk:
            assert {one["canvasId"] for one in desk.rpc("canvas.list")["canvases"]} == {
                canvas.canvas_id for canvas in CANVASES
            }
            assert desk.rpc("canvas.get", canvasId="log-viewer")["spec"]["refresh"] == []
            desk.rpc("canvas.delete", canvasId="log-viewer")
            command = [*EASEL, "demo", "--port", server.base_url.rpartition(":")[2]]
            subprocess.run(command, env=server.environment, capture_output=True, timeout=60, check=True)
            assert desk.rpc("canvas.get", canvasId="log-viewer")["spec"]["refresh"] == []
