"""Checks of the Host and Origin headers, and the security headers of every response."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.web.hosts import parse_networks
from easel.edges.http.middleware import TrustedSite
from easel.edges.http.routes import ROUTES
from tests.edges.http.live import LiveEasel
from tests.requirements import case

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN_HOSTS = [
    "127.0.0.1",
    "127.0.0.1:8800",
    "localhost",
    "localhost:1",
    "easel.localhost",
    "[::1]",
    "[::1]:8800",
    "192.168.1.7:8800",
    "LOCALHOST",
]
OTHER_HOSTS = [
    "evil.example",
    "evil.example:8800",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "evil-localhost",
    "127.0.0.1@evil.example",
    "127.0.0.1:80@evil.example:80",
    "evil.example/127.0.0.1",
    "evil.example#localhost",
    "",
    " ",
    "[",
    "[::1",
    "a]b",
    "[evil.example]",
    "x" * 5_000,
]
FOREIGN_ORIGINS = [
    "https://evil.example",
    "null",
    "http://127.0.0.1:1",
    "http://localhost",
    "file://",
    "http://[",
    "x",
    "",
    "http://127.0.0.1@evil.example",
    "chrome-extension://abcdef",
]
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": None,
    "x-frame-options": "DENY",
    "content-security-policy": None,
}


def request(easel: LiveEasel, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Send a request with exactly these headers, without a default Host."""
    connection = http.client.HTTPConnection(*easel.address, timeout=30)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


# --- the host -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", OWN_HOSTS)
def test_addresses_and_localhost_are_accepted(small_easel: LiveEasel, host: str) -> None:
    assert request(small_easel, "GET", "/healthz", Host=host)[0] == 200


@case("O7")
@pytest.mark.parametrize("host", OTHER_HOSTS, ids=[repr(host[:30]) for host in OTHER_HOSTS])
def test_other_host_is_refused_on_every_path(small_easel: LiveEasel, host: str) -> None:
    for path in ("/healthz", "/api/runs", "/", "/nothing"):
        status, _, body = request(
            small_easel, "GET", path, Host=host, Authorization=f"Bearer {small_easel.token}"
        )
        assert status in (400, 421), (path, body)
        assert b"INTERNAL" not in body


def test_request_without_a_host_is_refused(small_easel: LiveEasel) -> None:
    assert request(small_easel, "GET", "/healthz")[0] in (400, 421)


@pytest.fixture(scope="module")
def proxied_easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    settings = {"public_url": "https://easel.example.org/", "allowed_hosts": "inside.example, other.example"}
    with LiveEasel(tmp_path_factory.mktemp("easel"), settings=settings) as live:
        yield live


@pytest.mark.parametrize(
    "host, status",
    [
        ("easel.example.org", 200),
        ("inside.example:1", 200),
        ("other.example", 200),
        ("EASEL.example.org", 200),
        ("x.easel.example.org", 421),
    ],
)
def test_public_and_allowed_hosts_are_accepted(proxied_easel: LiveEasel, host: str, status: int) -> None:
    assert request(proxied_easel, "GET", "/healthz", Host=host)[0] == status


def test_allowed_host_is_case_insensitive(tmp_path_factory: pytest.TempPathFactory) -> None:
    with LiveEasel(tmp_path_factory.mktemp("easel"), settings={"allowed_hosts": "Easel.Example"}) as easel:
        assert request(easel, "GET", "/healthz", Host="easel.example")[0] == 200


# --- the origin ---------------------------------------------------------------------------------------------


@case("O7")
@pytest.mark.parametrize("origin", FOREIGN_ORIGINS, ids=[repr(origin) for origin in FOREIGN_ORIGINS])
def test_foreign_origin_is_refused_even_with_the_owner_token(small_easel: LiveEasel, origin: str) -> None:
    host = "{}:{}".format(*small_easel.address)
    for method, path in (
        ("GET", "/api/runs"),
        ("POST", "/api/runs"),
        ("GET", "/healthz"),
        ("GET", "/nothing"),
    ):
        status, headers, body = request(
            small_easel, method, path, Host=host, Origin=origin, Authorization=f"Bearer {small_easel.token}"
        )
        assert status == 403, body
        assert b"FORBIDDEN" in body
        assert not any(name.startswith("access-control") for name in headers)


def test_own_origin_is_accepted(small_easel: LiveEasel) -> None:
    host = "{}:{}".format(*small_easel.address)
    token = f"Bearer {small_easel.token}"
    assert (
        request(small_easel, "GET", "/api/runs", Host=host, Origin=f"http://{host}", Authorization=token)[0]
        == 200
    )


@pytest.mark.parametrize(
    "origin, status",
    [("https://easel.example.org", 200), ("http://easel.example.org:81", 403), ("https://evil.example", 403)],
)
def test_public_url_is_an_own_origin(proxied_easel: LiveEasel, origin: str, status: int) -> None:
    token = f"Bearer {proxied_easel.token}"
    assert (
        request(proxied_easel, "GET", "/api/runs", Host="inside.example", Origin=origin, Authorization=token)[
            0
        ]
        == status
    )


