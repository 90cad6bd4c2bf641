"""The HTTP edge as one ASGI app: checks every request in the same way, then calls the handler of its route.

Owns the order of the checks: host and origin (DNS rebinding, cross-site calls), then authentication, then the
body or query. Owns the JSON error of every failure.
"""

import asyncio
import contextlib
import ipaddress
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Match, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

from easel.core.principal import ANONYMOUS, Principal
from easel.edges.decoding import Decoded, NoParams, warn_in_error
from easel.edges.http import audit
from easel.edges.http.calls import (
    Access,
    Call,
    SessionCookie,
    add_warnings,
    authenticate,
    decode_body,
    decode_query,
    read_body,
    refuse_nodes,
    review_key_headers,
)
from easel.edges.http.canvas_policy import VIEW_HEADERS, VIEWS, SiteOrigins, is_view_origin, redact_token
from easel.edges.http.openapi import document
from easel.edges.http.pages import error_page, prefers_html
from easel.edges.http.routes import ROUTES, SOCKETS, Row
from easel.edges.http.sockets import SocketRow, serve_socket
from easel.edges.http.wire import error_body
from easel.errors import (
    Forbidden,
    HostError,
    InternalError,
    MethodNotAllowed,
    NotFound,
    NotSignedIn,
    RangeNotSatisfiable,
    WrongHost,
)
from easel.host.metrics import REQUEST_SECONDS, REQUESTS
from easel.host.services import Services
from easel.ids import new_reference

SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    # With `no-referrer` a browser would send our forms with the origin "null".
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
)

NO_STORE = (b"cache-control", b"no-store")
MAX_DISCARDED_BYTES = 16_777_216
DISCARD_SECONDS = 2.0

log = structlog.get_logger("http")


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    max_body_bytes: int
    public_url: str
    allowed_hosts: frozenset[str]
    open_metrics: bool
    assets_url: str = ""


