"""The HTTP edge as one ASGI app: checks every request the same way, then hands it to its row.

Order: the host and origin before anything else (DNS rebinding, cross-site calls), then who calls, then what was sent.
Every failure becomes the same JSON error here and nowhere else.
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
from starlette.websockets import WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

from easel.core.principal import ANONYMOUS, Principal
from easel.core.principal import Scope as PrincipalScope
from easel.edges.http import audit
from easel.edges.http.calls import Access, Call, caller, read_body, refuse_nodes, shaped, shaped_query
from easel.edges.http.canvas_policy import VIEW_HEADERS, VIEWS, Places, may_come_from, without_token
from easel.edges.http.openapi import document
from easel.edges.http.pages import is_read_by_a_person, refusal_page
from easel.edges.http.routes import ROUTES, SOCKETS, Row
from easel.edges.http.sockets import SocketRow, refuse, serve_socket
from easel.edges.http.wire import error_answer
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
    (
        b"referrer-policy",
        b"same-origin",
    ),  # with `no-referrer` a browser's own forms would come from the origin "null"
    (b"x-frame-options", b"DENY"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
)

NOT_KEPT = (b"cache-control", b"no-store")  # what belongs to a person stays in no cache
MAX_DISCARDED = 16_777_216
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
        self._places = Places(settings.public_url, settings.assets_url)
        self._origin = f"{self._public.scheme}://{self._public.netloc}"
        self._routes = [self._route(row) for row in rows]
        self._router = Router(self._routes)
        self._sockets = sockets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._talk(scope, receive, send)
        if scope["type"] != "http":
            return
        scope["app"] = self  # so that the router raises its refusals instead of answering them itself
        scope["state"] = {
            "secure_cookies": self._public.scheme == "https",
            "describe": document,
            "places": self._places,
        }
        answering = _Answering(scope, send)
        reading = _Reading(receive)
        try:
            self._check_where_from(Request(scope))
            await self._router(scope, reading, answering)
        except ClientDisconnect:
            log.debug("http.gone", path=without_token(scope["path"]))  # nobody is left to hear an answer
        except Exception as problem:
            if answering.is_stream and isinstance(problem, NotSignedIn):
                await (
                    answering.finish()
                )  # its token was revoked, or they signed out: whoever comes back for more is refused
                return
            refusal = self._refusal(scope, problem)
            if answering.status is not None:
                raise  # a stream broke in the middle: the server closes the connection and the reader resumes
            await reading.discard()
            await refusal(scope, receive, answering)
        finally:
            seconds = answering.count()
            told = {
                "method": scope["method"],
                "route": scope["state"].get("route"),
                "status": answering.status,
            }
            if not scope["state"].get("is_transfer"):  # how long that takes is its other end's affair
                self._host.audit.slow("http.slow", seconds, details=told)

    async def _talk(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket: checked in the same order, and refused before its handshake with the same JSON error."""
        scope["state"] = {}
        heard = False

        async def sending(message: Message) -> None:
            nonlocal heard
            heard = heard or message["type"] == "websocket.accept"
            await send(message)

        try:
            self._check_where_from(HTTPConnection(scope))
            await serve_socket(self._sockets, self._host, scope, receive, sending)
        except (WebSocketDisconnect, ClientDisconnected):
            log.debug(
                "http.gone", path=without_token(scope["path"])
            )  # it went while something was being sent
        except Exception as problem:
            refusal = self._refusal({**scope, "type": "http", "method": "GET"}, problem)
            if heard:
                raise
            await refuse(scope, receive, send, refusal)

    def _route(self, row: Row) -> Route:
        route = Route(row.path, self._endpoint(row), methods=[row.method])
        if row.answer == "text/event-stream" and route.methods is not None:
            route.methods.discard("HEAD")  # a stream has no head apart from itself
        return route

    def _endpoint(self, row: Row) -> ASGIApp:
        async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
            scope["state"]["route"] = row.path
            scope["state"]["is_transfer"] = row.takes_file or row.answer == "*/*"
            request = Request(scope, receive)
            principal = await self._admit(row, request)
            asked = None
            if row.body is not None:
                asked = shaped(
                    await read_body(request, self._settings.max_body_bytes, "EASEL_MAX_BODY_BYTES"), row.body
                )
            elif row.query is not None:
                asked = shaped_query(request, row.query)
            answer = await row.handler(Call(self._host, principal, request, asked))
            if not principal.is_revocable:
                await answer(scope, receive, send)
                return
            async with self._host.sign_in.while_valid(
                principal
            ):  # a stream ends with the token, or the sign-in, that opened it
                await answer(scope, receive, send)

        # A class instance, so that the router passes the bare ASGI call through.
        return _Asgi(endpoint)

    def _methods_of(self, scope: Scope) -> str:
        fitting = [route for route in self._routes if route.matches(scope)[0] is not Match.NONE]
        return ", ".join(sorted({method for route in fitting for method in route.methods or ()}))

    async def _admit(self, row: Row, request: Request) -> Principal:
        if row.access is Access.OPEN or (row.path == "/metrics" and self._settings.open_metrics):
            return ANONYMOUS
        principal = await caller(request, self._host.sign_in, time.time())
        if principal is None:
            raise NotSignedIn
        request.scope["state"]["principal"] = principal
        refuse_nodes(principal)
        if row.access is Access.ADMIN and not principal.has_scope(PrincipalScope.ADMIN):
            raise Forbidden(problem="this needs an administrator.")
        return principal

    def _check_where_from(self, request: HTTPConnection) -> None:
        host = request.headers.get("host", "")
        if not self._answers_for(_host_of(f"//{host}")) and not self._places.is_assets_host(host):
            raise WrongHost(host=host)
        self._places.check(request)
        origin = request.headers.get("origin")
        if (
            origin is not None
            and not may_come_from(request, origin)
            and origin not in {f"http://{host}", f"https://{host}", self._origin}
        ):
            raise Forbidden(problem="this request comes from another site.")

    def _answers_for(self, name: str) -> bool:
        """An address cannot be rebound, a name can: names must be ours."""
        if name == "localhost" or name.endswith(".localhost") or name == self._public.hostname:
            return True
        if name in self._settings.allowed_hosts or "*" in self._settings.allowed_hosts:
            return True
        try:
            return bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    def _refusal(self, scope: Scope, problem: Exception) -> Response:
        if isinstance(problem, HTTPException):  # the router's own
            path = scope["path"]
            allowed = self._methods_of(scope)
            headers = {"allow": allowed} if allowed else {}
            problem = (
                MethodNotAllowed(method=scope["method"], path=path, allowed=allowed)
                if allowed
                else NotFound(what="page", id=path)
            )
        else:
            headers: dict[str, str] = {}
        reference = None if isinstance(problem, HostError) else new_reference()
        audit.tell(self._host.audit, scope, problem, reference)
        if not isinstance(problem, HostError):
            log.error("http.error", path=without_token(scope["path"]), reference=reference, exc_info=problem)
            problem = InternalError(reference=reference)
        if problem.retry_after is not None:
            headers["retry-after"] = str(problem.retry_after)
        if isinstance(problem, NotSignedIn):
            headers["www-authenticate"] = "Bearer"
        if isinstance(problem, RangeNotSatisfiable):
            headers["content-range"] = f"bytes */{problem.details['size']}"
        if isinstance(problem, NotFound | NotSignedIn) and is_read_by_a_person(scope):
            return refusal_page(problem, headers=headers)
        return Response(error_answer(problem), problem.http, headers, "application/json")


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


