"""Dot paths: syntax, lookup, and the effect of `saveAs`."""

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.validation import MAX_DEPTH, is_too_deep, is_unsafe_name
from easel.core.values.paths import (
    MAX_PATH_DEPTH,
    MISSING,
    SaveMode,
    StateChange,
    check_can_save,
    check_names,
    get_at,
    parse_path,
    pointer,
    save_outcome,
    set_at,
    to_outcome,
)
from easel.errors import BadInput
from tests.requirements import case, rule

names = st.from_regex(r"[A-Za-z0-9_-]{1,4}", fullmatch=True).filter(lambda name: not is_unsafe_name(name))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
states = st.dictionaries(names, json_values, max_size=4)
paths = st.lists(names, min_size=1, max_size=4).map(tuple)

REFUSED_PATHS = [
    "", ".", "a.", ".a", "a..b", "a b", "a/b", "../a", "..", "a.[0]", "a[0]", "{{state.x}}", "a\n", "a\0",
    "a.b$", "'a'", "__proto__", "__proto__.x", "a.__proto__.x", "a.constructor", "prototype.a", "a.__class__",
    "__init__.__globals__", "__x", ".".join("a" * (MAX_PATH_DEPTH + 1)), ".".join(["a"] * 10_000), "a" * 129,
    None, 7, ["a"], {"a": 1},
]  # fmt: skip


@rule("CV-21")
@case("X7")
@pytest.mark.parametrize("text", REFUSED_PATHS, ids=lambda text: repr(text)[:30])
def test_invalid_path_is_refused_with_its_location(text: Any) -> None:
    with pytest.raises(BadInput, match=r"^actions\.deploy\.saveAs: "):
        parse_path(text, "actions.deploy.saveAs")


@pytest.mark.parametrize(
    "text",
    [
        "logsTail",
        "assistant.plan",
        "a.0.b-c_d",
        "Größe.漢字",
        ".".join("a" * MAX_PATH_DEPTH),
        "proto",
        "my__x",
    ],
)
def test_path_is_split_into_parts(text: str) -> None:
    assert ".".join(parse_path(text, "saveAs")) == text


NAMED = [
    # value                                       location of the name
    ({"__proto__": 1},                            "state: `__proto__`"),
    ({"a": {"b": [0, [{"constructor": 1}]]}},     "state.a.b[1][0]: `constructor`"),
    ({"a": [{"prototype": {}}]},                  "state.a[0]: `prototype`"),
    ({"ok": 1, "a b": {"__class__": None}},       "state.a b: `__class__`"),
    ({"a": {"__" + "x" * 10_000: 1}},             "state.a: `__" + "x" * 98 + "…`"),
]  # fmt: skip


@case("X7")
@pytest.mark.parametrize("value, where", NAMED, ids=range(len(NAMED)))
def test_unsafe_member_name_is_refused_with_its_location(value: Any, where: str) -> None:
    with pytest.raises(BadInput) as problem:
        check_names(value, "state")
    assert problem.value.message == f"{where} must not be a name in a state."


@pytest.mark.parametrize(
    "value, where", [("a\x00b", "state"), ({"a": ["b", {"c": "\x00"}]}, "state.a[1].c")], ids=range(2)
)
def test_text_with_a_zero_byte_is_refused_with_its_location(value: Any, where: str) -> None:
    """Regression: it came back as U+FFFD."""
    with pytest.raises(BadInput, match=f"^{re.escape(where)}: a text must not contain U\\+0000"):
        check_names(value, "state")


@case("X7")
@given(states.filter(lambda state: "\\u0000" not in json.dumps(state)))
def test_other_member_names_are_accepted(state: Any) -> None:
    check_names(state, "state")


@case("X7")
def test_check_of_names_takes_linear_memory() -> None:
    long, wide = "n" * 500_000, [{"a": {}} for _ in range(50_000)]
    check_names({long: {long: wide}}, "state")  # the locations of all members would take 50 GB
    with pytest.raises(BadInput) as problem:
        check_names({long: {long: [*wide, {"__x": 1}]}}, "state")
    assert len(problem.value.message) < 500


FOUND = [
    # state                          path            value
    ({"a": {"b": [1, {"c": 2}]}},    "a.b.1.c",      2),
    ({"a": [10, 20]},                "a.0",          10),
    ({"a": [10, 20]},                "a.2",          MISSING),
    ({"a": [10, 20]},                "a.-1",         MISSING),
    ({"a": [10, 20]},                "a.00",         MISSING),
    ({"a": [10, 20]},                "a.٠",          MISSING),
    ({"a": {"0": "key"}},            "a.0",          "key"),
    ({"a": None},                    "a",            None),
    ({"a": None},                    "a.b",          MISSING),
    ({"a": "text"},                  "a.0",          MISSING),
    ({"a": "text"},                  "a.upper",      MISSING),
    ({"a": {}},                      "a.keys",       MISSING),
    ({"a": [1]},                     "a.append",     MISSING),
    ({"a": [1]},                     "a.999999999999999999999", MISSING),
]  # fmt: skip


@rule("CV-26")
@case("X7")
@pytest.mark.parametrize("state, path, expected", FOUND)
def test_path_is_looked_up_in_plain_data_only(state: Any, path: str, expected: Any) -> None:
    assert get_at(state, path.split(".")) == expected


