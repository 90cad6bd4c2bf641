"""`parse` beside `saveAs`: the text of a result as JSON, lines or rows. Finding 9 of the newcomer."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.action.parsing import parse_csv, parse_result
from easel.errors import BadInput
from tests.support.actions import parse_action

ACTION: dict[str, Any] = {"kind": "tool.call", "tool": "local__Bash", "saveAs": "ps"}


def parse(result: Any, how: str = "json") -> Any:
    return parse_result(parse_action("list", {**ACTION, "parse": how}), result)


@pytest.mark.parametrize(
    "result, how, parsed",
    [
        ('[{"a": 1}]', "json", [{"a": 1}]),
        ({"output": "[1]", "truncated": False}, "json", {"output": [1], "truncated": False}),
        ({"status": 200, "body": "a\r\nb\n\nc"}, "lines", {"status": 200, "body": ["a", "b", "", "c"]}),
        ("", "lines", []),
        (
            'a,b\r\n1,"2 ""x"",\r\n3"\r\n\r\n,\r\n',
            "csv",
            [{"a": "1", "b": '2 "x",\r\n3'}, {"a": "", "b": ""}],
        ),
        ("\ufeffid\n1\u20282\n", "csv", [{"id": "1\u20282"}]),
        ("a,b\n", "csv", []),
    ],
)
def test_value_replaces_the_text(result: Any, how: str, parsed: Any) -> None:
    assert parse(result, how) == parsed


@pytest.mark.parametrize(
    "result, how, problem",
    [
        ({"output": "[1", "truncated": True}, "json", "result.output was cut off"),
        ({"output": "[1]", "truncated": False, "stopped": "time"}, "json", "result.output was cut off"),
        ({"output": "[1", "truncated": False}, "json", "result.output: is not JSON"),
        ({"body": "NaN"}, "json", "result.body: is not JSON"),
        ("1e999", "json", "result: is not JSON"),
        ("[" * 100_000, "json", "result: is not JSON"),
        ('{"a": 1, "a": 2}', "json", "the same key twice"),
        ("", "json", "result: is not JSON"),
        ({"exit_code": 0}, "json", "has no text `output` or `body`"),
        ({"output": 7}, "lines", "has no text `output` or `body`"),
        (None, "lines", "has no text `output` or `body`"),
        ("", "csv", "its first row must name each column"),
        ("a,b\n1\n", "csv", "row 2 has 1 values for 2 columns"),
        ("a,a\n1,2\n", "csv", "with different names"),
        ("a,\n1,2\n", "csv", "its first row must name each column"),
        ('a\n"1', "csv", "is not CSV"),
        ('a\n"1"x\n', "csv", "is not CSV"),
        ("a" * 100_000 + "\n" + "1\n" * 200, "csv", "more than 10000000 characters"),
    ],
)
def test_other_text_fails_the_action_and_names_the_place(result: Any, how: str, problem: str) -> None:
    with pytest.raises(BadInput) as error:
        parse(result, how)
    assert error.value.message.startswith("actions.list.parse: ")
    assert problem in error.value.message


@given(st.lists(st.lists(st.text(st.characters(exclude_characters="\0")), min_size=2, max_size=2)))
def test_every_row_of_csv_comes_back(rows: list[list[str]]) -> None:
    written = io.StringIO(newline="")
    csv.writer(written).writerows([["a", "b"], *rows])
    assert parse_csv(written.getvalue(), "it") == [dict(zip("ab", row, strict=True)) for row in rows]


def test_parse_needs_a_place_to_save() -> None:
    with pytest.raises(BadInput, match=r"actions\.x\.parse: needs saveAs"):
        parse_action("x", {"kind": "tool.call", "tool": "local__Bash", "parse": "json"})
