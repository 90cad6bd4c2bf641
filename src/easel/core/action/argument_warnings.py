"""Warnings about arguments of actions that do not fit the tool's schema, when a spec is stored. RS-66

Owns which parts of the arguments are known before the action runs: constants are, the text of a template is
text, and a referenced value is anything. Only errors in known parts become warnings. Does not validate: the
host passes a function that does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

from easel.core.action.resolution import format_argument_path
from easel.core.canvas.actions import CallTool
from easel.core.canvas.spec import CanvasSpec
from easel.core.problems import Problem
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.offer import count_schema_parts, count_values
from easel.core.tool.schemas import describes_others, find_schemas, members_of
from easel.core.values.paths import MISSING, get_at
from easel.core.values.references import STATE, ArgumentPath, SecretRef, ValueRef
from easel.core.values.template import Template

MAX_WARNINGS = 20  # of one spec
MAX_COST = 5_000_000  # schema parts times values of all checked actions of one spec

# Whether these hold does not depend on the values inside the object or array.
_SHAPE = frozenset(
    {"type", "required", "dependentRequired", "minProperties", "maxProperties", "minItems", "maxItems"}
)
_CONDITIONAL = frozenset({"anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "contains"})
_UNKNOWN_NAME = frozenset({"additionalProperties", "unevaluatedProperties"})


@dataclass(frozen=True, slots=True)
class ArgumentError:
    """An error of the validator: the place of the value, the keyword that it violates, and the message."""

    path: ArgumentPath
    keyword: str
    message: str
    schema_path: tuple[str | int, ...] = ()
    name: str = ""  # of the member that is missing


FindErrors = Callable[[ToolDefinition, Mapping[str, Any]], Iterable[ArgumentError]]


@dataclass(slots=True)
class _Sample:
    """Arguments with a stand-in for each part that is not known, and the places of these parts."""

    state: Mapping[str, Any]
    unknown: dict[ArgumentPath, Template | ValueRef | SecretRef] = field(
        default_factory=dict[ArgumentPath, Template | ValueRef | SecretRef]
    )
    untyped: set[ArgumentPath] = field(
        default_factory=set[ArgumentPath]
    )  # of these not even the type is known

    def build(self, tree: Any, path: ArgumentPath = ()) -> Any:
        if isinstance(tree, (Template, ValueRef, SecretRef)):
            self.unknown[path] = tree
            if not isinstance(tree, ValueRef):
                return ""
            value = get_at(self.state, tree.path) if tree.source == STATE else MISSING
            if value is MISSING or value is None or isinstance(value, (dict, list)):
                self.untyped.add(path)
                return None
            return value
        if isinstance(tree, Mapping):
            members = cast("Mapping[str, Any]", tree)
            return {name: self.build(item, (*path, name)) for name, item in members.items()}
        if isinstance(tree, list):
            return [self.build(item, (*path, index)) for index, item in enumerate(cast("list[Any]", tree))]
        return tree


def find_argument_warnings(
    spec: CanvasSpec, definitions: Mapping[str, ToolDefinition], find_errors: FindErrors
) -> list[str]:
    """Return a warning for each argument that the tool would refuse, as far as the spec shows it."""
    cost, warnings = 0, list[str]()
    for action in spec.actions.values():
        definition = definitions.get(action.tool) if isinstance(action, CallTool) else None
        if definition is None or not isinstance(action, CallTool):
            continue
        cost += count_schema_parts(definition.schema) * count_values(action.args)
        if cost > MAX_COST:
            break
        found = _check_action(action, definition, spec.state, find_errors)
        warnings += islice(found, MAX_WARNINGS + 1 - len(warnings))
        if len(warnings) > MAX_WARNINGS:
            return [*warnings[:MAX_WARNINGS], "actions: more arguments do not fit their tools."]
    return warnings


def _check_action(
    action: CallTool, definition: ToolDefinition, state: Mapping[str, Any], find_errors: FindErrors
) -> Iterator[str]:
    sample = _Sample(state)
    args = sample.build(action.template)
    yield from _unknown_names(action, definition, args, sample)
    for error in find_errors(definition, args):
        if text := _describe(error, definition, sample):
            at = (*error.path, error.name) if error.name else error.path
            yield f"{format_argument_path(action.action_id, at)}: {text}"


def _unknown_names(
    action: CallTool, definition: ToolDefinition, tree: Any, sample: _Sample, path: ArgumentPath = ()
) -> Iterator[str]:
    """Yield a warning for each member that the schema does not name, if it names the others."""
    if path in sample.unknown or not isinstance(tree, (dict, list)):
        return
    if isinstance(tree, list):
        for index, item in enumerate(cast("list[Any]", tree)):
            yield from _unknown_names(action, definition, item, sample, (*path, index))
        return
    schemas = find_schemas(definition.schema, path)
    known = {name for schema in schemas for name in members_of(schema.get("properties"))}
    is_open = not known or any(
        describes_others(schema) or schema.get("additionalProperties") in (True, {}) for schema in schemas
    )
    for name, item in cast("dict[str, Any]", tree).items():
        if name in known or is_open:
            yield from _unknown_names(action, definition, item, sample, (*path, name))
        else:
            at = format_argument_path(action.action_id, (*path, name))
            yield Problem(at, f"{definition.name} has no such argument", name, known).sentence()


def _describe(error: ArgumentError, definition: ToolDefinition, sample: _Sample) -> str | None:
    """Return the text of a warning, or None if the error may be due to a stand-in."""
    if error.keyword in _UNKNOWN_NAME:
        return None
    if sample.unknown and not _CONDITIONAL.isdisjoint(error.schema_path):
        return None
    inside = next((path for path in sample.unknown if error.path[: len(path)] == path), None)
    if inside is not None:
        if inside != error.path or error.keyword != "type" or inside in sample.untyped:
            return None
        return _describe_type(sample.unknown[inside], error, definition)
    has_unknown = any(path[: len(error.path)] == error.path for path in sample.unknown)
    if has_unknown and error.keyword not in _SHAPE:
        return None
    if error.keyword == "required":
        return f"is required by {definition.name}."
    return f"{definition.name} refuses it: {error.message}."


def _describe_type(
    source: Template | ValueRef | SecretRef, error: ArgumentError, definition: ToolDefinition
) -> str:
    if isinstance(source, Template) and len(source.parts) == 1:
        (placeholder,) = source.placeholders
        reference = ValueRef(placeholder.source, placeholder.path)
        return f"{placeholder} gives text, which {definition.name} refuses; use {reference} for the value."
    gives = (
        "gives text" if not isinstance(source, ValueRef) else f"{source} has another type in the spec's state"
    )
    return f"{gives}, which {definition.name} refuses: {error.message}."
