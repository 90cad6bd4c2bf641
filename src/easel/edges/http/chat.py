"""The chat: a thread's narrative out, messages and cancels in. CC-03, RS-03

Out goes a tail of the thread, as on any stream; in comes one frame after the other, so messages keep their order. What
cannot be done is told in an `error` frame, and the connection stays.
"""

import asyncio
import contextlib
from typing import Any

import msgspec
import structlog
from starlette.websockets import WebSocket

from easel.core.principal import Scope
from easel.core.stream.filter import CHAT
from easel.core.stream.log import LoggedEvent, parse_cursor
from easel.edges.errors import CONNECTION, error_detail, refuse_duplicate_keys
from easel.edges.http.calls import shaped_query
from easel.edges.http.sockets import SocketCall
from easel.edges.http.sse import envelope_text
from easel.edges.http.wire import Watch
from easel.errors import BadInput, HostError, InternalError
from easel.host.streams import Subscription
from easel.ids import new_reference

RESTARTING = 1012  # the close code that tells a client to come back

log = structlog.get_logger("chat")


class Say(msgspec.Struct, tag="message"):
    text: str
    idempotency_key: str | None = None


class Cancel(msgspec.Struct, tag="cancel"):
    pass


_frame_in = msgspec.json.Decoder(Say | Cancel)


async def chat(call: SocketCall) -> None:
    asked: Watch = shaped_query(call.socket, Watch)
    view = CHAT.with_internal() if asked.debug == "1" and call.principal.has_scope(Scope.DEBUG) else CHAT
    cursor = parse_cursor(asked.last_event_id) if asked.last_event_id is not None else None
    viewer = await call.host.threads.open(call.principal, call.path["thread_id"], cursor, view)
    if viewer is None:  # a thread never ends
        return
    try:
        await call.socket.accept()
        await _talk(call, viewer)
    finally:
        viewer.close()


async def _talk(call: SocketCall, viewer: Subscription) -> None:
    hearing = asyncio.create_task(_on_notification(call, viewer))
    connection = call.socket.scope["extensions"][CONNECTION]
    try:
        while (events := await viewer.next()) is not None:
            await _send(call.socket, viewer, events)
        if not hearing.done():
            with viewer.sending():
                await call.socket.close(RESTARTING)
    except asyncio.CancelledError:
        if not viewer.is_cut:
            raise
        connection["abort"]()  # its reader takes nothing: a polite close would wait for it
    finally:
        hearing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await hearing


async def _send(socket: WebSocket, viewer: Subscription, events: list[LoggedEvent]) -> None:
    for event in events:
        with viewer.sending():
            await socket.send({"type": "websocket.send", "text": envelope_text(event)})


async def _on_notification(call: SocketCall, viewer: Subscription) -> None:
    """Until the other side is gone; then the viewer ends too."""
    try:
        while (message := await call.socket.receive())["type"] == "websocket.receive":
            try:
                await _do(call, message)
            except HostError as problem:
                await _tell(call.socket, viewer, problem)
            except Exception as problem:
                reference = new_reference()
                log.exception("chat.error", reference=reference)
                call.host.audit.record_exception(call.principal, "chat.error", problem, reference=reference)
                await _tell(call.socket, viewer, InternalError(reference=reference))
    finally:
        viewer.end()


async def _do(call: SocketCall, message: Any) -> None:
    text = message.get("text")
    if text is None:
        raise BadInput(problem="Frames of the chat are JSON text.")
    try:
        asked = _frame_in.decode(text)
        refuse_duplicate_keys(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise BadInput(
            problem=f'The frame does not fit ({problem}); send {{"type":"message","text":"…"}} or {{"type":"cancel"}}.'
        ) from None
    thread_id = call.path["thread_id"]
    if isinstance(asked, Say):
        await call.host.queue.start(call.principal, thread_id, asked.text, asked.idempotency_key)
    else:
        await call.host.sessions.stop(call.principal, thread_id)


async def _tell(socket: WebSocket, viewer: Subscription, problem: HostError) -> None:
    frame = {"type": "error", "error": error_detail(problem)}
    with viewer.sending():
        await socket.send(
            {"type": "websocket.send", "text": msgspec.json.encode(frame, enc_hook=str).decode()}
        )
