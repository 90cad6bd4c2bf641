"""What a field of a page may write, and when it is told that somebody else was there first."""

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
def test_an_entry_goes_below_what_the_spec_declares() -> None:
    assert apply_input(SPEC, STATE, ("service",), "web", UNSET).state["service"] == "web"  # type: ignore[union-attr]
    changed = apply_input(SPEC, STATE, ("deploy", "hosts", "1"), "c", "b")
    assert changed is not None
    assert (changed.state["deploy"]["hosts"], changed.paths) == (["a", "c"], ("/deploy/hosts/1",))
    assert apply_input(SPEC, STATE, ("result", "note"), "x", None).state["result"] == {"note": "x"}  # type: ignore[union-attr]
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
def test_and_nowhere_else(spec: dict[str, Any], path: tuple[str, ...]) -> None:
    with pytest.raises(Forbidden):
        apply_input(spec, STATE, path, "x", UNSET)


@rule("RS-41")
def test_where_writable_is_given_it_alone_counts() -> None:
    assert apply_input({"writable": ["deploy.to"]}, STATE, ("deploy", "to"), "us", "eu") is not None


def test_who_did_not_see_what_is_there_writes_nothing() -> None:
    with pytest.raises(InputConflict, match="/service was changed"):
        apply_input(SPEC, STATE, ("service",), "web", "what it showed before")
    assert apply_input(SPEC, STATE, ("service",), "web", "api") is not None
    assert apply_input(SPEC, STATE, ("service",), "api", "anything") is None, "it is there already"
    assert apply_input(SPEC, STATE, ("result", "note"), "x", None) is not None, "where nothing is, nothing was"


def test_what_cannot_be_put_there_is_refused() -> None:
    with pytest.raises(BadInput):
        apply_input(SPEC, STATE, ("service", "deeper"), "x", UNSET)
    with pytest.raises(BadInput):
        apply_input(SPEC, STATE, ("deploy", "hosts", "7"), "x", UNSET)


@pytest.mark.parametrize(
    "one, other, same",
    [(1, 1.0, True), (1, True, False), (0, False, False), (None, False, False), ("1", 1, False), ([1, {"a": 2.0}], [1.0, {"a": 2}], True),
     ([1], [1, 2], False), ({"a": 1}, {"b": 1}, False), ({"a": 1}, {"a": True}, False), ({}, [], False), ("", None, False)],
)  # fmt: skip
def test_the_same_json_is_the_same(one: Any, other: Any, same: bool) -> None:
    assert is_equal_json(one, other) is same
