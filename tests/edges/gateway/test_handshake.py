"""The gateway's handshake: authentication, protocol, mode, and how a connection ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import InvalidStatus

from easel import __version__
from easel.core.stream.envelope import EVENT_TYPES
from easel.edges.gateway import connection
from easel.edges.methods import METHODS
from tests.edges.http.live import LiveEasel as Live
from tests.edges.http.live import cookie_name, new_session
from tests.requirements import rule
from tests.support.gateway import GatewayClient, Refused
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.http.live import LiveEasel


@rule("CV-01", "CV-37")
async def test_hello_lists_exactly_the_available_methods_and_events(small_easel: LiveEasel) -> None:
    async with GatewayClient.connected(small_easel.base_url, small_easel.token) as client:
        hello = client.hello
        assert (hello["type"], hello["protocol"], hello["server"]["version"]) == ("hello-ok", 1, __version__)
        assert hello["server"]["connectionId"].startswith("con_")
        methods, events = hello["features"]["methods"], hello["features"]["events"]
        assert set(methods) == {*METHODS, "connect", "canvas.subscribe", "canvas.unsubscribe"}
        assert {name for name in events if name in EVENT_TYPES} == {
            name for name in EVENT_TYPES if name.startswith("canvas.")
        }
        for method in methods:
            refused = await client.refusal(method, {"expectedRevision": "surprise"})
            assert refused is not None
            assert refused.code == 400, f"{method} exists and checks its params"
        unknown = await client.refusal("canvas.dance")
        assert unknown is not None
        assert unknown.code == 404


@rule("CV-01")
@pytest.mark.parametrize("by", ["header", "link", "cookie", "connect"])
async def test_client_signs_in_with_header_link_cookie_or_connect(small_easel: LiveEasel, by: str) -> None:
    token = small_easel.token
    cookie = small_easel.new_cookie().partition("=")[2]
    opened = {
        "header": GatewayClient.open(small_easel.base_url, token),
        "link": GatewayClient.open(small_easel.base_url, None, query=f"?token={token}"),
        "cookie": GatewayClient.open(
            small_easel.base_url, None, Cookie=f"{cookie_name(small_easel.base_url)}={cookie}"
        ),
        "connect": GatewayClient.open(small_easel.base_url, None),
    }[by]
    async with opened as client:
        await client.connect(token=token if by == "connect" else None)
        assert (await client.call("canvas.list"))["canvases"] == []


@rule("CV-08")
@pytest.mark.parametrize("by", ["nothing", "link", "header", "connect", "connect overrides the header"])
async def test_unauthenticated_connect_gets_a_401_before_the_close_frame(
    small_easel: LiveEasel, by: str
) -> None:
    """Bug 12 of GSV: its socket was closed without a response."""
    opened = {
        "nothing": GatewayClient.open(small_easel.base_url, None),
        "link": GatewayClient.open(small_easel.base_url, None, query="?token=wrong"),
        "header": GatewayClient.open(small_easel.base_url, "wrong"),
        "connect": GatewayClient.open(small_easel.base_url, None),
        "connect overrides the header": GatewayClient.open(small_easel.base_url, small_easel.token),
    }[by]
    async with opened as client:
        with pytest.raises(Refused) as refused:
            await client.connect(token="wrong" if by in ("connect", "connect overrides the header") else None)
        assert refused.value.code == 401
        assert await client.closed() == (1008, "Not signed in.")


async def test_failed_sign_in_is_recorded_in_the_audit_trail(tmp_path: Path) -> None:
    with Live(tmp_path, with_worker=False) as live:
        async with GatewayClient.open(live.base_url, None) as client:
            with pytest.raises(Refused):
                await client.connect(token="wrong")

        async def is_recorded() -> bool:
            records = live.get("/api/audit?action=sign_in.failed").json()["records"]
            assert "wrong" not in str(records)
            return any(record["details"]["path"] == "/ws" for record in records)

        await wait_for(is_recorded)


async def test_wrong_tokens_slow_down_connect_and_upgrade(tmp_path: Path) -> None:
    with Live(tmp_path, with_worker=False, settings={"sign_in_failures": 2}) as live:
        for _ in range(2):
            async with GatewayClient.open(live.base_url, None) as client:
                refused = await client.refusal("connect", {"client": {"id": "x"}, "auth": {"token": "wrong"}})
                assert refused is not None
                assert refused.code == 401
        async with GatewayClient.open(live.base_url, None) as client:
            refused = await client.refusal("connect", {"client": {"id": "x"}, "auth": {"token": "wrong"}})
            assert refused is not None
            assert (refused.code, refused.error["name"]) == (429, "TOO_MANY_FAILURES")
            assert refused.error["retryable"] is True
        with pytest.raises(InvalidStatus) as status:
            async with GatewayClient.open(live.base_url, "wrong"):
                pass
        assert status.value.response.status_code == 429
        assert "Retry-After" in status.value.response.headers
        async with GatewayClient.connected(live.base_url, live.token) as client:
            assert (await client.call("canvas.list"))["canvases"] == []


@rule("RS-67")
@pytest.mark.parametrize("auth", [{}, {"token": None}, None])
async def test_auth_without_a_token_counts_as_absent(
    small_easel: LiveEasel, auth: dict[str, Any] | None
) -> None:
    params = {"client": {"id": new_session()}, "auth": auth}
    async with GatewayClient.open(small_easel.base_url, None) as client:
        refused = await client.refusal("connect", params)
        assert refused is not None
        assert (refused.code, refused.error["name"]) == (401, "NOT_SIGNED_IN")
    async with GatewayClient.open(small_easel.base_url, None, query=f"?token={small_easel.token}") as client:
        assert (await client.ask("connect", params))["type"] == "hello-ok", "?token= is not hidden"
    async with GatewayClient.open(small_easel.base_url, small_easel.token) as client:
        assert (await client.ask("connect", params))["type"] == "hello-ok", "the header is not hidden"


@rule("RS-67")
async def test_empty_token_is_a_wrong_token(small_easel: LiveEasel) -> None:
    for token in (None, small_easel.token):
        async with GatewayClient.open(small_easel.base_url, token) as client:
            refused = await client.refusal(
                "connect", {"client": {"id": new_session()}, "auth": {"token": ""}}
            )
            assert refused is not None
            assert refused.code == 401


@pytest.mark.parametrize("method", ["canvas.list", "tools.list", "canvas.subscribe", "no.such"])
async def test_methods_are_refused_before_connect(small_easel: LiveEasel, method: str) -> None:
    async with GatewayClient.open(small_easel.base_url, small_easel.token) as client:
        with pytest.raises(Refused) as refused:
            await client.ask(method, {})
        assert refused.value.code == 101
        await client.connect()
        assert (await client.call("tools.list"))["tools"]


REFUSALS: list[tuple[dict[str, Any], int]] = [
    ({"minProtocol": 2, "maxProtocol": 3}, 102),
    ({"minProtocol": 0, "maxProtocol": 0}, 102),
    ({"minProtocol": 3, "maxProtocol": 1}, 102),
    ({"mode": "node"}, 103),
    ({"mode": "channel"}, 103),
    ({"mode": ""}, 103),
    ({"client": {}}, 400),
    ({"client": {"id": ""}}, 400),
    ({"client": {"id": "x" * 129}}, 400),
    ({"client": {"id": "a\nb"}}, 400),
    ({"minProtocol": "1"}, 400),
    ({"auth": []}, 400),
]


@pytest.mark.parametrize("changed, code", REFUSALS, ids=[str(row[0])[:40] for row in REFUSALS])
async def test_invalid_connect_is_refused_and_can_be_sent_again(
    small_easel: LiveEasel, changed: dict[str, Any], code: int
) -> None:
    async with GatewayClient.open(small_easel.base_url, small_easel.token) as client:
        with pytest.raises(Refused) as refused:
            await client.connect(**changed)
        assert refused.value.code == code
        await client.connect(minProtocol=1, maxProtocol=9)
        with pytest.raises(Refused) as again:
            await client.connect()
        assert again.value.code == 400, "a connection connects only once"


async def test_connection_without_connect_is_closed_after_the_timeout(
    small_easel: LiveEasel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 1.0)
    async with GatewayClient.open(small_easel.base_url, small_easel.token) as client:
        code, reason = await client.closed()
        assert (code, reason) == (1008, "Send `connect` first.")


async def test_second_connection_of_a_client_replaces_the_first(small_easel: LiveEasel) -> None:
    async with (
        GatewayClient.connected(small_easel.base_url, small_easel.token, "one") as older,
        GatewayClient.connected(small_easel.base_url, small_easel.token, "two") as other,
        GatewayClient.connected(small_easel.base_url, small_easel.token, "one") as newer,
    ):
        assert await older.closed() == (1000, "Replaced by a newer connection")
        for open_client in (newer, other):
            await open_client.call("tools.list")
        async with GatewayClient.connected(small_easel.base_url, small_easel.token, "one"):
            assert (await newer.closed())[0] == 1000, "the end of the first did not unregister the second"


async def test_connections_over_the_limit_get_a_429(tmp_path: Path) -> None:
    with Live(tmp_path, with_worker=False, settings={"max_streams": 1}) as live:
        async with GatewayClient.connected(live.base_url, live.token, "one") as one:
            with pytest.raises(InvalidStatus) as refused:
                async with GatewayClient.open(live.base_url, live.token):
                    pass
            assert refused.value.response.status_code == 429
            await one.call("tools.list")


async def test_stopping_server_asks_its_clients_to_reconnect(tmp_path: Path) -> None:
    live = Live(tmp_path, with_worker=False)
    live.__enter__()
    ended = False
    try:
        async with GatewayClient.connected(live.base_url, live.token) as client:
            name = new_session()
            await client.call("canvas.create", canvasId=name)
            await client.call("canvas.open", canvasId=name)
            await client.call("canvas.subscribe", canvasId=name)
            stopping = asyncio.create_task(asyncio.to_thread(live.__exit__))
            ended = True
            assert (await client.closed())[0] == 1012
            await stopping
    finally:
        if not ended:
            live.__exit__()
