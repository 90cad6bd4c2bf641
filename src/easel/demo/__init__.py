"""Demo canvases: a deploy cockpit, a live log viewer, a release checklist and a health check.

Owns the specs of these canvases; the HTML files in this folder are their pages. The first button of each page
calls a native tool, which works on a machine without a sandbox too. Refresh jobs run only while the canvas is
watched, so an unattended demo writes nothing.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

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
        page = resources.files("easel.demo").joinpath(f"{self.canvas_id}.html").read_text("utf-8")
        style = resources.files("easel.demo").joinpath("demo.css").read_text("utf-8")
        return {ENTRY: page, "assets/demo.css": style}

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


# The example of the specification, on the local node. `setDeploying` replaces `/status`, so the state has
# a `status`. `refreshLogs` calls a read-only tool, because a refresh job cannot ask for confirmation.
DEPLOY_COCKPIT = DemoCanvas(
    "deploy-cockpit",
    "Deploy Cockpit",
    {
        "version": 1,
        "mode": "html",
        "toolPolicy": {"allow": ["gsv__Clock", "gsv__LogsGet", BASH]},
        "state": {
            "service": "api",
            "version": "1.2.7",
            "status": "idle",
            "clock": None,
            "logsTail": None,
            "lastDeploy": None,
            "assistant": {},
            COMMANDS_OFF: None,
        },
        "actions": {
            "checkClock": {
                "kind": "tool.call",
                "title": "Check the server's clock",
                "tool": "gsv__Clock",
                "saveAs": "clock",
            },
            "deploy": {
                "kind": "tool.call",
                "title": "Deploy",
                "tool": BASH,
                "args": {"command": "echo deployed {{state.service}} {{state.version}} | tee -a deploys.log"},
                "saveAs": "lastDeploy",
                "confirm": "always",
                "timeoutMs": 120_000,
            },
            "refreshLogs": {
                "kind": "tool.call",
                "title": "Refresh logs",
                "tool": "gsv__LogsGet",
                "args": {"limit": 20},
                "saveAs": "logsTail",
            },
            "assistantPlan": {
                "kind": "session.send",
                "title": "Ask the assistant",
                "message": "Given the rollout of {{state.service}} {{state.version}}, "
                "propose next safe steps and risks.",
                "saveAs": "assistant.plan",
            },
            "setDeploying": {
                "kind": "state.patch",
                "title": "Mark as deploying",
                "patch": [{"op": "replace", "path": "/status", "value": "deploying"}],
            },
            "setIdle": {
                "kind": "state.patch",
                "title": "Mark as idle",
                "patch": [{"op": "replace", "path": "/status", "value": "idle"}],
            },
        },
        "bindings": {"buttons.deployNow": "deploy", "buttons.refreshLogs": "refreshLogs"},
        "refresh": [
            {
                "id": "pollLogs",
                "everyMs": 30_000,
                "action": "refreshLogs",
                "enabled": True,
                "onlyWatched": True,
            }
        ],
        "writable": ["service", "version"],
    },
)

LOG_VIEWER = DemoCanvas(
    "log-viewer",
    "Live logs",
    {
        "version": 1,
        "toolPolicy": {"allow": ["gsv__LogsGet"]},
        "state": {"session": "agent:main:main", "log": None, "reply": None},
        "actions": {
            "refreshLog": {
                "kind": "tool.call",
                "title": "Refresh now",
                "tool": "gsv__LogsGet",
                "args": {"sessionKey": "{{state.session}}", "limit": 40},
                "saveAs": "log",
            },
            "hello": {
                "kind": "session.send",
                "title": "Say hello to the agent",
                "message": "Hello! What can you do?",
                "saveAs": "reply",
            },
        },
        "refresh": [
            {
                "id": "refreshLog",
                "everyMs": 3_000,
                "action": "refreshLog",
                "enabled": True,
                "onlyWatched": True,
            }
        ],
        "writable": ["session"],
    },
)

CHECKS = [
    {"id": "tests", "text": "All tests pass", "done": False},
    {"id": "changelog", "text": "The changelog is written", "done": False},
    {"id": "backup", "text": "A backup was restored", "done": False},
]

RELEASE_CHECKLIST = DemoCanvas(
    "release-checklist",
    "Release checklist",
    {
        "version": 1,
        "toolPolicy": {"allow": ["gsv__Clock", "gsv__Echo"]},
        "state": {
            "release": "2.0.0",
            "checks": CHECKS,
            "frozenAt": None,
            "approval": None,
            "notes": "",
        },
        "actions": {
            "freeze": {
                "kind": "tool.call",
                "title": "Freeze the code",
                "tool": "gsv__Clock",
                "saveAs": "frozenAt",
            },
            "approve": {
                "kind": "tool.call",
                "title": "Approve the release",
                "tool": "gsv__Echo",
                "args": {"value": "Release {{state.release}} is approved. {{state.notes}}"},
                "saveAs": "approval",
                "confirm": "always",
            },
            "reset": {
                "kind": "state.patch",
                "title": "Start over",
                "patch": [
                    {"op": "replace", "path": "/checks", "value": CHECKS},
                    {"op": "replace", "path": "/frozenAt", "value": None},
                    {"op": "replace", "path": "/approval", "value": None},
                ],
            },
        },
        "writable": ["release", "checks", "notes"],
    },
)

CHECK = {
    "kind": "tool.call",
    "title": "Check now",
    "tool": "local__Fetch",
    "saveAs": "health",
    "parse": "lines",
}
SERVER_HEALTH = DemoCanvas(
    "server-health",
    "Server health",
    {
        "toolPolicy": {"allow": ["local__Fetch"]},
        "state": {"health": None},
        "actions": {"check": {**CHECK, "args": {"method": "GET", "url": "easel:/healthz"}}},
        "refresh": [{"id": "check", "everyMs": 10_000, "action": "check", "onlyWatched": True}],
    },
)

CANVASES = (DEPLOY_COCKPIT, LOG_VIEWER, RELEASE_CHECKLIST, SERVER_HEALTH)
