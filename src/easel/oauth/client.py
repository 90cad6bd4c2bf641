"""The client of OAuth providers: the address that asks the person, and requests for tokens.

Owns the wire of RFC 6749 with PKCE (RFC 7636, S256 only). No error contains a token, a code, a verifier or
the client's secret: of a refusal only the word of its error is repeated.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any, TypeGuard
from urllib.parse import urlencode, urlsplit, urlunsplit

from easel.core.oauth.connection import MAX_TOKEN_LENGTH, GrantedTokens
from easel.core.oauth.provider import OAuthProvider
from easel.errors import ProviderRefused, ProviderUnreachable
from easel.oauth.http import ProviderHttp, ProviderReply

MAX_LIFETIME_SECONDS = 365 * 86_400.0
MAX_SCOPES_LENGTH = 1_000
_ERROR = re.compile(r"[a-z_]{1,64}")
_TOKEN = re.compile(rf"[!-~]{{1,{MAX_TOKEN_LENGTH}}}")


class HttpOAuthClient:
    """The `OAuthClient` over HTTP."""

    def __init__(self, http: ProviderHttp) -> None:
        self._http = http

    def authorize_url(
        self, provider: OAuthProvider, *, redirect_uri: str, state: str, code_verifier: str
    ) -> str:
        digest = hashlib.sha256(code_verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": provider.client_id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            **({"scope": provider.scopes} if provider.scopes else {}),
        }
        parts = urlsplit(provider.authorize_url)
        return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, urlencode(query))))))

    async def exchange(
        self, provider: OAuthProvider, *, code: str, redirect_uri: str, code_verifier: str
    ) -> GrantedTokens:
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
        return await self._ask(provider, {**form, "code_verifier": code_verifier})

    async def refresh(self, provider: OAuthProvider, refresh_token: str) -> GrantedTokens:
        return await self._ask(provider, {"grant_type": "refresh_token", "refresh_token": refresh_token})

    async def exchange_for_id_token(
        self, provider: OAuthProvider, *, code: str, redirect_uri: str, code_verifier: str
    ) -> str:
        """Return the ID token for the code of a callback, which is not verified. Raises as `exchange`."""
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
        members = await self._post(provider, {**form, "code_verifier": code_verifier})
        if not _is_token(token := members.get("id_token")):
            raise ProviderUnreachable(provider=provider.name, problem="sent no ID token")
        return token

    async def _ask(self, provider: OAuthProvider, form: Mapping[str, str]) -> GrantedTokens:
        return _read_tokens(provider.name, await self._post(provider, form))

    async def _post(self, provider: OAuthProvider, form: Mapping[str, str]) -> Mapping[str, Any]:
        auth = (provider.client_id, provider.client_secret) if provider.client_secret else None
        if auth is None:
            form = {**form, "client_id": provider.client_id}
        answer = await self._http.post(provider.name, provider.token_url, form, auth)
        return _check_answer(provider.name, answer)


def _check_answer(provider: str, answer: ProviderReply) -> Mapping[str, Any]:
    """Return the members of a granted request. Raises `ProviderRefused` or `ProviderUnreachable`."""
    if 400 <= answer.status < 500 and answer.status != 429 and (error := _error_of(answer.members)):
        raise ProviderRefused(provider=provider, error=error)
    if answer.status != 200:
        raise ProviderUnreachable(provider=provider, problem=f"answered {answer.status}")
    return answer.members


def _read_tokens(provider: str, members: Mapping[str, Any]) -> GrantedTokens:
    """Return the tokens of an answer. Raises `ProviderUnreachable` if it is odd."""
    access, refresh, scopes = (members.get(name) for name in ("access_token", "refresh_token", "scope"))
    is_bearer = str(members.get("token_type", "bearer")).lower() == "bearer"
    if not (_is_token(access) and is_bearer and (refresh is None or _is_token(refresh))):
        raise ProviderUnreachable(provider=provider, problem="sent no valid bearer token")
    scopes = scopes[:MAX_SCOPES_LENGTH] if isinstance(scopes, str) else None
    return GrantedTokens(access, refresh, _seconds(members.get("expires_in")), scopes)


def _error_of(members: Mapping[str, Any]) -> str | None:
    error = members.get("error")
    return error if isinstance(error, str) and _ERROR.fullmatch(error) else None


def _is_token(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and _TOKEN.fullmatch(value) is not None


def _seconds(value: Any) -> float | None:
    """Return the lifetime of a token; some providers send it as text."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return min(seconds, MAX_LIFETIME_SECONDS) if seconds >= 0 else None
