"""From a request to a service call and back: sign-in, access, decoding, the handler's call, the response.

Owns the endpoint of a route, the session cookie and the limits on bodies. Does not know which routes there
are, or services beyond the sign-in.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from easel.core.access import Access, Public, check_access
from easel.core.principal import ANONYMOUS, Principal, PrincipalKind
from easel.core.stream.json_text import refuse_duplicate_keys
from easel.edges.decoding import (
    ACCOUNT_QUERY,
    Decoded,
    NoParams,
    account_not_found,
    check_account,
    decode_json,
    decode_members,
    named_account,
    warn_in_error,
)
from easel.errors import BadInput, HostError, NotSignedIn, TooLarge
from easel.host.auth.cookies import COOKIE_SECONDS
from easel.host.services import Services

# Limit on the JSON of a body outside of strings: many small values take far longer to decode than one long
# string.
MAX_STRUCTURE_BYTES = 1_048_576
LARGE_BODY_BYTES = 65_536
WARNINGS_HEADER = "x-easel-warnings"  # a JSON list of texts, in ASCII
KEY_HEADER = "idempotency-key"


@dataclass(frozen=True, slots=True)
class SessionCookie:
    """The name and the protection of the cookie of one address.

    The port is part of the name: a browser sends the cookies of a host to all its ports, and each may be
    another Easel.
    """

    name: str
    is_secure: bool
    seconds: float = COOKIE_SECONDS

    @classmethod
    def of(cls, public_url: str, host: str) -> "SessionCookie":
        """Return the cookie of the address that the browser uses: `public_url`, or else the `Host` header."""
        is_secure = public_url.startswith("https:")
        try:
            port = urlsplit(public_url or f"http://{host}").port
        except ValueError:  # a malformed `Host`, which is refused later
            port = None
        name = f"easel-{port or (443 if is_secure else 80)}"
        # With this prefix a browser accepts the cookie only over https, and from this host alone.
        return cls(f"__Host-{name}" if is_secure else name, is_secure)

    def of_flow(self, seconds: float) -> "SessionCookie":
        """Return the cookie of a browser that begins to sign in at a provider."""
        return SessionCookie(f"{self.name}-openid", self.is_secure, seconds)

    def set(self, response: Response, value: str) -> None:
        # Lax and not Strict, so that the printed link works from a mail: its redirect must send the cookie.
        # Requests that change data also need a matching Origin.
        response.set_cookie(
            self.name, value, int(self.seconds), httponly=True, samesite="lax", secure=self.is_secure
        )

    def delete(self, response: Response) -> None:
        response.delete_cookie(self.name, httponly=True, samesite="lax", secure=self.is_secure)


@dataclass(frozen=True, slots=True)
class Call:
    """A checked request. `params` is the decoded body or query."""

    host: Services
    principal: Principal
    request: Request
    params: Any = None

    @property
    def path(self) -> Mapping[str, str]:
        return self.request.path_params


# The struct of the response, to be sent with the status of the row; None without content.
Handler = Callable[[Call], Awaitable[msgspec.Struct | Response | None]]


@dataclass(frozen=True, slots=True)
class Row:
    method: str
    path: str
    access: Access
    handler: Handler
    summary: str
    body: type[Any] | None = None
    takes_file: bool = False  # any bytes, as the body or as the part `file` of a form
    query: type[Any] | None = None
    status: int = 200
    response: type[Any] | str = "text/plain"  # a struct or a media type; `*/*`: any bytes, also by range
    accepted: type[Any] | None = None  # the struct of 202, for a client that accepts JSON instead of a stream
    errors: tuple[type[HostError], ...] = ()

    @property
    def is_transfer(self) -> bool:
        """Return whether the client determines how long a request takes."""
        return self.takes_file or self.response == "*/*"


class Endpoint:
    """Answers the requests of one row."""

    def __init__(self, row: Row, host: Services, max_body_bytes: int) -> None:
        self._row = row
        self._host = host
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        row, state, request = self._row, scope["state"], Request(scope, receive)
        state["row"] = row
        is_public = isinstance(row.access, Public)
        principal = admit(request, None if is_public else await authenticate(request, self._host), row.access)
        if not is_public:
            self._host.usage.count_request(principal)
        params, warnings = await self._decode(request)
        try:
            result = await row.handler(Call(self._host, principal, request, params))
        except HostError as problem:
            warn_in_error(problem, warnings)
            raise
        response = _respond(result, row.status)
        if warnings:
            _add_warnings(response, warnings)
        state["is_stream"] = response.headers.get("content-type", "").startswith("text/event-stream")
        if not state["is_stream"] and row.response != "*/*":
            await response(scope, receive, send)
            return
        # A stream or a download ends when the token or the sign-in that opened it is revoked.
        async with self._host.revocation.while_valid(principal):
            await response(scope, receive, send)

    async def _decode(self, request: Request) -> Decoded:
        """Return the params of the body, or else of the query, and warnings about unknown members of both."""
        row, decoded = self._row, Decoded(None, [])
        # The public routes, such as pages, read their own queries.
        if row.query is not None or (request.scope["query_string"] and not isinstance(row.access, Public)):
            decoded = decode_query(request, row.query or NoParams)
        if row.body is None:
            return decoded
        body = await read_body(request, self._max_body_bytes, "EASEL_MAX_BODY_BYTES")
        params, warnings = await _decode_body(body, row.body)
        ignored = _review_key_headers(request, takes_key=hasattr(params, "idempotency_key"))
        return Decoded(params, [*decoded.warnings, *ignored, *warnings])


def admit(connection: HTTPConnection, principal: Principal | None, access: Access) -> Principal:
    """Return the principal of a request, or ANONYMOUS for a public one.

    Raises NotSignedIn, or Forbidden if this principal has no access. RS-76
    """
    if principal is None:
        if isinstance(access, Public):
            return ANONYMOUS
        raise NotSignedIn
    connection.scope["state"]["principal"] = principal  # for audit records
    check_access(access, principal)
    return principal


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def _respond(result: msgspec.Struct | Response | None, status: int) -> Response:
    if isinstance(result, Response):
        return result
    return Response(status_code=status) if result is None else json_response(result, status)


def _add_warnings(response: Response, warnings: list[str]) -> None:
    """Add warnings to a JSON object as `warnings`, and to any other response as a header. RS-67"""
    if response.media_type != "application/json":
        response.headers[WARNINGS_HEADER] = json.dumps(warnings)
        return
    # Other members stay as they were encoded.
    members = msgspec.json.decode(response.body, type=dict[str, msgspec.Raw])
    own: list[str] = msgspec.json.decode(members.get("warnings", b"[]"))
    members["warnings"] = msgspec.Raw(msgspec.json.encode([*own, *warnings]))
    response.body = msgspec.json.encode(members)
    response.headers["content-length"] = str(len(response.body))


def idempotency_key(request: Request, key: str | None) -> str | None:
    """Return the key of the body or of the header `Idempotency-Key`. Raises BadInput if they differ."""
    header = request.headers.get(KEY_HEADER)
    if header is not None and key not in (None, header):
        raise BadInput(
            problem="The Idempotency-Key header and idempotency_key in the body differ; send one of them."
        )
    return key if header is None else header


def _review_key_headers(request: Request, *, takes_key: bool) -> list[str]:
    """Return warnings about a key for repetitions in a header that this request does not read. RS-67"""
    headers = request.headers
    if KEY_HEADER in headers and not takes_key:
        return ["the header Idempotency-Key was ignored; this request has no key for repetitions."]
    if f"x-{KEY_HEADER}" in headers:
        return ["the header X-Idempotency-Key was ignored; did you mean `Idempotency-Key`?"]
    return []


async def authenticate_socket(connection: HTTPConnection, host: Services) -> Principal | None:
    """Authenticate a WebSocket by header, cookie or `?token=`: a browser's WebSocket cannot send headers."""
    token = connection.query_params.get("token")
    if token is not None:
        return await authenticate_token(connection, host, token)
    return await authenticate(connection, host)


