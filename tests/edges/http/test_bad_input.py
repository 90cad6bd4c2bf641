"""Invalid and hostile requests: each gets an error of the closed set, never a 500, and starts nothing."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from easel.edges.http import middleware
from easel.edges.http.routes import ROUTES
from easel.errors import HostError, by_code
from tests.edges.http.live import LiveEasel, script
from tests.edges.http.test_tenancy import BODIES
from tests.requirements import case
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 8_388_608
GOOD = {"session_id": "s", "message": "noop"}

BAD_BODIES = [
    # id, body, expected error
    ("nothing", b"", 400),
    ("not JSON", b"{", 400),
    ("a word", b"hello", 400),
    ("two values", b"{}{}", 400),
    ("an array", b"[]", 400),
    ("null", b"null", 400),
    ("nothing in it", b"{}", 400),
    ("no message", b'{"session_id":"s"}', 400),
    ("no session", b'{"message":"noop"}', 400),
    ("a number for the session", b'{"session_id":1,"message":"noop"}', 400),
    ("null for the message", b'{"session_id":"s","message":null}', 400),
    ("an object for the message", b'{"session_id":"s","message":{}}', 400),
    ("a number for the key", b'{"session_id":"s","message":"noop","idempotency_key":1}', 400),
    ("an empty message", b'{"session_id":"s","message":""}', 400),
    ("NUL in the message", b'{"session_id":"s","message":"a\\u0000b"}', 400),
    ("a raw NUL", b'{"session_id":"s","message":"a\x00b"}', 400),
    ("NUL in the session", b'{"session_id":"s\\u0000","message":"noop"}', 400),
    ("NUL in the key", b'{"session_id":"s","message":"noop","idempotency_key":"\\u0000"}', 400),
    ("an empty session", b'{"session_id":"","message":"noop"}', 400),
    ("a long session", json.dumps({"session_id": "x" * 129, "message": "noop"}).encode(), 400),
    ("a path for a session", b'{"session_id":"../../etc","message":"noop"}', 400),
    ("a session in two lines", b'{"session_id":"a\\nb","message":"noop"}', 400),
    ("a session that ends in a newline", b'{"session_id":"a\\n","message":"noop"}', 400),
    ("colours for a session", b'{"session_id":"\\u001b[31m","message":"noop"}', 400),
    ("a lone surrogate in the middle", b'{"session_id":"s","message":"a \\udc00 b"}', 400),
    ("a lone surrogate in the key", b'{"session_id":"s","message":"noop","idempotency_key":"\\ud800"}', 400),
    ("half a UTF-8 letter", b'{"session_id":"s","message":"\xc3"}', 400),
    ("a UTF-8 surrogate", b'{"session_id":"s","message":"\xed\xa0\x80"}', 400),
    ("UTF-16", json.dumps(GOOD).encode("utf-16"), 400),
    ("a huge number", b'{"session_id":"s","message":' + b"9" * 100_000 + b"}", 400),
    ("100,000 arrays deep", b"[" * 100_000, 400),
    (
        "100,000 arrays deep in a field nobody knows",
        b'{"session_id":"s","message":"noop","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        400,
    ),
    ("100,000 objects deep", b'{"session_id":' * 30_000, 400),
    ("a message over its limit", json.dumps({"session_id": "s", "message": "x" * 262_145}).encode(), 413),
    ("10 MB", b'{"session_id":"s","message":"' + b"x" * 10_000_000 + b'"}', 413),
    ("a byte over the limit", b"x" * (LIMIT + 1), 413),
]
BAD_QUERIES = [
    "statuses=unknown",
    "statuses=completed,unknown",
    "statuses=COMPLETED",
    "statuses=%00",
    "limit=0",
    "limit=-1",
    "limit=201",
    "limit=x",
    "limit=1.5",
    "limit=1e3",
    "limit=99999999999999999999999999",
    "before=-1",
    "before=x",
    "before=9223372036854775808",
    "before=" + "9" * 5_000,
    "session_id=%00",
    "session_id=%ff",
    "session_id=" + "x" * 5_000,
    "session_id=a%0d%0ab",
]
NO_RUNS = [
    "x",
    "run_",
    "run_00000000000000000000000000",
    "RUN_01M7F7DEA5QY4GJDS115SRY356",
    "%00",
    "run_01m7f7dea5qy4gjds115sry35%00",
    "run_01m7f7dea5qy4gjds115sry356%0a",
    "' or 1=1 --",
    "..",
    "%ff%fe",
    "x" * 5_000,
    "\u202egnp",
]
NO_PAGES = [
    "/api",
    "/api/nothing",
    "/admin",
    "/.env",
    "/ui/",
    "/ui/nothing.css",
    "/ui/home.html",
    "/ui/..%2fsettings.py",
    "/ui/%2e%2e",
    "/favicon.ico",
]


def check_error(answer: Any, status: int) -> dict[str, Any]:
    """Check the status of an error and its name; the client has checked its members."""
    assert answer.status_code == status, answer.text[:500]
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert by_code(error["name"], HostError).http == status
    assert "Traceback" not in error["message"]
    return error


@pytest.fixture
def counted(easel: LiveEasel) -> Iterator[LiveEasel]:
    """A refused request starts nothing, and the next valid request works."""
    before = easel.sql("select count(*) as n from runs")
    yield easel
    assert easel.sql("select count(*) as n from runs") == before
    assert easel.events(easel.start())[-1].data["status"] == "completed"


@case("R1")
@pytest.mark.parametrize("says, body, status", BAD_BODIES, ids=[row[0] for row in BAD_BODIES])
def test_invalid_body_is_refused(counted: LiveEasel, says: str, body: bytes, status: int) -> None:
    check_error(counted.ask("POST", "/api/runs", content=body), status)


@case("R2")
def test_compressed_body_is_refused(counted: LiveEasel) -> None:
    """By its header alone: the body would be accepted without it."""
    for encoding in ("gzip", "deflate", "br", "gzip, gzip"):
        check_error(counted.post("/api/runs", GOOD, headers={"Content-Encoding": encoding}), 400)


@case("R1")
def test_body_without_declared_length_is_limited(counted: LiveEasel) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(40):
            yield b"x" * 65_536

    check_error(counted.ask("POST", "/api/runs", content=endless()), 413)


def test_refused_client_that_sends_all_of_its_body_first_reads_the_response(
    small_easel: LiveEasel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is closed with unread bytes would be reset, and the response lost."""
    monkeypatch.setattr(middleware, "DISCARD_SECONDS", 60.0)
    size = middleware.MAX_DISCARDED_BYTES - 1
    head = (
        f"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n"
    )
    with socket.create_connection(small_easel.address, timeout=60) as connection:
        connection.sendall(head.encode() + b"x" * size)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 401 ")


