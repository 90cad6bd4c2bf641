"""The middlewares of the HTTP edge, from the outermost: metrics, security headers, errors, the trusted site.

Requests and WebSockets pass the same ones. Owns what is measured, logged and audited of every request. Does
not know routes: an endpoint leaves its row and the principal in the state of the request.
"""

import asyncio
import contextlib
import ipaddress
import time
from collections.abc import Set
from urllib.parse import urlsplit

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

from easel.core.principal import ANONYMOUS, Principal
from easel.core.web.hosts import Networks
from easel.edges.errors import to_host_error
from easel.edges.http.calls import Row, SessionCookie, client_details
from easel.edges.http.canvas_policy import VIEW_HEADERS, VIEWS, SiteOrigins
from easel.edges.http.pages import error_page, prefers_html
from easel.edges.http.wire import error_body
from easel.errors import (
    Forbidden,
    HostError,
    MethodNotAllowed,
    NotFound,
    NotSignedIn,
    RangeNotSatisfiable,
    Unavailable,
    WrongHost,
)
from easel.host.audit.audit import Audit
from easel.host.metrics import REQUEST_SECONDS, REQUESTS

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
MAX_ADDRESS_LENGTH = 45  # of an IPv6 address as text
REFUSED = (403, 421)  # statuses of requests that a guardrail refused
UNAVAILABLE_SECONDS = 10.0  # minimum time between two records of an unavailable database
# Values of `Sec-Fetch-Dest` with which our own pages may load a view. Its other files are loaded by the view.
FRAMED = frozenset({"iframe", "document"})

log = structlog.get_logger("http")


class Metrics:
    """Counts requests, measures how long a response takes, and audits a slow one."""

    def __init__(self, app: ASGIApp, audit: Audit) -> None:
        self._app = app
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), None

        async def sender(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, sender)
        finally:
            self._record(scope, status, time.perf_counter() - started)

    def _record(self, scope: Scope, status: int | None, seconds: float) -> None:
        state, method = scope["state"], scope["method"]
        row: Row | None = state.get("row")
        route = None if row is None else row.path
        REQUESTS.labels(method, route or "none", str(status or 500)).inc()
        log.debug("http.answered", method=method, path=redact_token(scope["path"]), status=status)
        if state.get("is_stream"):
            return
        REQUEST_SECONDS.labels(route or "none").observe(seconds)
        is_transfer = row is not None and row.is_transfer  # the client determines how long a transfer takes
        if seconds > self._audit.slow_seconds and not is_transfer:
            details = {"method": method, "route": route, "status": status}
            self._audit.record_slow("http.slow", seconds, details=details)


