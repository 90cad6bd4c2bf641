"""WebSocket routes: authenticated like any request, and refused with an HTTP status and a JSON error."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.routing import Match, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from easel.core.principal import ANONYMOUS, Principal
from easel.edges.http.calls import authenticate_socket, refuse_nodes
from easel.errors import NotFound, NotSignedIn
from easel.host.services import Services


@dataclass(frozen=True, slots=True)
class SocketCall:
    """A checked connection that is not accepted yet. On an open route the principal may be ANONYMOUS."""

    host: Services
    principal: Principal
    socket: WebSocket

    @property
    def path(self) -> Mapping[str, str]:
        return self.socket.path_params


@dataclass(frozen=True, slots=True)
class SocketRow:
    path: str
    handler: Callable[[SocketCall], Awaitable[None]]
    is_open: bool = False  # the handler authenticates the client itself


async def serve_socket(
    rows: Sequence[SocketRow], host: Services, scope: Scope, receive: Receive, send: Send
) -> None:
    for row in rows:
        route = WebSocketRoute(row.path, endpoint=_unused)
        match, child = route.matches(scope)
        if match is Match.FULL:
            scope.update(child)
            scope["state"]["route"] = row.path
            socket = WebSocket(scope, receive, send)
            principal = await authenticate_socket(socket, host) or ANONYMOUS
            scope["state"]["principal"] = principal
            if not row.is_open:
                if principal is ANONYMOUS:
                    raise NotSignedIn
                refuse_nodes(principal)
            await row.handler(SocketCall(host, principal, socket))
            return
    raise NotFound(what="page", id=scope["path"])


async def _unused(_: WebSocket) -> None: ...