async def authenticate(request: HTTPConnection, host: Services) -> Principal | None:
    """Return the principal of a bearer token or cookie in the account that the request names, or None.

    A wrong token overrides a valid cookie. Raises `NotFound` for an account that the credential gives no
    rights in, whether or not it exists. RS-76
    """
    header = request.headers.get("authorization")
    if header is not None:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer":
            return None
        return await authenticate_token(request, host, token.strip())
    cookie = request.cookies.get(request.state.cookie.name)
    if not cookie:
        return None
    account_id = named_account(request)
    principal = await host.cookies.check(cookie, account_id)
    if principal is None and account_id is not None and await host.cookies.check(cookie) is not None:
        raise account_not_found(request)
    return principal


async def authenticate_token(connection: HTTPConnection, host: Services, token: str) -> Principal | None:
    """Return the principal of a token, which reaches its own account only. RS-76"""
    principal = await host.credentials.authenticate(token, address_of(connection))
    if principal is not None:
        check_account(connection, principal)
    return principal


def address_of(request: HTTPConnection) -> str:
    """Return the address of the client; behind a proxy, that of the proxy."""
    return request.client.host if request.client else ""


def client_details(request: HTTPConnection) -> dict[str, str]:
    """Return the address of the client as audit records have it."""
    return {"address": request.client.host} if request.client else {}