@rule("CV-21")
@given(states, paths, json_values)
def test_set_value_is_found_and_the_rest_is_unchanged(
    state: dict[str, Any], path: tuple[str, ...], value: Any
) -> None:
    before = copy.deepcopy(state)
    try:
        changed = set_at(state, path, value)
    except BadInput:
        assert state == before
        return
    assert state == before
    assert get_at(changed.state, path) == value
    assert changed.paths == (pointer(path),)
    assert {name: item for name, item in changed.state.items() if name != path[0]} == {
        name: item for name, item in before.items() if name != path[0]
    }


@rule("CV-21")
def test_missing_objects_are_created() -> None:
    assert set_at({}, ("assistant", "plan"), 1) == StateChange(
        {"assistant": {"plan": 1}}, ("/assistant/plan",)
    )
    assert set_at({"assistant": None}, ("assistant", "plan"), 1).state == {"assistant": {"plan": 1}}
    assert set_at({"list": [{"a": 1}, 2]}, ("list", "0", "b"), 3).state == {"list": [{"a": 1, "b": 3}, 2]}


@rule("CV-21")
@case("X7")
@pytest.mark.parametrize("current", ["text", 7, True, 1.5, [], [1]])
def test_value_cannot_be_set_inside_a_scalar_or_past_an_array(current: Any) -> None:
    state = {"a": current}
    with pytest.raises(BadInput, match=r"a\.b\.c: .*`a`"):
        set_at(state, ("a", "b", "c"), 1)
    assert state == {"a": current}


@case("X7")
def test_state_deeper_than_the_limit_is_refused() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH - 2):
        deep = [deep]
    assert not is_too_deep(set_at({}, ("a", "b"), deep).state)
    with pytest.raises(BadInput, match="deeper"):
        set_at({}, ("a", "b"), [deep])
    with pytest.raises(BadInput, match="deeper"):
        save_outcome({}, ("a",), SaveMode.REPLACE, to_outcome([deep], 1))


# --- results of actions -------------------------------------------------------------------------------------

DONE = {"ok": True, "result": {"n": 1}, "finishedAt": 5}


@rule("RS-43", "CV-21")
def test_outcome_has_the_result_and_the_time() -> None:
    assert to_outcome({"n": 1}, 5) == DONE


SAVED = [
    # mode, state, next state, changed paths
    (SaveMode.REPLACE, {},                             {"a": {"b": DONE}},             ("/a/b",)),
    (SaveMode.REPLACE, {"a": {"b": [1], "c": 2}},      {"a": {"b": DONE, "c": 2}},     ("/a/b",)),
    (SaveMode.APPEND,  {},                             {"a": {"b": [DONE]}},           ("/a/b",)),
    (SaveMode.APPEND,  {"a": {"b": None}},             {"a": {"b": [DONE]}},           ("/a/b",)),
    (SaveMode.APPEND,  {"a": {"b": [1, 2]}},           {"a": {"b": [1, 2, DONE]}},     ("/a/b/2",)),
    (SaveMode.MERGE,   {},                             {"a": {"b": {"n": 1}}},         ("/a/b",)),
    (SaveMode.MERGE,   {"a": {"b": {"n": 0, "m": 2}}}, {"a": {"b": {"n": 1, "m": 2}}}, ("/a/b/n",)),
]  # fmt: skip


@rule("RS-12", "RS-43")
@pytest.mark.parametrize("mode, state, after, changed", SAVED)
def test_outcome_is_saved_according_to_the_mode(
    mode: SaveMode, state: dict[str, Any], after: Any, changed: tuple[str, ...]
) -> None:
    before = copy.deepcopy(state)
    assert save_outcome(state, ("a", "b"), mode, DONE) == StateChange(after, changed)
    assert state == before


NOT_SAVED = [
    (SaveMode.APPEND, {"a": {"b": {}}}, "must be an array"),
    (SaveMode.APPEND, {"a": {"b": "text"}}, "must be an array"),
    (SaveMode.MERGE, {"a": {"b": []}}, "must be an object"),
    (SaveMode.MERGE, {"a": {"b": 0}}, "must be an object"),
    (SaveMode.REPLACE, {"a": "text"}, "neither an object nor an array"),
]


@rule("RS-43")
@pytest.mark.parametrize("mode, state, because", NOT_SAVED)
def test_unsavable_outcome_is_refused_before_the_tool_runs(
    mode: SaveMode, state: dict[str, Any], because: str
) -> None:
    for refuse in (
        lambda: check_can_save(state, ("a", "b"), mode),
        lambda: save_outcome(state, ("a", "b"), mode, DONE),
    ):
        with pytest.raises(BadInput, match=because):
            refuse()


@rule("RS-43")
@pytest.mark.parametrize("result", [None, 1, "text", [1]])
def test_result_that_is_not_an_object_cannot_be_merged(result: Any) -> None:
    check_can_save({"a": {"b": 1}}, ("a",), SaveMode.MERGE)
    with pytest.raises(BadInput, match="must be an object to be merged"):
        save_outcome({"a": {"b": 1}}, ("a",), SaveMode.MERGE, to_outcome(result, 5))


def test_pointer_escapes_slashes_and_tildes() -> None:
    assert pointer(("a/b", "c~d", "")) == "/a~1b/c~0d/"