def test_message_at_the_limit_is_accepted(easel: LiveEasel) -> None:
    message = "ü" * 131_072
    assert easel.view(easel.start(message))["input_text"] == message


def test_error_contains_neither_body_nor_token(easel: LiveEasel) -> None:
    answer = easel.ask(
        "POST", "/api/runs", content=b'{"session_id":"s","message":5,"x":"a-secret-in-the-body"}'
    )
    assert "a-secret" not in answer.text
    assert easel.token not in answer.text


@pytest.mark.parametrize("query", BAD_QUERIES, ids=[query[:40] for query in BAD_QUERIES])
def test_invalid_query_is_refused_or_finds_nothing(easel: LiveEasel, query: str) -> None:
    answer = easel.get(f"/api/runs?{query}")
    if query.startswith("session_id=") and answer.status_code == 200:
        assert answer.json() == {"runs": []}  # an unknown session has no runs
    else:
        check_error(answer, 400)


@pytest.mark.parametrize("run_id", NO_RUNS, ids=[repr(run_id[:40]) for run_id in NO_RUNS])
def test_unknown_run_is_not_found_on_every_route(easel: LiveEasel, run_id: str) -> None:
    for row in ROUTES:
        if "{run_id}" in row.path and run_id != "..":
            sent: dict[str, Any] = {"json": BODIES[row.body]} if row.body else {}
            check_error(easel.ask(row.method, row.path.replace("{run_id}", run_id), **sent), 404)


@pytest.mark.parametrize("path", NO_PAGES)
def test_unknown_path_has_the_usual_error(small_easel: LiveEasel, path: str) -> None:
    check_error(small_easel.get(path), 404)


PATHS = sorted({row.path for row in ROUTES})


@pytest.mark.parametrize("path", PATHS)
def test_wrong_method_lists_the_allowed_ones(small_easel: LiveEasel, path: str) -> None:
    right = {row.method for row in ROUTES if row.path == path}
    for method in {"DELETE", "PUT", "PATCH", "OPTIONS", "POST", "GET"} - right:
        answer = small_easel.ask(method, path.replace("{run_id}", "x").replace("{file}", "easel.css"))
        check_error(answer, 405)
        allowed = {word.strip() for word in answer.headers["allow"].split(",")}
        assert allowed - {"HEAD"} == right


