"""Remembered hints: a tool that claims less effect than before gains no rights by its own word. RS-68"""

from __future__ import annotations

from typing import Any

import pytest

from easel.core.action.hints import agree_to_hints, find_weakened, remember_hints
from easel.core.canvas.spec import CanvasSpec, parse_spec
from easel.core.tool.definition import ToolDefinition
from tests.requirements import rule

NAME = "server__Deploy"
SHELL: dict[str, Any] = {"type": "object", "properties": {"command": {"type": "string"}}}
PLAIN: dict[str, Any] = {"type": "object", "properties": {"command": {"type": "string", "x-shell": False}}}


def tool(schema: dict[str, Any] = SHELL, **hints: bool) -> dict[str, ToolDefinition]:
    return {NAME: ToolDefinition(NAME, "", schema, **hints)}


def spec(*commands: str, argument: str = "command") -> CanvasSpec:
    actions = {
        f"go{number}": {"kind": "tool.call", "tool": NAME, "args": {argument: command}}
        for number, command in enumerate(commands)
    }
    return parse_spec({"version": 1, "toolPolicy": {"allow": [NAME]}, "actions": actions})


SPEC = spec("./deploy {{state.v}}")
CHANGES = {
    "readOnlyHint appears": (tool(), tool(read_only=True), "read-only"),
    "destructiveHint disappears": (tool(destructive=True), tool(), "destructive"),
    "idempotentHint appears": (tool(), tool(idempotent=True), "idempotent"),
    "x-shell is switched off": (tool(), tool(schema=PLAIN), "command"),
    "unknown, and claims to be read-only": ({}, tool(read_only=True), "unknown"),
}


@rule("RS-68")
@pytest.mark.parametrize("before, now, word", CHANGES.values(), ids=CHANGES)
def test_weaker_definition_is_found_until_a_person_agrees(
    before: dict[str, ToolDefinition], now: dict[str, ToolDefinition], word: str
) -> None:
    stored = remember_hints(SPEC, before)
    assert find_weakened(stored, SPEC, before) == {}
    assert word in find_weakened(stored, SPEC, now)[NAME]
    assert find_weakened(agree_to_hints(SPEC, now, stored), SPEC, now) == {}


@rule("RS-68")
@pytest.mark.parametrize("weaker, stronger, word", list(CHANGES.values())[:4], ids=list(CHANGES)[:4])
def test_stronger_definition_is_no_problem(
    weaker: dict[str, ToolDefinition], stronger: dict[str, ToolDefinition], word: str
) -> None:
    assert find_weakened(remember_hints(SPEC, stronger), SPEC, weaker) == {}, word


@rule("RS-68", "RS-45")
def test_tool_without_a_definition_is_not_weakened_and_unknown_tool_that_changes_things_neither() -> None:
    assert find_weakened(remember_hints(SPEC, tool()), SPEC, {}) == {}
    assert find_weakened(remember_hints(SPEC, {}), SPEC, tool(destructive=True)) == {}


@rule("RS-68")
def test_new_spec_keeps_the_stricter_hints_of_a_tool() -> None:
    stored = remember_hints(spec("a", "b"), tool(destructive=True))
    again = remember_hints(SPEC, tool(schema=PLAIN, read_only=True), stored)
    assert again == stored, "a write agrees to nothing weaker"
    assert find_weakened(again, SPEC, tool(schema=PLAIN, read_only=True))
    offline = remember_hints(SPEC, {}, stored)
    assert offline == stored, "a node that is offline does not erase what was remembered"


@rule("RS-68")
def test_shell_arguments_that_the_new_spec_does_not_have_are_forgotten() -> None:
    stored = remember_hints(SPEC, tool())
    other = spec("hello", argument="text")
    assert find_weakened(remember_hints(other, tool(), stored), other, tool(schema=PLAIN)) == {}


@rule("RS-68")
def test_tool_that_is_no_longer_allowed_is_forgotten() -> None:
    empty = parse_spec({"version": 1})
    assert remember_hints(empty, tool(), remember_hints(SPEC, tool())) == {}
    assert agree_to_hints(empty, tool(), remember_hints(SPEC, tool())) == {}
