"""The tool `local__Fetch`: HTTP requests, with their redirects, within limits of time and size. RS-74

Owns what is sent where: the host of an address must be listed before it is asked. There is no proxy and no
cookie, and no connection is kept.
"""

import asyncio
import contextlib
import re
import ssl
import zlib
from collections.abc import AsyncIterable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urljoin

import httpcore2
import msgspec

from easel.core.action.parsing import parse_json
from easel.core.tool.context import ToolContext
from easel.core.tool.definition import X_SHELL, ToolDefinition
from easel.core.web.hosts import FETCH, OWN_PAGE, READ_METHODS, Networks, Url, is_listed, parse_url
from easel.errors import BadInput, Forbidden, ToolFailed
from easel.fetch.network import CheckedNetwork, Resolve, resolve_name

MAX_SECONDS = 30.0  # of a request with its redirects
MAX_REDIRECTS = 5
# Sent to another host too. All others, such as Authorization, are for the first host only.
_FOR_EVERY_HOST = frozenset({"accept", "accept-encoding", "accept-language", "content-type", "user-agent"})
# Easel sets these: they decide where a request goes and where it ends.
_RESERVED = "(?i)^(accept-encoding|connection|content-length|expect|host|te|transfer-encoding|upgrade)$"
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json\s*(?:;.*)?", re.IGNORECASE)
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    X_SHELL: False,
    "properties": {
        "method": {"enum": [*READ_METHODS, "POST", "PUT", "PATCH", "DELETE"]},
        "url": {"type": "string", "description": "Such as https://api.example.com/items?page=2."},
        "headers": {
            "type": "object",
            "maxProperties": 50,
            "propertyNames": {"pattern": "^[A-Za-z0-9_-]{1,100}$", "not": {"pattern": _RESERVED}},
            "additionalProperties": {"type": "string", "pattern": "^([!-~]([\\t -~]*[!-~])?)?$"},
        },
        "json": {"description": "The body as a JSON value."},
        "body": {"type": "string", "description": "The body as text, instead of `json`."},
        "bearer": {"type": "string", "pattern": "^[!-~]+$", "description": "A token for `Authorization`."},
    },
    "required": ["method", "url"],
    "not": {"required": ["json", "body"]},
    "additionalProperties": False,
}
DESCRIPTION = (
    "Sends an HTTP request to a host that `toolPolicy.hosts` of the canvas or, for agents, the server names. "
    "Returns `status`, `headers`, `body`, `json` if the answer is JSON, and `truncated`. Follows "
    f"{MAX_REDIRECTS} redirects, and takes at most {MAX_SECONDS:g} s. `{OWN_PAGE}` is this server's own page."
)


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    url: Url
    headers: Mapping[str, str]  # names in lower case
    content: bytes | None


class FetchTool:
    def __init__(
        self,
        agent_hosts: Collection[str],
        private: Networks,
        *,
        max_body_bytes: int,
        resolve: Resolve = resolve_name,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        for_agents = bool(agent_hosts)
        self.definition = ToolDefinition(
            FETCH, DESCRIPTION, SCHEMA, destructive=True, is_for_agents=for_agents
        )
        self._agent_hosts = agent_hosts
        self._network = CheckedNetwork(private, resolve)
        self._max_body_bytes = max_body_bytes
        self._tls = tls

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        """Return the answer, after redirects. Raises `Forbidden` for a host that is not listed."""
        if args["url"] == OWN_PAGE:
            return _answer_own_page(args)
        request = _read_request(args)
        self._tls = self._tls or await asyncio.to_thread(ssl.create_default_context)
        try:
            async with asyncio.timeout(MAX_SECONDS):
                for _ in range(MAX_REDIRECTS + 1):
                    self._check_host(request.url, context)
                    answer = await self._send(request, self._tls)
                    if not isinstance(answer, _Request):
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

    def _check_host(self, url: Url, context: ToolContext) -> None:
        of_canvas = context.hosts is not None
        if not is_listed(url, self._agent_hosts if context.hosts is None else context.hosts):
            where = "toolPolicy.hosts of the canvas" if of_canvas else "EASEL_FETCH_HOSTS of this server"
            raise Forbidden(problem=f"{where} does not list {url.authority}.")

    async def _send(self, request: _Request, tls: ssl.SSLContext) -> Mapping[str, Any] | _Request:
        """Return the answer, or the request that a redirect asks for."""
        url = request.url
        page = httpcore2.URL(scheme=url.scheme, host=url.host.strip("[]"), port=url.port, target=url.target)
        headers = [("host", url.authority), *request.headers.items()]
        async with (
            httpcore2.AsyncConnectionPool(ssl_context=tls, network_backend=self._network) as pool,
            pool.stream(request.method, page, headers=headers, content=request.content) as answer,
        ):
            received: dict[str, str] = {}
            for name, value in (
                (name.decode().lower(), text.decode("latin-1")) for name, text in answer.headers
            ):
                received[name] = f"{received[name]}, {value}" if name in received else value
            if answer.status in (301, 302, 303, 307, 308) and "location" in received:
                return _follow(request, answer.status, received["location"])
            encoding = received.get("content-encoding", "").lower()
            body, is_truncated = await self._read(answer.aiter_stream(), encoding)
        received.pop("set-cookie", None)
        text = body.decode(errors="replace")
        result: dict[str, Any] = {"status": answer.status, "headers": received, "body": text}
        if _JSON.fullmatch(received.get("content-type", "")) and not is_truncated:
            with contextlib.suppress(BadInput):  # then there is the body
                result["json"] = await asyncio.to_thread(parse_json, text, "body")
        return {**result, "truncated": is_truncated}

    async def _read(self, chunks: AsyncIterable[bytes], encoding: str) -> tuple[bytearray, bool]:
        """Return the decompressed body, and whether it was cut off at the limit."""
        if encoding not in ("gzip", "", "identity"):
            raise httpcore2.RemoteProtocolError("its body is compressed, and not with gzip")
        gzip = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
        body = bytearray()
        async for chunk in chunks:
            body += gzip.decompress(chunk, self._max_body_bytes + 1 - len(body)) if gzip else chunk
            if len(body) > self._max_body_bytes:
                return body[: self._max_body_bytes], True
            await asyncio.sleep(0)  # many small chunks can arrive at once
        return body, False


def _answer_own_page(args: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the page /healthz says: the process that runs this is alive."""
    if args != {"method": "GET", "url": OWN_PAGE}:
        raise BadInput(problem=f"{FETCH}: {OWN_PAGE} takes the method GET and nothing else.")
    headers = {"content-type": "text/plain; charset=utf-8"}
    return {"status": 200, "headers": headers, "body": "ok\n", "truncated": False}


def _read_request(args: Mapping[str, Any]) -> _Request:
    headers, content = {"accept": "*/*", "accept-encoding": "gzip", "user-agent": "easel"}, None
    if "json" in args:
        content, headers["content-type"] = msgspec.json.encode(args["json"]), "application/json"
    elif "body" in args:
        content, headers["content-type"] = args["body"].encode(errors="replace"), "text/plain; charset=utf-8"
    if "bearer" in args:
        headers["authorization"] = f"Bearer {args['bearer']}"
    headers |= {name.lower(): value for name, value in args.get("headers", {}).items()}
    return _Request(args["method"], parse_url(args["url"]), headers, content)


def _follow(request: _Request, status: int, location: str) -> _Request:
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
        return _Request("GET", url, headers, None)
    return replace(request, url=url, headers=headers)
