"""Sign-out over HTTP: on SQLite, and on Postgres with two instances, of which the other one is notified."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from easel.host.auth import credentials
from tests.edges.http.live import WAITING, LiveEasel, cookie_name, new_session
from tests.requirements import case
from tests.support.gateway import GatewayClient, Refused
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator

    from websockets.asyncio.client import ClientConnection

WAIT_SECONDS = 30.0  # a notification takes milliseconds


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """One instance on SQLite, or two on Postgres."""
    if request.param == "postgres":
        yield request.getfixturevalue("two_edges")
        return
    with LiveEasel(tmp_path_factory.mktemp("easel")) as live:
        yield live


@pytest.fixture(autouse=True)
def notifications_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none_changed(self: object, principals: object) -> list[object]:
        return []

    monkeypatch.setattr(credentials.Credentials, "list_changed", none_changed)


@pytest.fixture
def other_url(server: LiveEasel) -> str:
    """The instance that gets no sign-out request, if there are two."""
    return server.instances[-1].base_url


def sign_in(client: httpx2.Client, easel: LiveEasel) -> str:
    """Sign in by the printed link. Returns the cookie."""
    found = re.search(
        r"easel-\d+=([^;]+)", client.get("/", params={"token": easel.token}).headers["set-cookie"]
    )
    assert found
    return found[1]


@pytest.fixture
def browser(server: LiveEasel) -> Iterator[httpx2.Client]:
    with server.stranger() as client:
        value = sign_in(client, server)
        # In production all instances have one address; here each has a port, and its own name of the cookie.
        names = {cookie_name(instance.base_url) for instance in server.instances}
        client.headers["cookie"] = "; ".join(f"{name}={value}" for name in names)
        client.cookies.clear()
        yield client


def get_with_cookie(browser: httpx2.Client, url: str) -> httpx2.Response:
    """Send a copy of the browser's cookie."""
    return get(url, cookie=browser.headers["cookie"])


def get(url: str, **headers: str) -> httpx2.Response:
    return httpx2.get(url, headers=headers, trust_env=False, timeout=WAIT_SECONDS)


def is_signed_out(browser: httpx2.Client, base_url: str) -> bool:
    return get_with_cookie(browser, f"{base_url}/api/runs").status_code == 401


async def close_reason(work: Awaitable[Any]) -> tuple[int, str]:
    with pytest.raises(ConnectionClosed) as closed:
        async with asyncio.timeout(WAIT_SECONDS):
            await work
    assert closed.value.rcvd
    return closed.value.rcvd.code, closed.value.rcvd.reason


@case("O9")
def test_copied_cookie_is_refused_after_sign_out(
    server: LiveEasel, browser: httpx2.Client, other_url: str
) -> None:
    for url in (server.base_url, other_url):
        assert get_with_cookie(browser, f"{url}/api/runs").status_code == 200
    answer = browser.post("/sign-out")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    for path in ("/api/runs", "/api/tools", "/openapi.json", "/metrics"):
        assert get_with_cookie(browser, server.base_url + path).status_code == 401, "at once on this instance"
    wait_for_sync(
        lambda: is_signed_out(browser, other_url), within=WAIT_SECONDS, what="the other instance is notified"
    )
    assert "Sign in" in get_with_cookie(browser, f"{other_url}/").text
    with server.stranger() as other:
        sign_in(other, server)
        assert other.get("/api/runs").status_code == 200, "a new sign-in is accepted"


@case("O9")
def test_another_browser_of_the_same_person_stays_signed_in(
    server: LiveEasel, browser: httpx2.Client
) -> None:
    with server.stranger() as other:
        sign_in(other, server)
        browser.post("/sign-out")
        assert other.get("/api/runs").status_code == 200
    assert server.get("/api/runs").status_code == 200, "and so does the token"


@case("O9")
def test_view_url_is_refused_after_its_browser_signed_out(
    server: LiveEasel, browser: httpx2.Client, other_url: str
) -> None:
    name = new_session()
    params = {"canvasId": name, "assets": {"assets/index.js": "let a = 1;"}}
    assert server.post("/api/rpc", {"method": "canvas.create", "params": params}).status_code == 200

    def view(client: httpx2.Client) -> str:
        found = re.search(r'data-view="[^"]+(/canvas-view/[^"]+)"', client.get(f"/canvas/main/{name}").text)
        assert found
        return f"{found[1]}assets/index.js"

    mine = view(browser)
    with server.stranger() as other:
        sign_in(other, server)
        theirs = view(other)
    for url in (server.base_url, other_url):
        assert get(url + mine).text == "let a = 1;"
    browser.post("/sign-out")
    assert get(server.base_url + mine).status_code == 404
    wait_for_sync(
        lambda: get(other_url + mine).status_code == 404, within=WAIT_SECONDS, what="the view is refused"
    )
    assert get(other_url + theirs).status_code == 200


@contextlib.asynccontextmanager
async def open_chat(url: str, thread: str, headers: dict[str, str]) -> AsyncIterator[ClientConnection]:
    async with connect(
        f"ws{url.removeprefix('http')}/ws/chat/{thread}", additional_headers=headers, proxy=None
    ) as socket:
        yield socket


async def receive_all(socket: ClientConnection) -> None:
    while True:
        await socket.recv()


@case("O9")
async def test_sign_out_closes_streams_and_connections_of_the_cookie(
    server: LiveEasel, browser: httpx2.Client, other_url: str
) -> None:
    thread, headers = new_session(), {"cookie": browser.headers["cookie"]}
    run_id = await asyncio.to_thread(server.start, WAITING, thread)
    http = httpx2.AsyncClient(headers=headers, timeout=WAIT_SECONDS, trust_env=False)
    async with (
        http,
        http.stream("GET", f"{other_url}/api/runs/{run_id}/events") as stream,
        open_chat(other_url, thread, headers) as chat,
        open_chat(other_url, thread, server.bearer) as of_token,
        GatewayClient.open(other_url, None, Cookie=headers["cookie"]) as gateway,
    ):
        assert stream.status_code == 200
        chunks = stream.aiter_bytes()
        await anext(chunks)
        await gateway.connect()
        await asyncio.to_thread(browser.post, "/sign-out")
        assert await close_reason(receive_all(chat)) == (1008, "Signed out.")
        async with asyncio.timeout(WAIT_SECONDS):
            assert await gateway.closed() == (1008, "Signed out.")
            async for _ in chunks:  # ends without an error
                pass
        async with asyncio.timeout(WAIT_SECONDS):
            await (await of_token.ping())
        assert of_token.close_code is None
    await asyncio.to_thread(server.cancel, run_id)


@case("O9")
async def test_open_connection_cannot_connect_after_sign_out(
    server: LiveEasel, browser: httpx2.Client, other_url: str
) -> None:
    async with GatewayClient.open(other_url, None, Cookie=browser.headers["cookie"]) as gateway:
        await asyncio.to_thread(browser.post, "/sign-out")
        await asyncio.to_thread(
            wait_for_sync,
            lambda: is_signed_out(browser, other_url),
            within=WAIT_SECONDS,
            what="the other instance is notified",
        )
        with pytest.raises(Refused) as refused:
            await gateway.connect()
        assert refused.value.code == 401


def test_sign_out_twice_or_without_cookie_does_nothing(server: LiveEasel, browser: httpx2.Client) -> None:
    for _ in range(2):
        assert browser.post("/sign-out").status_code == 303
    with server.stranger() as stranger:
        assert stranger.post("/sign-out").status_code == 303
    assert server.post("/sign-out").status_code == 303
    assert server.get("/api/runs").status_code == 200
