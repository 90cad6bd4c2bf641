"""Validators for the JSON Schemas of tools: of Easel's own tools and those of nodes.

A validator does not fetch remote references, and matches patterns in linear time. R7 Its messages do not
repeat the value that is wrong: errors are logged, and the value may be a secret that a person typed.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs

from easel.core.action.argument_warnings import ArgumentError
from easel.errors import BadInput


def build_validator(schema: Mapping[str, Any]) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(
        dict(schema), offline=True, pattern_options=jsonschema_rs.RegexOptions(), mask="the value"
    )


def check_is_schema(schema: Mapping[str, Any], at: str) -> None:
    """Raise `BadInput` if this is not a valid JSON Schema, or uses features that are not supported."""
    try:
        build_validator(schema)
    except jsonschema_rs.ValidationError as problem:
        place = "".join(f"{step}/" for step in problem.instance_path).removesuffix("/")
        detail = f"{place}: {problem.message[:300]}" if place else problem.message[:300]
        raise BadInput(problem=f"{at}: is not a supported JSON Schema: {detail}") from None


def find_errors(validator: jsonschema_rs.Validator, args: Mapping[str, Any]) -> Iterator[ArgumentError]:
    for error in validator.iter_errors(args):
        kind = error.kind
        missing = kind.property if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required) else ""
        path, schema_path = tuple(error.instance_path), tuple(error.schema_path)
        yield ArgumentError(path, kind.name, error.message, schema_path, missing)
