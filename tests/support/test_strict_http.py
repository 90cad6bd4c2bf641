"""The strict decoding of HTTP answers refuses what no struct describes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from easel.edges.http.wire import ErrorAnswer, RunStarted
from tests.support.strict import ContractBroken
from tests.support.strict_http import STRICT, shape_of

if TYPE_CHECKING:
    from collections.abc import Mapping

TOOL = {"name": "t", "description": "", "schema": {"x": [1, {}]}, "runs_on": "host"}
HINTS = {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False}


def answer_with(status: int, body: Mapping[str, Any]) -> httpx2.Client:
    """Return a client whose requests are all answered like this."""
    transport = httpx2.MockTransport(lambda _: httpx2.Response(status, json=body))
    return httpx2.Client(base_url="http://easel", transport=transport, event_hooks=STRICT)


def test_answer_of_its_struct_is_accepted() -> None:
    answer_with(200, {"tools": [{**TOOL, "annotations": HINTS}], "warnings": ["ignored"]}).get("/api/tools")
    error = {"code": 404, "name": "NOT_FOUND", "message": "", "details": {"a": 1}}
    answer_with(404, {"error": error}).get("/api/tools")
    answer_with(200, {"deleted": True, "canvasId": "c", "ok": True}).post(
        "/api/rpc", json={"method": "canvas.delete"}
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
    with answer_with(200, answer) as http, pytest.raises(ContractBroken):
        http.get("/api/tools")


@pytest.mark.parametrize("error", [{"code": 404, "name": "FORBIDDEN", "message": ""}, {"code": 404}])
def test_error_outside_of_the_closed_set_is_refused(error: dict[str, Any]) -> None:
    with answer_with(404, {"error": error}) as http, pytest.raises((ContractBroken, KeyError)):
        http.get("/api/tools")


def test_result_of_another_method_is_refused() -> None:
    with answer_with(200, {"pong": True}) as http, pytest.raises(ContractBroken):
        http.post("/api/rpc", json={"method": "ping"})


def test_shape_is_that_of_the_row_and_the_status() -> None:
    assert shape_of("POST", "/api/runs", 202) is RunStarted
    assert shape_of("POST", "/api/chat/s", 202) is RunStarted
    assert shape_of("POST", "/api/runs", 409) is ErrorAnswer
    assert shape_of("POST", "/api/rpc", 200) is None
    assert shape_of("GET", "/api/artifacts/a", 200) is None
    assert shape_of("GET", "/nothing", 200) is None
