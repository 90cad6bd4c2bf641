"""Signing out, as HTTP has it: on SQLite, and on Postgres with two instances, of which one is told and the other is asked."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from easel.edges.http.calls import COOKIE
from easel.host.auth import revoked_sign_ins as sign_outs
from tests.edges.http.live import WAITING, LiveEasel, new_session
from tests.requirements import case
from tests.support.gateway import GatewayClient, Refused
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator

    from websockets.asyncio.client import ClientConnection

SOON = 30.0  # seconds; by the bell it takes some milliseconds, and without it `HEARD_SECONDS`
HEARD_SECONDS = 1_000.0  # so that it is the bell, however long the machine stops for


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """One instance, or two."""
    if request.param == "postgres":
        yield request.getfixturevalue("two_edges")
        return
    with LiveEasel(tmp_path_factory.mktemp("easel")) as live:
        yield live


@pytest.fixture(autouse=True)
def by_the_bell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_outs, "HEARD_SECONDS", HEARD_SECONDS)


@pytest.fixture
def elsewhere(house: LiveEasel) -> str:
    """The instance at which nobody signs out, if there is one."""
    return house.instances[-1].base_url


def cookie_of(client: httpx2.Client, easel: LiveEasel) -> str:
    """A browser signs in by the printed link."""
    found = re.search(
        rf"{COOKIE}=([^;]+)", client.get("/", params={"token": easel.token}).headers["set-cookie"]
    )
    assert found
    return found[1]


@pytest.fixture
def browser(house: LiveEasel) -> Iterator[httpx2.Client]:
    with house.stranger() as client:
        client.headers["cookie"] = f"{COOKIE}={cookie_of(client, house)}"
        client.cookies.clear()
        yield client


def by_cookie(browser: httpx2.Client, url: str) -> httpx2.Response:
    """By the cookie that somebody has copied."""
    return asked(url, cookie=browser.headers["cookie"])


def asked(url: str, **headers: str) -> httpx2.Response:
    return httpx2.get(url, headers=headers, trust_env=False, timeout=SOON)


def is_signed_out(browser: httpx2.Client, base_url: str) -> bool:
    return by_cookie(browser, f"{base_url}/api/runs").status_code == 401


async def turned_away(work: Awaitable[Any]) -> tuple[int, str]:
    with pytest.raises(ConnectionClosed) as closed:
        async with asyncio.timeout(SOON):
            await work
    assert closed.value.rcvd
    return closed.value.rcvd.code, closed.value.rcvd.reason


@case("O9")
def test_a_copied_cookie_opens_nothing_after_signing_out(
    house: LiveEasel, browser: httpx2.Client, elsewhere: str
) -> None:
    for url in (house.base_url, elsewhere):
        assert by_cookie(browser, f"{url}/api/runs").status_code == 200
    answer = browser.post("/sign-out")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    for path in ("/api/runs", "/api/tools", "/openapi.json", "/metrics"):
        assert by_cookie(browser, house.base_url + path).status_code == 401, "here at once"
    wait_for_sync(lambda: is_signed_out(browser, elsewhere), within=SOON, what="the other instance knows it")
    assert "Sign in" in by_cookie(browser, f"{elsewhere}/").text
    with house.stranger() as other:
        cookie_of(other, house)
        assert other.get("/api/runs").status_code == 200, "whoever signs in is in"


@case("O9")
def test_another_browser_of_the_same_person_stays(house: LiveEasel, browser: httpx2.Client) -> None:
    with house.stranger() as other:
        cookie_of(other, house)
        browser.post("/sign-out")
        assert other.get("/api/runs").status_code == 200
    assert house.get("/api/runs").status_code == 200, "and so does the token"


@case("O9")
def test_the_address_of_a_view_ends_with_its_browser(
    house: LiveEasel, browser: httpx2.Client, elsewhere: str
) -> None:
    name = new_session()
    made = {"canvasId": name, "assets": {"assets/index.js": "let a = 1;"}}
    assert house.post("/api/rpc", {"method": "canvas.create", "params": made}).status_code == 200

    def view(of: httpx2.Client) -> str:
        found = re.search(r'data-view="[^"]+(/canvas-view/[^"]+)"', of.get(f"/canvas/main/{name}").text)
        assert found
        return f"{found[1]}assets/index.js"

    mine = view(browser)
    with house.stranger() as other:
        cookie_of(other, house)
        theirs = view(other)
    for url in (house.base_url, elsewhere):
        assert asked(url + mine).text == "let a = 1;"
    browser.post("/sign-out")
    assert asked(house.base_url + mine).status_code == 404
    wait_for_sync(lambda: asked(elsewhere + mine).status_code == 404, within=SOON, what="its view is gone")
    assert asked(elsewhere + theirs).status_code == 200


@contextlib.asynccontextmanager
async def chatting(url: str, thread: str, headers: dict[str, str]) -> AsyncIterator[ClientConnection]:
    async with connect(
        f"ws{url.removeprefix('http')}/ws/chat/{thread}", additional_headers=headers, proxy=None
    ) as socket:
        yield socket


async def told(socket: ClientConnection) -> None:
    while True:
        await socket.recv()


@case("O9")
async def test_what_is_open_by_the_cookie_ends_with_it(
    house: LiveEasel, browser: httpx2.Client, elsewhere: str
) -> None:
    thread, by = new_session(), {"cookie": browser.headers["cookie"]}
    run_id = await asyncio.to_thread(house.start, WAITING, thread)
    http = httpx2.AsyncClient(headers=by, timeout=SOON, trust_env=False)
    async with (
        http,
        http.stream("GET", f"{elsewhere}/api/runs/{run_id}/events") as stream,
        chatting(elsewhere, thread, by) as chat,
        chatting(elsewhere, thread, house.bearer) as of_token,
        GatewayClient.open(elsewhere, None, Cookie=by["cookie"]) as gateway,
    ):
        assert stream.status_code == 200
        chunks = stream.aiter_bytes()
        await anext(chunks)
        await gateway.connect()
        await asyncio.to_thread(browser.post, "/sign-out")
        assert await turned_away(told(chat)) == (1008, "Signed out.")
        async with asyncio.timeout(SOON):
            assert await gateway.closed() == (1008, "Signed out.")
            async for _ in chunks:  # a polite end, not a broken one
                pass
        async with asyncio.timeout(SOON):
            await (await of_token.ping())
        assert of_token.close_code is None
    await asyncio.to_thread(house.cancel, run_id)


@case("O9")
async def test_a_connection_that_waits_at_the_door_is_not_let_in_after_signing_out(
    house: LiveEasel, browser: httpx2.Client, elsewhere: str
) -> None:
    async with GatewayClient.open(elsewhere, None, Cookie=browser.headers["cookie"]) as gateway:
        await asyncio.to_thread(browser.post, "/sign-out")
        await asyncio.to_thread(
            wait_for_sync,
            lambda: is_signed_out(browser, elsewhere),
            within=SOON,
            what="the other instance knows it",
        )
        with pytest.raises(Refused) as refused:
            await gateway.connect()
        assert refused.value.code == 401


def test_signing_out_twice_or_as_nobody_does_nothing(house: LiveEasel, browser: httpx2.Client) -> None:
    for _ in range(2):
        assert browser.post("/sign-out").status_code == 303
    with house.stranger() as nobody:
        assert nobody.post("/sign-out").status_code == 303
    assert house.post("/sign-out").status_code == 303
    assert house.get("/api/runs").status_code == 200
