"""The OpenID client against an issuer that signs anything: what an ID token must be to be accepted."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc import jwk

from easel.core.openid.flow import SignInFlow
from easel.core.openid.provider import OpenIdProvider
from easel.errors import ProviderUnreachable
from easel.oauth.openid import CACHE_SECONDS, REFETCH_SECONDS, HttpOpenIdClient
from tests.requirements import rule
from tests.support.signing_issuer import CLIENT_ID, NOW, SigningIssuer, encode, new_key

if TYPE_CHECKING:
    from collections.abc import Callable

NONCE = "n" * 43
SECRET = "the secret of the client in this test"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def issuer() -> SigningIssuer:
    return SigningIssuer()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(issuer: SigningIssuer, clock: Clock) -> HttpOpenIdClient:
    provider = OpenIdProvider(issuer.issuer, CLIENT_ID, SECRET, teams_claim="groups")
    return HttpOpenIdClient(provider, issuer, allows_loopback=False, now=lambda: NOW, clock=clock)


def flow_of(issuer: SigningIssuer) -> SignInFlow:
    return SignInFlow("state", "v" * 64, NONCE, "browser", issuer.issuer, "http://localhost/cb", "/")


async def refusal(client: HttpOpenIdClient, issuer: SigningIssuer, token: Any) -> str:
    """Return why the token is refused, which must repeat nothing of it."""
    issuer.answer = token
    with pytest.raises(ProviderUnreachable) as caught:
        await client.identify(flow_of(issuer), "a code")
    message = caught.value.message
    assert not any(part and part in message for part in (str(token), "a code", NONCE, SECRET))
    return message


# -- claims --------------------------------------------------------------------------------------------------


@rule("RS-76")
@pytest.mark.parametrize(
    "changes, words",
    [
        ({"aud": "another"}, "another audience"),
        ({"aud": ["another"]}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": {CLIENT_ID: 1}}, "another audience"),
        ({"aud": [CLIENT_ID, "another"]}, "another client"),
        ({"azp": "another"}, "another client"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"nonce": "m" * 43}, "another sign-in"),
        ({"nonce": ""}, "another sign-in"),
        ({"nonce": None}, "another sign-in"),
        ({"exp": NOW - 3_600}, "expired"),
        ({"exp": NOW - 61}, "expired"),
        ({"exp": None}, "expired"),
        ({"exp": "9999999999"}, "expired"),
        ({"iat": NOW + 3_600}, "future"),
        ({"nbf": NOW + 3_600}, "future"),
        ({"sub": None}, "no valid"),
        ({"sub": ""}, "no valid"),
        ({"sub": 1}, "no valid"),
        ({"sub": "x" * 256}, "no valid"),
        ({"sub": "\x00"}, "no valid"),
    ],
    ids=str,
)
async def test_token_with_a_wrong_claim_is_refused(
    client: HttpOpenIdClient, issuer: SigningIssuer, changes: dict[str, Any], words: str
) -> None:
    message = await refusal(client, issuer, issuer.sign(issuer.claims(NONCE, **changes)))
    assert words in message


@rule("RS-76")
@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")
async def test_token_that_is_right_is_accepted(
    client: HttpOpenIdClient, issuer: SigningIssuer, algorithm: str
) -> None:
    issuer.algorithm, issuer.key = algorithm, new_key(algorithm, "other")
    issuer.keys = [{"kty": "unknown"}, "no key", issuer.key.as_dict(private=False)]
    claims = issuer.claims(
        NONCE,
        aud=[CLIENT_ID],
        azp=CLIENT_ID,
        email="Ada@Example.com",
        email_verified=True,
        groups=["devs:admin"],
    )
    issuer.answer = issuer.sign(claims)
    identity = await client.identify(flow_of(issuer), "a code")
    assert (identity.issuer, identity.subject) == (issuer.issuer, "subject")
    assert (identity.email, identity.teams) == ("ada@example.com", {"devs": "admin"})


# -- signatures ----------------------------------------------------------------------------------------------


def hs256_with_the_public_key(issuer: SigningIssuer) -> str:
    signed = f"{encode({'alg': 'HS256', 'kid': 'first'})}.{encode(issuer.claims(NONCE))}"
    assert isinstance(issuer.key, jwk.ECKey)
    public_pem = issuer.key.as_pem(private=False)
    digest = hmac.new(public_pem, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{encode(digest)}"


def without_signature(issuer: SigningIssuer) -> str:
    return f"{encode({'alg': 'none', 'kid': 'first'})}.{encode(issuer.claims(NONCE))}."


def own_key_in_the_header(issuer: SigningIssuer) -> str:
    key = new_key("ES256", "first")
    return issuer.sign(issuer.claims(NONCE), key=key, jwk=key.as_dict(private=False))


def swapped_payload(issuer: SigningIssuer) -> str:
    header, _, signature = issuer.sign(issuer.claims(NONCE)).split(".")
    return f"{header}.{encode(issuer.claims(NONCE, sub='victim'))}.{signature}"


def of_another_algorithm(issuer: SigningIssuer) -> str:
    key = new_key("RS256", "rsa")
    issuer.keys.append(key.as_dict(private=False))
    return issuer.sign(issuer.claims(NONCE), key=key, alg="RS256")


HOSTILE: dict[str, Callable[[SigningIssuer], Any]] = {
    "alg none": without_signature,
    "alg None": lambda issuer: f"{encode({'alg': None})}.{encode(issuer.claims(NONCE))}.",
    "alg is a list": lambda issuer: f"{encode({'alg': ['ES256']})}.{encode(issuer.claims(NONCE))}.AA",
    "HS256 with the public key": hs256_with_the_public_key,
    "HS256 with an empty key": lambda issuer: issuer.sign(
        issuer.claims(NONCE), key=jwk.OctKey.import_key("0" * 32), alg="HS256", kid="first"
    ),
    "a key of its own, with the published id": lambda issuer: issuer.sign(
        issuer.claims(NONCE), key=new_key("ES256", "first")
    ),
    "a key in the header": own_key_in_the_header,
    "an address of keys in the header": lambda issuer: issuer.sign(
        issuer.claims(NONCE), key=new_key("ES256", "first"), jku="http://127.0.0.1:9/keys"
    ),
    "an unknown key": lambda issuer: issuer.sign(issuer.claims(NONCE), key=new_key("ES256", "second")),
    "an algorithm that is not announced": of_another_algorithm,
    "a payload of another": swapped_payload,
    "an unknown critical header": lambda _: (
        f"{encode({'alg': 'ES256', 'kid': 'first', 'crit': ['x'], 'x': 1})}.{encode({})}.AA"
    ),
    "a huge header": lambda issuer: issuer.sign(issuer.claims(NONCE), x="x" * 4_000),
    "a huge payload": lambda issuer: issuer.sign(issuer.claims(NONCE, x="x" * 14_000)),
    "a huge signature": lambda issuer: issuer.sign(issuer.claims(NONCE)) + "A" * 2_000,
    "a huge token": lambda _: "A" * 200_000,
    "nested a thousand times": lambda _: f"{encode(b'[' * 1_500)}.{encode({})}.AA",
    "two parts": lambda _: "e30.e30",
    "five parts": lambda _: "e30.e30.e30.e30.e30",
    "no token": lambda _: None,
    "a list": lambda _: ["e30"],
    "no Base64": lambda _: "%%%.%%%.%%%",
}


@rule("RS-76")
@pytest.mark.parametrize("name", HOSTILE)
async def test_token_with_a_wrong_signature_is_refused(
    client: HttpOpenIdClient, issuer: SigningIssuer, name: str
) -> None:
    await refusal(client, issuer, HOSTILE[name](issuer))
    assert issuer.requests.count("/keys") <= 2


@rule("RS-76")
async def test_swapped_keys_are_noticed_and_requests_for_them_are_limited(
    client: HttpOpenIdClient, issuer: SigningIssuer, clock: Clock
) -> None:
    issuer.answer = issuer.sign(issuer.claims(NONCE))
    await client.identify(flow_of(issuer), "a code")
    old = issuer.key
    issuer.key = new_key("ES256", "second")
    issuer.keys = [issuer.key.as_dict(private=False)]
    issuer.answer = issuer.sign(issuer.claims(NONCE))
    await client.identify(flow_of(issuer), "a code")
    assert issuer.requests.count("/keys") == 2
    # The removed key is refused, and causes a request at most every 30 s.
    for _ in range(5):
        await refusal(client, issuer, issuer.sign(issuer.claims(NONCE), key=old))
    assert issuer.requests.count("/keys") == 2
    clock.now += REFETCH_SECONDS
    await refusal(client, issuer, issuer.sign(issuer.claims(NONCE), key=old))
    assert issuer.requests.count("/keys") == 3
    assert issuer.requests.count("/.well-known/openid-configuration") == 1
    clock.now += CACHE_SECONDS
    issuer.answer = issuer.sign(issuer.claims(NONCE))
    await client.identify(flow_of(issuer), "a code")
    assert issuer.requests.count("/.well-known/openid-configuration") == 2


@rule("RS-76")
async def test_tokens_that_begin_alike_are_different_persons(
    client: HttpOpenIdClient, issuer: SigningIssuer
) -> None:
    tokens = [issuer.sign({**issuer.claims(NONCE, sub=None), "sub": name}) for name in ("first", "second")]
    assert tokens[0][:80] == tokens[1][:80]
    found: list[str] = []
    for token in tokens:
        issuer.answer = token
        found.append((await client.identify(flow_of(issuer), "a code")).subject)
    assert found == ["first", "second"]


# -- what the provider publishes -----------------------------------------------------------------------------


@rule("RS-76")
@pytest.mark.parametrize(
    "changes, words",
    [
        ({"issuer": "https://evil.example"}, "another issuer"),
        ({"issuer": None}, "another issuer"),
        ({"id_token_signing_alg_values_supported": ["none", "HS256"]}, "signs by none of"),
        ({"id_token_signing_alg_values_supported": None}, "signs by none of"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "authorization_endpoint"),
        ({"token_endpoint": "http://evil.example/token"}, "token_endpoint"),
        ({"jwks_uri": None}, "jwks_uri"),
        ({"jwks_uri": "file:///etc/passwd"}, "jwks_uri"),
        ({"end_session_endpoint": "http://evil.example"}, "end_session_endpoint"),
    ],
    ids=str,
)
async def test_configuration_that_is_not_the_issuers_is_refused(
    client: HttpOpenIdClient, issuer: SigningIssuer, changes: dict[str, Any], words: str
) -> None:
    issuer.changes = changes
    with pytest.raises(ProviderUnreachable, match=words):
        await client.authorize_url(flow_of(issuer))


@rule("RX-39")
async def test_address_has_the_challenge_and_the_nonce_and_asks_for_the_claim(
    client: HttpOpenIdClient, issuer: SigningIssuer
) -> None:
    issuer.changes = {"scopes_supported": ["openid", "groups"]}
    query = parse_qs(urlsplit(await client.authorize_url(flow_of(issuer))).query)
    assert query["code_challenge_method"] == ["S256"]
    assert query["nonce"] == [NONCE]
    assert query["scope"] == ["openid email profile groups"]
    assert "v" * 64 not in str(query)


@rule("RS-76")
@pytest.mark.parametrize(
    "announced, sent, is_accepted",
    [
        (True, "own", True),
        (True, None, False),
        (True, "other", False),
        (None, None, True),
        (None, "other", False),
    ],
)
async def test_issuer_of_a_callback_must_be_the_providers(
    client: HttpOpenIdClient,
    issuer: SigningIssuer,
    announced: bool | None,
    sent: str | None,
    is_accepted: bool,
) -> None:
    issuer.changes = {"authorization_response_iss_parameter_supported": announced}
    named = issuer.issuer if sent == "own" else "https://other.example" if sent else None
    assert await client.is_issuer(named) is is_accepted
