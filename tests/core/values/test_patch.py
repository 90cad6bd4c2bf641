"""JSON Patch: the examples of RFC 6902, arrays, atomicity and changed paths."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.validation import MAX_DEPTH
from easel.core.values.patch import MAX_OPERATIONS, apply_patch, parse_patch
from easel.errors import BadInput
from tests.core.stream.costs import least_seconds
from tests.core.values.test_paths import json_values, names, states
from tests.requirements import case, rule


def patch_state(state: Any, *operations: dict[str, Any]) -> Any:
    return apply_patch(parse_patch(list(operations)), state).state


def changed_paths(state: Any, *operations: dict[str, Any]) -> tuple[str, ...]:
    return apply_patch(parse_patch(list(operations)), state).paths


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def replace(path: str, value: Any) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}


def remove(path: str) -> dict[str, Any]:
    return {"op": "remove", "path": path}


EXAMPLES = [
    # RFC 6902, state, operations, state afterwards
    ("A.1 adding an object member", {"foo": "bar"}, [add("/baz", "qux")], {"baz": "qux", "foo": "bar"}),
    ("A.2 adding an array element", {"foo": ["bar", "baz"]}, [add("/foo/1", "qux")],
     {"foo": ["bar", "qux", "baz"]}),
    ("A.3 removing an object member", {"baz": "qux", "foo": "bar"}, [remove("/baz")], {"foo": "bar"}),
    ("A.4 removing an array element", {"foo": ["bar", "qux", "baz"]}, [remove("/foo/1")],
     {"foo": ["bar", "baz"]}),
    ("A.5 replacing a value", {"baz": "qux", "foo": "bar"}, [replace("/baz", "boo")],
     {"baz": "boo", "foo": "bar"}),
    ("A.10 adding a nested object", {"foo": "bar"}, [add("/child", {"grandchild": {}})],
     {"foo": "bar", "child": {"grandchild": {}}}),
    ("A.11 ignoring unknown members", {"foo": "bar"}, [add("/baz", "qux") | {"xyz": 123}],
     {"foo": "bar", "baz": "qux"}),
    ("A.14 escapes", {"/": 9, "~1": 10}, [replace("/~01", 11), replace("/~1", 1)], {"/": 1, "~1": 11}),
    ("A.16 adding an array value", {"foo": ["bar"]}, [add("/foo/-", ["abc", "def"])],
     {"foo": ["bar", ["abc", "def"]]}),
    ("an existing member is replaced", {"foo": 1}, [add("/foo", 2)], {"foo": 2}),
    ("inserting at the start of an array", {"list": [1, 2, 3]}, [add("/list/0", 9)], {"list": [9, 1, 2, 3]}),
    ("the end by its number", {"list": [1]}, [add("/list/1", 2)], {"list": [1, 2]}),
    ("a hyphen is a name in an object", {"a": {}}, [add("/a/-", 1)], {"a": {"-": 1}}),
    ("an empty name is a name", {"": 1}, [replace("/", 2)], {"": 2}),
    ("a number is a name in an object", {"a": {"0": 1}}, [remove("/a/0")], {"a": {}}),
    ("null is a value", {"a": 1}, [replace("/a", None)], {"a": None}),
    ("operations in order", {}, [add("/a", []), add("/a/-", 1), add("/a/0", 0), remove("/a/1")], {"a": [0]}),
    ("the complete state", {"a": 1}, [replace("", {"b": 2}), add("/c", 3)], {"b": 2, "c": 3}),
    ("no operations", {"a": 1}, [], {"a": 1}),
]  # fmt: skip


@rule("CV-25")
@pytest.mark.parametrize(
    "state, operations, after", [row[1:] for row in EXAMPLES], ids=[row[0] for row in EXAMPLES]
)
def test_operations_follow_rfc_6902(state: Any, operations: list[dict[str, Any]], after: Any) -> None:
    before, operations_before = copy.deepcopy(state), copy.deepcopy(operations)
    assert patch_state(state, *operations) == after
    assert state == before
    assert operations == operations_before


REFUSED = [
    # case, state, operations, because
    ("a missing member replaced", {"a": 1}, [replace("/b", 1)], r"patch\[0\]: replace /b: nothing exists"),
    ("a missing member removed", {"a": 1}, [add("/c", 1), remove("/b")],
     r"patch\[1\]: remove /b: nothing exists"),
    ("no parent", {"a": 1}, [add("/x/y", 1)], "nothing exists at /x"),
    ("a parent that is text", {"a": "b"}, [add("/a/0", 1)], "/a is neither"),
    ("a parent that is null", {"a": None}, [add("/a/b", 1)], "/a is neither"),
    ("past the end", {"a": [1]}, [add("/a/2", 1)], "must be 0 to 1"),
    ("a hyphen to replace", {"a": [1]}, [replace("/a/-", 1)], "`-` is not one of them"),
    ("a hyphen to remove", {"a": [1]}, [remove("/a/-")], "`-` is not one of them"),
    ("a hyphen on the way", {"a": [{}]}, [add("/a/-/b", 1)], "nothing exists at /a/-"),
    ("a leading zero", {"a": [1, 2]}, [replace("/a/01", 1)], "`01` is not one of them"),
    ("a negative index", {"a": [1, 2]}, [replace("/a/-1", 1)], "`-1` is not one of them"),
    ("an index in other digits", {"a": [1, 2]}, [replace("/a/١", 1)], "is not one of them"),
    ("a name in an array", {"a": [1]}, [add("/a/b", 1)], "must be 0 to 1"),
    ("another op", {"a": 1}, [{"op": "test", "path": "/a", "value": 1}], r"patch\[0\]\.op: "),
    ("move", {"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], r"patch\[0\]\.op: "),
    ("copy", {"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], r"patch\[0\]\.op: "),
    ("an op in capitals", {}, [{"op": "Add", "path": "/a", "value": 1}], r"patch\[0\]\.op: "),
    ("an op that is a list", {}, [{"op": ["add"], "path": "/a", "value": 1}], r"patch\[0\]\.op: "),
    ("no path", {}, [{"op": "add", "value": 1}], r"patch\[0\]\.path: "),
    ("no value", {}, [{"op": "add", "path": "/a"}], r"patch\[0\]\.value: is required"),
    ("no slash", {}, [add("a", 1)], r"patch\[0\]\.path: "),
    ("a dot path", {}, [add("a.b", 1)], r"patch\[0\]\.path: "),
    ("a fragment", {}, [add("#/a", 1)], r"patch\[0\]\.path: "),
    ("a bad escape", {}, [add("/a~2", 1)], "must be followed by"),
    ("an open escape", {}, [add("/a~", 1)], "must be followed by"),
    ("the state removed", {"a": 1}, [remove("")], "cannot be removed"),
    ("the state made a list", {"a": 1}, [replace("", [])], "a state must be an object"),
    ("a prototype", {}, [add("/__proto__/x", 1)], "must not be part"),
    ("a constructor", {"a": {}}, [add("/a/constructor", 1)], "must not be part"),
    ("an attribute", {"a": {}}, [add("/a/__class__", 1)], "must not be part"),
    ("an operation that is text", {}, ["add"], r"patch\[0\]: must be an object"),
]  # fmt: skip


@rule("CV-25")
@case("X7")
@pytest.mark.parametrize(
    "state, operations, because", [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_invalid_operation_leaves_the_state_unchanged(
    state: Any, operations: list[Any], because: str
) -> None:
    before = copy.deepcopy(state)
    with pytest.raises(BadInput, match=because):
        patch_state(state, *operations)
    assert state == before


@rule("CV-25")
@pytest.mark.parametrize("raw", [None, {}, "[]", 7, [add("/a", 1)] * (MAX_OPERATIONS + 1)], ids=repr)
def test_patch_must_be_a_list_within_the_limit(raw: Any) -> None:
    with pytest.raises(BadInput, match=r"^actions\.x\.patch: "):
        parse_patch(raw, "actions.x.patch")


@case("X7")
def test_patch_deeper_than_the_limit_is_refused() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = {"a": deep}
    for operation in (add("/a", deep), add("/a" * (MAX_DEPTH + 1), 1), add("/a" * 10_000, 1)):
        with pytest.raises(BadInput, match=r"patch\[0\]"):
            parse_patch([operation])
    assert parse_patch([add("/a", deep["a"])])


# --- comparison with a
# model---------------------------------------------------------------------------------------------


def apply_to_copy(state: Any, operations: list[dict[str, Any]]) -> Any:
    """Apply the operations in the simplest way, on a deep copy; raises Python's own errors."""
    state = copy.deepcopy(state)
    for operation in operations:
        *above, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        ]
        parent = state
        for part in above:
            parent = parent[index(part, len(parent))] if isinstance(parent, list) else parent[part]
        key = (
            index(last, len(parent) + 1, may_append=operation["op"] == "add")
            if isinstance(parent, list)
            else last
        )
        if not isinstance(parent, (list, dict)):
            raise TypeError
        value = copy.deepcopy(operation.get("value"))
        match operation["op"]:
            case "remove":
                del parent[key]
            case "add" if isinstance(parent, list):
                parent.insert(key, value)
            case op:
                parent[key] if op == "replace" else None
                parent[key] = value
    return state


