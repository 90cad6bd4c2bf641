"""Many viewers of one run, in a process of its own, light enough not to be measured themselves.

While events flow it only records when bytes arrived; it parses them after the last stream has ended. Run as
`python -m bench.viewers URL TOKEN RUN_ID VIEWERS SECONDS`: it prints `connected` once every stream is open,
and then its result as one line of JSON.
"""

from __future__ import annotations

import json
import math
import resource
import selectors
import socket
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bench.figures import percentile
from bench.wire import Server

_CONNECT_SECONDS = 30.0
_SPARE_FILES = 64


@dataclass(slots=True)
class Viewer:
    """One stream: its bytes and their times."""

    connection: socket.socket
    head: bytes = b""
    open: bool = False
    arrivals: list[tuple[float, bytes]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of all viewers: how many streams were complete, and how late each tick was, in
    milliseconds.
    """

    viewers: int
    whole: int
    events: int
    ticks: int
    late_p50: float
    late_p99: float
    late_max: float


def main(server: Server, run_id: str, crowd: int, seconds: float) -> None:
    _allow_files(crowd + _SPARE_FILES)
    selector = selectors.DefaultSelector()
    request = server.request("GET", f"/api/runs/{run_id}/events")
    viewers = [Viewer(socket.create_connection(server.address, _CONNECT_SECONDS)) for _ in range(crowd)]
    for viewer in viewers:
        viewer.connection.sendall(request)
        viewer.connection.setblocking(False)
        selector.register(viewer.connection, selectors.EVENT_READ, viewer)
    watch(selector, viewers, seconds)
    print(json.dumps(_as_dict(take_apart(viewers))), flush=True)


def watch(selector: selectors.BaseSelector, viewers: list[Viewer], seconds: float) -> None:
    """Read until every stream has ended, or the time is over."""
    deadline = time.monotonic() + seconds
    waiting = len(viewers)
    reading = len(viewers)
    while reading and time.monotonic() < deadline:
        for key, _ in selector.select(timeout=1.0):
            viewer: Viewer = key.data
            chunk = viewer.connection.recv(65536)
            at = time.time()
            if not viewer.open:
                viewer.head += chunk
                head, found, chunk = viewer.head.partition(b"\r\n\r\n")
                if found:
                    if not head.startswith(b"HTTP/1.1 200"):
                        raise SystemExit(f"a viewer was refused: {head[:200]!r}")
                    viewer.open = True
                    waiting -= 1
                    if not waiting:
                        print("connected", flush=True)
            if chunk:
                viewer.arrivals.append((at, chunk))
            if (not chunk and viewer.open and viewer.arrivals) or chunk.endswith(b"0\r\n\r\n"):
                selector.unregister(viewer.connection)
                viewer.connection.close()
                reading -= 1


def take_apart(viewers: list[Viewer]) -> Seen:
    """Find each event in the bytes, and how long after its own timestamp its last byte arrived."""
    born: dict[int, float] = {}
    late: list[float] = []
    streams: list[tuple[list[int], bool]] = []
    for viewer in viewers:
        seqs: list[int] = []
        done = False
        rest = b""
        for at, chunk in viewer.arrivals:
            *frames, rest = (rest + chunk).split(b"\n\n")
            for frame in frames:
                fields = _fields(frame)
                if "data" not in fields:
                    continue
                seq = int(fields["id"])
                seqs.append(seq)
                done = fields["event"] == "done"
                if seq not in born:
                    born[seq] = _moment(json.loads(fields["data"])["ts"])
                if fields["event"] == "message.delta":
                    late.append((at - born[seq]) * 1000)
        streams.append((seqs, done))
    # A complete stream has every event that any viewer received, once, in order, and `done` last.
    everything = sorted(born)
    whole = sum(done and seqs == everything for seqs, done in streams)
    ticks = len(late)
    late = late or [math.nan]
    return Seen(
        len(viewers),
        whole,
        sum(len(seqs) for seqs, _ in streams),
        ticks,
        percentile(late, 0.5),
        percentile(late, 0.99),
        max(late),
    )


def _fields(frame: bytes) -> dict[str, str]:
    """Return the fields of an event. Lines of the chunked framing between two events have no colon and are
    skipped.
    """
    lines = (line.partition(": ") for line in frame.decode().replace("\r\n", "\n").split("\n"))
    return {name: value for name, colon, value in lines if colon}


def _moment(ts: Any) -> float:
    return float(ts) if isinstance(ts, int | float) else datetime.fromisoformat(ts).timestamp()


def _as_dict(seen: Seen) -> dict[str, float]:
    return {name: getattr(seen, name) for name in Seen.__slots__}


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


if __name__ == "__main__":
    url, token, run_id, crowd, seconds = sys.argv[1:]
    main(Server(url, token), run_id, int(crowd), float(seconds))
