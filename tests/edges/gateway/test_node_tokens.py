"""What tokens open: a node's opens nothing but the gateway in node mode, and a revoked one nothing at all. Walks the table of routes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from easel.edges.http.calls import Access
from easel.edges.http.routes import ROUTES
from easel.edges.methods import METHODS
from easel.host.auth.tokens import Tokens
from tests.edges.http.live import WAIT_SECONDS, in_time, new_session, script
from tests.edges.http.live import LiveEasel as Live
from tests.requirements import case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.edges.http.live import LiveEasel

CLOSED = [row for row in ROUTES if row.access is not Access.OPEN]
OPEN = [row for row in ROUTES if row.access is Access.OPEN]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    with Live(tmp_path_factory.mktemp("easel")) as live:
        yield live


def token_for(easel: LiveEasel, kind: str) -> tuple[str, str]:
    made, secret = easel.do(desk(easel).create("owner", kind))
    return made.token_id, secret


def desk(easel: LiveEasel) -> Tokens:
    return Tokens(easel.instances[0].opened.tokens, easel.instances[0].services.audit)


def asking(easel: LiveEasel, secret: str) -> httpx2.Client:
    return httpx2.Client(
        base_url=easel.base_url, headers={"Authorization": f"Bearer {secret}"}, timeout=WAIT_SECONDS
    )


def place(path: str) -> str:
    filled = {
        "run_id": "run_x",
        "session_id": "s",
        "artifact_id": "a",
        "canvas_id": "c",
        "agent_id": "main",
        "token": "t",
        "file": "easel.css",
    }
    for name, value in filled.items():
        path = path.replace(f"{{{name}}}", value)
    return path.replace("{file:path}", "index.html")


def wait_for(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


# --- a node's -----------------------------------------------------------------------------------------------


@case("O7")
@pytest.mark.parametrize("row", CLOSED, ids=[f"{row.method} {row.path}" for row in CLOSED])
def test_a_nodes_token_opens_no_route(small: LiveEasel, row: Any) -> None:
    _, secret = token_for(small, "node")
    with asking(small, secret) as http:
        answer = http.request(row.method, place(row.path), content=b"{" * 10)
    assert (answer.status_code, answer.json()["error"]["name"]) == (403, "FORBIDDEN")


@case("O7")
@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_nodes_token_calls_no_method(small: LiveEasel, method: str) -> None:
    _, secret = token_for(small, "node")
    with asking(small, secret) as http:
        answer = http.post("/api/rpc", json={"method": method, "params": {"canvasId": "c"}})
    assert answer.status_code == 403


@pytest.mark.parametrize("by", ["header", "link"])
async def test_a_nodes_token_opens_no_chat(small: LiveEasel, by: str) -> None:
    _, secret = token_for(small, "node")
    address = f"ws{small.base_url.removeprefix('http')}/ws/chat/{new_session()}" + (
        f"?token={secret}" if by == "link" else ""
    )
    headers = {"Authorization": f"Bearer {secret}"} if by == "header" else {}
    with pytest.raises(InvalidStatus) as refused:
        async with connect(address, additional_headers=headers, proxy=None):
            pass
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("kind", ["node", "service"])
def test_no_machine_gets_a_cookie_or_a_page_of_a_persons(small: LiveEasel, kind: str) -> None:
    _, secret = token_for(small, kind)
    with small.stranger() as http:
        link, form = http.get("/", params={"token": secret}), http.post("/sign-in", data={"token": secret})
        assert (link.status_code, form.status_code) == (401, 401)
        assert all("for a program or a machine" in answer.text for answer in (link, form)), (
            "it is no wrong one, and opens no page"
        )
        assert not http.cookies
        if kind == "node":
            page = http.get("/", headers={"Authorization": f"Bearer {secret}"})
            assert "Sign in" in page.text


def test_what_is_open_to_everyone_stays_so(small: LiveEasel) -> None:
    _, secret = token_for(small, "node")
    with asking(small, secret) as http:
        assert http.get("/healthz").status_code == 200
        for row in OPEN:
            assert http.request(row.method, place(row.path)).status_code != 403, row.path


# --- a person's and a program's -----------------------------------------------------------------------------


def test_a_persons_token_signs_in_as_that_person_and_no_more(small: LiveEasel) -> None:
    """A cookie stands for the token that it was made for, not for the owner's."""
    small.sql("insert into users (user_id, name) values ('ada', 'ada')")
    made, secret = small.do(desk(small).create("ada", "user"))
    mine = small.finish(script({"say": "private words"}))
    with small.stranger() as http:
        assert http.get("/", params={"token": secret}).status_code == 303
        assert secret not in str(http.cookies)
        assert http.get("/api/runs").json()["runs"] == []
        assert http.get(f"/api/runs/{mine}").status_code == 404
        assert http.get("/api/audit").status_code == 403
        small.do(desk(small).revoke(made.token_id))
        wait_for(lambda: http.get("/api/runs").status_code == 401)
        assert "Sign in" in http.get("/").text


def test_a_program_acts_for_its_user_and_administers_nothing(small: LiveEasel) -> None:
    _, secret = token_for(small, "service")
    with asking(small, secret) as http:
        started = http.post("/api/runs", json={"session_id": new_session(), "message": "noop"})
        assert started.status_code == 202
        assert small.view(started.json()["run_id"])["run_id"]
        assert http.post("/api/rpc", json={"method": "tools.list"}).status_code == 200
        assert http.get("/api/audit").status_code == 403
        assert http.get("/metrics").status_code == 403


# --- revoked ------------------------------------------------------------------------------------------------


@case("O9")
def test_a_revoked_token_opens_nothing_within_seconds(easel: LiveEasel) -> None:
    token_id, secret = token_for(easel, "user")
    with asking(easel, secret) as http:
        assert http.get("/api/runs").status_code == 200
        easel.do(desk(easel).revoke(token_id))
        wait_for(lambda: http.get("/api/runs").status_code == 401)


@case("O9")
def test_a_stream_ends_with_the_token_that_opened_it(small: LiveEasel) -> None:
    token_id, secret = token_for(small, "user")
    run_id = small.start(script({"say": "one"}, {"wait_ms": 600_000}))
    small.stream_start(run_id)
    with asking(small, secret) as http, http.stream("GET", f"/api/runs/{run_id}/events") as answer:
        lines = in_time(answer.iter_lines())
        while next(lines) != "event: message.delta":
            pass
        small.do(desk(small).revoke(token_id))
        rest = list(lines)  # to its end, which comes
        assert not any(line.startswith("event: done") for line in rest)
    small.cancel(run_id)


@case("O9")
async def test_a_chat_ends_with_the_token_that_opened_it(small: LiveEasel) -> None:
    token_id, secret = token_for(small, "user")
    address = f"ws{small.base_url.removeprefix('http')}/ws/chat/{new_session()}?token={secret}"
    async with connect(address, proxy=None) as socket:
        await asyncio.to_thread(small.do, desk(small).revoke(token_id))
        with pytest.raises(ConnectionClosed):
            async with asyncio.timeout(WAIT_SECONDS):
                await socket.recv()
        assert (socket.close_code, socket.close_reason) == (1008, "Signed out.")
