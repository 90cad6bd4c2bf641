"""One connection to the gateway: its handshake, its requests, its subscriptions and its end.

Each request runs in its own task, so that a slow request delays no other; these tasks are cancelled when the
connection ends. Frames for the client are not queued: sending waits until the client has read earlier frames,
and a client that does not read is disconnected.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

from easel.core.principal import ANONYMOUS, Principal, PrincipalKind, as_program
from easel.edges.caller import Caller
from easel.edges.decoding import Decoded, warn_in_error, with_warnings
from easel.edges.errors import CONNECTION
from easel.edges.gateway import frames
from easel.edges.gateway.hello import (
    CLIENT,
    NODE,
    PROGRESS,
    RESULT,
    check_mode,
    check_protocol,
    hello,
    hello_node,
)
from easel.edges.gateway.node_side import NodeSide
from easel.edges.gateway.subscriptions import Subscriptions
from easel.edges.methods import CONNECTION_METHODS, accept, decode_params, dispatch
from easel.edges.params import Connect, check_client_id
from easel.edges.results import GatewayNodeLimits, OpenedCanvas
from easel.errors import (
    BadInput,
    HostError,
    InternalError,
    NotConnected,
    NotInMode,
    NotSignedIn,
    TooMany,
)
from easel.host.metrics import STALLED
from easel.host.nodes.registry import NodeRegistration
from easel.host.services import Services
from easel.ids import new_connection_id, new_reference

REFUSED = 1008
DONE = 1000
REPLACED = "Replaced by a newer connection"
CLOSE_SECONDS = 1.0  # time in which the close frame must be sent
CONNECT_SECONDS = 10.0  # time in which `connect` must arrive: a client sends it at once
MAX_REQUESTS = 256  # at once; clients of GSV send as many
MAX_SUBSCRIPTIONS = 200  # more canvases than a person has open
NODE_HEARTBEAT_SECONDS = 5.0  # interval of pings to a node, and the time in which a pong must arrive
# Before `connect`, if the upgrade request had no valid token: enough for a node that offers many tools.
MAX_ANONYMOUS_FRAMES = 3
MAX_ANONYMOUS_BYTES = 65_536
# The close reason; the protocol allows 123 bytes.
TOO_MUCH = (
    f"Before connect: {MAX_ANONYMOUS_FRAMES} frames, {MAX_ANONYMOUS_BYTES} bytes; "
    "more with Authorization: Bearer in the upgrade request."
)
LARGE_FRAME_LENGTH = 65_536  # longer frames are parsed in a thread

log = structlog.get_logger("gateway")


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """The limits of the gateway that are settings."""

    connections: int  # per instance
    stall_seconds: float  # a client that reads nothing for this long is disconnected
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
        self._services = services
        self._socket = socket
        # From the cookie, link or header of the HTTP request, or ANONYMOUS.
        self._handshake_principal = principal
        self._limits = limits
        self._register = register
        self._requests: dict[str, asyncio.Task[None]] = {}
        self._opening: set[asyncio.Task[None]] = set()  # the requests `canvas.open`
        self._subscriptions = Subscriptions(services, self._send, self._report_error, MAX_SUBSCRIPTIONS)
        self._sending = asyncio.Lock()
        self._closed = asyncio.Event()
        self._node: NodeSide | None = None  # set in node mode only
        self._registration: NodeRegistration | None = None
        self._stop_watching_sign_in: Callable[[], None] | None = None
        self._signing_out: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        return self.principal is not ANONYMOUS

    @property
    def client_key(self) -> tuple[str, str]:
        return self.principal.account_id, self.client_id

    async def serve(self) -> None:
        """Serve until the client disconnects or `close` is called."""
        if self._is_limited:
            self._limit_frames(MAX_ANONYMOUS_BYTES, TOO_MUCH)
        await self._socket.accept()
        receiving = asyncio.create_task(self._receive())
        closed = asyncio.create_task(self._closed.wait())
        try:
            await asyncio.wait({receiving, closed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._closed.set()
            tasks: list[asyncio.Task[Any]] = [
                receiving,
                closed,
                *self._requests.values(),
                *self._subscriptions.tasks,
            ]
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            await self._clean_up()
        if isinstance(results[0], Exception):
            raise results[0]

    async def _clean_up(self) -> None:
        if self._stop_watching_sign_in is not None:
            self._stop_watching_sign_in()
        if self._signing_out is not None:
            await self._signing_out
        if self._node is not None:
            await self._node.close()
        if self._registration is not None:
            await self._services.nodes.disconnect(self._registration)
        elif self.is_connected:
            await self._services.views.close_connection(self.principal, self.id)

    async def close(self, code: int, reason: str) -> None:
        """Send a close frame, or abort if the client does not read it in time. Nothing is sent afterwards."""
        if self._closed.is_set():
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS), self._sending:
                if not self._closed.is_set():
                    await self._socket.close(code, reason)
        except TimeoutError:
            self._abort()
        except (WebSocketDisconnect, RuntimeError):
            log.debug("gateway.client_disconnected", connection_id=self.id)
        self._closed.set()

    # -- receiving -------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS) as deadline:
                await self._receive_connect()
                deadline.reschedule(None)
                while self.is_connected:
                    message = await self._socket.receive()
                    if message["type"] != "websocket.receive":
                        return
                    await self._handle_frame(message.get("text"))
        except TimeoutError:
            await self.close(REFUSED, "Send `connect` first.")

    async def _receive_connect(self) -> None:
        """Handle frames until the client has connected or is gone.

        Without a token in the upgrade request, only a few small frames are parsed: anybody can send them.
        """
        frame_count, byte_count = 0, 0
        while not self.is_connected:
            message = await self._socket.receive()
            if message["type"] != "websocket.receive":
                return
            text = message.get("text")
            frame_count, byte_count = frame_count + 1, byte_count + len((text or "").encode())
            is_over = frame_count > MAX_ANONYMOUS_FRAMES or byte_count > MAX_ANONYMOUS_BYTES
            if self._is_limited and is_over:
                await self.close(REFUSED, TOO_MUCH)
                return
            await self._handle_frame(text)
        self._limit_frames(None)

    @property
    def _is_limited(self) -> bool:
        return self._handshake_principal is ANONYMOUS

    def _limit_frames(self, max_bytes: int | None, reason: str = "") -> None:
        self._socket.scope["extensions"][CONNECTION]["limit_frames"](max_bytes, reason)

    async def _handle_frame(self, text: str | None) -> None:
        """Handle `connect` and the requests of a node directly; start a task for any other request."""
        if text is None and self._node is not None:
            self._node.ignore("binary frame")
            return
        try:
            is_large = text is not None and len(text) > LARGE_FRAME_LENGTH
            request = await asyncio.to_thread(frames.parse, text) if is_large else frames.parse(text)
        except frames.BadFrame as bad:
            await self._send(frames.error_response(bad.id, bad.problem))
            return
        try:
            if not self.is_connected:
                await self._connect(request)
                return
            if self._node is not None:
                await self._node.handle(request)
                return
            self._check_request(request)
        except HostError as problem:
            await self._send(frames.error_response(request.id, problem))
            if isinstance(problem, NotSignedIn):
                await self.close(REFUSED, "Not signed in.")
            return
        task = asyncio.create_task(self._handle_request(request))
        self._requests[request.id] = task
        task.add_done_callback(lambda _: self._requests.pop(request.id, None))
        if request.method == "canvas.open":
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def _check_request(self, request: frames.Request) -> None:
        if request.method == "connect":
            raise BadInput(problem="This connection is already connected.")
        if request.method in (RESULT, PROGRESS):
            raise NotInMode(method=request.method, mode=CLIENT)
        if request.id in self._requests:
            raise BadInput(problem=f"id must be unique: request {request.id!r} is still running.")
        if len(self._requests) >= MAX_REQUESTS:
            raise TooMany(what="requests of one connection", limit=MAX_REQUESTS)

    # -- the handshake ---------------------------------------------------------------------------------------

    async def _connect(self, request: frames.Request) -> None:
        if request.method != "connect":
            raise NotConnected(method=request.method[:200])
        decoded = decode_params("connect", request.params, Connect)
        params: Connect = decoded.params
        warnings = [*request.warnings, *decoded.warnings]
        check_protocol(params)
        principal = await self._authenticate(params)
        check_mode(params, principal)
        if params.client.mode == NODE:
            await self._connect_node(request.id, params, principal, warnings)
        else:
            check_client_id(params.client.id, "client.id")
            self.principal, self.client_id = principal, params.client.id
            self._register(self)
            await self._send(frames.response(request.id, with_warnings(hello(self.id), warnings)))
        self._stop_watching_sign_in = self._services.revocation.watch(principal, self._sign_out)

    async def _authenticate(self, params: Connect) -> Principal:
        """Return the principal of the token in `params`, else of the HTTP request. Raises `NotSignedIn`."""
        principal = self._handshake_principal
        token = None if params.auth is None else params.auth.token
        if token is not None:
            address = self._socket.client.host if self._socket.client else ""
            principal = await self._services.credentials.authenticate(token, address) or ANONYMOUS
        # The user may have signed out after the HTTP request.
        if await self._services.revocation.is_signed_out(principal):
            principal = ANONYMOUS
        if principal is ANONYMOUS:
            if token is not None:
                address = {"address": self._socket.client.host} if self._socket.client else {}
                details = {"path": "/ws", "by": "token", **address}
                self._services.audit.record_throttled(ANONYMOUS, "sign_in.failed", details=details)
            raise NotSignedIn
        return principal

    async def _connect_node(
        self, request_id: str, params: Connect, principal: Principal, warnings: list[str]
    ) -> None:
        """Register the node. The connection gets a node's rights, even if its token is a user's."""
        limits, client = self._limits, params.client
        registration = NodeRegistration(
            principal, client.id, params.tools, self.id, client.version, client.platform
        )
        side = NodeSide(self._send, lambda: self.close(DONE, REPLACED))
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
        self._socket.scope["extensions"][CONNECTION]["watch"](NODE_HEARTBEAT_SECONDS)
        node_limits = GatewayNodeLimits(limits.frame_bytes, limits.result_bytes)
        payload = with_warnings(hello_node(self.id, node_limits), warnings)
        await self._send(frames.response(request_id, payload))
        self._services.nodes.activate(side.node)

    def _sign_out(self) -> None:
        """Close the connection because its token was revoked or its browser was signed out."""
        self._signing_out = asyncio.create_task(self.close(REFUSED, "Signed out."))

    # -- requests --------------------------------------------------------------------------------------------

    async def _handle_request(self, request: frames.Request) -> None:
        warnings = request.warnings
        opened_id: str | None = None  # of the canvas of an opened view
        payload: Any
        try:
            match request.method:
                case "canvas.subscribe":
                    subscribe, ignored = self._accept(request)
                    warnings = [*warnings, *ignored]
                    await self._subscriptions.add(self.principal, request.id, subscribe, warnings)
                    return
                case "canvas.unsubscribe":
                    unsubscribe, ignored = self._accept(request)
                    warnings = [*warnings, *ignored]
                    payload = await self._subscriptions.remove(self.principal, unsubscribe)
                case _:
                    caller = Caller(self._services, self.principal, self.client_id, self.id)
                    payload = await dispatch(caller, request.method, request.params)
            if request.method == "canvas.open":
                self._add_view(payload)
                opened_id = payload.canvasId
            elif request.method == "canvas.close":
                if self._opening:  # a closed view may be of a request that is not answered yet
                    await asyncio.wait(self._opening)
                await self._subscriptions.remove_views(payload.canvasId, payload.closed)
            response = frames.response(request.id, with_warnings(payload, warnings))
        except HostError as problem:
            warn_in_error(problem, warnings)
            response = frames.error_response(request.id, problem)
        except Exception as problem:  # noqa: BLE001 - logged by `_report_error`
            response = frames.error_response(request.id, self._report_error(request.method, problem))
        await self._send(response)
        if opened_id is not None:
            self._subscriptions.start_view(self.principal, opened_id)

    def _accept(self, request: frames.Request) -> Decoded:
        method = CONNECTION_METHODS[request.method]
        return accept(self._services, self.principal, request.method, method, request.params)

    def _add_view(self, opened: OpenedCanvas) -> None:
        """Prepare the delivery of events to an opened view; `opened` is the payload of the response. RS-67"""
        if not self._subscriptions.add_view(opened.canvasId, opened.viewId, opened.lastSeq):
            problem = f"this connection gets events of {MAX_SUBSCRIPTIONS} canvases and none of this one."
            with_warnings(opened, [problem])

    def _report_error(self, method: str, problem: Exception) -> InternalError:
        """Log and audit an unexpected error. Returns the error for the client, with its reference."""
        reference = new_reference()
        log.error("gateway.error", method=method, reference=reference, exc_info=problem)
        self._services.audit.record_exception(
            self.principal, "gateway.error", problem, reference=reference, details={"method": method[:200]}
        )
        return InternalError(reference=reference)

    # -- sending ---------------------------------------------------------------------------------------------

    async def _send(self, text: str) -> None:
        async with self._sending:
            if self._closed.is_set():
                return
            message = {"type": "websocket.send", "text": text}
            try:
                if not self._socket.scope["extensions"][CONNECTION]["unsent"]():
                    # The client has read all earlier frames, so this send cannot block.
                    await self._socket.send(message)
                    return
                async with asyncio.timeout(self._limits.stall_seconds):
                    await self._socket.send(message)
            except TimeoutError:
                STALLED.inc()
                log.info("stream.stalled", connection_id=self.id)
                self._abort()
            except WebSocketDisconnect:
                self._closed.set()

    def _abort(self) -> None:
        """Drop the connection without a close frame, which a stalled client would never read."""
        self._closed.set()
        self._socket.scope["extensions"][CONNECTION]["abort"]()
