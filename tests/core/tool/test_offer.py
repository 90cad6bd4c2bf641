"""What a node offers is read strictly: whatever it sends, it is taken as it stands or refused with the place, and never breaks anything."""

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
def test_nothing_that_is_offered_breaks_its_reader(offered: Any) -> None:
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
def test_what_a_tool_says_of_itself_is_kept_and_what_it_does_not_say_is_not_so() -> None:
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


def test_a_schema_is_as_large_as_it_is_written_out() -> None:
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


def test_a_long_chain_of_references_is_refused_and_exhausts_nothing() -> None:
    chain = {f"a{n}": {"$ref": f"#/$defs/a{n - 1}"} for n in range(1, 1_000)}
    schema = {"type": "object", "$defs": {"a0": {}, **chain}, "properties": {"x": {"$ref": "#/$defs/a999"}}}
    with pytest.raises(BadInput, match="chain of more than"):
        parse_offer("laptop", [{"name": "A", "inputSchema": schema}], LIMITS)


@given(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,20}", fullmatch=True),
    st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,20}", fullmatch=True),
)
def test_a_whole_name_comes_apart_as_it_was_put_together(node_id: str, tool: str) -> None:
    with contextlib.suppress(BadInput):
        assert split_tool_name(full_tool_name(check_node_id(node_id), tool)) == (node_id, tool)


def test_a_tool_runs_on_its_node_or_on_the_server() -> None:
    assert [tool_location(name) for name in ("laptop__Bash", "local__Bash", "gsv__Echo", "plain")] == [
        "laptop",
        "local",
        "server",
        "server",
    ]


@pytest.mark.parametrize("answer", [Answer(None), Answer({"a": 1}), Answer(error="no"), LOST])
def test_an_answer_is_read_back_as_it_was_stored(answer: Answer) -> None:
    assert Answer.from_stored(answer.to_stored()) == answer


def test_the_life_of_a_call_ends_with_its_answer() -> None:
    assert set(CALL_MOVES) == set(CallStatus)
    assert [status for status, moves in CALL_MOVES.items() if not moves] == [CallStatus.ANSWERED]
