"""One connection to the gateway: it says who it is, asks, is answered, and hears of the canvases that it subscribes to.

Each request is a task of its own, so a slow one holds up no other; all of them end with the connection. Nothing is queued for a
reader: whoever sends waits until it has taken what went before, and a reader that takes nothing is cut.
"""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import structlog
from msgspec import Meta, Struct
from starlette.websockets import WebSocket, WebSocketDisconnect

from easel.core.principal import NOBODY, Principal, PrincipalKind
from easel.core.stream.filter import CANVAS
from easel.core.stream.log import LAST_CURSOR
from easel.edges.errors import CONNECTION
from easel.edges.gateway import frames
from easel.edges.gateway.hello import (
    CLIENT,
    ENDED,
    NODE,
    PROGRESS,
    RESULT,
    Connect,
    check_client,
    check_mode,
    check_protocol,
    hello,
    hello_node,
)
from easel.edges.gateway.node_side import NodeSide
from easel.edges.methods import Caller, called, fitted
from easel.errors import (
    BadInput,
    HostError,
    InternalError,
    NotConnected,
    NotFound,
    NotInMode,
    NotSignedIn,
    TooMany,
)
from easel.host.metrics import STALLED
from easel.host.nodes.registry import NodeRegistration
from easel.host.services import Services
from easel.host.streams import Subscription
from easel.ids import new_connection_id, new_reference

if TYPE_CHECKING:
    from collections.abc import Callable

REFUSED = 1008
DONE = 1000
REPLACED = "Replaced by a newer connection"
CLOSE_SECONDS = 1.0  # how long a goodbye may take to be said

log = structlog.get_logger("gateway")


class Subscribe(Struct, forbid_unknown_fields=True):
    canvasId: str  # noqa: N815 - the protocol's own words
    afterSeq: Annotated[int, Meta(ge=0, le=LAST_CURSOR)] | None = None  # noqa: N815


class Unsubscribe(Struct, forbid_unknown_fields=True):
    canvasId: str  # noqa: N815


class Limits(Protocol):
    @property
    def requests(self) -> int: ...
    @property
    def subscriptions(self) -> int: ...
    @property
    def connect_seconds(self) -> float: ...
    @property
    def stall_seconds(self) -> float: ...
    @property
    def node_heartbeat_seconds(self) -> float: ...
    @property
    def frame_bytes(self) -> int: ...
    @property
    def result_bytes(self) -> int: ...


class Registry(Protocol):
    """Who else is connected here."""

    def enter(self, connection: "Connection") -> None: ...


