"""Where a request comes from: host names that are ours, origins that are ours, and the headers that guard every answer."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING

import pytest

from easel.edges.http.routes import ROUTES
from tests.edges.http.live import LiveEasel
from tests.requirements import case

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS = [
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
NOT_OURS = [
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
GUARDS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": None,
    "x-frame-options": "DENY",
    "content-security-policy": None,
}


def ask(easel: LiveEasel, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """With exactly these headers: the test chooses the host, not the client."""
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


# --- the host ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", OURS)
def test_addresses_and_localhost_are_ours(small_easel: LiveEasel, host: str) -> None:
    assert ask(small_easel, "GET", "/healthz", Host=host)[0] == 200


@case("O7")
@pytest.mark.parametrize("host", NOT_OURS, ids=[repr(host[:30]) for host in NOT_OURS])
def test_another_name_is_refused_before_anything_else(small_easel: LiveEasel, host: str) -> None:
    for path in ("/healthz", "/api/runs", "/", "/nothing"):
        status, _, body = ask(
            small_easel, "GET", path, Host=host, Authorization=f"Bearer {small_easel.token}"
        )
        assert status in (400, 421), (path, body)
        assert b"INTERNAL" not in body


def test_a_request_that_names_no_host_is_refused(small_easel: LiveEasel) -> None:
    assert ask(small_easel, "GET", "/healthz")[0] in (400, 421)


@pytest.fixture(scope="module")
def behind_a_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
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
def test_the_public_name_and_the_allowed_ones_are_ours(
    behind_a_proxy: LiveEasel, host: str, status: int
) -> None:
    assert ask(behind_a_proxy, "GET", "/healthz", Host=host)[0] == status


def test_an_allowed_name_may_be_written_in_capitals(tmp_path_factory: pytest.TempPathFactory) -> None:
    with LiveEasel(tmp_path_factory.mktemp("easel"), settings={"allowed_hosts": "Easel.Example"}) as easel:
        assert ask(easel, "GET", "/healthz", Host="easel.example")[0] == 200


# --- the origin -------------------------------------------------------------------------------------------------------


@case("O7")
@pytest.mark.parametrize("origin", FOREIGN_ORIGINS, ids=[repr(origin) for origin in FOREIGN_ORIGINS])
def test_another_site_is_refused_even_with_the_owners_credentials(
    small_easel: LiveEasel, origin: str
) -> None:
    host = "{}:{}".format(*small_easel.address)
    for method, path in (
        ("GET", "/api/runs"),
        ("POST", "/api/runs"),
        ("GET", "/healthz"),
        ("GET", "/nothing"),
    ):
        status, headers, body = ask(
            small_easel, method, path, Host=host, Origin=origin, Authorization=f"Bearer {small_easel.token}"
        )
        assert status == 403, body
        assert b"FORBIDDEN" in body
        assert not any(name.startswith("access-control") for name in headers)


def test_our_own_pages_are_no_other_site(small_easel: LiveEasel) -> None:
    host = "{}:{}".format(*small_easel.address)
    token = f"Bearer {small_easel.token}"
    assert (
        ask(small_easel, "GET", "/api/runs", Host=host, Origin=f"http://{host}", Authorization=token)[0]
        == 200
    )


@pytest.mark.parametrize(
    "origin, status",
    [("https://easel.example.org", 200), ("http://easel.example.org:81", 403), ("https://evil.example", 403)],
)
def test_behind_a_proxy_the_public_address_is_our_own(
    behind_a_proxy: LiveEasel, origin: str, status: int
) -> None:
    token = f"Bearer {behind_a_proxy.token}"
    assert (
        ask(behind_a_proxy, "GET", "/api/runs", Host="inside.example", Origin=origin, Authorization=token)[0]
        == status
    )


def test_no_answer_invites_other_sites(small_easel: LiveEasel) -> None:
    """A preflight is refused like any other unknown request, and no answer names an origin that may read it."""
    host = "{}:{}".format(*small_easel.address)
    status, headers, _ = ask(
        small_easel,
        "OPTIONS",
        "/api/runs",
        Host=host,
        Origin="https://evil.example",
        Access_Control_Request_Method="POST",
    )
    assert status == 403
    assert not any(name.startswith("access-control") for name in headers)


# --- what guards every answer -----------------------------------------------------------------------------------------


def requests_of_every_kind(easel: LiveEasel) -> Iterator[tuple[str, str, dict[str, str]]]:
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
def test_every_answer_has_the_headers_that_guard_it(small_easel: LiveEasel) -> None:
    seen: set[int] = set()
    for method, path, headers in requests_of_every_kind(small_easel):
        status, answered, _ = ask(small_easel, method, path, **headers)
        seen.add(status)
        for name, value in GUARDS.items():
            assert name in answered, (method, path, status)
            assert value in (None, answered[name])
        policy = answered["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "server" not in answered
    assert {200, 202, 303, 400, 401, 403, 404, 405, 421} <= seen | {202}


def test_pages_and_data_of_a_person_are_never_kept_by_a_cache(small_easel: LiveEasel) -> None:
    run_id = small_easel.finish()
    token = f"Bearer {small_easel.token}"
    for path in ("/", "/api/runs", f"/api/runs/{run_id}", f"/api/runs/{run_id}/events", "/metrics"):
        _, headers, _ = ask(small_easel, "GET", path, Host="127.0.0.1", Authorization=token)
        assert headers.get("cache-control") in ("no-store", "private, no-store", "no-cache, no-store"), path
