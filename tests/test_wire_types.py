"""TypeScript's types of the wire are current; `make types` writes them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from easel.core.stream.envelope import EVENT_TYPES
from easel.edges.methods import CONNECTION_METHODS, METHODS

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "wire_types.py"


@pytest.fixture(scope="module")
def wire_types() -> Any:
    spec = importlib.util.spec_from_file_location("wire_types", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["wire.d.ts", "wire.check.ts"])
def test_types_are_current(wire_types: Any, name: str) -> None:
    written = (wire_types.WEB / name).read_text(encoding="utf-8")
    assert written == wire_types.FILES[name](), "make types"


def test_check_uses_every_method_and_every_event_type(wire_types: Any) -> None:
    text = wire_types.render_check()
    assert re.findall(r'call\("([\w.]+)", params\)', text) == [*METHODS, *CONNECTION_METHODS]
    assert re.findall(r'case "([\w.]+)":', text) == list(EVENT_TYPES)


def test_no_type_is_any_and_every_name_is_declared_once(wire_types: Any) -> None:
    code = re.sub(r"/\*\*.*?\*/", "", wire_types.render_types())
    assert re.findall(r"\bany\b", code) == []
    names = re.findall(r"^export (?:interface|type) (\w+)", code, re.MULTILINE)
    assert len(names) == len(set(names))


SCHEMAS: list[tuple[dict[str, Any], str]] = [
    ({}, "Json"),
    ({"$ref": "Marker"}, "Marker"),
    ({"enum": ["a", "b"]}, '"a" | "b"'),
    ({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "(string | null)[]"),
    ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, "number"),
    ({"type": "object"}, "JsonObject"),
    ({"type": "object", "additionalProperties": {"type": "boolean"}}, "Record<string, boolean>"),
]


@pytest.mark.parametrize("schema, expected", SCHEMAS)
def test_schema_becomes_a_type(wire_types: Any, schema: dict[str, Any], expected: str) -> None:
    assert wire_types.to_type(schema) == expected
