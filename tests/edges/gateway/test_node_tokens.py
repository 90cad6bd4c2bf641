"""Access by token: a node's token gives access only to node mode of the gateway, a revoked one to nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.edges.http.live import WAIT_SECONDS, in_time, new_session, script
from tests.edges.http.live import LiveEasel as Live
from tests.requirements import case
from tests.support.strict_http import STRICT
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.edges.http.live import LiveEasel


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    with Live(tmp_path_factory.mktemp("easel")) as live:
        yield live


def http_client(easel: LiveEasel, secret: str) -> httpx2.Client:
    return httpx2.Client(
        base_url=easel.base_url,
        headers={"Authorization": f"Bearer {secret}"},
        timeout=WAIT_SECONDS,
        event_hooks=STRICT,
    )


# --- tokens of nodes ----------------------------------------------------------------------------------------


@case("O7")
def test_node_token_is_refused_over_http(small: LiveEasel) -> None:
    with http_client(small, small.new_token("node")[1]) as client:
        answers = [client.get("/api/runs"), client.post("/api/rpc", json={"method": "canvas.list"})]
    for answer in answers:
        assert (answer.status_code, answer.json()["error"]["name"]) == (403, "FORBIDDEN")


@pytest.mark.parametrize("kind", ["node", "service"])
def test_machine_gets_no_cookie_and_no_page(small: LiveEasel, kind: str) -> None:
    _, secret = small.new_token(kind)
    with small.stranger() as http:
        link, form = http.get("/", params={"token": secret}), http.post("/sign-in", data={"token": secret})
        assert (link.status_code, form.status_code) == (401, 401)
        assert all("for a program or a machine" in answer.text for answer in (link, form))
        assert not http.cookies
        if kind == "node":
            page = http.get("/", headers={"Authorization": f"Bearer {secret}"})
            assert "Sign in" in page.text


# --- tokens of persons and programs -------------------------------------------------------------------------


def test_person_signs_in_as_the_user_of_the_token(small: LiveEasel) -> None:
    """The cookie authenticates the token that it was issued for, not the owner."""
    small.add_person("ada")
    token_id, secret = small.new_token("user", "ada")
    mine = small.finish(script({"say": "private words"}))
    with small.stranger() as http:
        assert http.get("/", params={"token": secret}).status_code == 303
        assert secret not in str(http.cookies)
        assert http.get("/api/runs").json()["runs"] == []
        assert http.get(f"/api/runs/{mine}").status_code == 404
        assert mine not in http.get("/api/audit").text
        assert http.get("/metrics").status_code == 403
        small.revoke_token(token_id)
        wait_for_sync(lambda: http.get("/api/runs").status_code == 401, what="the token is refused")
        assert "Sign in" in http.get("/").text


def test_service_acts_for_its_user_and_has_no_admin_scope(small: LiveEasel) -> None:
    _, secret = small.new_token("service")
    with http_client(small, secret) as http:
        started = http.post("/api/runs", json={"session_id": new_session(), "message": "noop"})
        assert started.status_code == 202
        assert small.view(started.json()["run_id"])["run_id"]
        assert http.post("/api/rpc", json={"method": "tools.list"}).status_code == 200
        assert http.get("/metrics").status_code == 403


# --- revoked tokens -----------------------------------------------------------------------------------------


@case("O9")
def test_revoking_a_token_ends_its_stream(small: LiveEasel) -> None:
    token_id, secret = small.new_token("user")
    run_id = small.start(script({"say": "one"}, {"wait_ms": 600_000}))
    small.stream_start(run_id)
    with http_client(small, secret) as http, http.stream("GET", f"/api/runs/{run_id}/events") as answer:
        lines = in_time(answer.iter_lines())
        while next(lines) != "event: message.delta":
            pass
        small.revoke_token(token_id)
        rest = list(lines)
        assert not any(line.startswith("event: done") for line in rest)
    small.cancel(run_id)


@case("O9")
async def test_revoking_a_token_closes_its_chat(small: LiveEasel) -> None:
    token_id, secret = small.new_token("user")
    address = f"ws{small.base_url.removeprefix('http')}/ws/chat/{new_session()}?token={secret}"
    async with connect(address, proxy=None) as socket:
        await asyncio.to_thread(small.revoke_token, token_id)
        with pytest.raises(ConnectionClosed):
            async with asyncio.timeout(WAIT_SECONDS):
                await socket.recv()
        assert (socket.close_code, socket.close_reason) == (1008, "Signed out.")
