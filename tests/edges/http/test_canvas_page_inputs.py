"""What the page of a canvas writes, through the gateway's `canvas.input`; and what it tried and may not, in the audit trail."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import rule
from tests.support.processes import wait_until

if TYPE_CHECKING:
    import httpx2


def call(easel: LiveEasel, method: str, **params: Any) -> httpx2.Response:
    return easel.post("/api/rpc", {"method": method, "params": params})


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
    return [one["details"] for one in records if one.get("subject") == name]


@rule("RS-41")
def test_an_entry_is_a_mutation_with_revision_and_event_like_any_other(easel: LiveEasel, canvas: str) -> None:
    answer = call(easel, "canvas.input", canvasId=canvas, path="/version", value="2", was="1").json()
    assert (answer["state"]["version"], answer["revision"]) == ("2", 2)
    again = call(easel, "canvas.input", canvasId=canvas, path="/version", value="2", was="1").json()
    assert again["revision"] == 2, "what is there already is no change"
    made = call(
        easel, "canvas.input", canvasId=canvas, path="/fields/a b~1c", value={"deep": [1]}, was=None
    ).json()
    assert made["state"]["fields"] == {"a b/c": {"deep": [1]}}


@rule("RS-41")
def test_a_page_writes_only_where_its_spec_lets_it_and_the_attempt_is_on_record(
    easel: LiveEasel, canvas: str
) -> None:
    answer = call(easel, "canvas.input", canvasId=canvas, path="/other", value=2)
    assert (answer.status_code, answer.json()["error"]["name"]) == (403, "FORBIDDEN")
    assert call(easel, "canvas.get", canvasId=canvas).json()["revision"] == 1
    wait_until(
        lambda: any(one["what"] == "input" for one in refusals(easel, canvas)),
        within=20,
        what="the refusal on record",
    )


@pytest.mark.parametrize(
    "path",
    [
        "/__proto__/x",
        "/constructor",
        "/version/__class__",
        "version",
        "state.version",
        "/~2",
        "/" + "a/" * 5000,
    ],
)
def test_a_path_that_is_no_place_in_plain_data_is_refused(easel: LiveEasel, canvas: str, path: str) -> None:
    answer = call(easel, "canvas.input", canvasId=canvas, path=path, value=1)
    assert answer.status_code == 400
    assert call(easel, "canvas.get", canvasId=canvas).json()["revision"] == 1


def test_of_two_who_saw_the_same_one_writes_and_the_other_is_told(easel: LiveEasel, canvas: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda n: call(
                    easel, "canvas.input", canvasId=canvas, path="/version", value=f"by {n}", was="1"
                ),
                range(8),
            )
        )
    done = [one.json() for one in answers if one.status_code == 200]
    refused = [one.json()["error"] for one in answers if one.status_code == 409]
    assert (len(done), len(refused)) == (1, 7)
    assert {one["name"] for one in refused} == {"INPUT_CONFLICT"}
    snapshot = call(easel, "canvas.get", canvasId=canvas).json()
    assert (snapshot["state"]["version"], snapshot["revision"]) == (done[0]["state"]["version"], 2)


def test_entries_at_different_places_all_survive(easel: LiveEasel, canvas: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda n: call(
                    easel, "canvas.input", canvasId=canvas, path=f"/fields/f{n}", value=n, was=None
                ),
                range(24),
            )
        )
    assert {one.status_code for one in answers} == {200}
    snapshot = call(easel, "canvas.get", canvasId=canvas).json()
    assert snapshot["state"]["fields"] == {f"f{n}": n for n in range(24)}
    assert snapshot["revision"] == 25


def test_an_entry_is_held_to_the_revision_and_to_the_size_of_the_state(easel: LiveEasel, canvas: str) -> None:
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
    assert [one.status_code for one in large] == [200, 413]
    assert call(easel, "canvas.input", canvasId="there-is-none", path="/version", value=1).status_code == 404


@rule("CV-05")
def test_what_the_shell_refused_its_page_is_on_record(easel: LiveEasel, canvas: str) -> None:
    assert (
        call(
            easel, "canvas.report", canvasId=canvas, what="kind", detail="tool.call gsv__Bash", count=3
        ).status_code
        == 200
    )
    wait_until(
        lambda: any(
            (one["what"], one.get("detail"), one.get("refused")) == ("kind", "tool.call gsv__Bash", 3)
            for one in refusals(easel, canvas)
        ),
        within=20,
        what="the report on record",
    )
    assert call(easel, "canvas.report", canvasId=canvas, what="anything").status_code == 400
    assert call(easel, "canvas.report", canvasId=canvas, what="kind", detail="x" * 501).status_code == 400
    assert call(easel, "canvas.report", canvasId="there-is-none", what="kind").status_code == 404
