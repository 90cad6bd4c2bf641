"""What is logged: one line per thing, in the format asked for, with no secret in it and nothing that a stranger wrote between them."""

from __future__ import annotations

import json
import socket
import sys
from typing import TYPE_CHECKING
from uuid import uuid4

import httpx2
import pytest

from easel.logs import without_payloads
from tests.requirements import case, rule
from tests.support.processes import EaselProcess, Launcher
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

BREAKS = (sys.executable, "-m", "tests.edges.http.server_that_breaks", "up", "--port", "0")
FORGED = "2026-11-15T09:08:02Z [error] the.house.burns"
HOSTILE = [
    f"/x%0d%0a{FORGED.replace(' ', '%20')}",
    f"/x%0a{FORGED.replace(' ', '%20')}",
    "/%1b%5b31mred%1b%5b0m",
    "/%1b%5d0;title%07",
    "/%c2%9b31m",
    "/x%e2%80%a8y%c2%85z%0b%0c",
    "/%00%01%7f",
    "/" + "x" * 60_000,
]


@pytest.fixture(scope="module", params=["debug,text", "debug,json"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EaselProcess]:
    with Launcher(tmp_path_factory.mktemp("logs"), settings={"LOG": request.param}) as launcher:
        started = launcher.worker(command=BREAKS)
        started.wait_ready()
        yield started


@pytest.fixture
def client(server: EaselProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(
        base_url=server.base_url, headers={"Authorization": f"Bearer {server.token}"}, timeout=30
    ) as http:
        yield http


def is_json(server: EaselProcess) -> bool:
    return "json" in server.environment["EASEL_LOG"]


def said(server: EaselProcess) -> str:
    """Everything but the few lines that `easel up` tells the person who started it, the link among them."""
    told = (b"Easel ", b"Data is in", b"Open http", b"Ctrl-C")
    *lines, _ = server.log.read_bytes().split(b"\n")  # the last of them is being written
    return b"".join(line + b"\n" for line in lines if not line.startswith(told)).decode()


def last_answered(server: EaselProcess, client: httpx2.Client) -> str:
    """All that was logged, once the last request is in it."""
    last = f"/the-last-one-{uuid4().hex}"
    client.get(last)
    # Its line is written after its answer is sent, so the answer may be here first.
    wait_for_sync(lambda: last in said(server), within=30, what="the last request is in the log")
    return said(server)


@case("P6")
def test_no_token_and_no_cookie_is_ever_logged(server: EaselProcess, client: httpx2.Client) -> None:
    wrong = "a-wrong-token-that-may-be-a-right-one-elsewhere"
    with httpx2.Client(base_url=server.base_url, timeout=30) as stranger:
        cookie = stranger.get("/", params={"token": server.token}).cookies["easel"]
        stranger.get("/api/runs")
        stranger.get("/", params={"token": wrong})
        stranger.post("/sign-in", data={"token": wrong})
        stranger.get("/api/runs", headers={"Authorization": f"Bearer {wrong}"})
        stranger.get(
            "/api/runs/run_00000000000000000000000000", params={"token": server.token}
        )  # breaks, with a cookie
    client.get(
        "/api/runs/run_00000000000000000000000000", params={"token": server.token}
    )  # breaks, with a bearer token
    everything = last_answered(server, client)
    for secret in (server.token, cookie, cookie.partition(".")[2], wrong):
        assert secret not in everything


@case("P6")
def test_a_broken_part_tells_the_client_a_reference_and_the_log_the_rest(
    server: EaselProcess, client: httpx2.Client
) -> None:
    answer = client.get("/api/runs/run_00000000000000000000000001")
    assert answer.status_code == 500
    error = answer.json()["error"]
    assert (error["code"], error["name"]) == (500, "INTERNAL_ERROR")
    for inside in ("RuntimeError", "Traceback", "no luck", ".py", "server_that_breaks"):
        assert inside not in answer.text
    reference = error["details"]["reference"]
    assert reference in error["message"]
    everything = last_answered(server, client)
    assert reference in everything
    assert "no luck with run_00000000000000000000000001" in everything
    if is_json(server):
        line = next(json.loads(line) for line in everything.splitlines() if reference in line)
        assert line["event"] == "http.error"
        assert "RuntimeError" in line["exception"]


@case("R6")
@pytest.mark.parametrize("path", HOSTILE, ids=[path[:24] for path in HOSTILE])
def test_nobody_writes_lines_or_colours_into_the_log_by_the_address_they_ask_for(
    server: EaselProcess, client: httpx2.Client, path: str
) -> None:
    before = len(said(server))
    assert client.get(path).status_code == 404
    check_lines(server, last_answered(server, client)[before:])


@case("R6")
def test_nobody_writes_lines_or_colours_into_the_log_by_what_breaks(
    server: EaselProcess, client: httpx2.Client
) -> None:
    before = len(said(server))
    assert client.get(f"/api/runs/a%0d%0a{FORGED.replace(' ', '%20')}%1b%5b31m").status_code == 500
    check_lines(server, last_answered(server, client)[before:])


def check_lines(server: EaselProcess, added: str) -> None:
    assert not any(line.startswith(FORGED) for line in added.splitlines())
    assert all(char == "\n" or char.isprintable() for char in added), repr(added[:400])
    if is_json(server):
        for line in added.splitlines():
            json.loads(line)


def test_what_is_not_http_is_logged_in_the_same_format(server: EaselProcess, client: httpx2.Client) -> None:
    before = len(said(server))
    host, _, port = server.base_url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(b"GARBAGE\r\n\r\n")
        assert b" 400 " in connection.recv(65_536)
    check_lines(server, last_answered(server, client)[before:])


def test_every_line_has_its_time_its_level_and_its_event(server: EaselProcess, client: httpx2.Client) -> None:
    lines = [
        line
        for line in last_answered(server, client).splitlines()
        if "http.answered" in line or "worker.started" in line
    ]
    assert len(lines) > 1
    for line in lines:
        if is_json(server):
            row = json.loads(line)
            assert {"event", "level", "timestamp"} <= set(row)
            assert row["timestamp"].endswith("Z")
        else:
            assert line[:4].isdigit()
            assert "[debug" in line or "[info" in line


def test_at_its_usual_level_a_server_does_not_log_every_request(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Launcher(tmp_path_factory.mktemp("quiet")) as launcher:
        (quiet,) = launcher.ready(launcher.up())
        for _ in range(3):
            assert quiet.answers("/healthz") == 200
        quiet.terminate(30)  # by then all is written
        assert "http.answered" not in quiet.output()
        assert "worker.started" in quiet.output()


@rule("CC-23")
def test_no_payload_gets_into_a_line_however_it_got_into_a_value() -> None:
    pixels = "iVBORw0KGgo" * 400
    told = without_payloads(f"refused: {pixels} (that was all)")
    assert pixels not in told
    assert told == f"refused: {pixels[:40]}…({len(pixels)} characters) (that was all)"
    assert without_payloads("plain words " * 200) == "plain words " * 200
