"""The OpenID provider of the tests checks what Easel's tests rely on."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest

from tests.support.oidc import CLIENT_ID, CLIENT_SECRET, OidcProvider, approve
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.oidc
REDIRECT = "http://127.0.0.1:9/api/oauth/test/callback"
VERIFIER = "v" * 43


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with OidcProvider([REDIRECT]) as running:
        yield running


def authorize_url(provider: OidcProvider, **changes: str) -> str:
    digest = hashlib.sha256(VERIFIER.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": CLIENT_ID,
        "redirect_uri": REDIRECT,
        "scope": "models",
        "state": "a-state",
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    return f"{provider.authorize_url}?{urlencode(query | changes)}"


async def ask(provider: OidcProvider, **form: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=30) as client:
        return await client.post(provider.token_url, data=form, auth=(CLIENT_ID, CLIENT_SECRET))


async def get_code(provider: OidcProvider) -> str:
    query = parse_qs(urlsplit(await approve(authorize_url(provider))).query)
    assert (query["state"], query["iss"]) == (["a-state"], [provider.issuer])
    return query["code"][0]


async def exchange(provider: OidcProvider, verifier: str = VERIFIER) -> httpx2.Response:
    code = await get_code(provider)
    return await ask(
        provider, grant_type="authorization_code", code=code, redirect_uri=REDIRECT, code_verifier=verifier
    )


async def test_wrong_verifier_is_refused(provider: OidcProvider) -> None:
    assert (await exchange(provider, "w" * 43)).json()["error"] == "invalid_grant"
    assert (await exchange(provider)).json()["access_token"]


@pytest.mark.parametrize("changes", [{"redirect_uri": REDIRECT + "/"}, {"code_challenge_method": "plain"}])
async def test_other_redirect_and_plain_challenge_are_refused(
    provider: OidcProvider, changes: dict[str, str]
) -> None:
    async with httpx2.AsyncClient(timeout=30) as client:
        answer = await client.get(authorize_url(provider, **changes))
    assert answer.status_code == 400 or "error=" in answer.headers["location"]


async def test_second_use_of_a_refresh_token_revokes_the_grant(provider: OidcProvider) -> None:
    first = (await exchange(provider)).json()["refresh_token"]
    second = await ask(provider, grant_type="refresh_token", refresh_token=first)
    again = await ask(provider, grant_type="refresh_token", refresh_token=first)
    after = await ask(provider, grant_type="refresh_token", refresh_token=second.json()["refresh_token"])
    assert [answer.status_code for answer in (second, again, after)] == [200, 400, 400]


async def test_token_requests_can_be_held(provider: OidcProvider) -> None:
    before = provider.counts
    provider.hold("after")
    asked = asyncio.create_task(exchange(provider))
    await wait_for(lambda: provider.counts.code == before.code + 1, what="the code was exchanged")
    assert not asked.done()
    provider.release()
    assert (await asked).status_code == 200
