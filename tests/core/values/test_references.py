"""References: typed values, secrets and literal JSON in the arguments of a call. RS-66"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.stream.json_text import to_json
from easel.core.stream.payload_limit import offload_large_values
from easel.core.values.paths import MAX_PATH_DEPTH
from easel.core.values.references import (
    Literal,
    SecretRef,
    SecretUse,
    ValueRef,
    find_mixed,
    find_references,
    parse_reference,
    parse_references,
    set_argument,
)
from easel.core.values.template import Filler, MissingArtifacts, Values, parse_templates
from easel.errors import BadInput, TooLarge
from tests.core.values.test_paths import json_values
from tests.core.values.test_template import FETCHED, LARGE, STORED
from tests.requirements import case, rule

STATE = {"n": 7, "none": None, "yes": True, "list": [1, {"a": "b"}], "obj": {"a.b": 1}}
VALUES = Values(STATE, {"x": 1.5}, 1_730_000_000_000)


def fill(args: Any, values: Values = VALUES, **options: Any) -> Any:
    return Filler(values, **options).fill_tree(parse_templates(args, "args"))


REFERENCES = [
    ({"$value": "state.a.b"}, ValueRef("state", ("a", "b"))),
    ({"$value": "input.x-1.0"}, ValueRef("input", ("x-1", "0"))),
    ({"$value": "runtime.now"}, ValueRef("runtime", ("now",))),
    ({"$secret": "API_TOKEN"}, SecretRef("API_TOKEN")),
    ({"$secret": "_" + "a" * 63}, SecretRef("_" + "a" * 63)),
    ({"$literal": {"$value": "x"}}, Literal({"$value": "x"})),
    ({"$literal": None}, Literal(None)),
    ({"$value": "state.a", "more": 1}, None),
    ({"$literal": 1, "$value": "state.a"}, None),
    ({"$values": "state.a"}, None),
    ({}, None),
]


@rule("RS-66")
@pytest.mark.parametrize("members, expected", REFERENCES)
def test_object_with_one_of_the_names_alone_is_a_reference(members: Any, expected: Any) -> None:
    assert parse_reference(members, "args") == expected


REFUSED = [
    {"$value": text}
    for text in ("", "state", "state.", "state..a", " state.a", "state.a ", "env.HOME", "runtime.env",
                 "{{state.a}}", "state.a b", "state.a\n", None, 7, ["state.a"], {"$value": "state.a"})
] + [
    {"$secret": name} for name in ("", "1A", "A B", "A-B", "A.B", "a" * 65, "A\n", None, 7, ["A"])
]  # fmt: skip


@rule("RS-66")
@pytest.mark.parametrize("members", REFUSED, ids=repr)
def test_invalid_reference_is_refused_with_its_location(members: dict[str, Any]) -> None:
    name = next(iter(members))
    with pytest.raises(BadInput) as refused:
        parse_templates({"a": [members]}, "args")
    assert refused.value.message.startswith(f"args.a[0].{name}: ")


@rule("RS-66")
@case("X7")
@pytest.mark.parametrize(
    "path", ["state.__proto__.x", "state.a.constructor", "input.__class__", "state" + ".a" * 33]
)
def test_unsafe_or_deep_path_is_refused(path: str) -> None:
    assert MAX_PATH_DEPTH < 33
    with pytest.raises(BadInput, match=r"^args\.a\.\$value: "):
        parse_templates({"a": {"$value": path}}, "args")


@rule("RS-66")
def test_value_keeps_its_type() -> None:
    paths = ("state.n", "state.none", "state.yes", "state.list", "state.list.1.a", "input.x", "runtime.now")
    expected = [7, None, True, [1, {"a": "b"}], "b", 1.5, 1_730_000_000_000]
    filled = fill([{"$value": path} for path in paths])
    assert filled == expected
    assert list(map(type, filled)) == list(map(type, expected))


@rule("RS-66")
@pytest.mark.parametrize("path", ["state.gone", "state.none.x", "state.list.2", "input.gone", "state.n.x"])
def test_missing_value_is_refused_and_named(path: str) -> None:
    with pytest.raises(BadInput) as missing:
        fill({"a": [{"b": {"$value": path}}]})
    assert missing.value.message == f'args.a[0].b: {{"$value": "{path}"}} has no value.'


@rule("RS-66")
def test_secret_is_filled_as_its_name_with_its_exact_path() -> None:
    filler = Filler(VALUES)
    tree = parse_templates({"a.b": [0, {"c": {"$secret": "TOKEN"}}], "TOKEN": "TOKEN"}, "args")
    args = filler.fill_tree(tree)
    assert args == {"a.b": [0, {"c": "TOKEN"}], "TOKEN": "TOKEN"}
    assert filler.secrets == [SecretUse(("a.b", 1, "c"), "TOKEN")]
    (use,) = filler.secrets
    assert set_argument(args, use.path, "s3cret") == {"a.b": [0, {"c": "s3cret"}], "TOKEN": "TOKEN"}
    assert args["a.b"][1]["c"] == "TOKEN", "the resolved arguments stay unchanged"


@rule("RS-66")
def test_literal_is_its_content_unresolved() -> None:
    content = {"t": "{{state.n}}", "v": {"$value": "state.n"}, "s": {"$secret": "A"}, "l": {"$literal": 1}}
    filler = Filler(VALUES)
    tree = parse_templates({"a": {"$literal": content}, "b": "{{state.n}}"}, "args")
    assert filler.fill_tree(tree) == {"a": content, "b": "7"}
    assert not filler.secrets
    assert not list(find_references(tree))


HOSTILE: list[Any] = [
    "{{state.n}}", {"$value": "state.n"}, {"$secret": "TOKEN"}, {"$literal": {"$value": "state.n"}},
    {"$value": 7}, {"$secret": ""}, {"redacted": True}, {"~redacted": 1}, "{{runtime.now}}",
]  # fmt: skip
some_json = st.recursive(
    st.sampled_from(HOSTILE) | st.floats(allow_nan=False, allow_infinity=False) | json_values,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$value", "$secret", "$literal", "a", "{{state.n}}"]), inner)
    ),
    max_leaves=6,
)


@rule("RS-66", "CV-27")
@given(some_json)
def test_value_arrives_exactly_and_is_not_expanded_again(value: Any) -> None:
    stored, _ = offload_large_values({"x": value, "n": 1})
    values = Values(stored, {"x": value}, 1)
    args = {"a": [{"$value": "state.x"}], "b": {"$value": "input.x"}, "c": "{{state.x}}"}
    filler = Filler(values)
    filled = filler.fill_tree(parse_templates(args, "args"))
    exact = to_json(value)
    assert to_json(filled["a"][0]) == to_json(filled["b"]) == exact
    assert filled["c"] == (value if isinstance(value, str) else "" if value is None else exact)
    assert not filler.secrets


@rule("RS-66")
def test_offloaded_values_are_restored() -> None:
    with pytest.raises(MissingArtifacts):
        fill({"a": {"$value": "state.a"}}, Values(STORED, {}, 0))
    values = Values(STORED, {}, 0, FETCHED)
    filled = fill({"a": {"$value": "state.a"}, "b": {"$value": "state.list.0"}}, values)
    assert filled == {"a": {"heavy": LARGE, "n": 1}, "b": LARGE + "QQ=="}


@rule("RS-66")
def test_values_and_texts_share_one_limit() -> None:
    values = Values({"big": ["x" * 1_000]}, {}, 0)
    args = [{"$value": "state.big"}] * 5 + ["{{state.big}}"] * 5
    assert len(fill(args, values, limit=10_040)) == 10
    with pytest.raises(TooLarge):
        fill(args, values, limit=10_039)


@rule("RS-66")
def test_patch_takes_values_and_no_secrets_or_templates() -> None:
    tree = parse_references(
        [{"a": {"$value": "state.n"}, "b": "{{state.n}}"}, {"$literal": {"$secret": 1}}], "v"
    )
    assert Filler(VALUES).fill_tree(tree) == [{"a": 7, "b": "{{state.n}}"}, {"$secret": 1}]
    with pytest.raises(BadInput, match=r"^v\.a\[1\]: \$secret must not be in a state"):
        parse_references({"a": [1, {"$secret": "A"}]}, "v")


@rule("RS-66")
def test_name_of_a_reference_beside_other_members_is_found() -> None:
    raw = {
        "a": [{"$value": "state.n", "x": 1}],
        "b": {"$literal": {"$value": 1, "x": 1}},
        "c": {"$value": "state.n"},
    }
    assert list(find_mixed(raw)) == [(("a", 0), "$value")]
    assert fill(raw) == {"a": [{"$value": "state.n", "x": 1}], "b": {"$value": 1, "x": 1}, "c": 7}