def index(part: str, length: int, *, may_append: bool = False) -> int:
    if part == "-" and may_append:
        return length - 1
    if not part.isascii() or not part.isdigit() or (part[0] == "0" and part != "0") or int(part) >= length:
        raise IndexError(part)
    return int(part)


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    state = draw(states)
    parts = st.one_of(names, st.sampled_from(["0", "1", "2", "-", *state]))
    pointers = st.lists(parts, min_size=1, max_size=3).map(lambda path: "/" + "/".join(path))
    operations = st.builds(
        lambda op, path, value: {"op": op, "path": path, "value": value},
        st.sampled_from(["add", "replace", "remove"]),
        pointers,
        json_values,
    )
    return state, draw(st.lists(operations, max_size=5))


@rule("CV-25")
@given(cases())
def test_random_patch_matches_the_model(pair: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    state, operations = pair
    before, operations_before = copy.deepcopy(state), copy.deepcopy(operations)
    try:
        expected = apply_to_copy(state, operations)
    except (KeyError, IndexError, TypeError):
        with pytest.raises(BadInput):
            patch_state(state, *operations)
    else:
        result = apply_patch(parse_patch(operations), state)
        assert result.state == expected
        assert bool(result.paths) is bool(operations)
        unreported = [
            name
            for name in {*before, *expected}
            if not any(path.split("/")[1] == name for path in result.paths if path)
        ]
        assert all(before.get(name) == expected.get(name) for name in unreported), "every change is reported"
    assert state == before
    assert operations == operations_before


# --- changed paths ------------------------------------------------------------------------------------------

CHANGES = [
    # operations                                               changed
    ([],                                                       ()),
    ([add("/b", 1), replace("/a/x", 2)],                       ("/b", "/a/x")),
    ([replace("/a/x", 1), replace("/a/x", 2)],                 ("/a/x",)),
    ([replace("/a/x", 1), replace("/a", 2)],                   ("/a",)),
    ([replace("/a", {"x": 1}), replace("/a/x", 2)],            ("/a",)),
    ([add("/list/-", 4)],                                      ("/list/3",)),
    ([add("/list/3", 4), replace("/list/3", 5)],               ("/list/3",)),
    ([add("/list/0", 0)],                                      ("/list",)),
    ([remove("/list/2")],                                      ("/list",)),
    ([replace("/list/2", 9), remove("/list/0")],               ("/list",)),
    ([replace("/list/1", 9)],                                  ("/list/1",)),
    ([replace("", {})],                                        ("",)),
    ([add("/a~1b", 1)],                                        ("/a~1b",)),
]  # fmt: skip


@rule("CV-38")
@pytest.mark.parametrize("operations, expected", CHANGES)
def test_changed_paths_are_reported_as_pointers(
    operations: list[dict[str, Any]], expected: tuple[str, ...]
) -> None:
    assert changed_paths({"a": {"x": 0}, "list": [1, 2, 3]}, *operations) == expected


def test_unchanged_parts_are_shared_and_the_patch_is_not_altered() -> None:
    state = {"big": {"list": [1]}, "a": {"b": [1]}}
    patch = parse_patch([add("/new", {"x": []}), add("/new/x/-", 1), add("/a/b/-", 2)])
    first, second = apply_patch(patch, state), apply_patch(patch, state)
    assert first.state["big"] is state["big"]
    assert first.state["new"] is not second.state["new"]
    assert first == second


def test_small_patch_of_a_large_state_is_fast() -> None:
    state = {"rows": [{"n": number, "text": "x" * 20} for number in range(50_000)], "status": "idle"}
    small = parse_patch([replace("/status", "busy")])
    many = parse_patch([add("/rows/0", 1)] * 1_000)

    def apply() -> None:
        for _ in range(1_000):
            apply_patch(small, state)
        apply_patch(many, state)

    assert least_seconds(apply, enough=2) < 2
