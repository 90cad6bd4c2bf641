"""Requests to a provider: what it sends, how long it takes, and that no error repeats a secret."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from easel.core.oauth.connection import GrantedTokens
from easel.core.oauth.provider import OAuthProvider
from easel.errors import HostError, ProviderRefused, ProviderUnreachable
from easel.oauth.client import HttpOAuthClient
from easel.oauth.http import MAX_ANSWER_BYTES, ProviderHttp
from tests.requirements import case, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRETS = ("the-client-secret", "the-code", "the-verifier-of-the-flow", "the-refresh-token")
CLIENT_SECRET, CODE, VERIFIER, REFRESH = SECRETS


class TokenServer(ThreadingHTTPServer):
    """Gives one answer to all requests, and remembers their forms."""

    daemon_threads = True

    def __init__(self, status: int, body: bytes, location: str = "") -> None:
        self.status, self.body, self.location = status, body, location
        self.hangs = threading.Event()
        self.forms: list[dict[str, Any]] = []
        self.credentials: list[str | None] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: TokenServer  # type: ignore[assignment]

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        self.server.forms.append({name: value for name, [value] in form.items()})
        self.server.credentials.append(self.headers["authorization"])
        if self.server.status == 0:
            self.server.hangs.wait(30)
            return
        self.send_response(self.server.status)
        if self.server.location:
            self.send_header("location", self.server.location)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        pass


@contextmanager
def serve(status: int, answer: object, location: str = "") -> Iterator[TokenServer]:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    server = TokenServer(status, body, location)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.hangs.set()
    server.shutdown()
    server.server_close()


def provider_at(server: TokenServer, secret: str = CLIENT_SECRET) -> OAuthProvider:
    return OAuthProvider(
        name="test",
        client_id="easel",
        client_secret=secret,
        authorize_url="https://auth.example.org/authorize?audience=models",
        token_url=f"http://127.0.0.1:{server.server_port}/token",
        scopes="models offline",
    )


async def exchange(
    server: TokenServer, secret: str = CLIENT_SECRET, *, allows_loopback: bool = True, seconds: float = 5.0
) -> GrantedTokens:
    http = ProviderHttp(allows_loopback=allows_loopback, max_seconds=seconds)
    try:
        return await HttpOAuthClient(http).exchange(
            provider_at(server, secret), code=CODE, redirect_uri="https://e/cb", code_verifier=VERIFIER
        )
    finally:
        await http.close()


@case("O3")
def test_address_asks_with_an_s256_challenge() -> None:
    with serve(200, {}) as server:
        client = HttpOAuthClient(ProviderHttp(allows_loopback=True))
        # The verifier and the challenge of RFC 7636, appendix B.
        url = client.authorize_url(
            provider_at(server),
            redirect_uri="https://e/cb",
            state="a state",
            code_verifier="dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        )
    query = {name: value for name, [value] in parse_qs(urlsplit(url).query).items()}
    assert query == {
        "audience": "models",
        "response_type": "code",
        "client_id": "easel",
        "redirect_uri": "https://e/cb",
        "scope": "models offline",
        "state": "a state",
        "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
        "code_challenge_method": "S256",
    }


async def test_tokens_are_asked_for_with_the_verifier_and_the_client() -> None:
    answer = {
        "access_token": "a",
        "refresh_token": "r",
        "expires_in": "60",
        "token_type": "Bearer",
        "scope": "s",
    }
    with serve(200, answer) as server:
        assert await exchange(server) == GrantedTokens("a", "r", 60.0, "s")
        await exchange(server, secret="")
    form = {
        "grant_type": "authorization_code",
        "code": CODE,
        "redirect_uri": "https://e/cb",
        "code_verifier": VERIFIER,
    }
    assert server.forms == [form, {**form, "client_id": "easel"}]
    basic = b64encode(f"easel:{CLIENT_SECRET}".encode()).decode()
    assert server.credentials == [f"Basic {basic}", None]


ECHO = " ".join(SECRETS)
FAILURES = [
    # status, answer, error, part of its message
    (400, {"error": "invalid_grant", "error_description": ECHO}, ProviderRefused, "invalid_grant"),
    (401, {"error": "invalid_client"}, ProviderRefused, "invalid_client"),
    (400, {"error": ECHO}, ProviderUnreachable, "answered 400"),
    (429, {"error": "slow_down"}, ProviderUnreachable, "answered 429"),
    (503, {"error": "invalid_grant"}, ProviderUnreachable, "answered 503"),
    (200, ECHO.encode(), ProviderUnreachable, "without a JSON object"),
    (200, [ECHO], ProviderUnreachable, "without a JSON object"),
    (200, {"access_token": f"two words {ECHO}"}, ProviderUnreachable, "no valid bearer token"),
    (200, {"access_token": 5}, ProviderUnreachable, "no valid bearer token"),
    (200, {"access_token": "a", "token_type": "mac"}, ProviderUnreachable, "no valid bearer token"),
    (200, b" " * (MAX_ANSWER_BYTES + 1), ProviderUnreachable, "too long an answer"),
    (0, {}, ProviderUnreachable, "did not answer within 0.3 s"),
]


@rule("RX-53")
@pytest.mark.parametrize("status, answer, error, part", FAILURES, ids=[str(row[3])[:20] for row in FAILURES])
async def test_failure_says_what_is_wrong_and_repeats_no_secret(
    status: int, answer: object, error: type[HostError], part: str
) -> None:
    with serve(status, answer) as server, pytest.raises(error) as failed:
        await exchange(server, seconds=5.0 if status else 0.3)
    assert part in failed.value.message
    shown = f"{failed.value!r} {failed.value.details} {failed.value.__cause__!r}"
    assert [secret for secret in SECRETS if secret in shown] == []


@case("O4")
async def test_redirect_is_not_followed() -> None:
    with serve(200, {"access_token": "a"}) as target:
        location = f"http://127.0.0.1:{target.server_port}/token"
        for status in (302, 307, 308):
            with serve(status, {}, location) as server, pytest.raises(ProviderUnreachable, match=str(status)):
                await exchange(server)
        assert target.forms == []


@rule("RX-43")
async def test_nothing_is_sent_over_http_in_prod() -> None:
    with serve(200, {"access_token": "a"}) as server:
        with pytest.raises(ProviderUnreachable, match="not https"):
            await exchange(server, allows_loopback=False)
        assert server.forms == []
