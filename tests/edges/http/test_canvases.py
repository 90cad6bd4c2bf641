"""Canvases over HTTP, their streams, and snapshots as references to artifacts."""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.http.canvas_calls import add_snapshot, call, parse_frames, png, read_stream
from tests.edges.http.live import in_time, new_session, script
from tests.requirements import case, rule

if TYPE_CHECKING:
    from tests.edges.http.live import LiveEasel


@pytest.fixture
def canvas(easel: LiveEasel) -> str:
    name = new_session()
    assert call(easel, "canvas.create", canvasId=name, title="Cockpit").status_code == 200
    return name


INVALID_CALLS: list[tuple[str, dict[str, Any], int]] = [
    ("canvas.create", {"canvasId": "a b"}, 400),
    ("canvas.create", {"canvasId": "a__b"}, 400),
    ("canvas.create", {"canvasId": "x", "expected_revision": 1}, 400),
    ("canvas.create", {"canvasId": "x", "state": [1]}, 400),
    ("canvas.create", {"canvasId": "x", "spec": {"version": 2}}, 400),
    ("canvas.create", {"canvasId": "x", "expectedRevision": 3}, 409),
    ("canvas.patch", {"canvasId": "x", "statePatch": {}}, 400),
    ("canvas.patch", {"canvasId": "x", "expectedRevision": -1}, 400),
    ("canvas.list", {"limit": 0}, 400),
    ("canvas.list", {"agentId": "a b"}, 400),
    ("canvas.get", {"canvasId": "\u0000"}, 404),
    ("canvas.unsubscribe", {"canvasId": "x"}, 400),
    ("canvas.get", {"canvasId": "unknown"}, 404),
    ("canvas.dance", {}, 404),
    ("connect", {}, 400),
    ("tool.result", {}, 400),
    ("canvas.subscribe", {"canvasId": "x"}, 400),
]


def test_invalid_call_is_refused(easel: LiveEasel) -> None:
    for method, params, status in INVALID_CALLS:
        answer = call(easel, method, **params)
        assert answer.status_code == status, (method, params, answer.text)
        assert answer.json()["error"]["code"] == status


@rule("CC-07", "CC-08", "CC-24", "RS-05", "RS-33")
def test_snapshot_is_an_artifact_and_the_log_has_only_its_reference(easel: LiveEasel, canvas: str) -> None:
    picture = png(1)
    answer = add_snapshot(easel, canvas, picture)
    assert answer.status_code == 201
    [created, snapshot] = read_stream(easel, canvas, 2)
    assert [created["event"], snapshot["event"]] == ["canvas.created", "canvas.snapshot"]
    data = _data(snapshot)
    assert data["artifact_id"] == answer.json()["artifact_id"]
    [sidecar] = data["media_payload"]["sidecars"]
    assert easel.get(sidecar["uri"]).content == picture
    assert (sidecar["mime_type"], sidecar["size_bytes"]) == ("image/png", len(picture))
    assert data["visibility"] == "public"
    assert data["provenance"]["agent_id"] == "owner"
    assert set(data["provenance"]) == {"kind", "agent_id", "node_id", "run_id"}
    for raw in (picture[1_000:1_040].hex(), base64.b64encode(picture[999:1_050]).decode()[:40]):
        for table in ("canvas_events", "canvases", "artifacts", "run_events", "messages", "audit"):
            stored = str(
                [
                    {key: _hex(value) for key, value in row.items()}
                    for row in easel.sql(f"select * from {table}")
                ]
            )
            assert raw not in stored, f"pixels in {table}"


