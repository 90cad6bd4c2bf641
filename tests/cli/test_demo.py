"""`easel demo`: the demo canvases are valid examples and are created in a running or a new server."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.core.action.policy import check_templates, needs_consent
from easel.core.canvas.assets import ENTRY
from easel.core.canvas.spec import parse_spec
from easel.demo import CANVASES, DemoCanvas
from easel.fetch.tool import FetchTool
from easel.host.canvases.agent_tools import LOGS
from easel.host.tools.native import native_tools
from tests.browser.canvas import CanvasApi
from tests.cli.commands import invoke_easel
from tests.requirements import rule
from tests.support.processes import EASEL, Launcher

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.processes import EaselProcess

OWN = [*(tool.definition for tool in native_tools()), LOGS, FetchTool([], [], max_body_bytes=0).definition]
TOOLS = {definition.name: definition for definition in OWN}
FIRST_BUTTON = re.compile(r'data-gsv-action="(\w+)"')
CANVAS_IDS = {canvas.canvas_id for canvas in CANVASES}


def canvas_id(canvas: DemoCanvas) -> str:
    return canvas.canvas_id


@pytest.mark.parametrize("canvas", CANVASES, ids=canvas_id)
def test_demo_spec_is_valid_and_each_action_has_a_button(canvas: DemoCanvas) -> None:
    spec = parse_spec(canvas.spec)
    warnings = check_templates(spec, TOOLS)
    assert [warning for warning in warnings if "local__Bash" not in warning] == []
    page = canvas.assets[ENTRY]
    actions = set(re.findall(r'data-gsv-action="([^"]+)"', page))
    bound = {spec.bindings[control] for control in re.findall(r'data-gsv-control="([^"]+)"', page)}
    assert actions | bound == set(spec.actions)
    for path in re.findall(r'data-gsv-model="state\.([^"]+)"', page):
        assert spec.may_write(tuple(path.split("."))), path


@rule("CV-19")
@pytest.mark.parametrize("canvas", CANVASES, ids=canvas_id)
def test_refresh_jobs_run_only_while_the_canvas_is_watched(canvas: DemoCanvas) -> None:
    """An unattended demo must not write 28,800 events a day."""
    assert all(job.only_watched for job in parse_spec(canvas.spec).refreshes)


@pytest.mark.parametrize("canvas", CANVASES, ids=canvas_id)
def test_every_field_of_the_state_is_used(canvas: DemoCanvas) -> None:
    rest = {name: part for name, part in canvas.spec.items() if name not in ("state", "writable")}
    used = canvas.assets[ENTRY] + msgspec.json.encode(rest).decode()
    assert [name for name in canvas.spec["state"] if f"state.{name}" not in used] == []


@pytest.mark.parametrize("canvas", CANVASES, ids=canvas_id)
def test_first_button_needs_no_confirmation_and_no_shell(canvas: DemoCanvas) -> None:
    spec = parse_spec(canvas.spec)
    found = FIRST_BUTTON.search(canvas.assets[ENTRY])
    assert found
    action: Any = spec.actions[found[1]]
    assert action.tool in TOOLS
    assert not needs_consent(action, TOOLS[action.tool])


def run_demo(server: EaselProcess) -> str:
    """Run `easel demo` for this server and return its output."""
    variables = {
        name.removeprefix("EASEL_"): value
        for name, value in server.environment.items()
        if name.startswith("EASEL_")
    }
    done = invoke_easel("demo", "--port", server.base_url.rpartition(":")[2], **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def list_canvases(api: CanvasApi) -> set[str]:
    return {canvas["canvasId"] for canvas in api.rpc("canvas.list")["canvases"]}


def test_demo_starts_a_server_or_adds_missing_canvases_to_a_running_one(tmp_path: Path) -> None:
    with Launcher(tmp_path) as launcher:
        (server,) = launcher.ready(launcher.start("up", (*EASEL, "demo", "--port", "0"), {}))
        with CanvasApi(server) as api:
            assert list_canvases(api) == CANVAS_IDS
            api.patch("release-checklist", "/release", "3.0")
            api.rpc("canvas.delete", canvasId="deploy-cockpit")
            output = run_demo(server)
            for canvas in CANVASES:
                assert f"{canvas.title}: {server.base_url}/canvas/main/{canvas.canvas_id}" in output
            assert api.state("release-checklist")["release"] == "3.0", "existing canvases are not changed"
            result = api.rpc("canvas.action", canvasId="deploy-cockpit", actionId="checkClock")
            assert result["result"]["now"].startswith("20")


@rule("RS-14", "SB-01")
def test_demo_without_refresh_jobs_is_created_when_every_action_needs_confirmation(tmp_path: Path) -> None:
    with Launcher(tmp_path) as launcher:
        (server,) = launcher.ready(
            launcher.start("up", (*EASEL, "up", "--demo", "--port", "0"), {"APPROVAL_MODE": "minimal"})
        )
        with CanvasApi(server) as api:
            assert list_canvases(api) == CANVAS_IDS
            assert api.rpc("canvas.get", canvasId="log-viewer")["spec"]["refresh"] == []
            api.rpc("canvas.delete", canvasId="log-viewer")
            run_demo(server)
            assert api.rpc("canvas.get", canvasId="log-viewer")["spec"]["refresh"] == []


def start_demo(launcher: Launcher, path: str | None = None) -> EaselProcess:
    around = None if path is None else {"PATH": path}
    (server,) = launcher.ready(launcher.start("up", (*EASEL, "up", "--demo", "--port", "0"), {}, around))
    return server


@rule("RS-61", "RS-45")
@pytest.mark.bwrap
def test_demo_without_bubblewrap_says_so_before_and_after_the_click(tmp_path: Path) -> None:
    """The error said "Try again in a moment", which never helped."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "bash").symlink_to(shutil.which("bash") or "")
    reason = "Commands are off: bubblewrap is not installed; install the package `bubblewrap` and start Easel"
    with Launcher(tmp_path / "easel") as launcher:
        server = start_demo(launcher, str(programs))
        with CanvasApi(server) as api:
            assert api.state("deploy-cockpit")["commandsOff"].startswith(reason)
            refused = api.rpc_any("canvas.action", canvasId="deploy-cockpit", actionId="deploy")["error"]
            assert refused["name"] == "UNAVAILABLE"
            assert refused["message"].startswith(f"Tool local__Bash is unavailable: c{reason[1:]} again.")
            assert "Try again" not in refused["message"]
            assert "retryable" not in refused
            refused = api.rpc_any("tool.invoke", tool="local__Bash", args={"command": "true"})["error"]
            assert f"c{reason[1:]}" in refused["message"]
            clock = api.rpc("canvas.action", canvasId="deploy-cockpit", actionId="checkClock")
            assert clock["status"] == "completed"
            api.rpc("canvas.delete", canvasId="deploy-cockpit")
            run_demo(server)
            assert api.state("deploy-cockpit")["commandsOff"].startswith(reason)
            api.patch("deploy-cockpit", "/version", "9.9")
        server.terminate(within=30)
        with CanvasApi(start_demo(launcher)) as api:
            state = api.state("deploy-cockpit")
            assert (state["commandsOff"], state["version"]) == (None, "9.9"), "bubblewrap is installed now"
