"""One request of `local__Fetch` and its redirects, within limits of time and size. RS-74

Owns what is sent where: the host of each address is checked before it is asked. There is no proxy and no
cookie, and no connection is kept.
"""

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterable, Collection, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urljoin

import httpcore2

from easel.core.web.hosts import FETCH, Url, is_listed, parse_url
from easel.errors import BadInput, Forbidden, ToolFailed
from easel.fetch.network import CheckedNetwork

MAX_SECONDS = 30.0  # of a request with its redirects
MAX_REDIRECTS = 5
# Sent to another host too. All others, such as Authorization, are for the first host only.
_FOR_EVERY_HOST = frozenset({"accept", "accept-encoding", "accept-language", "content-type", "user-agent"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    url: Url
    headers: Mapping[str, str]  # names in lower case
    content: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes
    is_truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    hosts: Collection[str]
    listed_by: str  # where the hosts come from, for errors
    network: CheckedNetwork
    tls: ssl.SSLContext
    max_bytes: int  # of a body

    async def send(self, request: Request) -> Response:
        """Return the answer, after redirects. Raises `Forbidden` for a host that is not listed."""
        try:
            async with asyncio.timeout(MAX_SECONDS):
                for _ in range(MAX_REDIRECTS + 1):
                    answer = await self._send_once(request)
                    if isinstance(answer, Response):
                        return answer
                    request = answer
        except (TimeoutError, httpcore2.TimeoutException):
            raise _failed(f"{request.url.authority} took longer than {MAX_SECONDS:g} s.") from None
        except httpcore2.NetworkError as problem:
            raise _failed(f"{request.url.authority} cannot be reached: {problem}.") from None
        except httpcore2.ProtocolError as problem:
            raise _failed(f"{request.url.authority} sent no valid HTTP: {problem}.") from None
        raise _failed(f"{request.url.authority} redirects more than {MAX_REDIRECTS} times.")

    async def _send_once(self, request: Request) -> Response | Request:
        """Return the answer, or the request that a redirect asks for."""
        if not is_listed(request.url, self.hosts):
            raise Forbidden(problem=f"{self.listed_by} does not list {request.url.authority}.")
        scheme, host, port = request.url.scheme, request.url.host.strip("[]"), request.url.port
        headers = {"host": request.url.authority, **request.headers}
        async with (
            httpcore2.AsyncConnectionPool(ssl_context=self.tls, network_backend=self.network) as pool,
            pool.stream(
                request.method,
                httpcore2.URL(scheme=scheme, host=host, port=port, target=request.url.target),
                headers=headers,
                content=request.content,
            ) as answer,
        ):
            received: dict[str, str] = {}
            for name, value in (
                (name.decode().lower(), text.decode("latin-1")) for name, text in answer.headers
            ):
                received[name] = f"{received[name]}, {value}" if name in received else value
            if answer.status in (301, 302, 303, 307, 308) and "location" in received:
                return _follow(request, answer.status, received["location"])
            body, is_truncated = await self._read(answer.aiter_stream(), received.get("content-encoding", ""))
            received.pop("set-cookie", None)
            return Response(status=answer.status, headers=received, body=body, is_truncated=is_truncated)

    async def _read(self, chunks: AsyncIterable[bytes], encoding: str) -> tuple[bytes, bool]:
        """Return the decompressed body, and whether it was cut off at the limit."""
        if encoding.lower() not in ("gzip", "", "identity"):
            raise _failed(f"the answer is compressed as {encoding[:20]!r}, and only gzip was asked for.")
        gzip = zlib.decompressobj(wbits=31) if encoding.lower() == "gzip" else None
        body = bytearray()
        async for chunk in chunks:
            try:
                body += gzip.decompress(chunk, self.max_bytes + 1 - len(body)) if gzip else chunk
            except zlib.error as problem:
                raise _failed(f"the answer is not gzip: {problem}.") from None
            if len(body) > self.max_bytes:
                return bytes(body[: self.max_bytes]), True
        return bytes(body), False


def _follow(request: Request, status: int, location: str) -> Request:
    """Return the request that a redirect asks for, with the method and body that a browser would send."""
    try:
        url = parse_url(urljoin(str(request.url), location), "the address of a redirect")
    except ValueError:
        raise BadInput(problem="the address of a redirect is not valid.") from None
    if request.url.scheme == "https" and url.scheme == "http":
        raise _failed(f"{request.url.authority} redirects from https to http.")
    headers = dict(request.headers)
    if (url.scheme, url.authority) != (request.url.scheme, request.url.authority):
        headers = {name: value for name, value in headers.items() if name in _FOR_EVERY_HOST}
    if (status == 303 and request.method != "HEAD") or (status in (301, 302) and request.method == "POST"):
        headers.pop("content-type", None)
        return Request(method="GET", url=url, headers=headers, content=None)
    return replace(request, url=url, headers=headers)


def _failed(reason: str) -> ToolFailed:
    return ToolFailed(tool=FETCH, reason=reason)
