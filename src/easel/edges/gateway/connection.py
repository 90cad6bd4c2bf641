"""One connection to the gateway: its handshake, its requests, the canvases that it follows and its end.

Each request runs in its own task, so that a slow request delays no other. Knows no method but `connect`: the
table of methods says what an answer triggers.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from starlette.websockets import WebSocket

from easel.core.principal import ANONYMOUS, Principal, PrincipalKind, as_program
from easel.core.stream.filter import CANVAS
from easel.edges.caller import Caller
from easel.edges.decoding import check_account, warn_in_error, with_warnings
from easel.edges.delivery import Deliveries
from easel.edges.errors import to_host_error
from easel.edges.gateway import frames
from easel.edges.gateway import hello as handshake
from easel.edges.gateway.node_side import NodeSide
from easel.edges.methods import METHODS, decode_params, dispatch
from easel.edges.params import Connect, check_client_id
from easel.edges.results import GatewayNodeLimits
from easel.edges.socket import NOT_SIGNED_IN, REFUSED, Socket
from easel.errors import BadInput, HostError, NotConnected, NotFound, NotInMode, NotSignedIn
from easel.host.nodes.registry import NodeRegistration
from easel.host.services import Services
from easel.host.streams import Subscription
from easel.ids import new_connection_id

CONNECT_SECONDS = 10.0  # time in which `connect` must arrive: a client sends it at once
MAX_SUBSCRIPTIONS = 200  # more canvases than a person has open
NODE_HEARTBEAT_SECONDS = 5.0  # interval of pings to a node, and the time in which a pong must arrive
LARGE_FRAME_LENGTH = 65_536  # longer frames are parsed in a thread
DELETED, RESUME = "DELETED", "RESUME"  # why a delivery has ended

log = structlog.get_logger("gateway")


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """The limits of the gateway that are settings."""

    connections: int  # per instance
    frame_bytes: int
    result_bytes: int  # of a tool result that a node sends


class Connection:
    def __init__(
        self,
        services: Services,
        socket: WebSocket,
        principal: Principal,
        limits: GatewayLimits,
        register: Callable[["Connection"], None],
    ) -> None:
        self.id = new_connection_id()
        self.principal = ANONYMOUS
        self.client_id = ""
        self.socket = Socket(socket, services.revocation, is_anonymous=principal is ANONYMOUS)
        self._services = services
        self._upgrade = socket
        # From the cookie, link or header of the HTTP request, or ANONYMOUS.
        self._handshake_principal = principal
        self._limits = limits
        self._register = register
        self._deliveries = Deliveries(
            self.socket,
            open_log=self._open_log,
            format_event=lambda _, event: frames.event(event),
            format_end=self._format_end,
            max_count=MAX_SUBSCRIPTIONS,
        )
        self._node: NodeSide | None = None  # set in node mode only
        self._registration: NodeRegistration | None = None

    @property
    def is_connected(self) -> bool:
        return self.principal is not ANONYMOUS

    @property
    def client_key(self) -> tuple[str, str, str]:
        """Return what only one connection may have: two persons of a team may use the same client id."""
        return self.principal.account_id, self.principal.actor_id, self.client_id

    async def serve(self) -> None:
        """Serve until the client disconnects or the socket is closed."""
        try:
            async with self.socket:
                self.socket.expect_handshake(CONNECT_SECONDS, "Send `connect` first.")
                await self.socket.receive(self._handle_frame)
        finally:
            await self._clean_up()

    async def _clean_up(self) -> None:
        if self._registration is not None:
            await self._services.nodes.disconnect(self._registration)
        elif self.is_connected:
            await self._services.views.close_connection(self.principal, self.id)

    async def _handle_frame(self, text: str | None) -> None:
        """Handle `connect` and the requests of a node directly; start a task for any other request."""
        if text is None and self._node is not None:
            self._node.ignore("binary frame")
            return
        try:
            is_large = text is not None and len(text) > LARGE_FRAME_LENGTH
            request = await asyncio.to_thread(frames.parse, text) if is_large else frames.parse(text)
        except frames.BadFrame as bad:
            await self.socket.send(frames.error_response(bad.id, bad.problem))
            return
        try:
            if not self.is_connected:
                await self._connect(request)
            elif self._node is not None:
                await self._node.handle(request)
            else:
                self._start_request(request)
        except HostError as problem:
            await self.socket.send(frames.error_response(request.id, problem))
            if isinstance(problem, NotSignedIn):
                await self.socket.close(REFUSED, NOT_SIGNED_IN)

    # -- the handshake ---------------------------------------------------------------------------------------

    async def _connect(self, request: frames.Request) -> None:
        if request.method != "connect":
            raise NotConnected(method=request.method[:200])
        decoded = decode_params("connect", request.params, Connect)
        params: Connect = decoded.params
        warnings = [*request.warnings, *decoded.warnings]
        handshake.check_protocol(params)
        principal = await self._authenticate(params)
        handshake.check_mode(params, principal)
        if params.client.mode == handshake.NODE:
            await self._connect_node(request.id, params, principal, warnings)
        else:
            check_client_id(params.client.id, "client.id")
            self.principal, self.client_id = principal, params.client.id
            self._register(self)
            await self.socket.send(
                frames.response(request.id, with_warnings(handshake.hello(self.id), warnings))
            )
        self.socket.admit(principal)

    async def _authenticate(self, params: Connect) -> Principal:
        """Return the principal of the token in `params`, else of the HTTP request. Raises `NotSignedIn`."""
        principal = self._handshake_principal
        token = None if params.auth is None else params.auth.token
        address = self._upgrade.client.host if self._upgrade.client else ""
        if token is not None:
            principal = await self._services.credentials.authenticate(token, address) or ANONYMOUS
            if principal is not ANONYMOUS:
                check_account(self._upgrade, principal)
        # The user may have signed out after the HTTP request.
        if principal.sign_in_id is not None and not await self._services.revocation.is_valid(principal):
            principal = ANONYMOUS
        if principal is ANONYMOUS:
            if token is not None:
                details = {"path": "/ws", "by": "token", **({"address": address} if address else {})}
                self._services.audit.record_throttled(ANONYMOUS, "sign_in.failed", details=details)
            raise NotSignedIn
        return principal

    async def _connect_node(
        self, request_id: str, params: Connect, principal: Principal, warnings: list[str]
    ) -> None:
        """Register the node. The connection gets a node's rights, even if its token is a user's."""
        client = params.client
        registration = NodeRegistration(
            principal, client.id, params.tools, self.id, client.version, client.platform
        )
        side = NodeSide(self.socket)
        # Set before the call: if the call is cancelled, the node may be registered already, and `_clean_up`
        # must disconnect it.
        self._registration = registration
        try:
            side.node = await self._services.nodes.connect(registration, side)
        except HostError:
            self._registration = None
            raise
        self.principal = as_program(principal, PrincipalKind.NODE)
        self.client_id, self._node = client.id, side
        self.socket.ping(NODE_HEARTBEAT_SECONDS)
        limits = GatewayNodeLimits(self._limits.frame_bytes, self._limits.result_bytes)
        payload = with_warnings(handshake.hello_node(self.id, limits), warnings)
        await self.socket.send(frames.response(request_id, payload))
        self._services.nodes.activate(side.node)

    # -- requests --------------------------------------------------------------------------------------------

    def _start_request(self, request: frames.Request) -> None:
        if request.method == "connect":
            raise BadInput(problem="This connection is already connected.")
        if request.method in (handshake.RESULT, handshake.PROGRESS):
            raise NotInMode(method=request.method, mode=handshake.CLIENT)
        self._services.usage.count_request(self.principal)
        self.socket.start_request(request.id, lambda: self._answer(request))

    async def _answer(self, request: frames.Request) -> None:
        caller = Caller(self._services, self.principal, self.client_id, self.id, self._deliveries)
        on_answered = None
        try:
            payload = await dispatch(caller, request.method, request.params)
            response = frames.response(request.id, with_warnings(payload, request.warnings))
            on_answered = METHODS[request.method].on_answered
        except Exception as problem:  # noqa: BLE001 - logged by `to_host_error`
            error = self._to_host_error(problem, request.method)
            warn_in_error(error, request.warnings)
            response = frames.error_response(request.id, error)
        await self.socket.send(response)
        if on_answered is not None:
            on_answered(caller, request.params or {})

    # -- events of canvases ----------------------------------------------------------------------------------

    async def _open_log(self, canvas_id: str, after: int | None) -> Subscription:
        opened = await self._services.canvas_tails.open(self.principal, canvas_id, after, CANVAS)
        assert opened is not None  # the log of a canvas has no end
        return opened

    async def _format_end(self, canvas_id: str, problem: Exception | None) -> str:
        """Return the notice about the end of a delivery; unless the canvas is gone, the client may resume."""
        try:
            if problem is not None:
                raise problem
            await self._services.canvases.get(self.principal, canvas_id)
            reason = RESUME
        except NotFound:
            reason = DELETED
        except Exception as error:  # noqa: BLE001 - logged by `to_host_error`
            reason = self._to_host_error(error, frames.ENDED).code
        return frames.notice(frames.ENDED, frames.EndedSubscription(canvas_id, reason))

    def _to_host_error(self, problem: Exception, method: str) -> HostError:
        audit = self._services.audit
        return to_host_error(problem, audit, self.principal, "gateway.error", method=method[:200])