class SecurityHeaders:
    """Adds the headers that protect our pages, or isolate the files of a view, to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        safe = VIEW_HEADERS if scope["path"].startswith(VIEWS) else SAFE_HEADERS

        async def sender(message: Message) -> None:
            if message["type"] == "http.response.start":
                named = {name for name, _ in message["headers"]}  # headers that the response sets itself
                added = [header for header in (*safe, NO_STORE) if header[0] not in named]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        await self._app(scope, receive, sender if scope["type"] == "http" else send)


class Errors:
    """Answers a failure with a JSON error or, in a browser, a page; denies a WebSocket with it."""

    def __init__(self, app: ASGIApp, audit: Audit) -> None:
        self._app = app
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # the router then raises errors instead of responding
        has_more, is_started = scope["type"] == "http", False

        async def receiver() -> Message:
            nonlocal has_more
            message = await receive()
            has_more = message.get("more_body", False)
            return message

        async def sender(message: Message) -> None:
            nonlocal is_started
            is_started = is_started or message["type"] in ("http.response.start", "websocket.accept")
            await send(message)

        try:
            await self._app(scope, receiver if has_more else receive, sender)
        except (ClientDisconnect, ClientDisconnected, WebSocketDisconnect):
            log.debug("http.gone", path=redact_token(scope["path"]))
        except Exception as problem:
            if is_started and isinstance(problem, NotSignedIn) and scope["state"].get("is_stream"):
                await send({"type": "http.response.body"})  # the token was revoked, or the user signed out
                return
            response = self._response(Request({"method": "GET", **scope, "type": "http"}), problem)
            if is_started:
                raise  # a stream broke: the server closes the connection and the reader resumes
            if scope["type"] == "websocket":
                await WebSocket(scope, receive, send).send_denial_response(response)
                return
            if has_more:
                await _discard(receive)
            await response(scope, receive, send)

    def _response(self, request: Request, problem: Exception) -> Response:
        headers: dict[str, str] = {}
        if isinstance(problem, HTTPException):  # raised by the router: 405
            headers["allow"] = allowed = _methods_of(request.scope)
            problem = MethodNotAllowed(method=request.method, path=request.scope["path"], allowed=allowed)
        details, principal = _details(request), request.scope["state"].get("principal", ANONYMOUS)
        problem = to_host_error(problem, self._audit, principal, "http.error", **details)
        self._record(request, problem, principal, details)
        if problem.retry_after is not None:
            headers["retry-after"] = str(problem.retry_after)
        if isinstance(problem, NotSignedIn):
            headers["www-authenticate"] = "Bearer"
        if isinstance(problem, RangeNotSatisfiable):
            headers["content-range"] = f"bytes */{problem.details['size']}"
        if isinstance(problem, NotFound | NotSignedIn) and prefers_html(request.scope):
            return error_page(problem, headers=headers)
        return Response(error_body(problem), problem.http, headers, "application/json")

    def _record(
        self, request: Request, problem: HostError, principal: Principal, details: dict[str, str]
    ) -> None:
        """Record a refusal, a failed sign-in or an unavailable database."""
        if problem.http in REFUSED:
            details |= {"error": problem.code, "problem": problem.message}
            self._audit.record_throttled(principal, "guardrail.refused", details=details)
        elif isinstance(problem, NotSignedIn):
            if credential := _credential_kind(request):
                details["by"] = credential
                self._audit.record_throttled(ANONYMOUS, "sign_in.failed", details=details)
        elif isinstance(problem, Unavailable) and (cause := problem.__cause__) is not None:
            details |= {"exception": type(cause).__name__, "message": str(cause)}
            self._audit.record_throttled(
                None, "database.unavailable", details=details, every=UNAVAILABLE_SECONDS
            )


def _methods_of(scope: Scope) -> str:
    matching = [route for route in scope["router"].routes if route.matches(scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for route in matching for method in route.methods or ()}))


def _details(request: Request) -> dict[str, str]:
    return {"method": request.method, "path": redact_token(request.url.path), **client_details(request)}


def _credential_kind(request: Request) -> str | None:
    """Return the kind of credential that a request presented, or None."""
    if "authorization" in request.headers or "token" in request.query_params:
        return "token"
    return "cookie" if request.state.cookie.name in request.cookies else None


def redact_token(path: str) -> str:
    """Return the path without the token of a view, for logs and audit records."""
    return f"{VIEWS}…/{path.removeprefix(VIEWS).partition('/')[2]}" if path.startswith(VIEWS) else path


async def _discard(receive: Receive) -> None:
    """Drop the unread body, within limits: many clients send all of it before they read a response."""
    left, message = MAX_DISCARDED_BYTES, {"more_body": True}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            while left > 0 and message.get("more_body"):
                message = await receive()
                left -= len(message.get("body", b""))


class TrustedSite:
    """Refuses a foreign host name (DNS rebinding), a cross-site request, and a view on a host not its own.

    Leaves the session cookie and the origins of the requested address in the state of the request.
    """

    def __init__(
        self,
        app: ASGIApp,
        public_url: str,
        assets_url: str,
        allowed_hosts: Set[str],
        proxies: Networks = (),
    ) -> None:
        self._app = app
        self._public_url = public_url
        self._proxies = proxies
        public = urlsplit(public_url)
        self._origin = f"{public.scheme}://{public.netloc}"
        self._hosts = {"localhost", public.hostname, *allowed_hosts}
        self._views_host = urlsplit(assets_url).netloc  # empty: views are on the main host
        self._origins = SiteOrigins(public_url, assets_url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        self._find_client(scope, connection)
        host = connection.headers.get("host", "")
        scope["state"] |= {"cookie": SessionCookie.of(self._public_url, host), "origins": self._origins}
        self._check(connection, host)
        await self._app(scope, receive, send)

    def _find_client(self, scope: Scope, connection: HTTPConnection) -> None:
        """Take the client's address from a trusted proxy: the last one that is no such proxy itself."""
        if self._proxies and scope.get("client") and self._is_proxy(scope["client"][0]):
            hops = ",".join(connection.headers.getlist("x-forwarded-for")).split(",")
            client = next((hop for hop in map(str.strip, reversed(hops)) if not self._is_proxy(hop)), "")
            if client:
                scope["client"] = (client[:MAX_ADDRESS_LENGTH], 0)

    def _is_proxy(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._proxies)

    def _check(self, connection: HTTPConnection, host: str) -> None:
        """Raise WrongHost, Forbidden or NotFound for a request that is not of this site."""
        headers, is_view = connection.headers, connection.scope["path"].startswith(VIEWS)
        is_views_host = bool(self._views_host) and host == self._views_host
        if not is_views_host and not self._is_own_host(_host_of(f"//{host}")):
            raise WrongHost(host=host)
        is_own_page = headers.get("sec-fetch-site") == "same-origin"
        if is_view and is_own_page and headers.get("sec-fetch-dest") not in FRAMED:
            raise Forbidden(problem="the files of a canvas can be loaded by its own page only.")
        if self._views_host and is_view is not is_views_host:
            raise NotFound(what="page", id=connection.scope["path"][:200])
        origin = headers.get("origin")
        is_view_origin = is_view and origin == "null"  # the origin of a view is opaque. U9
        if (
            origin is not None
            and not is_view_origin
            and origin not in {f"http://{host}", f"https://{host}", self._origin}
        ):
            raise Forbidden(problem="this request comes from another site.")

    def _is_own_host(self, name: str) -> bool:
        """Return whether a host name is ours. DNS rebinding needs a name, so any IP address is accepted."""
        if name in self._hosts or "*" in self._hosts or name.endswith(".localhost"):
            return True
        try:
            return bool(ipaddress.ip_address(name))
        except ValueError:
            return False


def _host_of(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""
