"""JSON Schema as tools use it: one way to make a checker of a schema, for our own tools and for those of strangers.

It fetches nothing, whatever a schema refers to, and its patterns match in linear time, whatever they look like. R7
"""

from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from easel.errors import BadInput


def checker(schema: Mapping[str, Any]) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(
        dict(schema), offline=True, pattern_options=jsonschema_rs.RegexOptions()
    )


def check_is_schema(schema: Mapping[str, Any], at: str) -> None:
    try:
        checker(schema)
    except jsonschema_rs.ValidationError as problem:
        place = "/".join(str(step) for step in problem.instance_path)
        raise BadInput(
            problem=f"{at}: is no JSON Schema that can be used here: {f'{place}: ' if place else ''}{problem.message[:300]}"
        ) from None
