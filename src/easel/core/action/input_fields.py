"""The inputs that an action takes, each with the type that a field of a page must give. RS-66

Owns finding `{{input.name}}` and `{"$value": "input.name"}`, and the type by the tool's schema or by the
state that a patch changes. Nested inputs are left out: no field of a form can set them. Does not know pages.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from easel.core.canvas.actions import Action, CallTool, PatchState, SendMessage
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.schemas import find_schemas
from easel.core.values.paths import MISSING, get_at
from easel.core.values.references import INPUT, ValueRef, find_references, leaves
from easel.core.values.template import Template


class InputType(StrEnum):
    STRING = "string"
    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    JSON = "json"  # an object, an array, or one of several types


def find_inputs(
    action: Action, definition: ToolDefinition | None, state: Mapping[str, Any]
) -> dict[str, InputType]:
    """Return the type of each input by its name, in the order in which the action names them.

    An input whose type is not known is text.
    """
    inputs: dict[str, InputType] = {}
    for name, kind in _find(action, definition, state):
        if kind is not None or name not in inputs:
            inputs[name] = kind or InputType.STRING
    return inputs


def _find(
    action: Action, definition: ToolDefinition | None, state: Mapping[str, Any]
) -> Iterator[tuple[str, InputType | None]]:
    match action:
        case CallTool():
            schema = definition.schema if definition else dict[str, Any]()
            for path, leaf in leaves(action.template):
                yield from _in_template(leaf)
                if name := _name_of(leaf):
                    yield name, _type_of_schemas(find_schemas(schema, path))
        case SendMessage():
            yield from _in_template(action.message)
        case PatchState():
            for operation in action.patch:
                target = get_at(state, operation.path)
                for path, reference in find_references(operation.value):
                    if name := _name_of(reference):
                        yield name, None if path else _type_of_value(target)


def _in_template(template: Any) -> Iterator[tuple[str, None]]:
    for placeholder in template.placeholders if isinstance(template, Template) else ():
        if placeholder.source == INPUT and len(placeholder.path) == 1:
            yield placeholder.path[0], None


def _name_of(leaf: Any) -> str | None:
    is_input = isinstance(leaf, ValueRef) and leaf.source == INPUT and len(leaf.path) == 1
    return leaf.path[0] if is_input else None


def _type_of_schemas(schemas: list[Mapping[str, Any]]) -> InputType | None:
    found = {str(schema["type"]) for schema in schemas if "type" in schema} - {"null"}
    if not found:
        return None
    (kind, *others) = found
    return InputType(kind) if not others and kind in {*InputType} else InputType.JSON


def _type_of_value(value: Any) -> InputType | None:
    match value:
        case bool():
            return InputType.BOOLEAN
        case int() | float():
            return InputType.NUMBER
        case dict() | list():
            return InputType.JSON
        case _ if value is MISSING or value is None:
            return None
        case _:
            return InputType.STRING