class Connection:
    def __init__(
        self, host: Services, socket: WebSocket, principal: Principal, limits: Limits, registry: Registry
    ) -> None:
        self.id = new_connection_id()
        self.principal = NOBODY
        self.client_id = ""
        self._host = host
        self._socket = socket
        self._at_the_door = principal  # by cookie, link or header; NOBODY if by none of them
        self._limits = limits
        self._registry = registry
        self._requests: dict[str, asyncio.Task[None]] = {}
        self._subscriptions: dict[str, asyncio.Task[None]] = {}
        self._sending = asyncio.Lock()
        self._over = asyncio.Event()
        self._node: NodeSide | None = None  # in node mode
        self._arrival: NodeRegistration | None = None
        self._stop_watching: Callable[[], None] | None = None
        self._goodbye: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        return self.principal is not NOBODY

    async def serve(self) -> None:
        """Until the other side is gone, or `close` was called."""
        await self._socket.accept()
        hearing = asyncio.create_task(self._on_notification())
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait({hearing, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._over.set()
            tasks: list[asyncio.Task[Any]] = [
                hearing,
                over,
                *self._requests.values(),
                *self._subscriptions.values(),
            ]
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            await self._leave()
        if isinstance(ends[0], Exception):
            raise ends[0]

    async def _leave(self) -> None:
        if self._stop_watching is not None:
            self._stop_watching()
        if self._goodbye is not None:
            await self._goodbye
        if self._node is not None:
            await self._node.close()
        if self._arrival is not None:
            await self._host.nodes.leave(self._arrival)
        elif self.is_connected:
            await self._host.views.leave(self.principal, self.id)

    async def close(self, code: int, reason: str) -> None:
        """A goodbye, if its reader takes it soon; nothing is said after it."""
        if self._over.is_set():
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS), self._sending:
                if not self._over.is_set():
                    await self._socket.close(code, reason)
        except TimeoutError:
            self._abort()
        except (WebSocketDisconnect, RuntimeError):
            log.debug("gateway.gone", connection_id=self.id)  # the other side was faster
        self._over.set()

    # -- hearing ---------------------------------------------------------------------------------------------------

    async def _on_notification(self) -> None:
        try:
            async with asyncio.timeout(self._limits.connect_seconds) as deadline:
                while (message := await self._socket.receive())["type"] == "websocket.receive":
                    await self._take(message.get("text"))
                    if self.is_connected:
                        deadline.reschedule(None)
        except TimeoutError:
            await self.close(REFUSED, "Send `connect` first.")

    async def _take(self, text: str | None) -> None:
        """What cannot be done is answered here and now; so a client that asks too much waits for its refusals."""
        try:
            asked = frames.read(text)
        except frames.BadFrame as bad:
            await self._send(frames.refusal(bad.id, bad.problem))
            return
        try:
            if not self.is_connected:
                await self._connect(asked)
                return
            if self._node is not None:
                await self._node.take(asked)
                return
            self._check_room(asked)
        except HostError as problem:
            await self._send(frames.refusal(asked.id, problem))
            if isinstance(problem, NotSignedIn):
                await self.close(REFUSED, "Not signed in.")
            return
        task = asyncio.create_task(self._do(asked))
        self._requests[asked.id] = task
        task.add_done_callback(lambda _: self._requests.pop(asked.id, None))

    def _check_room(self, asked: frames.Request) -> None:
        if asked.method == "connect":
            raise BadInput(problem="This connection is connected already.")
        if asked.method in (RESULT, PROGRESS):
            raise NotInMode(method=asked.method, mode=CLIENT)
        if asked.id in self._requests:
            raise BadInput(problem=f"id: a request {asked.id!r} is still under way.")
        if len(self._requests) >= self._limits.requests:
            raise TooMany(what="requests of one connection", limit=self._limits.requests)

    async def _connect(self, asked: frames.Request) -> None:
        if asked.method != "connect":
            raise NotConnected(method=asked.method[:200])
        wanted: Connect = fitted("connect", asked.params, Connect)
        check_protocol(wanted)
        principal = (
            self._at_the_door
            if wanted.auth is None
            else await self._host.sign_in.by_token(wanted.auth.token) or NOBODY
        )
        if principal.sign_in_id is not None and await self._host.sign_in.is_signed_out(principal.sign_in_id):
            principal = NOBODY  # since they came to the door
        if principal is NOBODY:
            if wanted.auth is not None:
                address = {"address": self._socket.client.host} if self._socket.client else {}
                self._host.audit.record_throttled(
                    NOBODY, "sign_in.failed", details={"path": "/ws", "by": "token", **address}
                )
            raise NotSignedIn
        check_mode(wanted, principal)
        if wanted.client.mode == NODE:
            await self._connect_node(asked.id, wanted, principal)
        else:
            check_client(wanted.client)
            self.principal, self.client_id = principal, wanted.client.id
            self._registry.enter(self)
            await self._send(frames.answer(asked.id, hello(self.id)))
        self._stop_watching = self._host.sign_in.watch(principal, self._sign_out)

    async def _connect_node(self, id_: str, wanted: Connect, principal: Principal) -> None:
        """Whoever connects as a node is one and nothing more, whatever their token could do elsewhere."""
        limits, client = self._limits, wanted.client
        arrival = NodeRegistration(
            principal, client.id, wanted.tools, self.id, client.version, client.platform
        )
        side = NodeSide(self._send, lambda: self.close(DONE, REPLACED))
        self._arrival = arrival  # from here on it may be known to others, so it has to leave
        try:
            side.node = await self._host.nodes.enter(arrival, side)
        except HostError:
            self._arrival = None
            raise
        self.principal, self.client_id, self._node = (
            replace(principal, kind=PrincipalKind.NODE, scopes=frozenset()),
            client.id,
            side,
        )
        self._socket.scope["extensions"][CONNECTION]["watch"](limits.node_heartbeat_seconds)
        await self._send(
            frames.answer(
                id_,
                hello_node(self.id, {"frameBytes": limits.frame_bytes, "resultBytes": limits.result_bytes}),
            )
        )
        self._host.nodes.open(side.node)

    def _sign_out(self) -> None:
        """The token that it came with was revoked, or its browser was signed out."""
        self._goodbye = asyncio.create_task(self.close(REFUSED, "Signed out."))

    # -- doing -----------------------------------------------------------------------------------------------------

    async def _do(self, asked: frames.Request) -> None:
        try:
            match asked.method:
                case "canvas.subscribe":
                    await self._subscribe(asked)
                    return
                case "canvas.unsubscribe":
                    payload = await self._unsubscribe(fitted(asked.method, asked.params, Unsubscribe))
                case _:
                    payload = await called(
                        Caller(self._host, self.principal, self.client_id, self.id),
                        asked.method,
                        asked.params,
                    )
            told = frames.answer(asked.id, payload)
        except HostError as problem:
            told = frames.refusal(asked.id, problem)
        except Exception as problem:  # noqa: BLE001 - logged by `_broke`, and told by its reference
            told = frames.refusal(asked.id, self._broke(asked.method, problem))
        await self._send(told)

    def _broke(self, method: str, problem: Exception) -> InternalError:
        """What is told of it; the rest is for operators."""
        reference = new_reference()
        log.error("gateway.error", method=method, reference=reference, exc_info=problem)
        self._host.audit.record_exception(
            self.principal, "gateway.error", problem, reference=reference, details={"method": method[:200]}
        )
        return InternalError(reference=reference)

    async def _subscribe(self, asked: frames.Request) -> None:
        wanted: Subscribe = fitted(asked.method, asked.params, Subscribe)
        if wanted.canvasId in self._subscriptions:
            raise BadInput(problem=f"This connection is subscribed to {wanted.canvasId} already.")
        if len(self._subscriptions) >= self._limits.subscriptions:
            raise TooMany(what="subscriptions of one connection", limit=self._limits.subscriptions)
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A task of its own, since it goes on when the request is answered. It answers, so that no event comes before.
        task = asyncio.create_task(self._follow(asked.id, wanted, opened))
        self._subscriptions[wanted.canvasId] = task
        task.add_done_callback(lambda done: self._forget(wanted.canvasId, done))
        await opened

    def _forget(self, canvas_id: str, task: asyncio.Task[None]) -> None:
        if self._subscriptions.get(canvas_id) is task:
            del self._subscriptions[canvas_id]

    async def _follow(self, id_: str, wanted: Subscribe, opened: asyncio.Future[None]) -> None:
        try:
            viewer = await self._host.canvas_tails.open(
                self.principal, wanted.canvasId, wanted.afterSeq, CANVAS
            )
        except BaseException as problem:
            self._subscriptions.pop(wanted.canvasId, None)
            if not opened.done():
                opened.set_exception(problem) if isinstance(problem, Exception) else opened.cancel()
            if not isinstance(problem, Exception):
                raise
            return
        assert viewer is not None  # a canvas's log never ends
        try:
            await self._send(frames.answer(id_, {"canvasId": wanted.canvasId, "subscribed": True}))
            opened.set_result(None)
            await self._pass_on(viewer)
            reason = await self._why_ended(wanted.canvasId)
        except HostError as problem:  # the store went away: the client resumes by its last seq
            reason = problem.code
        except Exception as problem:  # noqa: BLE001 - logged by `_broke`, and told by its reference
            reason = self._broke("canvas.subscribe", problem).code
        finally:
            viewer.close()
            if not opened.done():
                opened.cancel()
        self._forget_mine(wanted.canvasId)
        await self._send(frames.notice(ENDED, {"canvasId": wanted.canvasId, "reason": reason}))

    def _forget_mine(self, canvas_id: str) -> None:
        """Before it is told: whoever hears it may subscribe anew at once."""
        if (mine := asyncio.current_task()) is not None:
            self._forget(canvas_id, mine)

    async def _pass_on(self, viewer: Subscription) -> None:
        while (events := await viewer.next()) is not None:
            for event in events:
                await self._send(frames.event(event))

    async def _why_ended(self, canvas_id: str) -> str:
        try:
            await self._host.canvases.get(self.principal, canvas_id)
        except NotFound:
            return "DELETED"
        return "RESUME"

    async def _unsubscribe(self, asked: Unsubscribe) -> dict[str, Any]:
        task = self._subscriptions.pop(asked.canvasId, None)
        if task is None:
            raise NotFound(what="subscription to", id=asked.canvasId[:200])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return {"canvasId": asked.canvasId, "subscribed": False}

    # -- telling ---------------------------------------------------------------------------------------------------

    async def _send(self, text: str) -> None:
        async with self._sending:
            if self._over.is_set():
                return
            message = {"type": "websocket.send", "text": text}
            try:
                if not self._socket.scope["extensions"][CONNECTION]["unsent"]():
                    await self._socket.send(
                        message
                    )  # its reader has taken all that went before, so there is nothing to wait for
                    return
                async with asyncio.timeout(self._limits.stall_seconds):
                    await self._socket.send(message)
            except TimeoutError:
                STALLED.inc()
                log.info("stream.stalled", connection_id=self.id)
                self._abort()
            except WebSocketDisconnect:
                self._over.set()

    def _abort(self) -> None:
        """Its reader takes nothing: a polite close would wait for it."""
        self._over.set()
        self._socket.scope["extensions"][CONNECTION]["abort"]()
