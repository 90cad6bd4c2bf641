"""Connecting a provider over HTTP: who may, the loopback callback, and that no token is ever shown."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from easel.core.oauth.provider import OAuthProvider
from tests.edges.http.live import LiveEasel
from tests.requirements import case, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

ACCESS, REFRESH = "access-token-0123456789abcdef", "refresh-token-0123456789abcdef"
CLIENT_SECRET, CODE = "client-secret-0123456789abcdef", "code-0123456789abcdef"
PUBLIC = "https://easel.example.org"


class _TokenHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"access_token": ACCESS, "refresh_token": REFRESH}).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        pass


@pytest.fixture(scope="module")
def provider() -> Iterator[OAuthProvider]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _TokenHandler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield OAuthProvider(
            name="test",
            client_id="easel",
            client_secret=CLIENT_SECRET,
            authorize_url=f"http://127.0.0.1:{server.server_port}/auth",
            token_url=f"http://127.0.0.1:{server.server_port}/token",
        )
        server.shutdown()


@pytest.fixture(scope="module")
def easel(provider: OAuthProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    with LiveEasel(
        tmp_path_factory.mktemp("easel"), with_worker=False, settings={"oauth": (provider,)}
    ) as live:
        yield live


@pytest.fixture(scope="module")
def prod(provider: OAuthProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    settings = {"oauth": (provider,), "profile": "prod", "public_url": PUBLIC}
    with LiveEasel(tmp_path_factory.mktemp("easel"), with_worker=False, settings=settings) as live:
        yield live


@contextmanager
def browser_of(easel: LiveEasel, base_url: str = "", **headers: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=base_url or easel.instances[0].base_url, headers=headers) as browser:
        assert browser.get("/", params={"token": easel.token}).status_code == 303
        if headers:  # the cookie of a public https address is Secure
            browser.headers["cookie"] = "; ".join(f"{each.name}={each.value}" for each in browser.cookies.jar)
        yield browser


def start(browser: httpx2.Client) -> dict[str, str]:
    answer = browser.post("/api/oauth/test/start")
    assert answer.status_code == 200, answer.text
    query = parse_qs(urlsplit(answer.json()["authorize_url"]).query)
    return {name: value for name, [value] in query.items()}


@rule("RX-42")
def test_loopback_callback_goes_to_the_host_name_where_the_flow_began(easel: LiveEasel) -> None:
    with browser_of(easel) as browser:
        asked = start(browser)
        port = urlsplit(easel.instances[0].base_url).port
        assert asked["redirect_uri"] == f"http://localhost:{port}/auth/callback"
        query = {"state": asked["state"], "code": CODE}
        # The browser resolves localhost; it has no cookie there.
        sent = httpx2.get(
            f"http://127.0.0.1:{port}/auth/callback", params=query, headers={"host": f"localhost:{port}"}
        )
        assert sent.status_code == 303
        location = sent.headers["location"]
        assert location.startswith(f"http://127.0.0.1:{port}/auth/callback?")
        done = browser.get(location)
        assert (done.status_code, "test is connected" in done.text) == (200, True)
        assert browser.get(location).status_code == 400, "consumed"


@rule("RX-43")
@case("O4")
def test_prod_refuses_the_loopback_callback(prod: LiveEasel) -> None:
    with browser_of(prod, host="easel.example.org") as browser:
        asked = start(browser)
        assert asked["redirect_uri"] == f"{PUBLIC}/api/oauth/test/callback"
        for host in ("easel.example.org", "localhost"):
            query = {"state": asked["state"], "code": CODE}
            refused = browser.get("/auth/callback", params=query, headers={"host": host})
            assert refused.status_code == 400
            asked = start(browser)
        query = {"state": asked["state"], "code": CODE}
        public = browser.get("/api/oauth/test/callback", params=query)
        assert "an address that is not https" in public.text, (
            "the callback is accepted, and the code not sent"
        )


def test_only_a_provider_of_this_host_can_be_connected(easel: LiveEasel) -> None:
    assert easel.ask("POST", "/api/oauth/none/start").status_code == 404
    assert easel.ask("DELETE", "/api/oauth/none").status_code == 404


@case("O1")
@pytest.mark.parametrize("query", ["", "?state=", "?code=x", "?state=unknown&code=x", f"?state={'s' * 5000}"])
def test_callback_without_a_flow_is_a_clear_page(easel: LiveEasel, query: str) -> None:
    with browser_of(easel) as browser:
        answer = browser.get(f"/api/oauth/test/callback{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (400, "text/html; charset=utf-8")
    assert "connect the provider again" in answer.text
    assert answer.headers["cache-control"] == "no-store"


@rule("RX-20", "RX-53")
def test_no_secret_is_stored_in_clear_logged_audited_or_shown(
    easel: LiveEasel, logged: list[dict[str, Any]]
) -> None:
    shown: list[str] = []
    with browser_of(easel) as browser:
        asked = start(browser)
        [flow] = easel.sql("select code_verifier from oauth_state")
        query = {"state": asked["state"], "code": CODE}
        shown += [browser.get("/auth/callback", params=query).text for _ in range(2)]
        shown += [browser.get(path).text for path in ("/api/oauth", "/api/settings", "/api/audit")]
        listed = browser.get("/api/oauth").json()
        assert listed["providers"][0]["connection"]["connected_by"] == "owner"
        with sqlite3.connect(easel.folder / "easel.db") as database:
            dump = "\n".join(database.iterdump())
        records = [row["record"] for row in easel.sql("select record from audit")]
        assert browser.delete("/api/oauth/test").status_code == 204
    secrets = [ACCESS, REFRESH, CLIENT_SECRET, CODE, flow["code_verifier"], asked["state"]]
    everything = "\n".join([*shown, dump, json.dumps(logged, default=repr), *records])
    assert [secret for secret in secrets if secret in everything] == []
    assert [secret for secret in (ACCESS, REFRESH) if secret.encode().hex() in everything.lower()] == []
    actions = [json.loads(record) for record in records if '"oauth.' in record]
    assert {record["action"] for record in actions} >= {"oauth.started", "oauth.connected"}
    assert all(
        record["actor"]["user_id"] == "owner" for record in actions if record["action"] != "oauth.failed"
    )