def test_disconnect_during_the_body_is_not_logged_as_an_error(
    small_easel: LiveEasel, logged: list[dict[str, Any]]
) -> None:
    with socket.create_connection(small_easel.address) as leaving:
        head = (
            f"POST /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
            f"{small_easel.token}\r\nContent-Length: 90\r\n\r\n"
        )
        leaving.sendall(head.encode() + b'{"session_id":"s","mess')
    wait_for_sync(
        lambda: any(event["event"] == "http.gone" for event in logged),
        within=30,
        what="the server has seen the end",
    )
    small_easel.finish()
    assert [event for event in logged if event["level"] in ("error", "warning")] == []


RAW = [
    ("not HTTP", b"GARBAGE\r\n\r\n"),
    ("NUL in a header", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\x00b\r\n\r\n"),
    (
        "two lengths",
        b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: "
        b"chunked\r\n\r\n0\r\n\r\n",
    ),
    ("a negative length", b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n"),
    ("bytes in the path", b"GET /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
    ("an unknown method", b"BREW /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
    (
        "headers that never end",
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: " + b"a" * 2_000_000 + b"\r\n\r\n",
    ),
]


@case("R4")
@pytest.mark.parametrize("says, sent", RAW, ids=[row[0] for row in RAW])
def test_invalid_http_is_refused_and_the_connection_closed(
    small_easel: LiveEasel, says: str, sent: bytes
) -> None:
    head = b""
    with (
        socket.create_connection(small_easel.address, timeout=30) as connection,
        contextlib.suppress(ConnectionError),
    ):
        connection.sendall(sent)
        head = connection.recv(65_536).split(b"\r\n")[0]
    is_cut = (
        not head and len(sent) > 1_000_000
    )  # a client that still sends may be disconnected before it reads the error
    assert is_cut or 400 <= int(head.split()[1]) < 500, head
    assert small_easel.get("/healthz").status_code == 200


# --- what a hostile script can ask of a worker --------------------------------------------------------------

SCRIPTS = [
    ("no steps", {"script": []}, "completed"),
    ("a step that is none", {"script": [{}]}, "failed"),
    ("a step that is no object", {"script": [1]}, "failed"),
    ("an unknown step", {"script": [{"dance": 1}]}, "failed"),
    ("no such tool", {"script": [{"call": "rm__rf", "args": {}}]}, "completed"),
    ("no arguments", {"script": [{"call": "gsv__Echo"}]}, "completed"),
    ("arguments that are none", {"script": [{"call": "gsv__Echo", "args": "x"}]}, "completed"),
    ("a result that is not there", {"script": [{"call": "gsv__Echo", "args": {"value": "$last"}}]}, "failed"),
    ("a wait below zero", {"script": [{"wait_ms": -1}]}, "failed"),
    ("a wait for ever", {"script": [{"wait_ms": 1e300}]}, "failed"),
    ("ticks without end", {"script": [{"ticks": 10**18}]}, "failed"),
    ("a number beyond all", {"script": [{"call": "gsv__Echo", "args": {"value": 10**400}}]}, None),
    ("a tiny number", {"script": [{"call": "gsv__Echo", "args": {"value": 1e-320}}]}, "completed"),
    ("25 steps", {"script": [{"call": "gsv__Clock", "args": {}}] * 25}, "failed"),
]


@case("R1")
@pytest.mark.parametrize("says, message, outcome", SCRIPTS, ids=[row[0] for row in SCRIPTS])
def test_invalid_script_fails_its_run_with_a_reason(
    easel: LiveEasel, says: str, message: Any, outcome: str | None
) -> None:
    run_id = easel.finish(json.dumps(message))
    run = easel.view(run_id)
    assert run["status"] == (outcome or run["status"])
    assert "broke inside" not in run.get("error_message", "")
    if run["status"] == "failed":
        assert len(run["error_message"]) > 15


@case("R1")
@pytest.mark.parametrize("depth", [300, 600, 900])
def test_deeply_nested_arguments_do_not_break_the_worker(easel: LiveEasel, depth: int) -> None:
    run_id = easel.finish(
        '{"script":[{"call":"gsv__Echo","args":{"value":%s}},{"say":"ok"}]}' % ("[" * depth + "]" * depth)
    )
    assert "broke inside" not in easel.view(run_id).get("error_message", "")
    assert easel.events(easel.start(script({"say": "still here"})))[-1].data["status"] == "completed"
