"""Requests to the servers of OAuth and OpenID providers: one answer in JSON, within limits of time and size.

Owns where they may go and how long they may take: https, or http on this machine while developing; no
redirect is followed and no cookie is kept. Does not know what is asked or answered.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
import msgspec

from easel.core.oauth.flow import is_loopback
from easel.errors import ProviderUnreachable

MAX_SECONDS = 10.0  # of a request with its answer
MAX_ANSWER_BYTES = 1_048_576


@dataclass(frozen=True, slots=True)
class ProviderReply:
    status: int
    members: Mapping[str, Any]  # of the JSON object


class ProviderHttp:
    def __init__(self, *, allows_loopback: bool, max_seconds: float = MAX_SECONDS) -> None:
        self._allows_loopback = allows_loopback
        self._max_seconds = min(max_seconds, MAX_SECONDS)
        self._client: httpx2.AsyncClient | None = None

    async def get(self, provider: str, url: str) -> ProviderReply:
        """Return the answer to a GET. Raises `ProviderUnreachable`."""
        return await self._request(provider, "GET", url)

    async def post(
        self, provider: str, url: str, form: Mapping[str, str], auth: tuple[str, str] | None
    ) -> ProviderReply:
        """Return the answer to a form, with HTTP Basic authentication. Raises `ProviderUnreachable`."""
        return await self._request(provider, "POST", url, form, auth)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _request(
        self,
        provider: str,
        method: str,
        url: str,
        form: Mapping[str, str] | None = None,
        auth: tuple[str, str] | None = None,
    ) -> ProviderReply:
        self._check(provider, url)
        if self._client is None:
            self._client = httpx2.AsyncClient(
                follow_redirects=False,
                limits=httpx2.Limits(max_keepalive_connections=0),  # requests are rare
                headers={"accept": "application/json", "accept-encoding": "identity", "user-agent": "easel"},
            )
        try:
            async with (
                asyncio.timeout(self._max_seconds),
                self._client.stream(method, url, data=form, auth=auth) as answer,
            ):
                body = bytearray()
                async for chunk in answer.aiter_raw():
                    body += chunk
                    if len(body) > MAX_ANSWER_BYTES:
                        raise ProviderUnreachable(provider=provider, problem="sent too long an answer")
        except (TimeoutError, httpx2.TimeoutException):
            problem = f"did not answer within {self._max_seconds:g} s"
            raise ProviderUnreachable(provider=provider, problem=problem) from None
        except httpx2.HTTPError as error:
            # Only its kind: its text or its request may contain what was sent.
            problem = f"cannot be reached ({type(error).__name__})"
            raise ProviderUnreachable(provider=provider, problem=problem) from None
        finally:
            self._client.cookies.clear()
        return ProviderReply(answer.status_code, _parse(provider, answer.status_code, bytes(body)))

    def _check(self, provider: str, url: str) -> None:
        parts = urlsplit(url)
        is_local = self._allows_loopback and parts.scheme == "http" and is_loopback(parts.hostname or "")
        if parts.scheme != "https" and not is_local:
            raise ProviderUnreachable(provider=provider, problem="has an address that is not https")


def _parse(provider: str, status: int, body: bytes) -> Mapping[str, Any]:
    try:
        members: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        members = None
    if not isinstance(members, dict):
        problem = f"answered {status} without a JSON object"
        raise ProviderUnreachable(provider=provider, problem=problem)
    return cast("Mapping[str, Any]", members)
