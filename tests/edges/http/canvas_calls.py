"""Helpers for tests of canvases over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.edges.http.live import in_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.edges.http.live import LiveEasel


def call(easel: LiveEasel, method: str, **params: Any) -> Any:
    """Return the response to a call of a gateway method over HTTP."""
    return easel.post("/api/rpc", {"method": method, "params": params})


def png(colour: int, size: int = 4_000) -> bytes:
    """Return bytes that are detected as a PNG, different for every colour."""
    return b"\x89PNG\r\n\x1a\n" + bytes((colour * n * 31 + n // 7) % 256 for n in range(size))


def add_snapshot(easel: LiveEasel, canvas: str, picture: bytes, kind: str = "image/png") -> Any:
    """Return the response to the upload of a snapshot."""
    return easel.ask(
        "POST", f"/api/canvases/{canvas}/snapshots", content=picture, headers={"content-type": kind}
    )


def read_stream(easel: LiveEasel, canvas: str, count: int, **query: str) -> list[dict[str, str]]:
    """Return the first frames with an id of the canvas's stream."""
    frames: list[dict[str, str]] = []
    with (
        easel.stranger() as http,
        http.stream("GET", f"/sse/canvas/{canvas}", params=query, headers=easel.bearer) as stream,
    ):
        assert stream.status_code == 200
        for frame in parse_frames(in_time(stream.iter_lines())):
            if "id" in frame:
                frames.append(frame)
            if len(frames) == count:
                break
    return frames


def parse_frames(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """Yield the frames of a stream, each as a dictionary of its fields."""
    frame: dict[str, str] = {}
    for line in lines:
        if not line:
            yield frame
            frame = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            frame[name] = value
