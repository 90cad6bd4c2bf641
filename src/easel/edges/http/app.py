"""The HTTP edge as one ASGI app: the middlewares in their order, around a router of the rows.

Owns which route a row becomes. Does not know what a middleware checks, or what an endpoint does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from starlette.middleware import Middleware
from starlette.routing import Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from easel.core.access import Public
from easel.core.web.hosts import Networks
from easel.edges.http.calls import Endpoint, Row
from easel.edges.http.middleware import Errors, Metrics, SecurityHeaders, TrustedSite
from easel.edges.http.routes import METRICS, ROUTES, SOCKETS
from easel.edges.http.sockets import SocketEndpoint, SocketRow
from easel.errors import NotFound
from easel.host.services import Services


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    max_body_bytes: int
    public_url: str
    allowed_hosts: frozenset[str]
    open_metrics: bool
    assets_url: str = ""
    trusted_proxies: Networks = ()


def build_app(
    host: Services,
    settings: EdgeSettings,
    rows: Sequence[Row] = ROUTES,
    sockets: Sequence[SocketRow] = SOCKETS,
) -> ASGIApp:
    if settings.open_metrics:
        rows = [replace(row, access=Public()) if row.path == METRICS else row for row in rows]
    routes = [_route(row, Endpoint(row, host, settings.max_body_bytes)) for row in rows]
    socket_routes = [WebSocketRoute(row.path, SocketEndpoint(row, host)) for row in sockets]
    site = Middleware(
        TrustedSite,
        public_url=settings.public_url,
        assets_url=settings.assets_url,
        allowed_hosts=settings.allowed_hosts,
        proxies=settings.trusted_proxies,
    )
    return Router(
        [*routes, *socket_routes],
        default=_not_found,
        middleware=[
            Middleware(Metrics, audit=host.audit),
            Middleware(SecurityHeaders),
            Middleware(Errors, audit=host.audit),
            site,
        ],
    )


def _route(row: Row, endpoint: Endpoint) -> Route:
    route = Route(row.path, endpoint, methods=[row.method])
    if row.response == "text/event-stream" and route.methods is not None:
        route.methods.discard("HEAD")
    return route


async def _not_found(scope: Scope, _: Receive, __: Send) -> None:
    raise NotFound(what="page", id=scope["path"])
