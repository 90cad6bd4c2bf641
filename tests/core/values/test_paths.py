"""Dot paths: what they may look like, where they lead, and what an action leaves at their end."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.validation import MAX_DEPTH, is_too_deep, is_unsafe_name
from easel.core.values.paths import (
    MAX_PATH_DEPTH,
    MISSING,
    Changed,
    SaveMode,
    check_names,
    check_saving,
    checked_path,
    found,
    outcome,
    pointer,
    put,
    saved,
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
    "", ".", "a.", ".a", "a..b", "a b", "a/b", "../a", "..", "a.[0]", "a[0]", "{{state.x}}", "a\n", "a\0", "a.b$", "'a'",
    "__proto__", "__proto__.x", "a.__proto__.x", "a.constructor", "prototype.a", "a.__class__", "__init__.__globals__", "__x",
    ".".join("a" * (MAX_PATH_DEPTH + 1)), ".".join(["a"] * 10_000), "a" * 129, None, 7, ["a"], {"a": 1},
]  # fmt: skip


@rule("CV-21")
@case("X7")
@pytest.mark.parametrize("text", REFUSED_PATHS, ids=lambda text: repr(text)[:30])
def test_what_is_no_path_is_refused_where_it_stands(text: Any) -> None:
    with pytest.raises(BadInput, match=r"^actions\.deploy\.saveAs: "):
        checked_path(text, "actions.deploy.saveAs")


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
def test_a_path_is_its_parts(text: str) -> None:
    assert ".".join(checked_path(text, "saveAs")) == text


NAMED = [
    # value                                       where its name stands
    ({"__proto__": 1},                            "state: `__proto__`"),
    ({"a": {"b": [0, [{"constructor": 1}]]}},     "state.a.b[1][0]: `constructor`"),
    ({"a": [{"prototype": {}}]},                  "state.a[0]: `prototype`"),
    ({"ok": 1, "a b": {"__class__": None}},       "state.a b: `__class__`"),
    ({"a": {"__" + "x" * 10_000: 1}},             "state.a: `__" + "x" * 98 + "…`"),
]  # fmt: skip


@case("X7")
@pytest.mark.parametrize("value, where", NAMED, ids=range(len(NAMED)))
def test_a_name_that_no_path_may_have_is_refused_where_it_stands(value: Any, where: str) -> None:
    with pytest.raises(BadInput) as problem:
        check_names(value, "state")
    assert problem.value.message == f"{where} may not be a name in a state."


@case("X7")
@given(states)
def test_every_other_name_is_only_a_name(state: Any) -> None:
    check_names(state, "state")


@case("X7")
def test_looking_for_names_costs_no_more_than_what_is_looked_at() -> None:
    long, wide = "n" * 500_000, [{"a": {}} for _ in range(50_000)]
    check_names({long: {long: wide}}, "state")  # where each of them stands would be 50 GB
    with pytest.raises(BadInput) as problem:
        check_names({long: {long: [*wide, {"__x": 1}]}}, "state")
    assert len(problem.value.message) < 500


FOUND = [
    # state                          path            there
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
@pytest.mark.parametrize("state, path, there", FOUND)
def test_a_path_leads_through_data_and_nothing_else(state: Any, path: str, there: Any) -> None:
    assert found(state, path.split(".")) == there


@rule("CV-21")
@given(states, paths, json_values)
def test_what_was_put_is_there_and_the_rest_is_as_it_was(
    state: dict[str, Any], path: tuple[str, ...], value: Any
) -> None:
    before = copy.deepcopy(state)
    try:
        changed = put(state, path, value)
    except BadInput:
        assert state == before
        return
    assert state == before
    assert found(changed.state, path) == value
    assert changed.paths == (pointer(path),)
    assert {name: there for name, there in changed.state.items() if name != path[0]} == {
        name: there for name, there in before.items() if name != path[0]
    }


@rule("CV-21")
def test_missing_objects_on_the_way_are_made() -> None:
    assert put({}, ("assistant", "plan"), 1) == Changed({"assistant": {"plan": 1}}, ("/assistant/plan",))
    assert put({"assistant": None}, ("assistant", "plan"), 1).state == {"assistant": {"plan": 1}}
    assert put({"list": [{"a": 1}, 2]}, ("list", "0", "b"), 3).state == {"list": [{"a": 1, "b": 3}, 2]}


@rule("CV-21")
@case("X7")
@pytest.mark.parametrize("there", ["text", 7, True, 1.5, [], [1]])
def test_nothing_is_put_into_what_is_no_object(there: Any) -> None:
    state = {"a": there}
    with pytest.raises(BadInput, match=r"a\.b\.c: `a` is"):
        put(state, ("a", "b", "c"), 1)
    assert state == {"a": there}


@case("X7")
def test_a_state_does_not_get_deeper_than_its_readers_expect() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH - 2):
        deep = [deep]
    assert not is_too_deep(put({}, ("a", "b"), deep).state)
    with pytest.raises(BadInput, match="deeper"):
        put({}, ("a", "b"), [deep])
    with pytest.raises(BadInput, match="deeper"):
        saved({}, ("a",), SaveMode.REPLACE, outcome([deep], 1))


# --- what an action saves -----------------------------------------------------------------------------------------------

DONE = {"ok": True, "result": {"n": 1}, "finishedAt": 5}


@rule("RS-43", "CV-21")
def test_an_outcome_says_when_and_what() -> None:
    assert outcome({"n": 1}, 5) == DONE


SAVED = [
    # mode                state                            next                                          changed
    (SaveMode.REPLACE,    {},                              {"a": {"b": DONE}},                           ("/a/b",)),
    (SaveMode.REPLACE,    {"a": {"b": [1], "c": 2}},       {"a": {"b": DONE, "c": 2}},                   ("/a/b",)),
    (SaveMode.APPEND,     {},                              {"a": {"b": [DONE]}},                         ("/a/b",)),
    (SaveMode.APPEND,     {"a": {"b": None}},              {"a": {"b": [DONE]}},                         ("/a/b",)),
    (SaveMode.APPEND,     {"a": {"b": [1, 2]}},            {"a": {"b": [1, 2, DONE]}},                   ("/a/b/2",)),
    (SaveMode.MERGE,      {},                              {"a": {"b": {"n": 1}}},                       ("/a/b",)),
    (SaveMode.MERGE,      {"a": {"b": {"n": 0, "m": 2}}},  {"a": {"b": {"n": 1, "m": 2}}},               ("/a/b/n",)),
]  # fmt: skip


@rule("RS-12", "RS-43")
@pytest.mark.parametrize("mode, state, after, changed", SAVED)
def test_an_outcome_is_saved_by_its_mode(
    mode: SaveMode, state: dict[str, Any], after: Any, changed: tuple[str, ...]
) -> None:
    before = copy.deepcopy(state)
    assert saved(state, ("a", "b"), mode, DONE) == Changed(after, changed)
    assert state == before


NOT_SAVED = [
    (SaveMode.APPEND, {"a": {"b": {}}}, "no array"),
    (SaveMode.APPEND, {"a": {"b": "text"}}, "no array"),
    (SaveMode.MERGE, {"a": {"b": []}}, "no object"),
    (SaveMode.MERGE, {"a": {"b": 0}}, "no object"),
    (SaveMode.REPLACE, {"a": "text"}, "neither an object nor an array"),
]


@rule("RS-43")
@pytest.mark.parametrize("mode, state, because", NOT_SAVED)
def test_what_could_not_be_kept_is_refused_before_the_tool_runs(
    mode: SaveMode, state: dict[str, Any], because: str
) -> None:
    for refuse in (
        lambda: check_saving(state, ("a", "b"), mode),
        lambda: saved(state, ("a", "b"), mode, DONE),
    ):
        with pytest.raises(BadInput, match=because):
            refuse()


@rule("RS-43")
@pytest.mark.parametrize("result", [None, 1, "text", [1]])
def test_only_an_object_is_merged(result: Any) -> None:
    check_saving({"a": {"b": 1}}, ("a",), SaveMode.MERGE)
    with pytest.raises(BadInput, match="only an object can be merged"):
        saved({"a": {"b": 1}}, ("a",), SaveMode.MERGE, outcome(result, 5))


def test_a_pointer_escapes_what_it_must() -> None:
    assert pointer(("a/b", "c~d", "")) == "/a~1b/c~0d/"