def _hex(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value


def _data(frame: dict[str, str]) -> dict[str, Any]:
    return json.loads(frame["data"])["data"]


@rule("RS-34")
def test_stream_replays_snapshots_and_continues_after_a_cursor(easel: LiveEasel, canvas: str) -> None:
    for colour in (1, 2, 3):
        assert add_snapshot(easel, canvas, png(colour)).status_code == 201
    latest = easel.get(f"/api/artifacts/{_data(read_stream(easel, canvas, 4)[-1])['artifact_id']}").content
    assert latest == png(3)
    assert [frame["id"] for frame in read_stream(easel, canvas, 2, last_event_id="2")] == ["3", "4"]
    for cursor, status in (("9", 410), ("x", 400), ("-1", 400)):
        with easel.stranger() as http:
            assert (
                http.get(
                    f"/sse/canvas/{canvas}", params={"last_event_id": cursor}, headers=easel.bearer
                ).status_code
                == status
            )


@rule("CC-29")
def test_unknown_canvas_is_not_found(easel: LiveEasel) -> None:
    assert easel.get("/sse/canvas/unknown").status_code == 404
    assert add_snapshot(easel, "unknown", png(1)).status_code == 404
    with easel.stranger() as http:
        assert http.get("/sse/canvas/unknown").status_code == 401


@rule("CC-31", "CC-07")
@case("E11")
def test_snapshot_is_in_no_chat_and_no_run(easel: LiveEasel, canvas: str) -> None:
    name = new_session()
    run_id = easel.finish(script({"say": "look"}), name)
    add_snapshot(easel, canvas, png(7))
    assert all(not event.type.startswith("canvas.") for event in easel.events(run_id, debug="1"))
    assert "canvas" not in easel.get(f"/api/sessions/{name}/messages").text
    assert [
        row["event_type"]
        for row in easel.sql("select distinct event_type from run_events where event_type like 'canvas%'")
    ] == []


@case("R2")
@pytest.mark.parametrize(
    "picture, kind",
    [
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", "image/svg+xml"),
        (b"<html><script>alert(1)</script>", "image/png"),
        (zlib.compress(b"0" * 10_000_000), "image/png"),
        (b"", "image/png"),
    ],
    ids=["svg", "html as png", "compressed", "empty"],
)
def test_snapshot_that_is_not_a_picture_is_refused(
    easel: LiveEasel, canvas: str, picture: bytes, kind: str
) -> None:
    answer = add_snapshot(easel, canvas, picture, kind)
    assert (answer.status_code, answer.json()["error"]["name"]) == (400, "BAD_INPUT")
    assert call(easel, "canvas.get", canvasId=canvas).json()["descriptor"]["lastSeq"] == 1, (
        "no event was appended"
    )


@rule("CC-23", "RS-35")
def test_base64_in_a_state_is_offloaded_and_long_text_is_not(easel: LiveEasel) -> None:
    name = new_session()
    pixels, text = base64.b64encode(png(5)).decode(), "plain words " * 400
    call(easel, "canvas.create", canvasId=name, state={"shot": pixels, "note": text})
    state = call(easel, "canvas.get", canvasId=name).json()["state"]
    assert state["note"] == text
    assert state["shot"]["redacted"] is True
    assert easel.get(state["shot"]["uri"]).text == pixels
    [row] = easel.sql(f"select count(*) as count from artifact_refs where canvas_id = '{name}'")
    assert row["count"] == 1, "the canvas refers to the artifact"


def test_stream_ends_when_the_canvas_is_deleted(easel: LiveEasel, canvas: str) -> None:
    with (
        easel.stranger() as http,
        http.stream("GET", f"/sse/canvas/{canvas}", headers=easel.bearer) as stream,
    ):
        frames = parse_frames(in_time(stream.iter_lines()))
        while "id" not in next(frames):
            pass
        assert call(easel, "canvas.delete", canvasId=canvas).status_code == 200
        assert [frame for frame in frames if "id" in frame] == []


@rule("RS-34")
def test_recreated_canvas_continues_the_seq_so_that_old_cursors_are_refused(
    easel: LiveEasel, canvas: str
) -> None:
    assert add_snapshot(easel, canvas, png(1)).status_code == 201
    assert call(easel, "canvas.delete", canvasId=canvas).status_code == 200
    assert call(easel, "canvas.create", canvasId=canvas).json()["revision"] == 1
    [created] = read_stream(easel, canvas, 1)
    assert (created["id"], created["event"]) == ("3", "canvas.created")
    with easel.stranger() as http:
        refused = http.get(f"/sse/canvas/{canvas}", params={"last_event_id": "1"}, headers=easel.bearer)
    assert (refused.status_code, refused.json()["error"]["details"]) == (
        410,
        {"cursor": 1, "oldest": 3, "newest": 3},
    )


@rule("CC-23")
def test_base64_in_a_spec_is_refused(easel: LiveEasel) -> None:
    spec = {
        "version": 1,
        "actions": {"a": {"kind": "session.send", "message": base64.b64encode(png(9)).decode()}},
    }
    answer = call(easel, "canvas.create", canvasId=new_session(), spec=spec)
    assert (answer.status_code, answer.json()["error"]["name"]) == (400, "BAD_INPUT")
