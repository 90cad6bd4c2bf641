"""Definitions of the machine tools, as a model, a canvas and a gateway read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jsonschema_rs
import pytest

from easel.core.tool.definition import X_SHELL
from easel.core.tool.offer import OfferLimits, parse_offer
from easel.sandbox.definitions import NETWORK, definitions
from tests.requirements import rule

if TYPE_CHECKING:
    from easel.core.tool.definition import ToolDefinition

BARE = {tool.name: tool for tool in definitions("", has_shell=True, network=True)}


def test_names_have_the_prefix_of_their_node() -> None:
    assert list(BARE) == ["Bash", "Read", "Write", "Edit", "Glob", "Grep"]
    assert [tool.name for tool in definitions("local", has_shell=False, network=True)] == [
        *("local__Read", "local__Write", "local__Edit", "local__Glob", "local__Grep")
    ]


@rule("RS-44")
@pytest.mark.parametrize("tool", BARE.values(), ids=BARE)
def test_node_can_offer_each_tool(tool: ToolDefinition) -> None:
    """The offer has the same annotations on the other side of the gateway."""
    notes = {
        "readOnlyHint": tool.read_only,
        "idempotentHint": tool.idempotent,
        "destructiveHint": tool.destructive,
    }
    offer = [
        {
            "name": tool.name,
            "description": tool.description,
            "inputSchema": dict(tool.schema),
            "annotations": notes,
        }
    ]
    [(name, offered)] = parse_offer("laptop", offer, OfferLimits(10, 65_536)).items()
    assert name == f"laptop__{tool.name}"
    assert (offered.read_only, offered.idempotent, offered.destructive) == (
        tool.read_only,
        tool.idempotent,
        tool.destructive,
    )
    jsonschema_rs.meta.validate(dict(tool.schema))


@rule("RS-44", "RS-38")
def test_effects_are_declared() -> None:
    assert {name for name, tool in BARE.items() if tool.read_only} == {"Read", "Glob", "Grep"}
    assert {name for name, tool in BARE.items() if tool.destructive} == {"Bash", "Write", "Edit"}
    assert {name for name, tool in BARE.items() if tool.may_repeat} == {"Read", "Glob", "Grep", "Write"}


@rule("CV-28")
def test_only_the_command_is_marked_as_shell_input() -> None:
    marked = [
        (name, field)
        for name, tool in BARE.items()
        for field, schema in tool.schema["properties"].items()
        if schema.get(X_SHELL)
    ]
    assert marked == [("Bash", "command")]


@rule("RS-54")
def test_only_bash_may_use_the_network() -> None:
    assert [name for name, tool in BARE.items() if tool.schema.get(NETWORK)] == ["Bash"]
    assert not any(tool.schema.get(NETWORK) for tool in definitions("", has_shell=True, network=False))


BAD_ARGUMENTS = [
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


@pytest.mark.parametrize("tool, args", BAD_ARGUMENTS)
def test_invalid_arguments_are_refused_by_the_schema(tool: str, args: dict[str, object]) -> None:
    assert not jsonschema_rs.validator_for(dict(BARE[tool].schema)).is_valid(args)
