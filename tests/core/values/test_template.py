"""Placeholders: which braces are some, what they yield, and what they never do."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.stream.marker import markers_in, move
from easel.core.stream.payload_limit import offload_large_values
from easel.core.values.paths import MAX_PATH_DEPTH
from easel.core.values.template import (
    MAX_PLACEHOLDERS,
    Filler,
    MissingArtifacts,
    Template,
    Values,
    find_unknown_placeholders,
    parse_template,
    parse_templates,
)
from easel.errors import BadInput, TooLarge
from tests.core.stream.costs import least_seconds
from tests.core.values.test_paths import json_values
from tests.requirements import case, rule

STATE = {
    "service": "api",
    "n": 7,
    "f": 1.5,
    "yes": True,
    "none": None,
    "obj": {"a": [1, "é"]},
    "list": ["x", {"y": 2}],
    "empty": "",
    "big": "x" * 1_000,
}
VALUES = Values(STATE, {"name": "Ann", "deep": {"er": 1}}, 1_730_000_000_000)


def no_shell(template: Template, path: tuple[str | int, ...]) -> str | None:
    return None


def filled(text: str, values: Values = VALUES) -> str:
    return Filler(values).fill(parse_template(text, "message"))


def plainly(tree: Any, values: Values = VALUES) -> Any:
    return Filler(values).fill_tree(parse_templates(tree, "args"), no_shell)


FILLED = [
    ("{{state.service}}",                  "api"),
    ("a {{state.service}}b{{input.name}}", "a apibAnn"),
    ("{{ state.service }}{{\tinput.name\t}}", "apiAnn"),
    ("{{runtime.now}}",                    "1730000000000"),
    ("{{state.n}} {{state.f}} {{state.yes}}", "7 1.5 true"),
    ("{{state.obj}}",                      '{"a":[1,"é"]}'),
    ("{{state.obj.a.1}} {{state.list.1.y}}", "é 2"),
    ("{{{state.service}}}",                "{api}"),
    ("{{{{state.service}}}}",              "{{api}}"),
    ("{{state.service}}}}",                "api}}"),
]  # fmt: skip


@rule("CV-26", "CV-27")
@pytest.mark.parametrize("text, expected", FILLED)
def test_a_placeholder_becomes_its_value_as_text(text: str, expected: str) -> None:
    assert filled(text) == expected


@rule("CV-28")
@pytest.mark.parametrize(
    "text",
    [
        "{{state.nothing}}",
        "{{state.none}}",
        "{{input.deep.est}}",
        "{{state.service.0}}",
        "{{state.list.9}}",
        "{{state.empty}}",
    ],
)
def test_what_is_missing_is_empty(text: str) -> None:
    assert filled(f"a{text}b") == "ab"


NO_PLACEHOLDERS = [
    "{{state}}", "{{input}}", "{{runtime}}", "{{runtime.env}}", "{{runtime.now.x}}", "{{env.HOME}}", "{{self.x}}", "{{state.}}", "{{.state.n}}",
    "{{state.n + 1}}", "{{7*7}}", "{{state.n|upper}}", "{{state.n()}}", "{{state['n']}}", "{{state.n.__class__()}}", "{{#if state.n}}", "{{!state.n}}", "{{state.a b}}",
    "{{state\n.n}}", "{{state.n\n}}", "{state.n}", "{ {state.n} }", "{{state.n}", "{%state.n%}", "${state.n}", "{{STATE.n}}", "{{state..n}}", "{{ state . n }}", "{{}}", "{{state.n;input.name}}",
]  # fmt: skip


@rule("CV-29")
@pytest.mark.parametrize("text", NO_PLACEHOLDERS)
def test_anything_else_in_braces_is_text_without_effect(text: str) -> None:
    assert filled(f"a {text} b") == f"a {text} b"


def test_an_author_is_told_of_what_only_looks_like_a_placeholder() -> None:
    assert find_unknown_placeholders("{{state.n}} {{state.n + 1}} {{ foo }} {x} {{") == ["{{state.n + 1}}", "{{ foo }}"]


@rule("CV-27")
@case("X3")
def test_a_value_is_never_read_as_a_template() -> None:
    values = Values(
        {"a": "{{input.b}}", "c": "{{run", "d": "time.now}}"}, {"b": "{{state.a}}{{runtime.now}}"}, 1
    )
    assert (
        filled("{{state.a}}|{{input.b}}|{{state.c}}{{state.d}}", values)
        == "{{input.b}}|{{state.a}}{{runtime.now}}|{{runtime.now}}"
    )


@rule("CV-26", "CV-27")
def test_every_string_of_the_arguments_is_filled_and_nothing_else_changes() -> None:
    args = {
        "a": "{{state.n}}",
        "b": ["{{state.obj}}", {"c": "x{{input.name}}", "{{state.n}}": 1}],
        "d": 7,
        "e": None,
        "f": True,
        "g": 1.5,
        "h": {},
        "i": [],
    }
    expected = {
        "a": "7",
        "b": ['{"a":[1,"é"]}', {"c": "xAnn", "{{state.n}}": 1}],
        "d": 7,
        "e": None,
        "f": True,
        "g": 1.5,
        "h": {},
        "i": [],
    }
    assert plainly(args) == expected


@rule("CV-27", "CV-29")
@case("X3")
@given(st.text(max_size=20), json_values)
def test_no_value_changes_the_shape_of_the_arguments(text: str, value: Any) -> None:
    values = Values({"x": text, "y": value}, {"x": value}, 1)
    found = plainly({"a": ["{{state.x}}", "{{state.y}}"], "b": {"c": "{{input.x}}!"}}, values)
    assert found["a"][0] == text
    assert isinstance(found["a"][1], str)
    assert isinstance(found["b"]["c"], str)
    assert found.keys() == {"a", "b"}


@given(
    st.lists(
        st.sampled_from(
            ["{{", "}}", "{", "}", "state", ".", "input", "runtime.now", "n", " ", "|", "\n", "é"]
        )
    ).map("".join)
)
def test_text_between_placeholders_is_kept_letter_by_letter(text: str) -> None:
    template = parse_template(text, "t")
    parts = (
        [template]
        if isinstance(template, str)
        else [part if isinstance(part, str) else None for part in template.parts]
    )
    position = 0
    for part in parts:
        if part is not None:
            position = text.index(part, position) + len(part)
    assert isinstance(template, Template) or template == text


@case("X7")
@pytest.mark.parametrize(
    "text",
    [
        "{{state.__proto__.x}}",
        "{{state.a.constructor}}",
        "{{input.__class__}}",
        "{{state" + ".a" * (MAX_PATH_DEPTH + 1) + "}}",
    ],
)
def test_a_path_that_no_state_should_have_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^actions\.x\.message: "):
        parse_template(text, "actions.x.message")


def test_the_place_of_a_bad_template_is_named() -> None:
    with pytest.raises(BadInput, match=r"^args\.b\[1\]\.c: "):
        parse_templates({"b": ["", {"c": "{{state.__x}}"}]}, "args")


def test_a_value_named_often_does_not_grow_without_bound() -> None:
    with pytest.raises(TooLarge):
        Filler(VALUES, limit=10_000).fill(parse_template("{{state.big}}" * 11, "t"))
    tree = parse_templates({"a": ["{{state.big}}"] * 11}, "t")
    with pytest.raises(TooLarge):
        Filler(VALUES, limit=10_000).fill_tree(tree, no_shell)
    with pytest.raises(BadInput, match="more than 200 placeholders"):
        parse_template("{{state.n}}" * (MAX_PLACEHOLDERS + 1), "t")


def test_braces_without_end_are_read_quickly() -> None:
    texts = (
        "{" * 300_000,
        "{{" + " " * 300_000,
        "{{state" + ".a" * 150_000,
        "{{state.a" * 30_000,
        "{{state." + "a" * 300_000,
        "{{ }}" * 60_000,
    )

    def read() -> None:
        for text in texts:
            try:
                parse_template(text, "t")
                find_unknown_placeholders(text)
            except BadInput:
                continue

    assert least_seconds(read, enough=2) < 2


# --- what was moved out of the state ------------------------------------------------------------------------------------

HEAVY = "QUJD" * 1_000
LIGHT, MOVED = offload_large_values({"a": {"heavy": HEAVY, "n": 1}, "list": [HEAVY + "QQ=="], "plain": "x"})
FETCHED = {one.artifact_id: one.content for one in MOVED}


def asks_for(text: str, **given: Any) -> frozenset[str]:
    with pytest.raises(MissingArtifacts) as lacking:
        filled(text, Values(LIGHT, {}, 0, **given))
    return lacking.value.artifact_ids


@rule("CV-27")
def test_a_template_asks_for_exactly_what_it_names() -> None:
    first, second = markers_in(LIGHT["a"]), markers_in(LIGHT["list"])
    assert (
        asks_for("{{state.a.heavy}}")
        == asks_for("{{state.a}}")
        == asks_for("{{state.a.heavy.sha256}}")
        == first
    )
    assert asks_for("{{state.list.0}}", fetched={name: FETCHED[name] for name in first}) == second
    assert filled("{{state.plain}} {{state.a.n}} {{state.none}}", Values(LIGHT, {}, 0)) == "x 1 ", (
        "nothing heavy is named"
    )


@rule("CV-27")
def test_with_what_it_asked_for_it_is_filled_with_the_values_themselves() -> None:
    values = Values(LIGHT, {}, 0, FETCHED)
    assert filled("{{state.a.heavy}}|{{state.list.0}}", values) == f"{HEAVY}|{HEAVY}QQ=="
    assert filled("{{state.a}}", values) == f'{{"heavy":"{HEAVY}","n":1}}'
    assert filled("{{state.a.heavy.sha256}}{{state.list.0.uri}}", values) == ""


def test_a_path_leads_into_an_object_that_was_moved_as_a_whole() -> None:
    marker, offloaded = move({"inner": {"n": 7}, "~redacted": 1})
    values = Values({"obj": marker}, {}, 0, {offloaded.artifact_id: offloaded.content})
    assert filled("{{state.obj.inner.n}} {{state.obj.inner}} {{state.obj.none}}", values) == '7 {"n":7} '
    assert (
        filled("{{state.inner.n}}", Values(marker, {}, 0, {offloaded.artifact_id: offloaded.content})) == "7"
    ), "the state itself, too"


def test_more_than_a_template_may_grow_to_is_not_even_fetched() -> None:
    marker = {**move(HEAVY)[0], "original_size": 1_000_001}
    with pytest.raises(TooLarge, match=r"state\.big"):
        filled("{{state.big}}", Values({"big": marker}, {}, 0))
