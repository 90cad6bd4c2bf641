"""Log output: one line per event in the configured format, without secrets and without injected lines."""

from __future__ import annotations

import json
import socket
import sys
from typing import TYPE_CHECKING
from uuid import uuid4

import httpx2
import pytest

from easel.logs import without_payloads
from tests.edges.http.live import cookie_name
from tests.requirements import case, rule
from tests.support.processes import EaselProcess, Launcher
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILING_SERVER = (sys.executable, "-m", "tests.edges.http.server_that_breaks", "up", "--port", "0")
FORGED = "2026-11-15T09:08:02Z [error] forged.event"
HOSTILE_PATHS = [
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
        process = launcher.worker(command=FAILING_SERVER)
        process.wait_ready()
        yield process


@pytest.fixture
def client(server: EaselProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(
        base_url=server.base_url, headers={"Authorization": f"Bearer {server.token}"}, timeout=30
    ) as http:
        yield http


def is_json(server: EaselProcess) -> bool:
    return "json" in server.environment["EASEL_LOG"]


def log_of(server: EaselProcess) -> str:
    """Return the log without the banner of `easel up`, which contains the link to sign in."""
    banner = (b"Easel ", b"Data is in", b"Open http", b"Ctrl-C")
    *lines, _ = server.log.read_bytes().split(b"\n")  # the last line may be incomplete
    return b"".join(line + b"\n" for line in lines if not line.startswith(banner)).decode()


def complete_log(server: EaselProcess, client: httpx2.Client) -> str:
    """Return the log up to a request that is made now."""
    last = f"/last-{uuid4().hex}"
    client.get(last)
    # A request is logged after its response was sent.
    wait_for_sync(lambda: last in log_of(server), within=30, what="the last request is in the log")
    return log_of(server)


@case("P6")
def test_tokens_and_cookies_are_not_logged(server: EaselProcess, client: httpx2.Client) -> None:
    wrong = "a-wrong-token-that-may-be-valid-on-another-server"
    with httpx2.Client(base_url=server.base_url, timeout=30) as stranger:
        cookie = stranger.get("/", params={"token": server.token}).cookies[cookie_name(server.base_url)]
        stranger.get("/api/runs")
        stranger.get("/", params={"token": wrong})
        stranger.post("/sign-in", data={"token": wrong})
        stranger.get("/api/runs", headers={"Authorization": f"Bearer {wrong}"})
        # These raise, with a cookie and with a bearer token.
        stranger.get("/api/runs/run_00000000000000000000000000", params={"token": server.token})
    client.get("/api/runs/run_00000000000000000000000000", params={"token": server.token})
    everything = complete_log(server, client)
    for secret in (server.token, cookie, cookie.partition(".")[2], wrong):
        assert secret not in everything


@case("P6")
def test_exception_is_logged_and_the_client_gets_a_reference(
    server: EaselProcess, client: httpx2.Client
) -> None:
    answer = client.get("/api/runs/run_00000000000000000000000001")
    assert answer.status_code == 500
    error = answer.json()["error"]
    assert (error["code"], error["name"]) == (500, "INTERNAL_ERROR")
    for detail in ("RuntimeError", "Traceback", "no luck", ".py", "server_that_breaks"):
        assert detail not in answer.text
    reference = error["details"]["reference"]
    assert reference in error["message"]
    everything = complete_log(server, client)
    assert reference in everything
    assert "no luck with run_00000000000000000000000001" in everything
    if is_json(server):
        line = next(json.loads(line) for line in everything.splitlines() if reference in line)
        assert line["event"] == "http.error"
        assert "RuntimeError" in line["exception"]


@case("R6")
def test_control_characters_of_a_path_are_escaped(server: EaselProcess, client: httpx2.Client) -> None:
    before = len(log_of(server))
    for path in HOSTILE_PATHS:
        assert client.get(path).status_code == 404
    check_lines(server, complete_log(server, client)[before:])


@case("R6")
def test_control_characters_of_an_exception_are_escaped(server: EaselProcess, client: httpx2.Client) -> None:
    before = len(log_of(server))
    assert client.get(f"/api/runs/a%0d%0a{FORGED.replace(' ', '%20')}%1b%5b31m").status_code == 500
    check_lines(server, complete_log(server, client)[before:])


def check_lines(server: EaselProcess, added: str) -> None:
    assert not any(line.startswith(FORGED) for line in added.splitlines())
    assert all(char == "\n" or char.isprintable() for char in added), repr(added[:400])
    if is_json(server):
        for line in added.splitlines():
            json.loads(line)


def test_invalid_http_is_logged_in_the_same_format(server: EaselProcess, client: httpx2.Client) -> None:
    before = len(log_of(server))
    host, _, port = server.base_url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(b"GARBAGE\r\n\r\n")
        assert b" 400 " in connection.recv(65_536)
    check_lines(server, complete_log(server, client)[before:])


def test_every_line_has_time_level_and_event(server: EaselProcess, client: httpx2.Client) -> None:
    lines = [
        line
        for line in complete_log(server, client).splitlines()
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


def test_requests_are_not_logged_at_the_default_level(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Launcher(tmp_path_factory.mktemp("default")) as launcher:
        (server,) = launcher.ready(launcher.up())
        for _ in range(3):
            assert server.answers("/healthz") == 200
        server.terminate(30)  # flushes the log
        assert "http.answered" not in server.output()
        assert "worker.started" in server.output()


@rule("CC-23")
def test_payload_is_cut_out_of_a_log_line() -> None:
    pixels = "iVBORw0KGgo" * 400
    text = without_payloads(f"refused: {pixels} (that was all)")
    assert pixels not in text
    assert text == f"refused: {pixels[:40]}…({len(pixels)} characters) (that was all)"
    assert without_payloads("plain words " * 200) == "plain words " * 200
