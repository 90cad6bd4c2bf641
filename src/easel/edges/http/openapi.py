"""The OpenAPI description of the HTTP surface, generated from the route table."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from easel import __version__
from easel.core.access import Public
from easel.edges.decoding import NoParams
from easel.edges.http.calls import WARNINGS_HEADER, Row
from easel.edges.http.wire import ErrorAnswer
from easel.errors import BadInput, Forbidden, NotSignedIn, TooLarge, Unavailable

_PARAMETER = re.compile(r"\{(\w+)\}")
_REF = "#/components/schemas/{name}"
_BYTES = {"type": "string", "contentMediaType": "application/octet-stream"}
_FILE: dict[str, Any] = {
    "application/octet-stream": {"schema": {}},
    "multipart/form-data": {
        "schema": {"type": "object", "properties": {"file": _BYTES}, "required": ["file"]}
    },
}
_ABOUT = "A self-hosted host for agent canvases."
_SCHEMES = {"token": {"type": "http", "scheme": "bearer"}}
_WARNINGS: dict[str, Any] = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Unknown members of the request, which were ignored; missing if there are none.",
}


def describe(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the OpenAPI description of these routes."""
    shapes = [
        shape for row in rows for shape in (row.body, row.response, row.accepted) if isinstance(shape, type)
    ]
    shapes = [shape for shape in shapes if shape is not NoParams]
    _, components = msgspec.json.schema_components([*shapes, ErrorAnswer], ref_template=_REF)
    for component in components.values():
        if component.get("additionalProperties") is False:  # unknown members are ignored with a warning
            del component["additionalProperties"]
    for row in rows:
        if isinstance(row.response, type):
            components[row.response.__name__]["properties"]["warnings"] = _WARNINGS
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Easel", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SCHEMES},
        "security": [{"token": []}],
    }


def _operation(row: Row) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": row.summary,
        "operationId": row.handler.__name__,
        "parameters": _parameters(row),
    }
    if row.body is not None and row.body is not NoParams:
        operation["requestBody"] = {
            # An empty body is `{}`.
            "required": any(field.required for field in msgspec.structs.fields(row.body)),
            "content": _json(row.body),
        }
    if row.takes_file:
        operation["requestBody"] = {"required": True, "content": _FILE}
    if isinstance(row.access, Public):
        operation["security"] = []
    operation["responses"] = {str(row.status): _success(row)}
    if row.takes_file:
        operation["responses"]["200"] = {**_success(row), "description": "The same bytes were stored before."}
    if row.response == "*/*":
        operation["responses"]["206"] = {**_success(row), "description": "The requested range."}
        operation["responses"]["304"] = {"description": "Not modified."}
    if row.response == "text/event-stream":
        operation["responses"]["204"] = {
            "description": "The cursor is at the end of a finished run: there are no more events."
        }
    if row.accepted is not None:
        description = "With `Accept: application/json`."
        operation["responses"]["202"] = {"description": description, "content": _json(row.accepted)}
    # The endpoint itself raises the last ones, or the store does.
    common = [] if isinstance(row.access, Public) else [BadInput, NotSignedIn, Forbidden, Unavailable]
    errors = [*row.errors, *common, *([] if row.body is None else [TooLarge])]
    for status in sorted({error.http for error in errors}):
        codes = dict.fromkeys(error.code for error in errors if error.http == status)
        operation["responses"][str(status)] = {"description": ", ".join(codes), "content": _json(ErrorAnswer)}
    return operation


def _parameters(row: Row) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(row.path)
    ]
    if row.query is not None:
        properties = msgspec.json.schema(row.query)["$defs"][row.query.__name__]["properties"]
        found += [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in properties.items()
        ]
    headers = {"text/event-stream": ["Last-Event-ID"], "*/*": ["Range", "If-Range", "If-None-Match"]}
    names = headers.get(row.response, []) if isinstance(row.response, str) else []
    if row.body is not None and "idempotency_key" in row.body.__struct_fields__:
        names = [*names, "Idempotency-Key"]
    return [*found, *({"name": name, "in": "header", "schema": {"type": "string"}} for name in names)]


def _success(row: Row) -> dict[str, Any]:
    if row.status == 204:
        return {"description": "Done; the answer has no content."}
    if not isinstance(row.response, str):
        return {"description": row.summary, "content": _json(row.response)}
    if row.response == "application/json":
        schema = {"type": "object", "properties": {"warnings": _WARNINGS}}
        return {"description": row.summary, "content": {row.response: {"schema": schema}}}
    text = {"schema": {"type": "string"}}
    headers = {WARNINGS_HEADER: {"description": "`warnings` as JSON.", **text}}
    return {"description": row.summary, "headers": headers, "content": {row.response: text}}


def _json(shape: type[Any]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name=shape.__name__)}}}