class _Reading:
    """Passes a request's body on and remembers whether all of it was read."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._has_more = True

    async def __call__(self) -> Message:
        message = await self._receive()
        self._has_more = message["type"] == "http.request" and message.get("more_body", False)
        return message

    async def discard(self) -> None:
        """Take what is still being sent, within reason: many clients hear no answer before they have said everything."""
        left = MAX_DISCARDED
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                while self._has_more and left > 0:
                    left -= len((await self()).get("body", b""))


class _Answering:
    """Passes an answer on, adds the safe headers, and remembers what was answered."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._began = time.perf_counter()
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
            named = {
                name for name, _ in message["headers"]
            }  # an answer that says its own is believed: two of a kind may contradict
            message["headers"] = [
                *message["headers"],
                *(header for header in (*safe, NOT_KEPT) if header[0] not in named),
            ]
        await self._send(message)

    async def finish(self) -> None:
        """What was begun ends here."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def count(self) -> float:
        """How long it took; a stream takes as long as it is watched, and that is no time."""
        route = self._scope["state"].get("route", "none")
        seconds = 0.0 if self.is_stream else time.perf_counter() - self._began
        REQUESTS.labels(self._scope["method"], route, str(self.status or 500)).inc()
        if not self.is_stream:
            REQUEST_SECONDS.labels(route).observe(seconds)
        log.debug(
            "http.answered",
            method=self._scope["method"],
            path=without_token(self._scope["path"]),
            status=self.status,
        )
        return seconds
