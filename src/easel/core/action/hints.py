"""The remembered hints of a canvas's tools, as declared when the spec was written or accepted.

Owns the stored form of the hints and the comparison with the definitions in force. A node declares its tools
at every connection, so a tool that claims less effect than before must not gain rights by its own word:
until a person accepts the canvas again, the spec counts as not accepted and the tool as not read-only. A tool
that was unknown counts as it did then: not read-only and not idempotent (RS-45). Does not know stores. RS-68
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from easel.core.action.resolution import find_shell_args, find_text_args
from easel.core.canvas.actions import CallTool
from easel.core.canvas.spec import CanvasSpec
from easel.core.tool.definition import ToolDefinition
from easel.core.values.references import SecretRef, ValueRef
from easel.core.values.template import Template

Stored = Mapping[str, Mapping[str, Any]]  # by tool, as a canvas stores it
Definitions = Mapping[str, ToolDefinition]


@dataclass(frozen=True, slots=True)
class ToolHints:
    read_only: bool = False
    idempotent: bool = False
    destructive: bool = False
    shell: frozenset[str] = frozenset()  # the arguments in the spec that a shell reads

    def stricter(self, other: "ToolHints") -> "ToolHints":
        """Return the hints of a tool that claims no less effect than either."""
        read_only, idempotent = self.read_only and other.read_only, self.idempotent and other.idempotent
        return ToolHints(
            read_only, idempotent, self.destructive or other.destructive, self.shell | other.shell
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "readOnly": self.read_only,
            "idempotent": self.idempotent,
            "destructive": self.destructive,
            "shell": sorted(self.shell),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ToolHints":
        return cls(
            stored["readOnly"], stored["idempotent"], stored["destructive"], frozenset(stored["shell"])
        )


UNKNOWN = ToolHints()
NOTHING: Stored = {}


def remember_hints(spec: CanvasSpec, definitions: Definitions, previous: Stored = NOTHING) -> Stored:
    """Return the hints to store with a new spec.

    A tool that was remembered before keeps the stricter hints: only an explicit acceptance agrees to weaker
    ones.
    """
    calls, hints = _args_by_tool(spec), dict[str, Mapping[str, Any]]()
    for tool in sorted(spec.tools):
        args = calls.get(tool, ())
        now = _hints_in_force(definitions.get(tool), args)
        before = ToolHints.from_json(previous[tool]) if tool in previous else None
        if before is not None:  # without arguments that the new spec does not have
            texts = {path for one in args for path in find_text_args(one)}
            before = replace(before, shell=before.shell & texts)
        if both := now.stricter(before) if now and before else now or before:
            hints[tool] = both.to_json()
    return hints


def stricter_hints(first: Stored, second: Stored) -> Stored:
    """Return for each tool the hints that claim no less effect than either."""
    both = {
        tool: ToolHints.from_json(first[tool]).stricter(ToolHints.from_json(second[tool])).to_json()
        for tool in first.keys() & second.keys()
    }
    return {**first, **second, **both}


def agree_to_hints(spec: CanvasSpec, definitions: Definitions, previous: Stored) -> Stored:
    """Return the hints to store when a person accepts: those in force now, or the last known ones."""
    calls, tools = _args_by_tool(spec), sorted(spec.tools)
    now = {tool: _hints_in_force(definitions.get(tool), calls.get(tool, ())) for tool in tools}
    kept = {tool: hints for tool, hints in previous.items() if tool in now}
    return {**kept, **{tool: hints.to_json() for tool, hints in now.items() if hints is not None}}


def find_weakened(stored: Stored, spec: CanvasSpec, definitions: Definitions) -> Mapping[str, str]:
    """Return the tools that claim less effect than remembered, each with a sentence that says how."""
    weakened: dict[str, str] = {}
    has_shell = any(hints["shell"] for hints in stored.values())
    calls = _args_by_tool(spec) if has_shell else None  # else nothing to compare
    for tool in sorted(spec.tools):
        before = ToolHints.from_json(stored[tool]) if tool in stored else UNKNOWN
        now = _hints_in_force(definitions.get(tool), calls.get(tool, ()) if calls else ())
        problems = [] if now is None else _compare(before, now)
        if problems:
            since = "" if tool in stored else "was unknown when the spec was written, and "
            weakened[tool] = since + ", and ".join(problems)
    return weakened


def explain_weakened(weakened: Mapping[str, str]) -> str:
    """Return a sentence about the first of the weakened tools, if any."""
    return next((f"{tool} {problem}; accept the canvas again." for tool, problem in weakened.items()), "")


def _compare(before: ToolHints, now: ToolHints) -> list[str]:
    problems: list[str] = []
    if now.read_only and not before.read_only:
        problems.append("now declares that it is read-only")
    if before.destructive and not now.destructive:
        problems.append("no longer declares that it is destructive")
    if now.idempotent and not before.idempotent:
        problems.append("now declares that it is idempotent")
    if lost := sorted(before.shell - now.shell):
        names = ", ".join(path.removeprefix(".") for path in lost)
        problems.append(f"no longer declares that a shell reads {names}")
    return problems


def _args_by_tool(spec: CanvasSpec) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return the arguments of all actions that call a tool, by tool."""
    calls: dict[str, list[Mapping[str, Any]]] = {}
    for action in spec.actions.values():
        if isinstance(action, CallTool):
            calls.setdefault(action.tool, []).append(_as_texts(action.template))
    return calls


def _as_texts(template: Any) -> Any:
    """Return the arguments with an empty text in place of each template and reference, which may give one."""
    if isinstance(template, (Template, ValueRef, SecretRef)):
        return ""
    if isinstance(template, Mapping):
        members = cast("Mapping[str, Any]", template)
        return {name: _as_texts(item) for name, item in members.items()}
    if isinstance(template, list):
        return [_as_texts(item) for item in cast("list[Any]", template)]
    return template


def _hints_in_force(
    definition: ToolDefinition | None, calls: Iterable[Mapping[str, Any]]
) -> ToolHints | None:
    if definition is None:
        return None
    shell = frozenset(path for args in calls for path in find_shell_args(args, definition))
    return ToolHints(definition.read_only, definition.idempotent, definition.destructive, shell)
