"""The tools that a node declares are parsed strictly: accepted unchanged, or refused with the place."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.call import CALL_MOVES, LOST, Answer, CallStatus
from easel.core.tool.node import (
    LocalNode,
    check_node_id,
    describe_place,
    full_tool_name,
    split_tool_name,
    tool_location,
)
from easel.core.tool.offer import MAX_SCHEMA_PARTS, OfferLimits, parse_offer
from easel.errors import BadInput, TooLarge
from tests.requirements import case, rule

LIMITS = OfferLimits(tools=10, tool_bytes=50_000)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-10, 10)
    | st.text(max_size=5)
    | st.sampled_from(["object", "#/$defs/a", "#", "Echo"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "$ref",
                    "$defs",
                    "a",
                    "type",
                    "properties",
                    "x-shell",
                    "$id",
                    "allOf",
                    "name",
                    "inputSchema",
                    "annotations",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_offer_is_parsed_or_refused(offered: Any) -> None:
    for raw in (
        offered,
        [offered],
        [{"name": "Echo", "inputSchema": offered}],
        [{"name": "Echo", "inputSchema": {"type": "object", "x": offered}}],
    ):
        with contextlib.suppress(BadInput, TooLarge):
            [tool, *_] = parse_offer("laptop", raw, LIMITS).values()
            assert tool.name.startswith("laptop__")


@rule("RS-44")
def test_declared_hints_are_kept_and_missing_ones_are_false() -> None:
    raw = [
        {"name": "A", "inputSchema": {"type": "object"}},
        {
            "name": "B",
            "description": "Reads.",
            "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": True, "title": "B"},
        },
    ]
    plain, read = parse_offer("laptop", raw, LIMITS).values()
    assert (plain.name, plain.description, plain.read_only, plain.idempotent, plain.destructive) == (
        "laptop__A",
        "",
        False,
        False,
        False,
    )
    assert (read.name, read.description, read.read_only, read.idempotent, read.destructive) == (
        "laptop__B",
        "Reads.",
        True,
        False,
        False,
    )


def test_schema_size_counts_expanded_references() -> None:
    def doubling(times: int) -> dict[str, Any]:
        parts = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n - 1}"}] * 2} for n in range(1, times + 1)}
        return {
            "type": "object",
            "$defs": {"a0": {"type": "string"}, **parts},
            "properties": {"x": {"$ref": f"#/$defs/a{times}"}},
        }

    assert 2**10 < MAX_SCHEMA_PARTS < 2**20
    parse_offer("laptop", [{"name": "A", "inputSchema": doubling(8)}], LIMITS)
    with pytest.raises(BadInput, match="parts when its references are expanded"):
        parse_offer("laptop", [{"name": "A", "inputSchema": doubling(30)}], LIMITS)


def test_long_chain_of_references_is_refused() -> None:
    chain = {f"a{n}": {"$ref": f"#/$defs/a{n - 1}"} for n in range(1, 1_000)}
    schema = {"type": "object", "$defs": {"a0": {}, **chain}, "properties": {"x": {"$ref": "#/$defs/a999"}}}
    with pytest.raises(BadInput, match="chain of more than"):
        parse_offer("laptop", [{"name": "A", "inputSchema": schema}], LIMITS)


# --- invalid offers -----------------------------------------------------------------------------------------


def new_tool(name: str = "Echo", schema: Any = None, **members: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"} if schema is None else schema, **members}


def with_property(**schema: Any) -> dict[str, Any]:
    return new_tool(schema={"type": "object", "properties": {"a": schema}})


LOOP = {"type": "object", "properties": {"x": {"$ref": "#/properties/x"}}}
DEEP = {"type": "object", "default": json.loads("[" * 120 + "]" * 120)}
INVALID_OFFERS: list[tuple[str, Any, type[Exception], str]] = [
    ("an object", {"Echo": {}}, BadInput, "tools: "),
    ("no tools", [], BadInput, "tools: "),
    ("text for a tool", ["Echo"], BadInput, "tools[0]: "),
    ("no name", [{"inputSchema": {"type": "object"}}], BadInput, "tools[0].name: "),
    ("a space in a name", [new_tool("Ec ho")], BadInput, "tools[0].name: "),
    ("a letter of another alphabet", [new_tool("Еcho")], BadInput, "tools[0].name: "),
    ("a line feed in a name", [new_tool("Echo\n")], BadInput, "tools[0].name: "),
    ("a long name", [new_tool("x" * 65)], BadInput, "tools[0].name: "),
    ("a duplicate name", [new_tool(), new_tool()], BadInput, "tools[1].name: "),
    ("no schema", [{"name": "Echo"}], BadInput, "tools[0].inputSchema: "),
    ("text for a schema", [new_tool(schema="object")], BadInput, "tools[0].inputSchema: "),
    ("arguments without names", [new_tool(schema={"type": "array"})], BadInput, "inputSchema.type: "),
    (
        "a reference to a URL",
        [with_property(**{"$ref": "http://127.0.0.1:1/x"})],
        BadInput,
        "outside the schema",
    ),
    (
        "a reference to a file",
        [with_property(**{"$ref": "file:///etc/passwd"})],
        BadInput,
        "outside the schema",
    ),
    ("an id", [with_property(**{"$id": "http://127.0.0.1:1/x"})], BadInput, "$id is not supported"),
    ("a dialect", [new_tool(schema={"$schema": "http://127.0.0.1:1/x"})], BadInput, "inputSchema.$schema: "),
    ("a reference to nothing", [with_property(**{"$ref": "#/$defs/x"})], BadInput, "refers to nothing"),
    ("an endless schema", [new_tool(schema=LOOP)], BadInput, "refers to itself"),
    ("text for x-shell", [with_property(**{"x-shell": "true"})], BadInput, "x-shell must be true or false"),
    (
        "text for a hint",
        [new_tool(annotations={"readOnlyHint": "yes"})],
        BadInput,
        "annotations.readOnlyHint: ",
    ),
    ("an unknown hint", [new_tool(annotations={"readOnly": True})], BadInput, "annotations.readOnly: "),
    ("an unknown member", [new_tool(schemas={})], BadInput, "tools[0].schemas: "),
    ("deep nesting", [new_tool(schema=DEEP)], BadInput, "deeper than 100 levels"),
    ("a large definition", [new_tool(description="x y " * 20_000)], TooLarge, "tools[0]"),
    ("Base64", [new_tool(description="iVBORw0KGgo" * 300)], BadInput, "must not contain Base64"),
    ("many tools", [new_tool(f"Echo{n}") for n in range(11)], BadInput, "10 is the limit"),
]


@rule("RS-44")
@case("R7")
@pytest.mark.parametrize("name, offer, error, part", INVALID_OFFERS, ids=[row[0] for row in INVALID_OFFERS])
def test_invalid_offer_is_refused_with_its_place(
    name: str, offer: Any, error: type[Exception], part: str
) -> None:
    with pytest.raises(error, match=re.escape(part)):
        parse_offer("laptop", offer, LIMITS)


# --- names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "node_id",
    [
        "gsv",
        "GSV",
        "local",
        "Local",
        "a__b",
        "__a",
        "a_",
        "a__",
        "",
        "-a",
        " a",
        "a b",
        "a/b",
        "ü",
        "x" * 129,
    ],
)
def test_invalid_node_id_is_refused(node_id: str) -> None:
    """Its tools could replace native ones, or their names could be split in two ways."""
    with pytest.raises(BadInput, match=r"^client\.id: "):
        check_node_id(node_id)


def test_full_tool_name_is_split_at_its_first_separator() -> None:
    assert split_tool_name("server-a__Bash") == ("server-a", "Bash")
    assert split_tool_name("server-a__My__Tool") == ("server-a", "My__Tool")
    assert split_tool_name("plain") == ("plain", "")


@given(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,20}", fullmatch=True),
    st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,20}", fullmatch=True),
)
def test_full_tool_name_splits_into_its_parts(node_id: str, tool: str) -> None:
    with contextlib.suppress(BadInput):
        assert split_tool_name(full_tool_name(check_node_id(node_id), tool)) == (node_id, tool)


def test_tool_location_is_its_node_or_the_server() -> None:
    assert [tool_location(name) for name in ("laptop__Bash", "local__Bash", "gsv__Echo", "plain")] == [
        "laptop",
        "local",
        "server",
        "server",
    ]


@rule("RS-64")
def test_place_of_a_tool_is_named_in_words() -> None:
    local = LocalNode(version="1", platform="linux", tools=(), bash="on", commands="sandboxed, no network")
    names = ("gsv__Echo", "local__Bash", "local__Read", "local__Fetch", "laptop__Bash")
    assert [describe_place(name, local) for name in names] == [
        "this server, inside Easel",
        "this server, sandboxed, no network",
        "this server, in the folder of the session",
        "this server, over the network",
        "node laptop",
    ]
    assert describe_place("local__Bash", None) == "this server, not isolated"


@pytest.mark.parametrize("answer", [Answer(None), Answer({"a": 1}), Answer(error="no"), LOST])
def test_answer_survives_storing(answer: Answer) -> None:
    assert Answer.from_stored(answer.to_stored()) == answer


def test_answered_is_the_only_terminal_status_of_a_call() -> None:
    assert set(CALL_MOVES) == set(CallStatus)
    assert [status for status, moves in CALL_MOVES.items() if not moves] == [CallStatus.ANSWERED]
