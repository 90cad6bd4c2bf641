"""WebSocket routes: authenticated like any request, and refused with an HTTP status and a JSON error."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from easel.core.access import Access
from easel.core.principal import ANONYMOUS, Principal
from easel.edges.http.calls import admit, authenticate_socket
from easel.host.services import Services


@dataclass(frozen=True, slots=True)
class SocketCall:
    """A checked connection that is not accepted yet. On a public route the principal may be ANONYMOUS."""

    host: Services
    principal: Principal
    socket: WebSocket

    @property
    def path(self) -> Mapping[str, str]:
        return self.socket.path_params


@dataclass(frozen=True, slots=True)
class SocketRow:
    path: str
    access: Access  # Public: the handler authenticates the client itself
    handler: Callable[[SocketCall], Awaitable[None]]


class SocketEndpoint:
    """Serves the WebSockets of one row; `Socket` ends them with the sign-in."""

    def __init__(self, row: SocketRow, host: Services) -> None:
        self._row = row
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        principal = admit(socket, await authenticate_socket(socket, self._host), self._row.access)
        if principal is not ANONYMOUS:
            self._host.usage.count_request(principal)
        await self._row.handler(SocketCall(self._host, principal, socket))
