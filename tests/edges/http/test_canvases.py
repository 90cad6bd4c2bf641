"""Canvases and their pictures: by reference in the log, as bytes beside it, and nowhere else."""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.http.live import in_time, new_session, script
from tests.requirements import case, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.edges.http.live import LiveEasel


def png(colour: int, size: int = 4_000) -> bytes:
    """Bytes that any reader takes for a PNG, each different."""
    return b"\x89PNG\r\n\x1a\n" + bytes((colour * n * 31 + n // 7) % 256 for n in range(size))


def rpc(easel: LiveEasel, method: str, **params: Any) -> Any:
    return easel.post("/api/rpc", {"method": method, "params": params})


@pytest.fixture
def canvas(easel: LiveEasel) -> str:
    name = new_session()
    assert rpc(easel, "canvas.create", canvasId=name, title="Cockpit").status_code == 200
    return name


def snap(easel: LiveEasel, canvas: str, picture: bytes, kind: str = "image/png") -> Any:
    return easel.ask(
        "POST", f"/api/canvases/{canvas}/snapshots", content=picture, headers={"content-type": kind}
    )


def watched(easel: LiveEasel, canvas: str, count: int, **query: str) -> list[dict[str, str]]:
    """The first events of the canvas's stream, as they were sent."""
    frames: list[dict[str, str]] = []
    with (
        easel.stranger() as http,
        http.stream("GET", f"/sse/canvas/{canvas}", params=query, headers=easel.bearer) as stream,
    ):
        assert stream.status_code == 200
        for frame in _frames(in_time(stream.iter_lines())):
            if "id" in frame:
                frames.append(frame)
            if len(frames) == count:
                break
    return frames


def _frames(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    frame: dict[str, str] = {}
    for line in lines:
        if not line:
            yield frame
            frame = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            frame[name] = value


def test_a_canvas_is_made_found_and_deleted_by_the_gateways_methods(easel: LiveEasel) -> None:
    name = new_session()
    made = rpc(
        easel,
        "canvas.create",
        canvasId=name,
        title="Cockpit",
        spec={"version": 1, "mode": "html", "state": {"n": 1}},
    )
    assert made.status_code == 200
    view = made.json()
    assert set(view) == {"descriptor", "spec", "state", "assets", "accepted", "views", "revision"}
    assert view["state"] == {"n": 1}
    assert (view["descriptor"]["canvasId"], view["descriptor"]["title"], view["revision"]) == (
        name,
        "Cockpit",
        1,
    )
    assert rpc(easel, "canvas.get", canvasId=name).json() == view
    assert rpc(easel, "canvas.create", canvasId=name).status_code == 409
    assert rpc(easel, "canvas.delete", canvasId=name).json() == {"canvasId": name, "deleted": True}
    for method in ("canvas.get", "canvas.delete"):
        assert rpc(easel, method, canvasId=name).status_code == 404


@pytest.mark.parametrize(
    "method, params, status",
    [
        ("canvas.create", {}, 400),
        ("canvas.create", {"canvasId": "a b"}, 400),
        ("canvas.create", {"canvasId": "a__b"}, 400),
        ("canvas.create", {"canvasId": "x", "surprise": 1}, 400),
        ("canvas.create", {"canvasId": "x", "state": [1]}, 400),
        ("canvas.create", {"canvasId": "x", "spec": {"version": 2}}, 400),
        ("canvas.create", {"canvasId": "x", "expectedRevision": 3}, 409),
        ("canvas.patch", {"canvasId": "x", "statePatch": {}}, 400),
        ("canvas.patch", {"canvasId": "x", "expectedRevision": -1}, 400),
        ("canvas.list", {"limit": 0}, 400),
        ("canvas.list", {"agentId": "a b"}, 400),
        ("canvas.get", {"canvasId": "\u0000"}, 404),
        ("canvas.unsubscribe", {"canvasId": "x"}, 400),
        ("canvas.get", {"canvasId": "there-is-none"}, 404),
        ("canvas.dance", {}, 404),
        ("connect", {}, 400),
        ("tool.result", {}, 400),
        ("canvas.subscribe", {"canvasId": "x"}, 400),
    ],
)
def test_a_call_that_does_not_fit_is_refused_by_name(
    easel: LiveEasel, method: str, params: dict[str, Any], status: int
) -> None:
    answer = rpc(easel, method, **params)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["code"] == status


@rule("CC-07", "CC-08", "CC-24", "RS-05", "RS-33")
def test_a_snapshot_is_an_artifact_and_the_canvas_log_has_its_reference_alone(
    easel: LiveEasel, canvas: str
) -> None:
    picture = png(1)
    answer = snap(easel, canvas, picture)
    assert answer.status_code == 201
    [created, shown] = watched(easel, canvas, 2)
    assert [created["event"], shown["event"]] == ["canvas.created", "canvas.snapshot"]
    data = _data(shown)
    assert data["artifact_id"] == answer.json()["artifact_id"]
    [sidecar] = data["media_payload"]["sidecars"]
    assert easel.get(sidecar["uri"]).content == picture
    assert (sidecar["mime_type"], sidecar["size_bytes"]) == ("image/png", len(picture))
    assert data["visibility"] == "public"
    assert data["provenance"]["agent_id"] == "owner"
    assert set(data["provenance"]) == {"agent_id", "node_id", "run_id"}
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
def test_who_comes_later_gets_the_latest_reference_and_who_comes_back_what_was_missed(
    easel: LiveEasel, canvas: str
) -> None:
    for colour in (1, 2, 3):
        assert snap(easel, canvas, png(colour)).status_code == 201
    latest = easel.get(f"/api/artifacts/{_data(watched(easel, canvas, 4)[-1])['artifact_id']}").content
    assert latest == png(3)
    assert [frame["id"] for frame in watched(easel, canvas, 2, last_event_id="2")] == ["3", "4"]
    for cursor, status in (("9", 410), ("x", 400), ("-1", 400)):
        with easel.stranger() as http:
            assert (
                http.get(
                    f"/sse/canvas/{canvas}", params={"last_event_id": cursor}, headers=easel.bearer
                ).status_code
                == status
            )


@rule("CC-29")
def test_an_unknown_canvas_is_not_found_by_any_of_its_ways(easel: LiveEasel) -> None:
    assert easel.get("/sse/canvas/there-is-none").status_code == 404
    assert snap(easel, "there-is-none", png(1)).status_code == 404
    with easel.stranger() as http:
        assert http.get("/sse/canvas/there-is-none").status_code == 401


@rule("CC-31", "CC-07")
@case("E11")
def test_a_picture_is_in_no_chat_and_in_no_run(easel: LiveEasel, canvas: str) -> None:
    name = new_session()
    run_id = easel.finish(script({"say": "look"}), name)
    snap(easel, canvas, png(7))
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
    ids=["svg", "html as png", "compressed", "nothing"],
)
def test_what_is_no_picture_is_no_snapshot(easel: LiveEasel, canvas: str, picture: bytes, kind: str) -> None:
    answer = snap(easel, canvas, picture, kind)
    assert (answer.status_code, answer.json()["error"]["name"]) == (400, "BAD_INPUT")
    assert rpc(easel, "canvas.get", canvasId=canvas).json()["descriptor"]["lastSeq"] == 1, "nothing was shown"


@rule("CC-23", "RS-35")
def test_base64_in_a_canvas_state_is_moved_and_long_text_is_not(easel: LiveEasel) -> None:
    name = new_session()
    pixels, text = base64.b64encode(png(5)).decode(), "plain words " * 400
    rpc(easel, "canvas.create", canvasId=name, state={"shot": pixels, "note": text})
    state = rpc(easel, "canvas.get", canvasId=name).json()["state"]
    assert state["note"] == text
    assert state["shot"]["redacted"] is True
    assert easel.get(state["shot"]["uri"]).text == pixels
    [row] = easel.sql(f"select count(*) as kept from artifact_refs where canvas_id = '{name}'")
    assert row["kept"] == 1, "the canvas keeps what it refers to"


@rule("CV-44", "CV-45", "RS-08")
def test_a_patch_over_http_is_seen_on_the_stream_and_a_stale_one_is_a_conflict(
    easel: LiveEasel, canvas: str
) -> None:
    patch = [{"op": "add", "path": "/deploy", "value": {"status": "running"}}]
    patched = rpc(easel, "canvas.patch", canvasId=canvas, statePatch=patch, expectedRevision=1).json()
    assert (patched["revision"], patched["state"]) == (2, {"deploy": {"status": "running"}})
    stale = rpc(easel, "canvas.patch", canvasId=canvas, statePatch=patch, expectedRevision=1)
    assert (stale.status_code, stale.json()["error"]["details"]["currentRevision"]) == (409, 2)
    [_, updated] = watched(easel, canvas, 2)
    told = _data(updated)
    assert (updated["event"], told["canvasId"], told["revision"], told["changedPaths"]) == (
        "canvas.updated",
        canvas,
        2,
        ["/deploy"],
    )
    assert told["provenance"]["agent_id"] == "owner"


def test_who_watches_a_canvas_that_is_deleted_sees_the_stream_end(easel: LiveEasel, canvas: str) -> None:
    with (
        easel.stranger() as http,
        http.stream("GET", f"/sse/canvas/{canvas}", headers=easel.bearer) as stream,
    ):
        frames = _frames(in_time(stream.iter_lines()))
        while "id" not in next(frames):
            pass
        assert rpc(easel, "canvas.delete", canvasId=canvas).status_code == 200
        assert [frame for frame in frames if "id" in frame] == []


@rule("RS-34")
def test_a_canvas_that_is_made_anew_goes_on_counting_so_that_no_old_cursor_fits_it(
    easel: LiveEasel, canvas: str
) -> None:
    assert snap(easel, canvas, png(1)).status_code == 201
    assert rpc(easel, "canvas.delete", canvasId=canvas).status_code == 200
    assert rpc(easel, "canvas.create", canvasId=canvas).json()["revision"] == 1
    [created] = watched(easel, canvas, 1)
    assert (created["id"], created["event"]) == ("3", "canvas.created")
    with easel.stranger() as http:
        gone = http.get(f"/sse/canvas/{canvas}", params={"last_event_id": "1"}, headers=easel.bearer)
    assert (gone.status_code, gone.json()["error"]["details"]) == (
        410,
        {"cursor": 1, "oldest": 3, "newest": 3},
    )


@rule("CC-23")
def test_base64_has_no_place_in_a_spec(easel: LiveEasel) -> None:
    spec = {
        "version": 1,
        "actions": {"a": {"kind": "session.send", "message": base64.b64encode(png(9)).decode()}},
    }
    answer = rpc(easel, "canvas.create", canvasId=new_session(), spec=spec)
    assert (answer.status_code, answer.json()["error"]["name"]) == (400, "BAD_INPUT")
