"""Specs and tools for tests: the example of the specification, and definitions of its tools."""

import copy
from typing import Any

from easel.core.tool.definition import ToolDefinition

EXAMPLE: dict[str, Any] = {
    "version": 1,
    "mode": "html",
    "toolPolicy": {"allow": ["server-a__Bash", "server-a__Read", "gsv__LogsGet"]},
    "state": {"service": "api", "version": "1.2.7", "logsTail": None, "lastDeploy": None},
    "actions": {
        "deploy": {
            "kind": "tool.call",
            "tool": "server-a__Bash",
            "args": {"command": "./deploy {{state.service}} {{state.version}}"},
            "saveAs": "lastDeploy",
            "confirm": "always",
            "timeoutMs": 120000,
        },
        "refreshLogs": {
            "kind": "tool.call",
            "tool": "server-a__Bash",
            "args": {"command": "journalctl -u {{state.service}} -n 80"},
            "saveAs": "logsTail",
        },
        "assistantPlan": {
            "kind": "session.send",
            "message": "Given current rollout state, propose next safe steps and risks.",
            "saveAs": "assistant.plan",
        },
        "setDeploying": {
            "kind": "state.patch",
            "patch": [{"op": "replace", "path": "/status", "value": "deploying"}],
        },
    },
    "bindings": {"buttons.deployNow": "deploy", "buttons.refreshLogs": "refreshLogs"},
    "refresh": [{"id": "pollLogs", "everyMs": 30000, "action": "refreshLogs", "enabled": True}],
}

BASH_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"command": {"type": "string", "x-shell": True}, "workdir": {"type": "string"}},
    "required": ["command"],
}
BASH = ToolDefinition("server-a__Bash", "Runs a command.", BASH_SCHEMA, destructive=True)
READ = ToolDefinition(
    "server-a__Read",
    "Reads a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}},
    read_only=True,
)
LOGS = ToolDefinition("gsv__LogsGet", "Reads logs.", {"type": "object"}, read_only=True)
TOOLS = {tool.name: tool for tool in (BASH, READ, LOGS)}


def example(**changes: Any) -> dict[str, Any]:
    """Return the example with some members changed; `...` removes a member."""
    spec = copy.deepcopy(EXAMPLE) | changes
    return {name: part for name, part in spec.items() if part is not ...}


def with_action(**action: Any) -> dict[str, Any]:
    """Return a spec with one action, `act`."""
    return {
        "version": 1,
        "toolPolicy": {"allow": ["server-a__Bash", "server-a__Read"]},
        "actions": {"act": action},
    }