def test_preflight_is_refused_without_cors_headers(small_easel: LiveEasel) -> None:
    host = "{}:{}".format(*small_easel.address)
    status, headers, _ = request(
        small_easel,
        "OPTIONS",
        "/api/runs",
        Host=host,
        Origin="https://evil.example",
        Access_Control_Request_Method="POST",
    )
    assert status == 403
    assert not any(name.startswith("access-control") for name in headers)


# --- WebSockets ---------------------------------------------------------------------------------------------

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


@case("O7")
@pytest.mark.parametrize(
    "path, headers, status",
    [
        ("/ws", {"Host": "evil.example"}, 421),
        ("/ws", {"Origin": "https://evil.example"}, 403),
        ("/ws/chat/t", {"Host": "evil.example"}, 421),
        ("/ws/chat/t", {"Origin": "null"}, 403),
        ("/ws/nothing", {"Origin": "null"}, 403),
        ("/ws/nothing", {}, 404),
        ("/api/runs", {}, 404),
    ],
)
def test_socket_is_refused_before_the_handshake(
    small_easel: LiveEasel, path: str, headers: dict[str, str], status: int
) -> None:
    own = {"Host": "127.0.0.1", "Authorization": f"Bearer {small_easel.token}"}
    refused = request(small_easel, "GET", path, **{**own, **UPGRADE, **headers})
    assert refused[0] == status
    assert json.loads(refused[2])["error"]["name"] in {"WRONG_HOST", "FORBIDDEN", "NOT_FOUND"}


# --- security headers ---------------------------------------------------------------------------------------


def all_requests(easel: LiveEasel) -> Iterator[tuple[str, str, dict[str, str]]]:
    host, token = "127.0.0.1", f"Bearer {easel.token}"
    run_id = easel.finish()
    for row in ROUTES:
        path = row.path.replace("{run_id}", run_id).replace("{file}", "easel.css")
        yield row.method, path, {"Host": host}
        yield row.method, path, {"Host": host, "Authorization": token}
    yield "GET", f"/?token={easel.token}", {"Host": host}
    yield "GET", "/?token=wrong", {"Host": host}
    yield "GET", "/ui/nothing", {"Host": host}
    yield "GET", "/nothing", {"Host": host}
    yield "DELETE", "/api/runs", {"Host": host}
    yield "GET", "/api/runs/", {"Host": host}
    yield "GET", "/", {"Host": "evil.example"}
    yield "GET", "/", {"Host": host, "Origin": "https://evil.example"}


@case("U8")
def test_every_response_has_the_security_headers(small_easel: LiveEasel) -> None:
    statuses: set[int] = set()
    for method, path, headers in all_requests(small_easel):
        status, response_headers, _ = request(small_easel, method, path, **headers)
        statuses.add(status)
        for name, value in SECURITY_HEADERS.items():
            assert name in response_headers, (method, path, status)
            assert value in (None, response_headers[name])
        policy = response_headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "server" not in response_headers
    assert {200, 202, 303, 400, 401, 403, 404, 405, 421} <= statuses | {202}


def test_private_responses_are_not_cached(small_easel: LiveEasel) -> None:
    run_id = small_easel.finish()
    token = f"Bearer {small_easel.token}"
    for path in ("/", "/api/runs", f"/api/runs/{run_id}", f"/api/runs/{run_id}/events", "/metrics"):
        _, headers, _ = request(small_easel, "GET", path, Host="127.0.0.1", Authorization=token)
        assert headers.get("cache-control") in ("no-store", "private, no-store", "no-cache, no-store"), path


# --- proxies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "client, forwarded, seen",
    [
        ("10.0.0.9", ["203.0.113.7"], "203.0.113.7"),
        ("10.0.0.9", ["1.1.1.1, 203.0.113.7, 10.0.0.8"], "203.0.113.7"),
        ("10.0.0.9", ["1.1.1.1", "203.0.113.7"], "203.0.113.7"),
        ("10.0.0.9", [], "10.0.0.9"),
        ("198.51.100.1", ["203.0.113.7"], "198.51.100.1"),
    ],
)
async def test_only_a_trusted_proxy_names_the_client(client: str, forwarded: list[str], seen: str) -> None:
    """The last address is the client's that is not of a trusted proxy: earlier ones may be made up."""
    found: list[Any] = []

    async def app(scope: Any, *_: object) -> None:
        found.append(scope["client"][0])

    site = TrustedSite(app, "", "", set(), parse_networks("10.0.0.0/8"))
    headers = [(b"host", b"localhost"), *((b"x-forwarded-for", hop.encode()) for hop in forwarded)]
    scope = {
        "type": "http",
        "path": "/",
        "query_string": b"",
        "headers": headers,
        "client": (client, 1),
        "state": {},
    }
    await site(scope, None, None)  # type: ignore[arg-type]
    assert found == [seen]
