"""One HTTP request of `local__Fetch` with its redirects, within limits of time and size. RS-74

Owns what is sent where: a host must be listed, and the address that is connected to is the one that was
checked, after each redirect too. There is no proxy and no cookie, and no connection is kept.
"""

import asyncio
import socket
import ssl
import zlib
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any
from urllib.parse import urljoin

import httpcore2
from httpcore2 import AsyncNetworkStream, ConnectError

from easel.core.web.hosts import FETCH, Networks, Url, is_listed, may_connect, parse_url
from easel.errors import Forbidden, ToolFailed

Resolve = Callable[[str], Awaitable[Sequence[str]]]  # from a name to IP addresses
MAX_SECONDS = 30.0  # of a request with its redirects
MAX_REDIRECTS = 5
# Sent to another host too. All others, such as Authorization, are for the first host only.
_FOR_EVERY_HOST = frozenset({"accept", "accept-encoding", "accept-language", "content-type", "user-agent"})
_LOOKUPS = ThreadPoolExecutor(8, "easel-fetch-names")  # separate threads: a lookup can block for long


async def resolve_name(host: str) -> Sequence[str]:
    """Return the IP addresses of a name. Raises `OSError`."""
    loop, kind = asyncio.get_running_loop(), socket.SOCK_STREAM
    found = await loop.run_in_executor(_LOOKUPS, lambda: socket.getaddrinfo(host, None, type=kind))
    return [str(address[0]) for *_, address in found]


class CheckedNetwork(httpcore2.AnyIOBackend):
    """Connects to public addresses, and to those in networks that a setting allows."""

    def __init__(self, private: Networks, resolve: Resolve) -> None:
        self._private = private
        self._resolve = resolve

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> AsyncNetworkStream:
        """Connect to the first address of the host that accepts. A name is resolved only here."""
        try:
            found = await self._resolve(host)
        except OSError as problem:
            raise ConnectError(f"its name has no address ({problem.strerror})") from None
        problem = ToolFailed(
            tool=FETCH,
            reason=f"{host} has no public address, and EASEL_FETCH_PRIVATE of this server allows no other.",
        )
        for address in found:
            if may_connect(ip_address(address), self._private):
                try:
                    return await super().connect_tcp(address, port, timeout, local_address, socket_options)
                except ConnectError as failed:
                    problem = failed
        raise problem


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
            problem = f"redirects more than {MAX_REDIRECTS} times"
        except (TimeoutError, httpcore2.TimeoutException):
            problem = f"took longer than {MAX_SECONDS:g} s"
        except httpcore2.NetworkError as error:
            problem = f"cannot be reached: {error}"
        except (httpcore2.ProtocolError, zlib.error) as error:
            problem = f"sent no valid HTTP: {error}"
        raise ToolFailed(tool=FETCH, reason=f"{request.url.authority} {problem}.")

    async def _send_once(self, request: Request) -> Response | Request:
        """Return the answer, or the request that a redirect asks for."""
        url = request.url
        if not is_listed(url, self.hosts):
            raise Forbidden(problem=f"{self.listed_by} does not list {url.authority}.")
        page = httpcore2.URL(scheme=url.scheme, host=url.host.strip("[]"), port=url.port, target=url.target)
        headers = {"host": url.authority, **request.headers}
        async with (
            httpcore2.AsyncConnectionPool(ssl_context=self.tls, network_backend=self.network) as pool,
            pool.stream(request.method, page, headers=headers, content=request.content) as answer,
        ):
            received: dict[str, str] = {}
            for name, value in answer.headers:
                known = received.get(key := name.decode().lower())
                received[key] = (
                    value.decode("latin-1") if known is None else f"{known}, {value.decode('latin-1')}"
                )
            if answer.status in (301, 302, 303, 307, 308) and "location" in received:
                return _follow(request, answer.status, received["location"])
            body, is_truncated = await self._read(answer.aiter_stream(), received.get("content-encoding", ""))
            received.pop("set-cookie", None)
            return Response(status=answer.status, headers=received, body=body, is_truncated=is_truncated)

    async def _read(self, chunks: AsyncIterable[bytes], encoding: str) -> tuple[bytes, bool]:
        """Return the decompressed body, and whether it was cut off at the limit."""
        if encoding.lower() not in ("gzip", "", "identity"):
            raise httpcore2.RemoteProtocolError("its body is compressed, and not with gzip")
        gzip = zlib.decompressobj(wbits=31) if encoding.lower() == "gzip" else None
        body = b""
        async for chunk in chunks:
            body += gzip.decompress(chunk, self.max_bytes + 1 - len(body)) if gzip else chunk
            if len(body) > self.max_bytes:
                return body[: self.max_bytes], True
        return body, False


def _follow(request: Request, status: int, location: str) -> Request:
    """Return the request that a redirect asks for, with the method and body that a browser would send."""
    try:
        url = parse_url(urljoin(str(request.url), location), "the address of a redirect")
    except ValueError:
        raise httpcore2.RemoteProtocolError("the address of its redirect is not valid") from None
    if request.url.scheme == "https" and url.scheme == "http":
        raise httpcore2.RemoteProtocolError("it redirects from https to http")
    headers = dict(request.headers)
    if (url.scheme, url.authority) != (request.url.scheme, request.url.authority):
        headers = {name: value for name, value in headers.items() if name in _FOR_EVERY_HOST}
    if (status == 303 and request.method != "HEAD") or (status in (301, 302) and request.method == "POST"):
        headers.pop("content-type", None)
        return Request(method="GET", url=url, headers=headers, content=None)
    return replace(request, url=url, headers=headers)
