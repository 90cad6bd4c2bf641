"""The strict decoding of HTTP answers refuses what no struct describes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from easel.edges.http.wire import ErrorAnswer, RunStarted, ToolList
from tests.support.strict_http import STRICT, NotAsDescribed, check, shape_of

if TYPE_CHECKING:
    from collections.abc import Mapping

TOOL = {"name": "t", "description": "", "schema": {"x": [1, {}]}, "runs_on": "host"}
HINTS = {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False}


def encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()


def test_answer_of_its_struct_is_accepted() -> None:
    check(encode({"tools": [{**TOOL, "annotations": HINTS}], "warnings": ["ignored"]}), ToolList)
    check(
        encode({"error": {"code": 404, "name": "NOT_FOUND", "message": "", "details": {"a": 1}}}), ErrorAnswer
    )


@pytest.mark.parametrize(
    "answer",
    [
        {"tools": [], "more": 1},
        {"tools": [{**TOOL, "annotations": {**HINTS, "title": "T"}}]},
        {"tools": [{**TOOL, "annotations": {}}]},
        {"tools": [{**TOOL, "annotations": {**HINTS, "readOnlyHint": "yes"}}]},
        {},
    ],
)
def test_unknown_missing_and_mistyped_members_are_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(NotAsDescribed):
        check(encode(answer), ToolList)


def test_shape_is_that_of_the_row_and_the_status() -> None:
    assert shape_of("POST", "/api/runs", 202) is RunStarted
    assert shape_of("POST", "/api/chat/s", 202) is RunStarted
    assert shape_of("POST", "/api/runs", 409) is ErrorAnswer
    assert shape_of("POST", "/api/rpc", 200) is None
    assert shape_of("GET", "/api/artifacts/a", 200) is None
    assert shape_of("GET", "/nothing", 200) is None


def test_client_fails_at_the_answer() -> None:
    transport = httpx2.MockTransport(
        lambda _: httpx2.Response(202, json={"run_id": "r", "status": "queued", "x": 1})
    )
    with (
        httpx2.Client(base_url="http://easel", transport=transport, event_hooks=STRICT) as http,
        pytest.raises(NotAsDescribed, match="RunStarted"),
    ):
        http.post("/api/runs")
