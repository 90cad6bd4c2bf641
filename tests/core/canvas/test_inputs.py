"""Inputs of a page: allowed paths and conflicts. RS-41"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from easel.core.canvas.inputs import apply_input, is_equal_json
from easel.errors import BadInput, Forbidden, InputConflict
from tests.requirements import rule

STATE: dict[str, Any] = {
    "service": "api",
    "deploy": {"to": "eu", "hosts": ["a", "b"]},
    "result": None,
    "other": 1,
}
SPEC: dict[str, Any] = {"state": {"service": "", "deploy": {}, "result": None}}


@rule("RS-41")
def test_input_is_written_below_declared_members() -> None:
    service = apply_input(SPEC, STATE, ("service",), "web", UNSET)
    host = apply_input(SPEC, STATE, ("deploy", "hosts", "1"), "c", "b")
    note = apply_input(SPEC, STATE, ("result", "note"), "x", None)
    assert service is not None
    assert host is not None
    assert note is not None
    assert service.state["service"] == "web"
    assert (host.state["deploy"]["hosts"], host.paths) == (["a", "c"], ("/deploy/hosts/1",))
    assert note.state["result"] == {"note": "x"}
    assert STATE["service"] == "api"


@rule("RS-41")
@pytest.mark.parametrize(
    "spec, path",
    [
        (SPEC, ("other",)),
        (SPEC, ()),
        (SPEC, ("new",)),
        ({}, ("service",)),
        ({**SPEC, "writable": []}, ("service",)),
        ({**SPEC, "writable": ["deploy.to"]}, ("service",)),
        ({**SPEC, "writable": ["deploy.to"]}, ("deploy",)),
        ({**SPEC, "writable": ["deploy.to"]}, ("deploy", "hosts")),
        ({**SPEC, "writable": ["deploy.to"]}, ("deploy", "tomorrow")),
    ],
)
def test_input_outside_declared_paths_is_forbidden(spec: dict[str, Any], path: tuple[str, ...]) -> None:
    with pytest.raises(Forbidden):
        apply_input(spec, STATE, path, "x", UNSET)


@rule("RS-41")
def test_writable_replaces_the_declared_members() -> None:
    assert apply_input({"writable": ["deploy.to"]}, STATE, ("deploy", "to"), "us", "eu") is not None


def test_input_based_on_an_old_value_is_a_conflict() -> None:
    with pytest.raises(InputConflict, match="/service was changed"):
        apply_input(SPEC, STATE, ("service",), "web", "what it showed before")
    assert apply_input(SPEC, STATE, ("service",), "web", "api") is not None
    assert apply_input(SPEC, STATE, ("service",), "api", "anything") is None, "the value is unchanged"
    assert apply_input(SPEC, STATE, ("result", "note"), "x", None) is not None, (
        "a missing value counts as null"
    )


def test_input_at_an_impossible_path_is_refused() -> None:
    with pytest.raises(BadInput):
        apply_input(SPEC, STATE, ("service", "deeper"), "x", UNSET)
    with pytest.raises(BadInput):
        apply_input(SPEC, STATE, ("deploy", "hosts", "7"), "x", UNSET)


@pytest.mark.parametrize(
    "left, right, expected",
    [
        (1,               1.0,             True),
        (1,               True,            False),
        (0,               False,           False),
        (None,            False,           False),
        ("1",             1,               False),
        ([1, {"a": 2.0}], [1.0, {"a": 2}], True),
        ([1],             [1, 2],          False),
        ({"a": 1},        {"b": 1},        False),
        ({"a": 1},        {"a": True},     False),
        ({},              [],              False),
        ("",              None,            False),
    ],
)  # fmt: skip
def test_json_equality(left: Any, right: Any, expected: bool) -> None:
    assert is_equal_json(left, right) is expected
