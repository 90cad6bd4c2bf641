"""The client of the OpenID provider: its discovery document, its keys, and the check of ID tokens.

Owns which algorithms may sign a token: some of those below that the provider announces, whatever the token
says. A key is found by its id and must fit the algorithm; keys and addresses in a token are never read. No
error contains a token, a code or the client's secret.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec
from joserfc import jwk, jws
from joserfc.errors import JoseError

from easel.core.oauth.flow import is_loopback
from easel.core.oauth.provider import OAuthProvider
from easel.core.openid.flow import SignInFlow
from easel.core.openid.identity import Identity, find_flaw, read_identity
from easel.core.openid.provider import OpenIdProvider
from easel.errors import ProviderUnreachable
from easel.oauth.client import HttpOAuthClient
from easel.oauth.http import ProviderHttp

CACHE_SECONDS = 3600.0
REFETCH_SECONDS = 30.0  # between two requests for keys because of an unknown key id
MAX_KEYS = 100
MIN_RSA_BITS = 2048
# By algorithm: the type of its keys, and their curve.
ALGORITHMS: Mapping[str, tuple[str, str | None]] = {
    "RS256": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "EdDSA": ("OKP", "Ed25519"),
}
SCOPES = ("openid", "email", "profile")


class _Registry(jws.JWSRegistry):
    """Limits of the parts of an ID token, before they are decoded."""

    max_header_length = 2_048
    max_payload_length = 16_384
    max_signature_length = 1_024


@dataclass(frozen=True, slots=True)
class Discovery:
    authorize_url: str
    token_url: str
    keys_url: str
    end_session_url: str | None
    algorithms: frozenset[str]
    scopes: frozenset[str]
    sends_issuer: bool  # with each callback


class HttpOpenIdClient:
    """The `OpenIdClient` over HTTP, of one provider. Its caches hold documents of this provider alone."""

    def __init__(
        self,
        provider: OpenIdProvider,
        http: ProviderHttp,
        *,
        allows_loopback: bool,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._provider = provider
        self._http = http
        self._oauth = HttpOAuthClient(http)
        self._allows_loopback = allows_loopback
        self._now = now
        self._clock = clock
        self._lock = asyncio.Lock()  # of the requests below
        self._discovery: tuple[Discovery, float] | None = None
        self._keys: tuple[list[jwk.Key], float] | None = None
        self._refetched_at = -REFETCH_SECONDS

    async def authorize_url(self, flow: SignInFlow) -> str:
        discovery = await self._discover()
        # A claim that the provider gives for a scope of the same name, such as `groups`, is asked for.
        named = {self._provider.teams_claim} & discovery.scopes
        url = self._oauth.authorize_url(
            self._client_at(discovery, " ".join((*SCOPES, *named))),
            redirect_uri=flow.redirect_uri,
            state=flow.state,
            code_verifier=flow.code_verifier,
        )
        return f"{url}&{urlencode({'nonce': flow.nonce})}"

    async def is_issuer(self, issuer: str | None) -> bool:
        if issuer is None:
            return not (await self._discover()).sends_issuer
        return issuer == self._provider.issuer

    async def identify(self, flow: SignInFlow, code: str) -> Identity:
        discovery = await self._discover()
        token = await self._oauth.exchange_for_id_token(
            self._client_at(discovery),
            code=code,
            redirect_uri=flow.redirect_uri,
            code_verifier=flow.code_verifier,
        )
        claims = await self._verify(token, discovery)
        flaw = find_flaw(
            claims,
            issuer=self._provider.issuer,
            client_id=self._provider.client_id,
            nonce=flow.nonce,
            now=self._now(),
        )
        if flaw is not None:
            raise self._problem(f"sent an ID token that is not accepted: {flaw}")
        return read_identity(claims, self._provider.teams_claim)

    async def end_session_url(self, redirect_uri: str) -> str | None:
        url = (await self._discover()).end_session_url
        if url is None:
            return None
        query = urlencode({"client_id": self._provider.client_id, "post_logout_redirect_uri": redirect_uri})
        parts = urlsplit(url)
        return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, query)))))

    # -- the ID token ----------------------------------------------------------------------------------------

    async def _verify(self, token: str, discovery: Discovery) -> Mapping[str, Any]:
        """Return the claims of a token that a key of the provider has signed."""
        registry = _Registry(algorithms=list(discovery.algorithms), strict_check_header=False)
        try:
            parts = jws.extract_compact(token.encode(), registry=registry)
            header = parts.headers()
            algorithm, key_id = header.get("alg"), header.get("kid")
            if not isinstance(algorithm, str) or not isinstance(key_id, str | None):
                raise self._problem("sent an ID token that is malformed")
            if algorithm not in discovery.algorithms:
                raise self._problem("signed an ID token by an algorithm that it does not announce")
            key = await self._find_key(algorithm, key_id, discovery)
            is_signed = jws.validate_compact(parts, key, registry=registry)
            claims: Any = msgspec.json.decode(parts.payload) if is_signed else None
        except (JoseError, ValueError, RecursionError):
            raise self._problem("sent an ID token that is malformed or has a wrong signature") from None
        if not isinstance(claims, dict):
            raise self._problem("sent an ID token that is malformed or has a wrong signature")
        return cast("Mapping[str, Any]", claims)

    async def _find_key(self, algorithm: str, key_id: str | None, discovery: Discovery) -> jwk.Key:
        """Return the key of the token. An unknown id lets the keys be requested again, at most every 30 s."""
        key = _choose(await self._read_keys(discovery), algorithm, key_id)
        if key is None and self._clock() - self._refetched_at >= REFETCH_SECONDS:
            self._refetched_at = self._clock()
            key = _choose(await self._read_keys(discovery, is_stale=True), algorithm, key_id)
        if key is None:
            raise self._problem("signed an ID token by a key that it does not publish")
        return key

    # -- what the provider publishes -------------------------------------------------------------------------

    async def _read_keys(self, discovery: Discovery, *, is_stale: bool = False) -> list[jwk.Key]:
        async with self._lock:
            if not is_stale and self._keys is not None and self._is_fresh(self._keys[1]):
                return self._keys[0]
            answer = await self._http.get(self._provider.name, discovery.keys_url)
            listed = answer.members.get("keys")
            if answer.status != 200 or not isinstance(listed, list):
                raise self._problem("does not publish its keys")
            keys = [key for each in cast("list[Any]", listed)[:MAX_KEYS] if (key := _import(each))]
            self._keys = keys, self._clock()
            return keys

    async def _discover(self) -> Discovery:
        async with self._lock:
            if self._discovery is not None and self._is_fresh(self._discovery[1]):
                return self._discovery[0]
            url = f"{self._provider.issuer.rstrip('/')}/.well-known/openid-configuration"
            answer = await self._http.get(self._provider.name, url)
            if answer.status != 200:
                raise self._problem(f"answered {answer.status} instead of its configuration")
            discovery = self._read_discovery(answer.members)
            self._discovery = discovery, self._clock()
            return discovery

    def _read_discovery(self, members: Mapping[str, Any]) -> Discovery:
        if members.get("issuer") != self._provider.issuer:
            raise self._problem("has another issuer in its configuration than EASEL_OIDC_ISSUER")
        announced = _texts(members.get("id_token_signing_alg_values_supported"))
        if not (algorithms := announced & ALGORITHMS.keys()):
            raise self._problem(f"signs by none of {', '.join(ALGORITHMS)}")
        end = members.get("end_session_endpoint")
        return Discovery(
            authorize_url=self._url(members, "authorization_endpoint"),
            token_url=self._url(members, "token_endpoint"),
            keys_url=self._url(members, "jwks_uri"),
            end_session_url=None if end is None else self._url(members, "end_session_endpoint"),
            algorithms=algorithms,
            scopes=_texts(members.get("scopes_supported")),
            sends_issuer=members.get("authorization_response_iss_parameter_supported") is True,
        )

    def _url(self, members: Mapping[str, Any], name: str) -> str:
        url = members.get(name)
        try:
            parts = urlsplit(url if isinstance(url, str) else "")
            is_local = self._allows_loopback and parts.scheme == "http" and is_loopback(parts.hostname or "")
        except ValueError:
            parts, is_local = urlsplit(""), False
        if not isinstance(url, str) or not (parts.scheme == "https" or is_local) or not url.isprintable():
            raise self._problem(f"has no https address as {name} in its configuration")
        return url

    def _client_at(self, discovery: Discovery, scopes: str = "") -> OAuthProvider:
        return OAuthProvider(
            name=self._provider.name,
            client_id=self._provider.client_id,
            client_secret=self._provider.client_secret,
            authorize_url=discovery.authorize_url,
            token_url=discovery.token_url,
            scopes=scopes,
        )

    def _is_fresh(self, fetched_at: float) -> bool:
        return self._clock() - fetched_at < CACHE_SECONDS

    def _problem(self, problem: str) -> ProviderUnreachable:
        return ProviderUnreachable(provider=self._provider.name, problem=problem)


def _choose(keys: list[jwk.Key], algorithm: str, key_id: str | None) -> jwk.Key | None:
    """Return the one key with this id that fits the algorithm. Without an id there must be one such key."""
    key_type, curve = ALGORITHMS[algorithm]
    fitting = [
        key
        for key in keys
        if key.key_type == key_type
        and (curve is None or key.get("crv") == curve)
        and (key_id is None or key.kid == key_id)
        and key.get("use") in (None, "sig")
        and key.get("alg") in (None, algorithm)
    ]
    return fitting[0] if len(fitting) == 1 else None


def _import(value: Any) -> jwk.Key | None:
    """Return a key for signatures, None for one that Easel cannot use."""
    if not isinstance(value, dict):
        return None
    members = cast("dict[str, Any]", value)
    if members.get("kty") not in {key_type for key_type, _ in ALGORITHMS.values()}:
        return None
    try:
        key = jwk.import_key(members)
        is_weak = isinstance(key, jwk.RSAKey) and key.public_key.key_size < MIN_RSA_BITS
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return None if is_weak else key


def _texts(value: Any) -> frozenset[str]:
    listed = cast("list[Any]", value) if isinstance(value, list) else []
    return frozenset(text for text in listed if isinstance(text, str))