class HttpEdge:
    def __init__(
        self,
        host: Services,
        settings: EdgeSettings,
        rows: Sequence[Row] = ROUTES,
        sockets: Sequence[SocketRow] = SOCKETS,
    ) -> None:
        self._host = host
        self._settings = settings
        self._public = urlsplit(settings.public_url)
        self._origins = SiteOrigins(settings.public_url, settings.assets_url)
        self._origin = f"{self._public.scheme}://{self._public.netloc}"
        self._routes = [self._route(row) for row in rows]
        self._router = Router(self._routes)
        self._sockets = sockets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._serve_socket(scope, receive, send)
        if scope["type"] != "http":
            return
        scope["app"] = self  # the router then raises errors instead of responding
        scope["state"] = {
            "cookie": self._cookie(scope),
            "describe": document,
            "origins": self._origins,
        }
        sender = _Sender(scope, send)
        receiver = _Receiver(receive)
        try:
            self._check_origin(Request(scope))
            await self._router(scope, receiver, sender)
        except ClientDisconnect:
            log.debug("http.gone", path=redact_token(scope["path"]))
        except Exception as problem:
            if sender.is_stream and isinstance(problem, NotSignedIn):
                await send({"type": "http.response.body"})  # the token was revoked, or the user signed out
                return
            response = self._error_response(scope, problem)
            if sender.status is not None:
                raise  # a stream broke: the server closes the connection and the reader resumes
            await receiver.discard()
            await response(scope, receive, sender)
        finally:
            seconds = sender.measure()
            details = {
                "method": scope["method"],
                "route": scope["state"].get("route"),
                "status": sender.status,
            }
            if not scope["state"].get("is_transfer"):  # the client determines how long a transfer takes
                self._host.audit.record_slow("http.slow", seconds, details=details)

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket after the same checks as for a request; a refusal precedes the handshake."""
        scope["state"] = {"cookie": self._cookie(scope)}
        is_accepted = False

        async def sender(message: Message) -> None:
            nonlocal is_accepted
            is_accepted = is_accepted or message["type"] == "websocket.accept"
            await send(message)

        try:
            self._check_origin(HTTPConnection(scope))
            await serve_socket(self._sockets, self._host, scope, receive, sender)
        except (WebSocketDisconnect, ClientDisconnected):
            log.debug("http.gone", path=redact_token(scope["path"]))
        except Exception as problem:
            response = self._error_response({**scope, "type": "http", "method": "GET"}, problem)
            if is_accepted:
                raise
            await WebSocket(scope, receive, send).send_denial_response(response)

    def _route(self, row: Row) -> Route:
        route = Route(row.path, self._endpoint(row), methods=[row.method])
        if row.response == "text/event-stream" and route.methods is not None:
            route.methods.discard("HEAD")
        return route

    def _endpoint(self, row: Row) -> ASGIApp:
        async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
            scope["state"]["route"] = row.path
            scope["state"]["is_transfer"] = row.takes_file or row.response == "*/*"
            request = Request(scope, receive)
            principal = await self._admit(row, request)
            params, warnings = await self._decode(row, request)
            try:
                response = await row.handler(Call(self._host, principal, request, params))
            except HostError as problem:
                warn_in_error(problem, warnings)
                raise
            if warnings:
                add_warnings(response, warnings)
            # A stream ends when the token or the sign-in that opened it is revoked.
            async with self._host.revocation.while_valid(principal):
                await response(scope, receive, send)

        # Starlette wraps a function as a request handler, but calls an instance of a class as an ASGI app.
        return _Asgi(endpoint)

    async def _decode(self, row: Row, request: Request) -> Decoded:
        """Return the params of the body, or else of the query, and warnings about unknown members of both."""
        decoded = Decoded(None, [])
        # The routes that are open to all, such as pages, read their own queries.
        if row.query is not None or (row.access is not Access.OPEN and request.scope["query_string"]):
            decoded = decode_query(request, row.query or NoParams)
        if row.body is None:
            return decoded
        body = await read_body(request, self._settings.max_body_bytes, "EASEL_MAX_BODY_BYTES")
        params, warnings = await decode_body(body, row.body)
        ignored = review_key_headers(request, takes_key=hasattr(params, "idempotency_key"))
        return Decoded(params, [*decoded.warnings, *ignored, *warnings])

    def _methods_of(self, scope: Scope) -> str:
        matching = [route for route in self._routes if route.matches(scope)[0] is not Match.NONE]
        return ", ".join(sorted({method for route in matching for method in route.methods or ()}))

    async def _admit(self, row: Row, request: Request) -> Principal:
        if row.access is Access.OPEN or (row.path == "/metrics" and self._settings.open_metrics):
            return ANONYMOUS
        principal = await authenticate(request, self._host)
        if principal is None:
            raise NotSignedIn
        request.scope["state"]["principal"] = principal
        refuse_nodes(principal)
        if row.access is Access.ADMIN and not principal.is_operator:
            raise Forbidden(problem="only an operator of this host may do this.")
        return principal

    def _cookie(self, scope: Scope) -> SessionCookie:
        return SessionCookie.of(self._settings.public_url, HTTPConnection(scope).headers.get("host", ""))

    def _check_origin(self, request: HTTPConnection) -> None:
        """Raise WrongHost or Forbidden for a foreign host name or a cross-site request."""
        host = request.headers.get("host", "")
        if not self._is_own_host(_host_of(f"//{host}")) and not self._origins.is_assets_host(host):
            raise WrongHost(host=host)
        self._origins.check(request)
        origin = request.headers.get("origin")
        if (
            origin is not None
            and not is_view_origin(request, origin)
            and origin not in {f"http://{host}", f"https://{host}", self._origin}
        ):
            raise Forbidden(problem="this request comes from another site.")

    def _is_own_host(self, name: str) -> bool:
        """Return whether a host name is ours. DNS rebinding needs a name, so any IP address is accepted."""
        if name == "localhost" or name.endswith(".localhost") or name == self._public.hostname:
            return True
        if name in self._settings.allowed_hosts or "*" in self._settings.allowed_hosts:
            return True
        try:
            return bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    def _error_response(self, scope: Scope, problem: Exception) -> Response:
        headers: dict[str, str] = {}
        if isinstance(problem, HTTPException):  # raised by the router
            path = scope["path"]
            problem = NotFound(what="page", id=path)
            if allowed := self._methods_of(scope):
                headers["allow"] = allowed
                problem = MethodNotAllowed(method=scope["method"], path=path, allowed=allowed)
        reference = None if isinstance(problem, HostError) else new_reference()
        audit.record_problem(self._host.audit, scope, problem, reference)
        if not isinstance(problem, HostError):
            log.error("http.error", path=redact_token(scope["path"]), reference=reference, exc_info=problem)
            problem = InternalError(reference=reference)
        if problem.retry_after is not None:
            headers["retry-after"] = str(problem.retry_after)
        if isinstance(problem, NotSignedIn):
            headers["www-authenticate"] = "Bearer"
        if isinstance(problem, RangeNotSatisfiable):
            headers["content-range"] = f"bytes */{problem.details['size']}"
        if isinstance(problem, NotFound | NotSignedIn) and prefers_html(scope):
            return error_page(problem, headers=headers)
        return Response(error_body(problem), problem.http, headers, "application/json")


def _host_of(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


class _Asgi:
    def __init__(self, call: ASGIApp) -> None:
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._call(scope, receive, send)


class _Receiver:
    """Passes on the body of a request and records whether all of it was read."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._has_more = True

    async def __call__(self) -> Message:
        message = await self._receive()
        self._has_more = message["type"] == "http.request" and message.get("more_body", False)
        return message

    async def discard(self) -> None:
        """Drop the unread body, within limits: many clients send all of it before they read a response."""
        left = MAX_DISCARDED_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                while self._has_more and left > 0:
                    left -= len((await self()).get("body", b""))


class _Sender:
    """Passes on a response, adds the security headers, and records its status."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._started = time.perf_counter()
        self.status: int | None = None
        self.is_stream = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.is_stream = any(
                name == b"content-type" and value.startswith(b"text/event-stream")
                for name, value in message["headers"]
            )
            safe = VIEW_HEADERS if self._scope["path"].startswith(VIEWS) else SAFE_HEADERS
            named = {name for name, _ in message["headers"]}  # headers that the response sets itself
            message["headers"] = [
                *message["headers"],
                *(header for header in (*safe, NO_STORE) if header[0] not in named),
            ]
        await self._send(message)

    def measure(self) -> float:
        """Record the metrics of the request and return its duration; 0 for a stream."""
        route = self._scope["state"].get("route", "none")
        seconds = 0.0 if self.is_stream else time.perf_counter() - self._started
        REQUESTS.labels(self._scope["method"], route, str(self.status or 500)).inc()
        if not self.is_stream:
            REQUEST_SECONDS.labels(route).observe(seconds)
        log.debug(
            "http.answered",
            method=self._scope["method"],
            path=redact_token(self._scope["path"]),
            status=self.status,
        )
        return seconds
