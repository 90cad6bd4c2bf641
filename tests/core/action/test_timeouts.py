"""Warnings about timeouts of actions that the tool or the server ends earlier."""

from __future__ import annotations

from typing import Any

import pytest

from easel.core.action.timeouts import timeout_warnings
from easel.core.canvas.spec import parse_spec
from easel.core.tool.definition import ToolDefinition
from easel.sandbox.definitions import TIMEOUT_MS, definitions
from tests.requirements import rule

BASH = {tool.name: tool for tool in definitions("local", has_shell=True, network=False)}
OTHERS = {
    "a__T": ToolDefinition("a__T", "", {"type": "object", "properties": {"timeout": True}}),
    "a__U": ToolDefinition("a__U", "", {}),
}
TOOLS = {**BASH, **OTHERS}


def warnings_for(tool: str, **action: Any) -> list[str]:
    declared = {"kind": "tool.call", "tool": tool, **action}
    spec = parse_spec({"version": 1, "toolPolicy": {"allow": [tool]}, "actions": {"go": declared}})
    return timeout_warnings(spec, TOOLS, 600)


@rule("CV-23")
@pytest.mark.parametrize(
    "tool, action, expected",
    [
        ("local__Bash", {"args": {"command": "x"}, "timeoutMs": TIMEOUT_MS}, []),
        (
            "local__Bash",
            {"args": {"command": "x"}, "timeoutMs": TIMEOUT_MS + 1},
            ["stops after 300000 ms"],
        ),
        ("local__Bash", {"args": {"command": "x", "timeout": 500_000}, "timeoutMs": 500_000}, []),
        (
            "local__Bash",
            {"args": {"command": "x", "timeout": 900_000}, "timeoutMs": 900_000},
            ["EASEL_TOOL_TIMEOUT_SECONDS"],
        ),
        (
            "local__Bash",
            {"args": {"command": "x"}, "timeoutMs": 900_000},
            ["EASEL_TOOL_TIMEOUT_SECONDS", "stops after"],
        ),
        ("local__Bash", {"args": {"command": "x"}}, []),
        ("a__T", {"args": {}, "timeoutMs": 599_000}, []),
        ("a__U", {"args": {}, "timeoutMs": 600_001}, ["EASEL_TOOL_TIMEOUT_SECONDS"]),
        ("not__There", {"args": {}, "timeoutMs": 500_000}, []),
    ],
)
def test_timeout_above_the_limit_of_server_or_tool_is_warned_about(
    tool: str, action: dict[str, Any], expected: list[str]
) -> None:
    warnings = warnings_for(tool, **action)
    assert len(warnings) == len(expected)
    assert all(
        part in warning and "actions.go.timeoutMs" in warning
        for part, warning in zip(expected, warnings, strict=True)
    )
