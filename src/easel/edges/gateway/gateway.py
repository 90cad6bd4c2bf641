"""The gateway: all WebSocket connections of this instance, at most one per client. CV-01, RS-07"""

import asyncio

from starlette.websockets import WebSocket

from easel.core.principal import Principal
from easel.edges.gateway.connection import Connection, GatewayLimits
from easel.edges.socket import DONE, REPLACED, RESTARTING
from easel.errors import TooMany, Unavailable
from easel.host.services import Services

PATH = "/ws"


class Gateway:
    def __init__(self, services: Services, limits: GatewayLimits) -> None:
        self._services = services
        self._limits = limits
        self._connections: set[Connection] = set()
        self._by_client: dict[tuple[str, str, str], Connection] = {}  # by `client_key`
        self._is_stopping = False

    async def serve(self, socket: WebSocket, principal: Principal) -> None:
        """Serve one connection until it is closed."""
        if self._is_stopping:
            raise Unavailable(what="This instance")
        if len(self._connections) >= self._limits.connections:
            raise TooMany(what="connections to the gateway", limit=self._limits.connections)
        connection = Connection(self._services, socket, principal, self._limits, self._register)
        self._connections.add(connection)
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)
            # A newer connection of the same client may have replaced this one.
            if self._by_client.get(connection.client_key) is connection:
                del self._by_client[connection.client_key]

    def _register(self, connection: Connection) -> None:
        """Register the connection of a client, and close its previous connection in the background."""
        replaced = self._by_client.get(connection.client_key)
        self._by_client[connection.client_key] = connection
        if replaced is not None:
            replaced.socket.close_soon(DONE, REPLACED)

    async def close(self) -> None:
        """Close every connection with a code that asks the client to reconnect."""
        self._is_stopping = True
        await asyncio.gather(*(connection.socket.close(RESTARTING) for connection in self._connections))
