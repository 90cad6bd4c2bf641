"""Inputs of a page by `canvas.input`, and the audit of refused requests of a page."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.edges.http.canvas_calls import call
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import rule
from tests.support.waiting import wait_for_sync


@pytest.fixture
def canvas(easel: LiveEasel) -> str:
    name = new_session()
    answer = call(
        easel,
        "canvas.create",
        canvasId=name,
        spec={"state": {"version": "1", "fields": {}}},
        state={"version": "1", "fields": {}, "other": 1},
    )
    assert answer.status_code == 200, answer.text
    return name


def refusals(easel: LiveEasel, name: str) -> list[dict[str, Any]]:
    records = easel.get("/api/audit?action=canvas.page.refused&limit=200").json()["records"]
    return [record["details"] for record in records if record.get("subject") == name]


@rule("RS-41")
def test_input_is_a_mutation_with_a_revision(easel: LiveEasel, canvas: str) -> None:
    answer = call(easel, "canvas.input", canvasId=canvas, path="/version", value="2", was="1").json()
    assert (answer["state"]["version"], answer["revision"]) == ("2", 2)
    again = call(easel, "canvas.input", canvasId=canvas, path="/version", value="2", was="1").json()
    assert again["revision"] == 2, "an equal value is no change"
    created = call(
        easel, "canvas.input", canvasId=canvas, path="/fields/a b~1c", value={"deep": [1]}, was=None
    ).json()
    assert created["state"]["fields"] == {"a b/c": {"deep": [1]}}


@rule("RS-41")
def test_input_outside_the_declared_paths_is_refused_and_audited(easel: LiveEasel, canvas: str) -> None:
    answer = call(easel, "canvas.input", canvasId=canvas, path="/other", value=2)
    assert (answer.status_code, answer.json()["error"]["name"]) == (403, "FORBIDDEN")
    assert call(easel, "canvas.get", canvasId=canvas).json()["revision"] == 1
    wait_for_sync(
        lambda: any(details["what"] == "input" for details in refusals(easel, canvas)),
        within=20,
        what="the refusal is audited",
    )


def test_invalid_path_is_refused(easel: LiveEasel, canvas: str) -> None:
    paths = ["/__proto__/x", "/constructor", "/version/__class__", "version", "state.version", "/~2"]
    for path in (*paths, "/" + "a/" * 5000):
        answer = call(easel, "canvas.input", canvasId=canvas, path=path, value=1)
        assert answer.status_code == 400, path
    assert call(easel, "canvas.get", canvasId=canvas).json()["revision"] == 1


def test_one_of_several_concurrent_inputs_wins_and_the_others_conflict(easel: LiveEasel, canvas: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda n: call(
                    easel, "canvas.input", canvasId=canvas, path="/version", value=f"by {n}", was="1"
                ),
                range(8),
            )
        )
    accepted = [answer.json() for answer in answers if answer.status_code == 200]
    refused = [answer.json()["error"] for answer in answers if answer.status_code == 409]
    assert (len(accepted), len(refused)) == (1, 7)
    assert {error["name"] for error in refused} == {"INPUT_CONFLICT"}
    snapshot = call(easel, "canvas.get", canvasId=canvas).json()
    assert (snapshot["state"]["version"], snapshot["revision"]) == (accepted[0]["state"]["version"], 2)


def test_input_is_checked_against_revision_depth_and_size(easel: LiveEasel, canvas: str) -> None:
    stale = call(easel, "canvas.input", canvasId=canvas, path="/version", value="2", expectedRevision=7)
    assert (stale.status_code, stale.json()["error"]["details"]["currentRevision"]) == (409, 1)
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    assert call(easel, "canvas.input", canvasId=canvas, path="/version", value=deep).status_code == 400
    large = [
        call(easel, "canvas.input", canvasId=canvas, path=f"/fields/{name}", value="long words " * 55_000)
        for name in "ab"
    ]
    assert [answer.status_code for answer in large] == [200, 413]
    assert call(easel, "canvas.input", canvasId="unknown", path="/version", value=1).status_code == 404


@rule("CV-05")
def test_report_of_the_shell_is_audited(easel: LiveEasel, canvas: str) -> None:
    assert (
        call(
            easel, "canvas.report", canvasId=canvas, what="kind", detail="tool.call gsv__Bash", count=3
        ).status_code
        == 200
    )
    wait_for_sync(
        lambda: any(
            (details["what"], details.get("detail"), details.get("refused"))
            == ("kind", "tool.call gsv__Bash", 3)
            for details in refusals(easel, canvas)
        ),
        within=20,
        what="the report is audited",
    )
    assert call(easel, "canvas.report", canvasId=canvas, what="anything").status_code == 400
    assert call(easel, "canvas.report", canvasId=canvas, what="kind", detail="x" * 501).status_code == 400
    assert call(easel, "canvas.report", canvasId="unknown", what="kind").status_code == 404
