"""Folders of canvases for tests: making them, looking at them, and the commands that carry them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import httpx2
from typer.testing import CliRunner, Result

from easel.cli import app as cli

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.processes import EaselProcess

ANSWER_SECONDS = 30.0  # a server that needs longer is hanging, however busy the machine is
PICTURE = bytes(range(256)) * 8
SPEC: dict[str, Any] = {
    "version": 1,
    "mode": "html",
    "toolPolicy": {"allow": ["gsv__Clock"]},
    "state": {"service": "api"},
    "actions": {"look": {"kind": "tool.call", "tool": "gsv__Clock", "saveAs": "clock", "confirm": "never"}},
}
PAGE = b"<h1>Cockpit</h1>\r\n<p data-gsv-text=service></p>\n"


def rpc(server: EaselProcess, method: str, **params: Any) -> Any:
    answer = httpx2.post(
        f"{server.base_url}/api/rpc",
        headers={"Authorization": f"Bearer {server.token}"},
        json={"method": method, "params": params},
        timeout=ANSWER_SECONDS,
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def is_there(server: EaselProcess, canvas_id: str) -> bool:
    return canvas_id in [one["canvasId"] for one in rpc(server, "canvas.list")["canvases"]]


def content(server: EaselProcess, canvas_id: str) -> dict[str, Any]:
    """All that a person could see of a canvas, with the bytes of its assets."""
    whole = rpc(server, "canvas.get", canvasId=canvas_id)
    assets = {
        path: rpc(server, "canvas.asset.get", canvasId=canvas_id, path=path) for path in whole["assets"]
    }
    return {
        "title": whole["descriptor"]["title"],
        "spec": whole["spec"],
        "state": whole["state"],
        "assets": {path: one.get("text", one.get("base64")) for path, one in assets.items()},
    }


def easel_on(server: EaselProcess, *arguments: object) -> Result:
    """A command in this process, as the owner of that server."""
    return easel_at(server.base_url, server.token, *arguments)


def easel_at(url: str, token: str, *arguments: object) -> Result:
    variables = {
        "EASEL_TOKEN": token,
        "EASEL_PORT": url.rpartition(":")[2],
        "COLUMNS": "300",
        "NO_COLOR": "1",
    }
    return CliRunner(env=variables).invoke(cli.app, [str(one) for one in arguments])


def done(outcome: Result) -> str:
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def refusal(outcome: Result) -> str:
    """Exit 2 and a sentence; no traceback."""
    assert outcome.exit_code == 2, outcome.output
    assert "Traceback" not in outcome.output
    lines = [line for line in outcome.stderr.splitlines() if "[warning" not in line]
    assert lines
    assert all(re.match(r"easel: .+\.$", line) for line in lines), outcome.stderr
    return "\n".join(lines)


def written(folder: Path, files: dict[str, Any]) -> Path:
    """Files below a folder: bytes as they are, anything else as JSON."""
    for path, value in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
