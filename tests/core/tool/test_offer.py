"""The tools that a node declares are parsed strictly: accepted unchanged, or refused with the place."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.tool.call import CALL_MOVES, LOST, Answer, CallStatus
from easel.core.tool.node import check_node_id, full_tool_name, split_tool_name, tool_location
from easel.core.tool.offer import MAX_SCHEMA_PARTS, OfferLimits, parse_offer
from easel.errors import BadInput, TooLarge
from tests.requirements import rule

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


@pytest.mark.parametrize("answer", [Answer(None), Answer({"a": 1}), Answer(error="no"), LOST])
def test_answer_survives_storing(answer: Answer) -> None:
    assert Answer.from_stored(answer.to_stored()) == answer


def test_answered_is_the_only_terminal_status_of_a_call() -> None:
    assert set(CALL_MOVES) == set(CallStatus)
    assert [status for status, moves in CALL_MOVES.items() if not moves] == [CallStatus.ANSWERED]
