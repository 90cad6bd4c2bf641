"""The OpenAPI description: exactly the served routes, and responses that match it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import hypothesis
import hypothesis.strategies as st
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks as promises

from easel.edges.http.routes import API, OPS, PAGES, PUBLIC
from tests.support.length import examples

if TYPE_CHECKING:
    from easel.edges.http.calls import Row
    from tests.edges.http.live import LiveEasel

EXAMPLES = examples(10)  # per operation and mode: some 800 requests in all


@pytest.fixture(scope="module")
def described(small_easel: LiveEasel) -> dict[str, Any]:
    answer = small_easel.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def test_every_route_is_described_and_nothing_else(described: dict[str, Any]) -> None:
    said = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert said == {(row.method, row.path) for row in (*API, *OPS)}
    pages = {"/api/docs", "/api/oauth/{provider}/callback"}  # for people
    assert {row.path for row in PAGES if row.path.startswith("/api/")} == pages


def test_each_operation_has_a_summary_and_its_access(described: dict[str, Any]) -> None:
    operations = {
        (method.upper(), path): row
        for path, methods in described["paths"].items()
        for method, row in methods.items()
    }
    names = [row["operationId"] for row in operations.values()]
    assert len(names) == len(set(names))
    for row in (*API, *OPS):
        operation = operations[row.method, row.path]
        assert len(operation["summary"]) > 5
        assert (operation.get("security") == []) == (row.access == PUBLIC)
        assert set(re.findall(r"\{(\w+)\}", row.path)) == {
            one["name"] for one in operation["parameters"] if one["in"] == "path"
        }
        assert str(row.status) in operation["responses"]
        if row.access != PUBLIC:
            assert "401" in operation["responses"]


# --- under fire ---------------------------------------------------------------------------------------------

CHECKS = [
    not_a_server_error,
    promises.status_code_conformance,
    promises.content_type_conformance,
    promises.response_headers_conformance,
    promises.ignored_auth,
]


FIRE = [
    pytest.param(row, mode, id=f"{row.method} {row.path} {mode.value}")
    for row in (*API, *OPS)
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    # A route without parameters and authentication has no errors.
    if mode is GenerationMode.POSITIVE or row.access != PUBLIC
]


@pytest.mark.slow
@pytest.mark.parametrize("row, mode", FIRE)
def test_generated_requests_get_described_responses(
    small_easel: LiveEasel,
    described: dict[str, Any],
    logged: list[dict[str, Any]],
    row: Row,
    mode: GenerationMode,
) -> None:
    operation = schemathesis.openapi.from_dict(described)[row.path][row.method]
    run_id = small_easel.finish()
    # Schemathesis takes the schema of a stream for that of one event, as OpenAPI 3.2 does.
    checks = (
        CHECKS if row.response == "text/event-stream" else [*CHECKS, promises.response_schema_conformance]
    )

    @hypothesis.settings(
        max_examples=EXAMPLES,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        derandomize=True,
    )
    @hypothesis.given(data=st.data())
    def check(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        if "run_id" in (case.path_parameters or {}) and data.draw(st.booleans()):
            case.path_parameters["run_id"] = run_id
        answer = case.call(
            base_url=small_easel.base_url, session=session, headers=small_easel.bearer, timeout=30
        )
        case.validate_response(answer, checks=checks)

    with requests.Session() as session:
        check()
    assert [event for event in logged if event["level"] == "error"] == []
