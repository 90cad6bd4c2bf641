"""Demo canvases: a deploy cockpit, a live log viewer, a release checklist and a health check.

Of each, this folder has a JSON file (title and spec) and an HTML file (the page). The first button of each
page calls a native tool, which works on a machine without a sandbox too. Refresh jobs run only while the
canvas is watched, so an unattended demo writes nothing.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import msgspec

ENTRY = "assets/index.html"
BASH = "local__Bash"
COMMANDS_OFF = "commandsOff"  # in the state: why commands are off on this machine; None: they are on


@dataclass(frozen=True, slots=True)
class DemoCanvas:
    canvas_id: str
    title: str
    spec: dict[str, Any]

    @property
    def assets(self) -> dict[str, str]:
        return {ENTRY: _text_of(f"{self.canvas_id}.html"), "assets/demo.css": _text_of("demo.css")}

    @property
    def without_refresh(self) -> "DemoCanvas":
        """Return the canvas without refresh jobs, for an approval mode that refuses them."""
        return replace(self, spec={**self.spec, "refresh": []})

    def on_machine(self, tools: Collection[str], bash: str) -> "DemoCanvas":
        """Return the canvas for a machine with these tools; `bash` describes how it isolates commands."""
        if COMMANDS_OFF not in self.spec["state"]:
            return self
        note = None if BASH in tools else f"Commands are {bash}"
        return replace(self, spec={**self.spec, "state": {**self.spec["state"], COMMANDS_OFF: note}})

    @property
    def params(self) -> dict[str, Any]:
        """Return the params of `canvas.create`."""
        return {"canvasId": self.canvas_id, "title": self.title, "spec": self.spec, "assets": self.assets}


def _read(canvas_id: str) -> DemoCanvas:
    return DemoCanvas(canvas_id, **msgspec.json.decode(_text_of(f"{canvas_id}.json")))


def _text_of(name: str) -> str:
    return resources.files("easel.demo").joinpath(name).read_text("utf-8")


DEPLOY_COCKPIT = _read("deploy-cockpit")  # the example of the specification, on the local node
LOG_VIEWER = _read("log-viewer")
RELEASE_CHECKLIST = _read("release-checklist")
SERVER_HEALTH = _read("server-health")
CANVASES = (DEPLOY_COCKPIT, LOG_VIEWER, RELEASE_CHECKLIST, SERVER_HEALTH)
