"""Warnings for the author of a spec: parts that are valid but probably not what the author meant.

Owns the warnings about tools, placeholders, references and targets of patches. Does not decide whether a spec
is stored: see `core.action.policy`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from easel.core.canvas.actions import CallTool, PatchState, SendMessage
from easel.core.canvas.spec import CanvasSpec
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.node import why_missing
from easel.core.validation import find_nearest
from easel.core.values.patch import Op
from easel.core.values.paths import MISSING, get_at, pointer
from easel.core.values.references import STATE, ValueRef, find_mixed, format_path, leaves, walk_unresolved
from easel.core.values.template import Placeholder, Template, find_unknown_placeholders, has_braces


def find_warnings(spec: CanvasSpec, definitions: Mapping[str, ToolDefinition]) -> Iterator[str]:
    for tool in sorted(spec.tools):
        if tool not in definitions:
            why = why_missing(tool, definitions, {})
            yield f"toolPolicy.allow: {tool} does not exist now, so actions that call it fail: {why}"
    names = _state_names(spec)
    for action in spec.actions.values():
        at = f"actions.{action.action_id}"
        match action:
            case CallTool():
                if action.tool not in spec.tools:
                    yield f"{at}.tool: toolPolicy.allow does not list {action.tool}, so it is refused."
                if action.secrets and action.tool not in definitions:
                    yield (
                        f"{at}.secrets: it is not known whether {action.tool} takes variables; "
                        "if it does not, the action fails."
                    )
                yield from _unknown_placeholders(action.args, f"{at}.args")
                yield from _mixed_references(action.args, f"{at}.args")
                yield from _misspelt_names(action.template, f"{at}.args", names)
            case SendMessage():
                message = action.message
                parts = message.parts if isinstance(message, Template) else [message]
                yield from _unknown_placeholders([*parts], f"{at}.message")
                yield from _misspelt_names(message, f"{at}.message", names)
            case PatchState():
                yield from _missing_targets(action, spec, at)
                for number, operation in enumerate(action.declared):
                    value = operation.get("value")
                    yield from _templates_in_patch(value, f"{at}.patch[{number}].value")
                    yield from _mixed_references(value, f"{at}.patch[{number}].value")


def _state_names(spec: CanvasSpec) -> frozenset[str]:
    """Return the members that the state has, or gets by an action or a field of the page."""
    paths = [*((name,) for name in spec.state), *(spec.writable or ())]
    for action in spec.actions.values():
        if isinstance(action, PatchState):
            paths += [operation.path for operation in action.patch]
        elif action.save_target:
            paths.append(action.save_target.path)
    return frozenset(path[0] for path in paths if path)


def _misspelt_names(template: Any, at: str, names: frozenset[str]) -> Iterator[str]:
    """Yield a warning for each member that the state lacks, and whose name is like one that it has."""
    for path, leaf in leaves(template):
        for place in leaf.placeholders if isinstance(leaf, Template) else (leaf,):
            is_missing = isinstance(place, Placeholder | ValueRef) and place.source == STATE
            if is_missing and (name := place.path[0]) not in names and (near := find_nearest(name, names)):
                where = f"{at}{format_path(path)}"
                yield f"{where}: the state has no {name} for {place}; did you mean {STATE}.{near}?"


def _unknown_placeholders(raw: Any, at: str) -> Iterator[str]:
    for _, text in walk_unresolved(raw):
        if isinstance(text, str):
            for name in find_unknown_placeholders(text):
                yield f"{at}: {name} is not a placeholder and is sent unchanged."


def _mixed_references(raw: Any, at: str) -> Iterator[str]:
    for path, name in find_mixed(raw):
        yield (
            f"{at}{format_path(path)}: {name} has other members beside it, so this object is plain data; "
            "a reference must be the only member."
        )


def _templates_in_patch(raw: Any, at: str) -> Iterator[str]:
    for path, text in walk_unresolved(raw):
        if isinstance(text, str) and has_braces(text):
            yield (
                f"{at}{format_path(path)}: placeholders are not filled in a state.patch, so this is stored "
                'as it is; use {"$value": "input.name"} for a value.'
            )


def _missing_targets(action: PatchState, spec: CanvasSpec, at: str) -> Iterator[str]:
    """Yield a warning for each `replace` or `remove` whose target is not in the spec's state."""
    added: set[tuple[str, ...]] = set()
    for number, operation in enumerate(action.patch):
        if operation.op is Op.ADD:
            added.add(operation.path[:1])
        elif (
            operation.path
            and operation.path[:1] not in added
            and get_at(spec.state, operation.path) is MISSING
        ):
            yield (
                f"{at}.patch[{number}]: {operation.op} needs {pointer(operation.path)}, which the"
                " spec's state does not have; use `add` to create it."
            )
