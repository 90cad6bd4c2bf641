"""The gateway: all connections of this instance, of which each client has one. CV-01, RS-07"""

import asyncio
from dataclasses import dataclass

from starlette.websockets import WebSocket

from easel.core.principal import Principal
from easel.edges.gateway.connection import DONE, REPLACED, Connection
from easel.errors import TooMany, Unavailable
from easel.host.services import Services

PATH = "/ws"
SAYS = "The canvas control plane: requests and answers, and the events of the canvases that a client subscribes to."
RESTARTING = 1012  # the close code that tells a client to come back


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    connections: int
    requests: int
    subscriptions: int
    connect_seconds: float
    stall_seconds: float
    node_heartbeat_seconds: (
        float  # how often a node is asked whether it is there, and how long it may take to say so
    )
    frame_bytes: int
    result_bytes: int


class Gateway:
    def __init__(self, host: Services, limits: GatewayLimits) -> None:
        self._host = host
        self._limits = limits
        self._open: set[Connection] = set()
        self._named: dict[tuple[str, str], Connection] = {}  # by user and client
        self._goodbyes: set[asyncio.Task[None]] = set()
        self._is_closing = False

    async def serve(self, socket: WebSocket, principal: Principal) -> None:
        if self._is_closing:
            raise Unavailable(what="This instance")
        if len(self._open) >= self._limits.connections:
            raise TooMany(what="connections to the gateway", limit=self._limits.connections)
        connection = Connection(self._host, socket, principal, self._limits, self)
        self._open.add(connection)
        try:
            await connection.serve()
        finally:
            self._open.discard(connection)
            key = (connection.principal.user_id, connection.client_id)
            if (
                self._named.get(key) is connection
            ):  # else a newer one has its place, and this end is of no interest
                del self._named[key]

    def enter(self, connection: Connection) -> None:
        """The same client connects again: its older connection is closed. Nobody waits for that."""
        key = (connection.principal.user_id, connection.client_id)
        older = self._named.get(key)
        self._named[key] = connection
        if older is not None:
            goodbye = asyncio.create_task(older.close(DONE, REPLACED))
            self._goodbyes.add(goodbye)
            goodbye.add_done_callback(self._goodbyes.discard)

    async def close(self) -> None:
        """This instance stops: every client is told to come back."""
        self._is_closing = True
        await asyncio.gather(
            *(connection.close(RESTARTING, "") for connection in self._open), *self._goodbyes
        )
