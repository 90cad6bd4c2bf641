"""Placeholders: syntax, the text they become, and offloaded values."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.stream.marker import make_marker, markers_in
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


def fill(text: str, values: Values = VALUES) -> str:
    return Filler(values).fill(parse_template(text, "message"))


def fill_args(tree: Any, values: Values = VALUES) -> Any:
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
def test_placeholder_becomes_its_value_as_text(text: str, expected: str) -> None:
    assert fill(text) == expected


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
def test_missing_value_is_empty_text(text: str) -> None:
    assert fill(f"a{text}b") == "ab"


NO_PLACEHOLDERS = [
    "{{state}}", "{{input}}", "{{runtime}}", "{{runtime.env}}", "{{runtime.now.x}}", "{{env.HOME}}",
    "{{self.x}}", "{{state.}}", "{{.state.n}}", "{{state.n + 1}}", "{{7*7}}", "{{state.n|upper}}",
    "{{state.n()}}", "{{state['n']}}", "{{state.n.__class__()}}", "{{#if state.n}}", "{{!state.n}}",
    "{{state.a b}}", "{{state\n.n}}", "{{state.n\n}}", "{state.n}", "{ {state.n} }", "{{state.n}",
    "{%state.n%}", "${state.n}", "{{STATE.n}}", "{{state..n}}", "{{ state . n }}", "{{}}",
    "{{state.n;input.name}}",
]  # fmt: skip


@rule("CV-29")
@pytest.mark.parametrize("text", NO_PLACEHOLDERS)
def test_other_text_in_braces_is_unchanged(text: str) -> None:
    assert fill(f"a {text} b") == f"a {text} b"


def test_unknown_placeholders_are_found() -> None:
    assert find_unknown_placeholders("{{state.n}} {{state.n + 1}} {{ foo }} {x} {{") == [
        "{{state.n + 1}}",
        "{{ foo }}",
    ]


@rule("CV-27")
@case("X3")
def test_value_is_not_parsed_as_a_template() -> None:
    values = Values(
        {"a": "{{input.b}}", "c": "{{run", "d": "time.now}}"}, {"b": "{{state.a}}{{runtime.now}}"}, 1
    )
    assert (
        fill("{{state.a}}|{{input.b}}|{{state.c}}{{state.d}}", values)
        == "{{input.b}}|{{state.a}}{{runtime.now}}|{{runtime.now}}"
    )


@rule("CV-26", "CV-27")
def test_only_strings_of_the_arguments_are_filled() -> None:
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
    assert fill_args(args) == expected


@rule("CV-27", "CV-29")
@case("X3")
@given(st.text(max_size=20), json_values)
def test_value_cannot_change_the_structure_of_the_arguments(text: str, value: Any) -> None:
    values = Values({"x": text, "y": value}, {"x": value}, 1)
    args = fill_args({"a": ["{{state.x}}", "{{state.y}}"], "b": {"c": "{{input.x}}!"}}, values)
    assert args["a"][0] == text
    assert isinstance(args["a"][1], str)
    assert isinstance(args["b"]["c"], str)
    assert args.keys() == {"a", "b"}


@given(
    st.lists(
        st.sampled_from(
            ["{{", "}}", "{", "}", "state", ".", "input", "runtime.now", "n", " ", "|", "\n", "é"]
        )
    ).map("".join)
)
def test_text_between_placeholders_is_unchanged(text: str) -> None:
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
def test_unsafe_or_deep_path_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^actions\.x\.message: "):
        parse_template(text, "actions.x.message")


def test_location_of_an_invalid_template_is_named() -> None:
    with pytest.raises(BadInput, match=r"^args\.b\[1\]\.c: "):
        parse_templates({"b": ["", {"c": "{{state.__x}}"}]}, "args")


def test_filled_text_is_limited_in_total() -> None:
    with pytest.raises(TooLarge):
        Filler(VALUES, limit=10_000).fill(parse_template("{{state.big}}" * 11, "t"))
    tree = parse_templates({"a": ["{{state.big}}"] * 11}, "t")
    with pytest.raises(TooLarge):
        Filler(VALUES, limit=10_000).fill_tree(tree, no_shell)
    with pytest.raises(BadInput, match="at most 200 placeholders"):
        parse_template("{{state.n}}" * (MAX_PLACEHOLDERS + 1), "t")


def test_unclosed_braces_are_parsed_quickly() -> None:
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


# --- offloaded values ---------------------------------------------------------------------------------------

LARGE = "QUJD" * 1_000
STORED, OFFLOADED = offload_large_values(
    {"a": {"heavy": LARGE, "n": 1}, "list": [LARGE + "QQ=="], "plain": "x"}
)
FETCHED = {value.artifact_id: value.content for value in OFFLOADED}


def missing_for(text: str, **options: Any) -> frozenset[str]:
    with pytest.raises(MissingArtifacts) as missing:
        fill(text, Values(STORED, {}, 0, **options))
    return missing.value.artifact_ids


@rule("CV-27")
def test_template_needs_only_the_artifacts_it_names() -> None:
    first, second = markers_in(STORED["a"]), markers_in(STORED["list"])
    assert (
        missing_for("{{state.a.heavy}}")
        == missing_for("{{state.a}}")
        == missing_for("{{state.a.heavy.sha256}}")
        == first
    )
    assert missing_for("{{state.list.0}}", fetched={name: FETCHED[name] for name in first}) == second
    assert fill("{{state.plain}} {{state.a.n}} {{state.none}}", Values(STORED, {}, 0)) == "x 1 ", (
        "no offloaded value is named"
    )


@rule("CV-27")
def test_fetched_artifacts_are_filled_in() -> None:
    values = Values(STORED, {}, 0, FETCHED)
    assert fill("{{state.a.heavy}}|{{state.list.0}}", values) == f"{LARGE}|{LARGE}QQ=="
    assert fill("{{state.a}}", values) == f'{{"heavy":"{LARGE}","n":1}}'
    assert fill("{{state.a.heavy.sha256}}{{state.list.0.uri}}", values) == ""


def test_path_leads_into_an_offloaded_object() -> None:
    marker, offloaded = make_marker({"inner": {"n": 7}, "~redacted": 1})
    values = Values({"obj": marker}, {}, 0, {offloaded.artifact_id: offloaded.content})
    assert fill("{{state.obj.inner.n}} {{state.obj.inner}} {{state.obj.none}}", values) == '7 {"n":7} '
    assert (
        fill("{{state.inner.n}}", Values(marker, {}, 0, {offloaded.artifact_id: offloaded.content})) == "7"
    ), "also for an offloaded state"


def test_value_over_the_limit_is_not_fetched() -> None:
    marker = {**make_marker(LARGE)[0], "original_size": 1_000_001}
    with pytest.raises(TooLarge, match=r"state\.big"):
        fill("{{state.big}}", Values({"big": marker}, {}, 0))
