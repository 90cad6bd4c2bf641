"""Canvas folders for tests: create them, read them, and run the commands that synchronise them."""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any

import httpx2
from typer.testing import CliRunner, Result

from easel.cli import app as cli
from tests.support.strict_http import STRICT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.processes import EaselProcess

ANSWER_SECONDS = 30.0  # also on a busy machine
PICTURE = bytes(range(256)) * 8
SPEC: dict[str, Any] = {
    "version": 1,
    "mode": "html",
    "toolPolicy": {"allow": ["gsv__Clock"]},
    "state": {"service": "api"},
    "actions": {"look": {"kind": "tool.call", "tool": "gsv__Clock", "saveAs": "clock", "confirm": "never"}},
}
PAGE = b"<h1>Cockpit</h1>\r\n<p data-gsv-text=service></p>\n"


@functools.cache
def _http() -> httpx2.Client:
    """Return one client for all calls: creating one is slow. It keeps no connection: servers restart."""
    return httpx2.Client(
        timeout=ANSWER_SECONDS, limits=httpx2.Limits(max_keepalive_connections=0), event_hooks=STRICT
    )


def rpc(server: EaselProcess, method: str, **params: Any) -> Any:
    answer = _http().post(
        f"{server.base_url}/api/rpc",
        headers={"Authorization": f"Bearer {server.token}"},
        json={"method": method, "params": params},
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def canvas_exists(server: EaselProcess, canvas_id: str) -> bool:
    return canvas_id in [canvas["canvasId"] for canvas in rpc(server, "canvas.list")["canvases"]]


def canvas_content(server: EaselProcess, canvas_id: str) -> dict[str, Any]:
    """Return title, spec, state and assets of a canvas, as its users see them."""
    view = rpc(server, "canvas.get", canvasId=canvas_id)
    assets = {path: rpc(server, "canvas.asset.get", canvasId=canvas_id, path=path) for path in view["assets"]}
    return {
        "title": view["descriptor"]["title"],
        "spec": view["spec"],
        "state": view["state"],
        "assets": {path: asset.get("text", asset.get("base64")) for path, asset in assets.items()},
    }


def run_on(server: EaselProcess, *arguments: object) -> Result:
    """Run a command in this process, as the owner of that server."""
    return run_at(server.base_url, server.token, *arguments)


def run_at(url: str, token: str, *arguments: object) -> Result:
    variables = {
        "EASEL_TOKEN": token,
        "EASEL_PORT": url.rpartition(":")[2],
        "COLUMNS": "300",
        "NO_COLOR": "1",
    }
    return CliRunner(env=variables).invoke(cli.app, [str(argument) for argument in arguments])


def output_of(outcome: Result) -> str:
    """Return the output of a command that must succeed."""
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def refusal(outcome: Result) -> str:
    """Return the errors of a command that must fail with exit code 2 and sentences, without a traceback."""
    assert outcome.exit_code == 2, outcome.output
    assert "Traceback" not in outcome.output
    progress = ("[warning", "easel: still starting")  # the latter on a busy machine
    lines = [line for line in outcome.stderr.splitlines() if not any(part in line for part in progress)]
    assert lines
    assert all(re.match(r"easel: .+\.$", line) for line in lines), outcome.stderr
    return "\n".join(lines)


def write_files(folder: Path, files: dict[str, Any]) -> Path:
    """Write files below a folder and return it: bytes as they are, other values as JSON."""
    for path, value in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return folder


def read_tree(folder: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder, by relative path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