async def authenticate_visitor(call: Call) -> Principal | None:
    """Authenticate the viewer of a page; a node is not accepted."""
    principal = await authenticate(call.request, call.host)
    return None if principal is None or principal.kind is PrincipalKind.NODE else principal


async def authenticate_browser(call: Call) -> Principal | None:
    """Return the person whose cookie the browser has, in their own account, whichever the request names."""
    cookie = call.request.cookies.get(call.request.state.cookie.name)
    return await call.host.cookies.check(cookie) if cookie else None


@contextlib.asynccontextmanager
async def watch_disconnect(receive: Receive) -> AsyncGenerator[asyncio.Task[None]]:
    """Yield a task that ends when the client disconnects."""
    task = asyncio.create_task(_wait_for_disconnect(receive))
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def body_part(data: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


def check_head(request: Request, limit: int, setting: str | None = None) -> None:
    """Raise BadInput or TooLarge if the headers declare a compressed or too long body."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise BadInput(problem="The body must not be compressed (content-encoding).")
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit, setting)


async def read_body(request: Request, limit: int, setting: str | None = None) -> bytes:
    """Return the body. Raises TooLarge by its declared length, or as soon as it exceeds the limit."""
    check_head(request, limit, setting)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(limit, setting)
    return bytes(body)


def _too_large(limit: int, setting: str | None) -> TooLarge:
    return TooLarge(what="The body", limit=limit, **({} if setting is None else {"setting": setting}))


def _check_structure_size(body: bytes) -> None:
    """Raise TooLarge for too many bytes outside of strings. A long string, such as a file, is allowed."""
    if len(body) <= MAX_STRUCTURE_BYTES:
        return
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"")
    structure_bytes = unescaped.count(b'"')
    if structure_bytes <= MAX_STRUCTURE_BYTES:
        structure_bytes += sum(map(len, unescaped.split(b'"')[::2]))
    if structure_bytes > MAX_STRUCTURE_BYTES:
        raise TooLarge(what="The JSON of the body, without its strings,", limit=MAX_STRUCTURE_BYTES)


async def _decode_body(body: bytes, shape: type[Any]) -> Decoded:
    """Return the decoded body; an empty one is `{}`. A large one is decoded in a thread, beside others."""
    if len(body) > LARGE_BODY_BYTES:
        return await asyncio.to_thread(_decode, body, shape)
    return _decode(body, shape)


def _decode(body: bytes, shape: type[Any]) -> Decoded:
    _check_structure_size(body)
    try:
        decoded = decode_json(body, shape)
        if body and not body.isspace():
            refuse_duplicate_keys(body)
    except msgspec.ValidationError as problem:
        raise BadInput(problem=f"The body is invalid: {problem}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise BadInput(problem=f"The body is not valid JSON: {problem}.") from None
    return decoded


def decode_query(request: HTTPConnection, shape: type[Any]) -> Decoded:
    query = dict(cast("Mapping[str, str]", request.query_params))
    query.pop(ACCOUNT_QUERY, None)  # read by the sign-in
    try:
        return decode_members(query, shape, strict=False)
    except msgspec.ValidationError as problem:
        raise BadInput(problem=f"The query is invalid: {problem}.") from None
