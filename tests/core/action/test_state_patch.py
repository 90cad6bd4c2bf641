"""Typed values in the patch of a `state.patch` action. RS-66"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from easel.core.action.execution import ExecutionStatus
from easel.core.action.policy import check_templates
from easel.core.canvas.spec import parse_spec
from easel.core.stream.json_text import to_json
from easel.core.stream.marker import restore_markers
from easel.core.stream.payload_limit import offload_large_values
from easel.core.values.template import MissingArtifacts
from easel.errors import BadInput, TooLarge
from tests.core.action.examples import NOW, RULES, approve, canvas, start
from tests.core.canvas.specs import TOOLS, with_action
from tests.core.values.test_references import some_json
from tests.core.values.test_template import LARGE
from tests.requirements import case, rule


def operation(path: str, value: Any, op: str = "add") -> dict[str, Any]:
    return {"op": op, "path": path, "value": value}


def patching(*operations: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"set": {"kind": "state.patch", "patch": list(operations), **more}}


def patch(state: Mapping[str, Any], *operations: dict[str, Any], values: Any = None) -> Mapping[str, Any]:
    started = start(snapshot(state, *operations), "set", input=values or {})
    if started.problem:
        raise started.problem
    assert started.state is not None
    return started.state


def snapshot(state: Mapping[str, Any], *operations: dict[str, Any], **more: Any) -> Any:
    return canvas(state, actions=patching(*operations, **more), refresh=..., bindings=...)


@rule("RS-66", "CV-25")
def test_value_of_the_input_is_stored_with_its_type() -> None:
    operations = [
        operation("/limit", {"$value": "input.limit"}),
        operation("/last", {"at": {"$value": "runtime.now"}, "tags": [{"$value": "input.tag"}]}),
        operation("/text", "{{input.limit}}"),
        operation("/as_it_is", {"$literal": {"$value": "input.limit"}}),
    ]
    assert patch({"limit": 1}, *operations, values={"limit": 20, "tag": None}) == {
        "limit": 20,
        "last": {"at": NOW, "tags": [None]},
        "text": "{{input.limit}}",
        "as_it_is": {"$value": "input.limit"},
    }


@rule("RS-66")
def test_values_are_those_of_the_state_before_the_patch() -> None:
    swap = [operation("/a", {"$value": "state.b"}), operation("/b", {"$value": "state.a"})]
    assert patch({"a": [1], "b": {"c": 2}}, *swap) == {"a": {"c": 2}, "b": [1]}


@rule("RS-66")
def test_inserted_value_is_independent_of_its_source() -> None:
    operations = [operation("/b", {"$value": "state.a"}), operation("/b/x", 1), operation("/a/y", 2)]
    assert patch({"a": {}}, *operations) == {"a": {"y": 2}, "b": {"x": 1}}


@rule("RS-66")
def test_complete_state_can_be_replaced_by_a_saved_one() -> None:
    reset = operation("", {"$value": "state.saved"}, "replace")
    assert patch({"saved": {"a": 1}, "b": 2}, reset) == {"a": 1}
    with pytest.raises(BadInput, match=r"^actions\.set\.patch\[0\]\.value: a state must be an object"):
        patch({"saved": [1]}, reset)
    with pytest.raises(BadInput, match=r"patch\[0\]\.value: a state must be an object"):
        parse_spec({"actions": patching(operation("", {"$literal": 5}))})


@rule("RS-66", "CV-42")
def test_missing_value_fails_the_action_and_is_named() -> None:
    started = start(snapshot({"a": 1}, operation("/b", [{"$value": "input.gone"}])), "set")
    assert started.execution.status is ExecutionStatus.FAILED
    assert str(started.problem) == 'actions.set.patch[0].value[0]: {"$value": "input.gone"} has no value.'
    assert started.state is None


@rule("RS-66")
@case("X7")
def test_unsafe_name_of_an_inserted_value_is_refused() -> None:
    with pytest.raises(BadInput, match=r"patch\[0\]\.value\.deep: `__proto__` must not be a name"):
        patch({"a": 1}, operation("/b", {"$value": "input.x"}), values={"x": {"deep": {"__proto__": 1}}})


@rule("RS-66")
def test_secret_in_a_patch_is_refused_when_the_spec_is_parsed() -> None:
    with pytest.raises(
        BadInput, match=r"^actions\.set\.patch\[0\]\.value\.a: \$secret must not be in a state"
    ):
        parse_spec({"actions": patching(operation("/b", {"a": {"$secret": "TOKEN"}}))})


@rule("RS-66")
@case("X6")
def test_person_confirms_the_values_and_gets_exactly_these() -> None:
    operations = [operation("/chosen", {"$value": "state.a"}), operation("/n", {"$value": "input.n"})]
    before = snapshot({"a": [1]}, *operations, confirm="always")
    asked = start(before, "set", input={"n": 5})
    assert asked.confirmation is not None
    assert asked.confirmation["patch"] == [operation("/chosen", [1]), operation("/n", 5)]
    changed = replace(before, canvas=replace(before.canvas, state={"a": "another"}))
    approved = approve(changed, asked.execution)
    assert approved.state == {"a": "another", "chosen": [1], "n": 5}


@rule("RS-66", "RS-35")
def test_offloaded_value_is_copied_and_stored_again() -> None:
    state, offloaded = offload_large_values({"a": {"file": LARGE, "redacted": True}})
    fetched = {value.artifact_id: value.content for value in offloaded}
    copying = snapshot(state, operation("/b", {"inner": {"$value": "state.a"}}), confirm="always")
    with pytest.raises(MissingArtifacts) as missing:
        start(copying, "set")
    assert missing.value.artifact_ids == fetched.keys()
    asked = start(copying, "set", replace(RULES, fetched=fetched))
    assert asked.confirmation is not None
    expected = {"file": LARGE, "redacted": True}
    assert asked.confirmation["patch"] == [operation("/b", {"inner": expected})], "a person sees the value"
    assert {value.artifact_id for value in asked.offloaded} >= fetched.keys()
    pending = replace(asked.execution, resolved=restore_markers(asked.execution.resolved, fetched))
    approved = approve(copying, pending)
    assert approved.state is not None
    assert LARGE not in to_json(approved.state)
    assert {value.artifact_id for value in approved.offloaded} == fetched.keys()
    assert restore_markers(approved.state, fetched) == {"a": expected, "b": {"inner": expected}}


@rule("RS-66", "RS-35")
@given(some_json)
def test_any_value_is_copied_exactly(value: Any) -> None:
    state, offloaded = offload_large_values({"x": value})
    fetched = {part.artifact_id: part.content for part in offloaded}
    copying = snapshot(state, operation("/y", {"$value": "state.x"}), operation("/z", {"$value": "input.x"}))
    started = start(copying, "set", replace(RULES, fetched=fetched), input={"x": value})
    assert started.state is not None
    fetched |= {part.artifact_id: part.content for part in started.offloaded}
    after = restore_markers(started.state, fetched)
    assert to_json(after) == to_json({"x": value, "y": value, "z": value})


@rule("RS-66")
def test_size_of_the_state_is_limited() -> None:
    doubled = operation("/all", [{"$value": "state.text"}, {"$value": "state.text"}])
    with pytest.raises(TooLarge, match="state"):
        patch({"text": "x" * 40_000}, doubled)


@rule("RS-66")
def test_author_is_warned_about_placeholders_and_mixed_members() -> None:
    operations = [
        operation("/a", ["{{input.x}}"]),
        operation("/b", {"$value": "input.x", "default": 1}),
        operation("/c", {"$literal": "{{input.x}}"}),
        operation("/d", {"$value": "input.x"}),
    ]
    assert check_templates(parse_spec({"actions": patching(*operations)}), TOOLS) == [
        "actions.set.patch[0].value[0]: placeholders are not filled in a state.patch, so this is stored as it"
        ' is; use {"$value": "input.name"} for a value.',
        "actions.set.patch[1].value: $value has other members beside it, so this object is plain data;"
        " a reference must be the only member.",
    ]
    args = {
        "a": {"$literal": "{{x}}"},
        "b": "{{x}}",
        "c": {"$secret": "A", "x": 1},
        "d": {"$value": "state.x"},
    }
    call = with_action(kind="tool.call", tool="server-a__Read", args=args)
    warnings = check_templates(parse_spec(call), TOOLS)
    assert "actions.act.args: {{x}} is not a placeholder and is sent unchanged." in warnings
    assert [warning.split(":")[0] for warning in warnings if "plain data" in warning] == [
        "actions.act.args.c"
    ]
