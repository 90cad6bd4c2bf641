"""The chat of a session over a WebSocket. CC-03, RS-03

The server sends the events of the thread, the client sends messages and cancels runs. Incoming frames are
handled one after the other, so messages keep their order. A refused frame is answered with an `error` frame,
one with unknown members with a `warnings` frame, and the connection stays open.
"""

import asyncio
import contextlib
from typing import Any

import msgspec
import structlog
from starlette.websockets import WebSocket

from easel.core.stream.filter import CHAT
from easel.core.stream.json_text import refuse_duplicate_keys
from easel.edges.decoding import decode_json, warn_in_error
from easel.edges.errors import CONNECTION, error_detail
from easel.edges.http.calls import decode_query
from easel.edges.http.chat_frames import (
    ChatError,
    ChatNotice,
    ChatPong,
    ChatRequest,
    ChatWarnings,
    NewChatMessage,
    Ping,
)
from easel.edges.http.sockets import SocketCall
from easel.edges.http.sse import envelope_text
from easel.edges.http.streams import subscribe
from easel.edges.http.wire import StreamQuery
from easel.errors import BadInput, HostError, InternalError
from easel.host.streams import Subscription
from easel.ids import new_reference

RESTARTING = 1012  # the close code that asks a client to reconnect

log = structlog.get_logger("chat")


class ChatQuery(StreamQuery):
    token: str | None = None  # read by the sign-in


async def chat(call: SocketCall) -> None:
    query, warnings = decode_query(call.socket, ChatQuery)
    thread_id = call.path["thread_id"]
    subscription = await subscribe(call.host.threads, call.principal, thread_id, CHAT, query)
    if subscription is None:  # does not happen: the log of a thread has no end
        return
    try:
        await call.socket.accept()
        await _send_warnings(call.socket, subscription, warnings)
        await _serve(call, subscription)
    finally:
        subscription.close()


async def _serve(call: SocketCall, subscription: Subscription) -> None:
    receiving = asyncio.create_task(_receive_frames(call, subscription))
    connection = call.socket.scope["extensions"][CONNECTION]
    try:
        while (events := await subscription.next()) is not None:
            for event in events:
                with subscription.sending():
                    await call.socket.send({"type": "websocket.send", "text": envelope_text(event)})
        if not receiving.done():
            with subscription.sending():
                await call.socket.close(RESTARTING)
    except asyncio.CancelledError:
        if not subscription.is_cut:
            raise
        connection["abort"]()  # the reader is too slow: a plain close would wait for it
    finally:
        receiving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await receiving


async def _receive_frames(call: SocketCall, subscription: Subscription) -> None:
    """Handle incoming frames until the client disconnects, then end the subscription."""
    try:
        while (message := await call.socket.receive())["type"] == "websocket.receive":
            try:
                await _send_warnings(call.socket, subscription, await _handle(call, subscription, message))
            except HostError as problem:
                await _send_error(call.socket, subscription, problem)
            except Exception as problem:
                reference = new_reference()
                log.exception("chat.error", reference=reference)
                call.host.audit.record_exception(call.principal, "chat.error", problem, reference=reference)
                await _send_error(call.socket, subscription, InternalError(reference=reference))
    finally:
        subscription.end()


async def _handle(call: SocketCall, subscription: Subscription, message: Any) -> list[str]:
    """Handle a frame. Returns warnings about its unknown members."""
    text = message.get("text")
    if text is None:
        raise BadInput(problem="A frame of the chat must be JSON text.")
    try:
        frame, warnings = decode_json(text, ChatRequest)
        refuse_duplicate_keys(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise BadInput(
            problem=f"The frame is invalid ({problem}); "
            'send {"type":"message","text":"…"}, {"type":"cancel"} or {"type":"ping"}.'
        ) from None
    thread_id = call.path["thread_id"]
    try:
        if isinstance(frame, NewChatMessage):
            await call.host.queue.start(call.principal, thread_id, frame.text, frame.idempotency_key)
        elif isinstance(frame, Ping):
            await _send_frame(call.socket, subscription, ChatPong())
        else:
            await call.host.sessions.stop(call.principal, thread_id)
    except HostError as problem:
        warn_in_error(problem, warnings)
        raise
    return warnings


async def _send_error(socket: WebSocket, subscription: Subscription, problem: HostError) -> None:
    await _send_frame(socket, subscription, ChatError(error_detail(problem)))


async def _send_warnings(socket: WebSocket, subscription: Subscription, warnings: list[str]) -> None:
    if warnings:
        await _send_frame(socket, subscription, ChatWarnings(warnings))


async def _send_frame(socket: WebSocket, subscription: Subscription, frame: ChatNotice) -> None:
    with subscription.sending():
        await socket.send(
            {"type": "websocket.send", "text": msgspec.json.encode(frame, enc_hook=str).decode()}
        )
