"""What the tools of a machine say of themselves, as a model, a canvas and a gateway read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jsonschema_rs
import pytest

from easel.core.tool.definition import X_SHELL
from easel.core.tool.offer import OfferLimits, checked_offer
from easel.sandbox.definitions import NETWORK, definitions
from tests.requirements import rule

if TYPE_CHECKING:
    from easel.core.tool.definition import ToolDefinition

BARE = {one.name: one for one in definitions("", has_shell=True, network=True)}


def test_they_have_the_node_before_their_name_or_nothing() -> None:
    assert list(BARE) == ["Bash", "Read", "Write", "Edit", "Glob", "Grep"]
    assert [one.name for one in definitions("local", has_shell=False, network=True)] == [
        *("local__Read", "local__Write", "local__Edit", "local__Glob", "local__Grep")
    ]


@rule("RS-44")
@pytest.mark.parametrize("one", BARE.values(), ids=BARE)
def test_a_node_can_offer_each_of_them(one: ToolDefinition) -> None:
    """With the same meaning on the other side of the gateway."""
    notes = {
        "readOnlyHint": one.read_only,
        "idempotentHint": one.idempotent,
        "destructiveHint": one.destructive,
    }
    offer = [
        {
            "name": one.name,
            "description": one.description,
            "inputSchema": dict(one.schema),
            "annotations": notes,
        }
    ]
    [(name, offered)] = checked_offer("laptop", offer, OfferLimits(10, 65_536)).items()
    assert name == f"laptop__{one.name}"
    assert (offered.read_only, offered.idempotent, offered.destructive) == (
        one.read_only,
        one.idempotent,
        one.destructive,
    )
    jsonschema_rs.meta.validate(dict(one.schema))


@rule("RS-44", "RS-38")
def test_what_they_do_to_the_world_is_said() -> None:
    assert {name for name, one in BARE.items() if one.read_only} == {"Read", "Glob", "Grep"}
    assert {name for name, one in BARE.items() if one.destructive} == {"Bash", "Write", "Edit"}
    assert {name for name, one in BARE.items() if one.may_repeat} == {"Read", "Glob", "Grep", "Write"}


@rule("CV-28")
def test_the_command_is_marked_as_what_a_shell_reads_and_nothing_else_is() -> None:
    marked = [
        (name, field)
        for name, one in BARE.items()
        for field, schema in one.schema["properties"].items()
        if schema.get(X_SHELL)
    ]
    assert marked == [("Bash", "command")]


@rule("RS-54")
def test_only_bash_can_be_a_tool_that_uses_the_network() -> None:
    assert [name for name, one in BARE.items() if one.schema.get(NETWORK)] == ["Bash"]
    assert not any(one.schema.get(NETWORK) for one in definitions("", has_shell=True, network=False))


BAD = [
    ("Bash", {}),
    ("Bash", {"command": ""}),
    ("Bash", {"command": "ls", "env": {"LD_PRELOAD": "x"}}),
    ("Bash", {"command": "ls", "timeout": 0}),
    ("Bash", {"command": ["ls"]}),
    ("Read", {"path": "x", "offset": 0}),
    ("Read", {"path": ""}),
    ("Write", {"path": "x"}),
    ("Edit", {"path": "x", "old_string": "", "new_string": "y"}),
    ("Glob", {"pattern": "x" * 2_000}),
    ("Grep", {"pattern": "x", "limit": 1_000_000}),
]


@pytest.mark.parametrize("tool, args", BAD)
def test_arguments_that_do_not_fit_are_refused_by_the_schema(tool: str, args: dict[str, object]) -> None:
    assert not jsonschema_rs.validator_for(dict(BARE[tool].schema)).is_valid(args)
